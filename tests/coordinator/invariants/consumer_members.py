"""next-generation.md 10.9, as members see it: heartbeats, their answers, and commits.

These checkers read only requests and outputs. A member *uses* a partition from the answer that gives it until a
heartbeat that says the member no longer owns it, or until the member is gone.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.base.errors import ErrorCode
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.events import GroupConverted, MemberAway, MemberBack, MemberFenced, MemberJoined
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.outputs import Output
from coordinator.messages.requests import OffsetCommit, TxnOffsetCommit
from coordinator.messages.responses import (
    ConsumerGroupHeartbeatAnswer,
    JoinGroupAnswer,
    OffsetCommitAnswer,
    Reply,
    TxnOffsetCommitAnswer,
)
from tests.coordinator.invariants.step import GONE, NONE, KnownRequests, Step, forgotten

ILLEGAL = ErrorCode.ILLEGAL_GENERATION.number
UNKNOWN, FENCED_EPOCH = ErrorCode.UNKNOWN_MEMBER_ID.number, ErrorCode.FENCED_MEMBER_EPOCH.number
STALE_EPOCH = ErrorCode.STALE_MEMBER_EPOCH.number
MEMBER_EPOCHS_FROM = 9
"""The first version of OffsetCommit that has member epochs."""

AnyCommit = OffsetCommit | TxnOffsetCommit
AnyCommitAnswer = OffsetCommitAnswer | TxnOffsetCommitAnswer

Place = tuple[str, int]
"""A partition: topic id and number."""


@dataclass
class Held:
    """What a member of the consumer protocol was told.

    Args:
        epoch: Its member epoch.
        uses: The partitions that it may use, each with the epoch at which they were first given.
        told: Its latest assignment.
        given: The epoch from which each partition of it was in all assignments, whatever was said in the member's name.
        names: The names of the topics, by id. A topic has several only if the facts are wrong.
    """

    epoch: int = 0
    uses: dict[Place, int] = field(default_factory=dict)
    told: frozenset[Place] = frozenset()
    given: dict[Place, int] = field(default_factory=dict)
    names: dict[str, frozenset[str]] = field(default_factory=dict)


class Heard(NamedTuple):
    """An answer to a heartbeat.

    Args:
        before: The member's data before it; None for a new member, and for one of the classic protocol.
        was_classic: The sender was a member of the classic protocol.
    """

    request: ConsumerGroupHeartbeat
    answer: ConsumerGroupHeartbeatAnswer
    members: dict[str, Held]
    before: Held | None
    was_classic: bool


class Members:
    """The members of the consumer protocol by what they were told, by group. It lasts one life of the group."""

    def __init__(self, asked: KnownRequests) -> None:
        self.asked = asked
        self.groups: dict[str, dict[str, Held]] = {}
        self._new: set[tuple[str, str]] = set()
        """Members that are new with their first heartbeat; every other one may have had its partitions before."""
        self.classic: defaultdict[str, set[str]] = defaultdict(set)
        """The members of the classic protocol, by group."""

    def heard(self, step: Step) -> Iterator[Heard | tuple[AnyCommit, AnyCommitAnswer, dict[str, Held]]]:
        """Follow the outputs of a step, and yield the answers to heartbeats and to commits in consumer groups."""
        self.asked.note(step)
        for output in step.news:
            if not isinstance(output, Reply):
                self._note(output)
            elif isinstance(output.answer, ConsumerGroupHeartbeatAnswer):
                yield self._heartbeat(self.asked.by(output), output.answer)
            elif isinstance(output.answer, JoinGroupAnswer) and output.answer.code == NONE:
                self._is_classic_now(self.asked.by(output).group_id, output.answer.member_id)
            elif isinstance(output.answer, OffsetCommitAnswer | TxnOffsetCommitAnswer):
                request = self.asked.by(output)
                if request.group_id in self.groups:
                    yield request, output.answer, self.groups[request.group_id]

    def _is_classic_now(self, group_id: str, member_id: str) -> None:
        self.groups.get(group_id, {}).pop(member_id, None)
        self._new.discard((group_id, member_id))
        self.classic[group_id].add(member_id)

    def _note(self, output: Output) -> None:
        if isinstance(output, Reply) or output.group_id is None:
            return
        if forgotten(output) or isinstance(output, GroupConverted):
            self.groups.pop(output.group_id, None)
            self.classic.pop(output.group_id, None)
        members = self.groups.get(output.group_id, {})
        if isinstance(output, GONE):
            members.pop(output.member_id, None)
            self._new.discard((output.group_id, output.member_id))
        elif isinstance(output, MemberJoined):
            self._new.add((output.group_id, output.member_id))
        elif isinstance(output, MemberBack) and (old := members.pop(output.replaces, None)) is not None:
            members[output.member_id] = Held(
                0, dict.fromkeys(old.told, 0), old.told, dict.fromkeys(old.told, 0), old.names
            )
        elif isinstance(output, MemberAway) and (held := members.get(output.member_id)) is not None:
            held.uses = dict.fromkeys(held.told, 0)
        if isinstance(output, MemberFenced):
            members.pop(output.replaced_by, None)
        if isinstance(output, Published) and isinstance(output.record, GroupRecord):
            self.classic[output.group_id] = {m.member_id for m in output.record.members} - members.keys()

    def _heartbeat(self, request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> Heard:
        members = self.groups.get(request.group_id, {})
        before = members.get(answer.member_id or request.member_id)
        was_classic = request.member_id in self.classic[request.group_id]
        if answer.code != NONE or answer.member_epoch == -1 or answer.member_id is None:
            return Heard(request, answer, members, before, was_classic)
        self.classic[request.group_id].discard(answer.member_id)
        members = self.groups.setdefault(request.group_id, members)
        held = members[answer.member_id] = Held() if before is None else Held(**vars(before))
        is_heir = (before is None or not before.epoch) and (request.group_id, answer.member_id) not in self._new
        held.epoch = answer.member_epoch
        given_at = 0 if is_heir else held.epoch
        known = held.uses
        if request.topic_partitions is not None and request.member_epoch >= 0:
            owned = {(o.topic_id, n) for o in request.topic_partitions for n in o.partitions}
            held.uses = {place: epoch for place, epoch in held.uses.items() if place in owned}
        if answer.assignment is not None:
            held.told = frozenset((t.topic_id, n) for t in answer.assignment for n in t.partitions)
            told = {t.topic_id: held.names.get(t.topic_id, frozenset()) | {t.topic} for t in answer.assignment}
            held.names = {**held.names, **told}
            held.uses = {**held.uses, **{place: known.get(place, given_at) for place in held.told}}
            held.given = {place: held.given.get(place, held.uses[place]) for place in held.told}
        return Heard(request, answer, members, before, was_classic)


class PartitionsHaveOneUser:
    """10.9, 1: a member is given no partition that another one may use."""

    def __init__(self, asked: KnownRequests) -> None:
        self.members = Members(asked)

    def watch(self, step: Step) -> None:
        for heard in self.members.heard(step):
            if not isinstance(heard, Heard) or not heard.answer.assignment:
                continue
            told = {(t.topic_id, n) for t in heard.answer.assignment for n in t.partitions}
            for member_id, held in heard.members.items():
                both = held.uses.keys() & told
                assert member_id == heard.answer.member_id or not both, (
                    f"{heard.answer.member_id} is given {sorted(both)}, which {member_id} has not given up"
                )


class HeartbeatsFitTheMember:
    """1.2, 1.3, 10.9, 2: the code fits the member's epoch; epochs never fall; the fields fit the request."""

    def __init__(self, asked: KnownRequests) -> None:
        self.members = Members(asked)

    def watch(self, step: Step) -> None:
        for heard in self.members.heard(step):
            if isinstance(heard, Heard) and not heard.was_classic:
                self._fields_fit(heard.request, heard.answer)
                self._epoch_fits(heard.request, heard.answer, heard.before)

    @staticmethod
    def _fields_fit(request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> None:
        if answer.code != NONE or request.member_epoch < 0:
            expected = 0 if answer.code else request.member_epoch
            told = answer.member_epoch, answer.heartbeat_interval_ms, answer.assignment, answer.pending
            assert told == (expected, 0, None, "none"), f"a refusal or a farewell has further fields: {answer}"
            return
        must_tell = request.member_epoch == 0 or request.is_full
        assert answer.assignment is not None or not must_tell, f"the assignment is missing: {answer}"
        assert answer.heartbeat_interval_ms > 0, f"the interval is missing: {answer}"

    @staticmethod
    def _epoch_fits(request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer, before: Held | None) -> None:
        if request.member_epoch <= 0 or request.group_instance_id is not None:
            if answer.code == NONE and before is not None and request.member_epoch == 0 and before.epoch > 0:
                assert answer.member_epoch >= before.epoch, f"the epoch fell from {before.epoch}: {answer}"
            return
        if answer.code == NONE:
            assert before is not None, f"{request.member_id} is no member, and is answered {answer}"
            is_behind = request.member_epoch < before.epoch and request.topic_partitions is not None
            assert request.member_epoch == before.epoch or is_behind, f"the epoch is {before.epoch}: {request}"
            assert answer.member_epoch >= before.epoch, f"the epoch fell from {before.epoch}: {answer}"
        elif answer.code == FENCED_EPOCH and before is not None:
            assert request.member_epoch != before.epoch, f"it is fenced at its own epoch: {request}"
        elif answer.code == UNKNOWN:
            assert before is None, f"it is a member, and is answered that it is none: {request}"


class CommitsComeFromHolders:
    """10.9, 8: an accepted commit names its sender's epoch, or only partitions that it had at the epoch that it names.

    A commit with the epoch of its member is accepted. The same holds for commits inside transactions.
    """

    def __init__(self, asked: KnownRequests) -> None:
        self.members = Members(asked)

    def watch(self, step: Step) -> None:
        for heard in self.members.heard(step):
            if not isinstance(heard, Heard):
                self._judge(*heard)

    def _judge(self, request: AnyCommit, answer: AnyCommitAnswer, members: dict[str, Held]) -> None:
        held = members.get(request.member_id)
        codes = {partition.code for partition in answer.partitions}
        if held is None or request.generation_id < 0:
            return
        if request.generation_id == held.epoch:
            is_old = isinstance(request, OffsetCommit) and request.version < MEMBER_EPOCHS_FROM
            assert is_old or not codes & {STALE_EPOCH, UNKNOWN, ILLEGAL}, f"its own epoch is refused: {request}"
        elif NONE in codes:
            assert request.generation_id < held.epoch, f"the epoch is {held.epoch}: {request}"
            epochs = held.uses | {p: min(e, held.uses.get(p, e)) for p, e in held.given.items()}
            given = {(name, n): epoch for (t, n), epoch in epochs.items() for name in held.names.get(t, ())}
            for place in ((p.topic, p.partition) for p in answer.partitions if p.code == NONE):
                assert given.get(place, held.epoch) <= request.generation_id, f"{place} was not its own: {request}"
