"""I5 to I8: each request is answered once, in its own mailbox; published versions have no gap."""

from collections import defaultdict
from collections.abc import Iterator

from coordinator.base.errors import ErrorCode
from coordinator.messages.events import GroupConverted
from coordinator.messages.group_records import GroupKey, GroupRecord, OffsetKey, OffsetRecord, Published
from coordinator.messages.requests import Unreadable
from coordinator.messages.responses import (
    AssignmentNotice,
    ConsumerGroupHeartbeatAnswer,
    ErrorAnswer,
    JoinGroupAnswer,
    RebalanceNotice,
    Reply,
    SyncGroupAnswer,
)
from coordinator.state.classic_group import Member
from tests.coordinator.invariants.step import GONE, NONE, REBALANCE_IN_PROGRESS, Asker, KnownRequests, Step, forgotten

NUMBERS = {code.name: code.number for code in ErrorCode}


class RepliesFitTheirRequests:
    """I5: a response answers a request of its kind that was sent, and goes to the mailbox of that request.

    A notice goes to the mailbox of the member's last join. A repeated first join is answered, and changes nothing. If a
    group is converted while a join is parked, the join is refused, and its mailbox stays the member's.
    """

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.members: dict[tuple[str | None, str], str] = {}
        """The mailboxes of the latest joins: a member of another group may have the same id."""
        self.heard: defaultdict[str, set[str]] = defaultdict(set)
        """The mailboxes to which joins and heartbeats of the consumer protocol were answered, by member id."""

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        refused: dict[tuple[str | None, str], str] = {}
        for output in step.outputs:
            if isinstance(output, GONE):
                self.members.pop((output.group_id, output.member_id), None)
            if isinstance(output, GroupConverted):
                self.members |= {member: to for member, to in refused.items() if member[0] == output.group_id}
            if not isinstance(output, Reply):
                continue
            answer, request = output.answer, self.asked.by(output)
            if not isinstance(answer, JoinGroupAnswer | SyncGroupAnswer) or answer.code != REBALANCE_IN_PROGRESS:
                refused = {}
            elif isinstance(answer, JoinGroupAnswer):
                refused[getattr(request, "group_id", None), answer.member_id] = output.to
            if isinstance(answer, ConsumerGroupHeartbeatAnswer | JoinGroupAnswer) and answer.member_id:
                self.heard[answer.member_id].add(output.to)
            if isinstance(answer, JoinGroupAnswer) and answer.code == NONE:
                member = getattr(request, "group_id", None), answer.member_id
                is_again = not getattr(request, "member_id", "") and member in self.members
                self.members[member] = self.members[member] if is_again else output.to
            if isinstance(answer, AssignmentNotice):
                assert answer.request_id is None, "a notice has a request id"
                assert output.to in self.heard[answer.member_id], f"the wrong mailbox {output.to}: {answer}"
                continue
            if isinstance(answer, RebalanceNotice):
                assert answer.request_id is None, "a notice has a request id"
                assert self.members.get((answer.group_id, answer.member_id), output.to) == output.to, (
                    f"the wrong mailbox {output.to}: {answer}"
                )
                continue
            assert request is not None, f"no request {answer.request_id} from {output.to}"
            kind = ErrorAnswer if isinstance(request, Unreadable) else None
            assert type(answer) is kind or type(answer).__name__ == type(request).__name__ + "Answer"
            assert NUMBERS[answer.error] == answer.code


class EachRequestIsAnsweredOnce:
    """I6: each request gets exactly one response, at once or when its phase ends. None is lost."""

    def __init__(self) -> None:
        self.asked: defaultdict[Asker, int] = defaultdict(int)
        self.answered: defaultdict[Asker, int] = defaultdict(int)
        self.open: set[Asker] = set()
        self.parked: dict[str, set[Asker]] = {}

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
                assert self.answered[asker] <= self.asked[asker], f"{asker} has two responses"
            elif forgotten(output):
                self.parked.pop(output.group_id, None)
        if step.groups is not None:
            for group_id in step.consumer_groups:
                self.parked.pop(group_id, None)
            for group_id, group in step.groups.items():
                self.parked[group_id] = {p for m in group.members.values() for p in parked_by(m)}
            parked = set().union(*self.parked.values())
            kept = parked | {(r.request.reply_to, r.request.request_id) for r in step.deferred}  # type: ignore[union-attr]
            assert self.open <= kept, f"no response will come to {self.open - kept}"
            assert parked <= self.asked.keys(), f"no request was sent for {parked - self.asked.keys()}"


def parked_by(member: Member) -> Iterator[Asker]:
    """Yield the parked requests of a member."""
    for parked in (member.awaiting_join, member.awaiting_sync):
        if parked:
            yield parked.reply_to, parked.request_id


class RepeatsMakeNobodyNew:
    """I7: a repeated first join makes no second member, however often and at any time.

    Exceptions are joins that first get an id (KIP-394), and joins with an instance id, which the latest process has.
    """

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.made: dict[Asker, str] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.news:
            if isinstance(output, Reply) and isinstance(output.answer, JoinGroupAnswer) and not output.answer.code:
                request = self.asked.by(output)
                if request.member_id or request.require_known_member_id or request.group_instance_id is not None:
                    continue
                made = self.made.setdefault((output.to, request.request_id), output.answer.member_id)
                assert made == output.answer.member_id, f"{request.request_id} made {made} before"


class TheNewestOfAKeyIsKnown:
    """I8: of two records of one key the later one has the later time, or the same time and the higher version.

    So a reader recognizes a late repeat, even of a group that was forgotten and created again in between.
    """

    def __init__(self) -> None:
        self.latest: dict[GroupKey | OffsetKey, tuple[int, int]] = {}

    def watch(self, step: Step) -> None:
        for output in step.news:
            if isinstance(output, Published):
                order = _own_ms(output), output.version or 0
                before = self.latest.get(output.key, order)
                is_counted = output.version is not None
                assert order > before or (order == before and not (is_counted and output.key in self.latest)), output
                self.latest[output.key] = order


def _own_ms(output: Published) -> int:
    match output.record:
        case GroupRecord(since_ms=at_ms) | OffsetRecord(commit_timestamp_ms=at_ms):
            return at_ms
    assert output.ended_ms is not None, f"a tombstone has no time: {output}"
    return output.ended_ms


class VersionsHaveNoGap:
    """I8: the records and events of a group have the versions 1, 2, 3 and so on."""

    def __init__(self) -> None:
        self.latest: dict[str, int] = {}

    def watch(self, step: Step) -> None:
        for output in step.news:
            if isinstance(output, Reply) or output.group_id is None:
                continue
            if isinstance(output, Published) and output.version is None:
                assert output.record is None, f"only a tombstone may have no version: {output}"
                assert output.group_id not in self.latest, (
                    f"the group exists, so the tombstone needs a version: {output}"
                )
                continue
            expected = self.latest.get(output.group_id, 0) + 1
            assert output.version == expected, f"version {output.version}, not {expected}: {output}"
            self.latest[output.group_id] = expected
            if isinstance(output, Published):
                assert output.record is None or output.record.version == output.version
            if forgotten(output):
                del self.latest[output.group_id]
        for group_id, any_group in (*(step.groups or {}).items(), *step.consumer_groups.items()):
            assert any_group.version == self.latest.get(group_id, 0)
