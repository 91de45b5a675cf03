"""What must never break, one checker a promise (promises.md, section 1).

A checker is shown every step: what was asked, what came out, and, where the test can look inside, the groups as they
are after it. It raises AssertionError at the first step that breaks its promise. Whoever cannot look inside (a system
test reading topics) passes `groups=None`; then the checkers that need a look have nothing to say.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from coordinator.deadlines import deadlines
from coordinator.errors import ErrorCode
from coordinator.group import NEVER_MS, Group, Member
from coordinator.outputs import (
    ErrorAnswer,
    Event,
    GroupRecord,
    HeartbeatAnswer,
    JoinGroupAnswer,
    MemberExpired,
    MemberFenced,
    MemberLeft,
    OffsetCommitAnswer,
    OffsetFetchAnswer,
    OffsetRecord,
    Output,
    Published,
    RebalanceNotice,
    Reply,
    SyncGroupAnswer,
)
from coordinator.phases import Phase
from coordinator.requests import (
    Heartbeat,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    Received,
    Request,
    SyncGroup,
    Unreadable,
)

NONE, REBALANCE_IN_PROGRESS = ErrorCode.NONE.number, ErrorCode.REBALANCE_IN_PROGRESS.number

Asker = tuple[str, str | None]
"""Where a reply goes and which request it answers: what makes a request known."""


@dataclass(frozen=True)
class Step:
    """One batch: what the shard was given, what it gave back, and what it is now."""

    received: Sequence[Received]
    outputs: Sequence[Output]
    now_ms: int
    groups: Mapping[str, Group] | None = None

    @property
    def requests(self) -> Iterator[tuple[Received, Request | Unreadable]]:
        for received in self.received:
            if isinstance(received.request, Unreadable) and received.request.request_id is None:
                continue  # nobody can be answered
            yield received, received.request


class Checker(Protocol):
    """Watches one promise."""

    def watch(self, step: Step) -> None: ...


@dataclass
class Asked:
    """Requests by who asked them: the memory that most checkers share."""

    requests: dict[Asker, Request | Unreadable] = field(default_factory=dict)
    at_ms: dict[Asker, int] = field(default_factory=dict)

    def note(self, step: Step) -> None:
        for received, request in step.requests:
            self.requests[request.reply_to or "", request.request_id] = request
            self.at_ms[request.reply_to or "", request.request_id] = received.at_ms

    def by(self, reply: Reply) -> Any:
        return self.requests.get((reply.to, reply.answer.request_id))


def forgotten(output: Output) -> bool:
    """Tell whether an output is the tombstone of a whole group: whatever comes after is another group."""
    return isinstance(output, Published) and output.key[0] == "group" and output.record is None


class GenerationsGrow:
    """I2: a generation never falls and never repeats; it grows by one at each completed join phase, and only there."""

    def __init__(self) -> None:
        self.latest: dict[str, int] = {}
        self.forgotten: set[str] = set()

    def watch(self, step: Step) -> None:
        for output in step.outputs:
            if forgotten(output):
                self.forgotten.add(output.group_id)
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self._published(output.record)
            elif isinstance(output, Event) and output.group_id is not None:
                assert output.generation_id in (self._of(output.group_id), self._of(output.group_id) + 1), output
        for group_id, group in (step.groups or {}).items():
            assert group.generation_id == self._of(group_id), f"{group_id} moved to another generation unpublished"

    def _of(self, group_id: str) -> int:
        return self.latest.get(group_id, 0)

    def _published(self, record: GroupRecord) -> None:
        is_new = record.group_id not in self.latest or record.group_id in self.forgotten
        self.forgotten.discard(record.group_id)
        completes = record.state in (Phase.COMPLETING, Phase.EMPTY) and not is_new
        expected = self._of(record.group_id) + completes
        assert record.generation_id == expected, f"generation {record.generation_id}, not {expected}: {record}"
        self.latest[record.group_id] = record.generation_id


SEEN_AFTER = {
    # a group record of ...  may follow one of ...; what one request moves twice is published once
    Phase.EMPTY: {None, Phase.PREPARING, Phase.COMPLETING, Phase.STABLE},
    Phase.PREPARING: {Phase.EMPTY, Phase.COMPLETING, Phase.STABLE},
    Phase.COMPLETING: {Phase.PREPARING, Phase.COMPLETING, Phase.STABLE, Phase.EMPTY},
    Phase.STABLE: {Phase.COMPLETING, Phase.STABLE},  # a static member may be replaced
}


class PhasesAreLegal:
    """I3: phases follow each other as they may; what is parked, who leads and who is counted fits the phase."""

    def __init__(self) -> None:
        self.latest: dict[str, Phase] = {}

    def watch(self, step: Step) -> None:
        for output in step.outputs:
            if forgotten(output):
                assert self.latest.pop(output.group_id) is Phase.EMPTY, "only an Empty group is forgotten"
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                record = output.record
                before = self.latest.get(record.group_id)
                assert before in SEEN_AFTER[record.state], f"{record.state} after {before}"
                self._fits(record.state, [m.member_id for m in record.members], record.leader)
                self.latest[record.group_id] = record.state
        for group in (step.groups or {}).values():
            assert group.phase is self.latest[group.group_id], f"{group.group_id} moved unpublished"
            self._fits(group.phase, list(group.members), group.leader_id)
            self._looks_right(group)

    def _fits(self, phase: Phase, members: list[str], leader: str | None) -> None:
        assert phase is not Phase.DEAD
        assert phase is not Phase.EMPTY or not members, "Empty means no member"
        assert phase not in (Phase.COMPLETING, Phase.STABLE) or members, f"{phase} without members"
        assert leader in members if members else leader is None, f"{leader} leads {members}"

    def _looks_right(self, group: Group) -> None:
        vitals, members = group.vitals, group.members.values()
        assert list(vitals.sessions) == list(group.members), "a session for each member, and no other"
        statics = {m.group_instance_id: m.member_id for m in members if m.group_instance_id is not None}
        assert vitals.instances == statics, "an instance id is one member's"
        assert not vitals.pending.keys() & group.members.keys(), "pending ids are no members yet"
        assert group.joins_parked == sum(m.awaiting_join is not None for m in members)
        assert group.syncs_owed == sum(m.owes_sync for m in members)
        assert group.supporters == Counter(name for m in members for name in {p.name for p in m.protocols})
        assert group.phase is Phase.PREPARING or not group.joins_parked, "a join is parked and none are collected"
        assert group.phase is Phase.COMPLETING or not any(m.awaiting_sync for m in members), "a sync is parked"
        assert not any(m.awaiting_sync and m.owes_sync for m in members), "who waits for the plan has asked for it"
        assert (group.protocol_name is not None) >= (group.phase in (Phase.COMPLETING, Phase.STABLE))
        assert group.phase is not Phase.EMPTY or group.protocol_name is None


class GenerationsAreAgreed:
    """I4: all members of a generation hear the same protocol and leader; only the leader hears who else is in it."""

    def __init__(self) -> None:
        self.asked = Asked()
        self.heard: dict[tuple[str, int], tuple[Any, ...]] = {}
        self.rolls: dict[tuple[str, int], frozenset[str]] = {}
        self.fenced: dict[str, str] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.outputs:
            if isinstance(output, MemberFenced):
                self.fenced[output.member_id] = output.replaced_by
            elif forgotten(output):
                for memory in (self.heard, self.rolls):
                    for key in [k for k in memory if k[0] == output.group_id]:
                        del memory[key]
            elif isinstance(output, Reply) and isinstance(output.answer, JoinGroupAnswer):
                self._joined(self.asked.by(output).group_id, output.answer)

    def _joined(self, group_id: str, answer: JoinGroupAnswer) -> None:
        generation = group_id, answer.generation_id
        if answer.code != NONE:
            told = answer.generation_id, answer.protocol_type, answer.protocol_name, answer.leader, answer.members
            assert told == (-1, None, None, "", ()), f"an error says more than that: {answer}"
            return
        told = answer.protocol_type, answer.protocol_name, self._first(answer.leader)
        assert self.heard.setdefault(generation, told) == told, f"{told}, but others heard {self.heard[generation]}"
        if answer.member_id == answer.leader:
            roll = frozenset(self._first(m.member_id) for m in answer.members)
            assert self.rolls.setdefault(generation, roll) == roll, "the leader heard of other members before"
            assert self._first(answer.member_id) in roll
        else:
            assert answer.members == (), "only the leader hears who else is in"
            first = self._first(answer.member_id)
            assert first in self.rolls.get(generation, (first,))

    def _first(self, member_id: str) -> str:
        """The id that a static member had first: a new process of it is no new member."""
        before = {new: old for old, new in self.fenced.items()}
        while member_id in before:
            member_id = before[member_id]
        return member_id


class RepliesFitTheirRequests:
    """I5: a reply answers a request that was asked, in its kind, and goes to where that request came from."""

    def __init__(self) -> None:
        self.asked = Asked()
        self.members: dict[str, str] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for _, request in step.requests:
            if isinstance(request, JoinGroup) and request.member_id:
                self.members[request.member_id] = request.reply_to
        for output in step.outputs:
            if not isinstance(output, Reply):
                continue
            answer = output.answer
            if isinstance(answer, JoinGroupAnswer) and answer.member_id:
                self.members[answer.member_id] = output.to
            if isinstance(answer, RebalanceNotice):
                assert answer.request_id is None, "a notice answers nobody"
                assert self.members.get(answer.member_id, output.to) == output.to, f"not {output.to}'s: {answer}"
                continue
            request = self.asked.by(output)
            assert request is not None, f"nobody at {output.to} asked {answer.request_id}"
            kind = ErrorAnswer if isinstance(request, Unreadable) else None
            assert type(answer) is kind or type(answer).__name__ == type(request).__name__ + "Answer"
            assert ErrorCode[answer.error].number == answer.code


class EachRequestIsAnsweredOnce:
    """I6: each request gets exactly one reply, at once or when what it is parked for happens. None is forgotten."""

    def __init__(self) -> None:
        self.asked: Counter[Asker] = Counter()
        self.answered: Counter[Asker] = Counter()
        self.open: set[Asker] = set()

    def watch(self, step: Step) -> None:
        for _, request in step.requests:
            asker = request.reply_to or "", request.request_id
            self.asked[asker] += 1
            if not self.answered[asker]:
                self.open.add(asker)
        for output in step.outputs:
            if isinstance(output, Reply) and output.answer.request_id is not None:
                asker = output.to, output.answer.request_id
                self.answered[asker] += 1
                self.open.discard(asker)
                assert self.answered[asker] <= self.asked[asker], f"{asker} was answered before"
        if step.groups is not None:
            parked = {p for g in step.groups.values() for m in g.members.values() for p in parked_by(m)}
            assert self.open <= parked, f"nobody will ever answer {self.open - parked}"
            assert parked <= self.asked.keys(), f"nobody asked {parked - self.asked.keys()}"


def parked_by(member: Member) -> Iterator[Asker]:
    """Name the requests of a member that are answered later."""
    for parked in (member.awaiting_join, member.awaiting_sync):
        if parked:
            yield parked.reply_to, parked.request_id


class VersionsHaveNoGap:
    """I8: what a group publishes, records and events alike, is numbered 1, 2, 3 and so on."""

    def __init__(self) -> None:
        self.latest: dict[str, int] = {}

    def watch(self, step: Step) -> None:
        for output in step.outputs:
            if isinstance(output, Reply) or output.group_id is None:
                continue
            expected = self.latest.get(output.group_id, 0) + 1
            assert output.version == expected, f"version {output.version}, not {expected}: {output}"
            self.latest[output.group_id] = expected
            if isinstance(output, Published):
                assert output.record is None or output.record.version == output.version
            if forgotten(output):
                del self.latest[output.group_id]
        for group_id, group in (step.groups or {}).items():
            assert group.version == self.latest.get(group_id, 0)


class TheGoneStayOut:
    """I9: an id whose member left or expired never again hears NONE to a heartbeat, a sync or a member's commit."""

    def __init__(self) -> None:
        self.asked = Asked()
        self.gone: set[str] = set()

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.outputs:
            if isinstance(output, MemberLeft | MemberExpired | MemberFenced):
                self.gone.add(output.member_id)
            elif isinstance(output, Reply):
                request = self.asked.by(output)
                if output.answer.code == NONE and self._is_of_a_member(request):
                    assert request.member_id not in self.gone, f"{request.member_id} is gone"

    def _is_of_a_member(self, request: Any) -> bool:
        if isinstance(request, OffsetCommit):
            return request.generation_id >= 0 and bool(request.offsets)
        return isinstance(request, Heartbeat | SyncGroup)


class SessionsAreKept:
    """I10: no session ends before its timeout has passed since the latest request that counted.

    A join that names another timeout does not count itself: until the next one that does, the shorter of both holds.
    """

    def __init__(self) -> None:
        self.asked = Asked()
        self.timeouts_ms: dict[str, int] = {}
        self.alive_ms: dict[str, int] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        alive_before_ms = dict(self.alive_ms)
        for output in step.outputs:
            if isinstance(output, Reply):
                self._heard(output)
            elif isinstance(output, MemberExpired) and output.why == "session_expired":
                alive_ms = self.alive_ms.get(output.member_id, -NEVER_MS)
                silence_ms = output.at_ms - alive_ms
                assert silence_ms >= self.timeouts_ms.get(output.member_id, 0), f"after {silence_ms} ms only: {output}"
        joined = {request.member_id for _, request in step.requests if isinstance(request, JoinGroup)}
        counted = {m for m, at_ms in self.alive_ms.items() if at_ms != alive_before_ms.get(m)} - joined
        for group in (step.groups or {}).values():
            for member_id, session in group.vitals.sessions.items():
                known_ms = session.timeout_ms if member_id in counted else self.timeouts_ms.get(member_id, NEVER_MS)
                self.timeouts_ms[member_id] = min(known_ms, session.timeout_ms)

    def _heard(self, reply: Reply) -> None:
        request, answer = self.asked.by(reply), reply.answer
        if isinstance(answer, HeartbeatAnswer):
            counts = answer.code in (NONE, REBALANCE_IN_PROGRESS)
        elif isinstance(answer, OffsetCommitAnswer):
            counts = any(p.code == NONE for p in answer.partitions)
        else:
            counts = isinstance(answer, SyncGroupAnswer) and answer.code == NONE
        if counts:
            at_ms = self.asked.at_ms[reply.to, answer.request_id]
            self.alive_ms[request.member_id] = max(at_ms, self.alive_ms.get(request.member_id, at_ms))


class NothingWaitsForEver:
    """I11: every wait has a deadline, and after a step nothing is overdue: the shard's alarm is never late."""

    def __init__(self, clock_slack_ms: int) -> None:
        self.clock_slack_ms = clock_slack_ms

    def watch(self, step: Step) -> None:
        for group in (step.groups or {}).values():
            vitals = group.vitals
            earliest = min(deadlines(group))
            assert vitals.earliest_ms <= earliest.at_ms, f"the alarm comes after {earliest}"
            assert earliest.at_ms > step.now_ms - self.clock_slack_ms, f"overdue: {earliest}"
            assert earliest.at_ms > vitals.now_ms or earliest.at_ms == NEVER_MS, f"passed over: {earliest}"
            assert group.phase is not Phase.PREPARING or vitals.joins_ms < NEVER_MS, "joins are collected for ever"
            assert group.phase is not Phase.COMPLETING or vitals.syncs_ms < NEVER_MS, "the plan is awaited for ever"
            is_kept = any((offset.expire_timestamp_ms or 0) >= NEVER_MS for _, _, offset in group.all_offsets())
            assert group.phase is not Phase.EMPTY or vitals.offsets_ms < NEVER_MS or is_kept, "an Empty group for ever"
            for member in group.members.values():
                parked = member.awaiting_join or member.awaiting_sync
                assert parked or vitals.sessions[member.member_id].deadline_ms < NEVER_MS, "a session without an end"


class TimeNeverGoesBack:
    """I12: a group's time never goes back, whatever the clocks do."""

    def __init__(self) -> None:
        self.latest: dict[str, int] = {}
        self.group_ms: dict[str, int] = {}

    def watch(self, step: Step) -> None:
        for output in step.outputs:
            if forgotten(output):
                self.latest.pop(output.group_id, None)
                self.group_ms.pop(output.group_id, None)
            elif isinstance(output, Event) and output.group_id is not None:
                latest = self.latest.get(output.group_id, output.at_ms)
                assert output.at_ms >= latest, f"{latest - output.at_ms} ms back: {output}"
                self.latest[output.group_id] = output.at_ms
        for group_id, group in (step.groups or {}).items():
            assert group.vitals.now_ms >= self.group_ms.get(group_id, group.vitals.now_ms), f"{group_id} went back"
            assert group.since_ms <= group.vitals.now_ms, f"{group_id} is in its phase since a time to come"
            self.group_ms[group_id] = group.vitals.now_ms


class CommitsAreKept:
    """I13: an acknowledged commit is what every later fetch returns, until another commit or an expiry."""

    def __init__(self) -> None:
        self.asked = Asked()
        self.committed: dict[str, dict[tuple[str, int], tuple[int, int, str]]] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.outputs:
            if isinstance(output, Published):
                self._published(output)
            elif isinstance(output, Reply) and isinstance(output.answer, OffsetCommitAnswer):
                self._acknowledged(self.asked.by(output), output.answer)
            elif isinstance(output, Reply) and isinstance(output.answer, OffsetFetchAnswer):
                self._fetched(self.asked.by(output), output.answer)

    def _published(self, output: Published) -> None:
        if output.key[0] == "group":
            if output.record is None:
                self.committed.pop(output.group_id, None)
            return
        known, place = self.committed.setdefault(output.group_id, {}), (output.key[2], output.key[3])
        if output.record is None:
            del known[place]
        else:
            record = output.record
            assert isinstance(record, OffsetRecord)
            known[place] = record.offset, record.leader_epoch, record.metadata

    def _acknowledged(self, request: OffsetCommit, answer: OffsetCommitAnswer) -> None:
        known = self.committed.get(request.group_id, {})
        kept = {
            (asked.topic, asked.partition): (asked.offset, asked.leader_epoch, asked.metadata or "")
            for asked, ended in zip(request.offsets, answer.partitions, strict=True)
            if ended.code == NONE
        }
        for place, offset in kept.items():
            assert known.get(place) == offset, f"{place}: {offset} is acknowledged, {known.get(place)} published"

    def _fetched(self, request: OffsetFetch, answer: OffsetFetchAnswer) -> None:
        known = self.committed.get(request.group_id, {})
        if request.topics is None:
            assert {(f.topic, f.partition) for f in answer.partitions} == known.keys()
        for fetched in answer.partitions:
            expected = known.get((fetched.topic, fetched.partition), (-1, -1, ""))
            if fetched.code == NONE:
                assert (fetched.offset, fetched.leader_epoch, fetched.metadata) == expected, fetched


def all_checkers(*, clock_slack_ms: int) -> list[Checker]:
    """Make one checker for each promise, to be shown the same steps from the first one on."""
    return [
        RepliesFitTheirRequests(),  # the first one: the others ask what a reply's request was
        GenerationsGrow(),
        PhasesAreLegal(),
        GenerationsAreAgreed(),
        EachRequestIsAnsweredOnce(),
        VersionsHaveNoGap(),
        TheGoneStayOut(),
        SessionsAreKept(),
        NothingWaitsForEver(clock_slack_ms),
        TimeNeverGoesBack(),
        CommitsAreKept(),
    ]
