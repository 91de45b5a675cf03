"""I5 to I8: each request is answered once, where it came from; what is published has no gap."""

from collections import defaultdict
from collections.abc import Iterator

from coordinator.errors import ErrorCode
from coordinator.group import Member
from coordinator.outputs import (
    ErrorAnswer,
    GroupKey,
    GroupRecord,
    JoinGroupAnswer,
    OffsetKey,
    OffsetRecord,
    Published,
    RebalanceNotice,
    Reply,
)
from coordinator.requests import Unreadable
from tests.coordinator.invariants.step import GONE, NONE, Asked, Asker, Step, forgotten

NUMBERS = {code.name: code.number for code in ErrorCode}


class RepliesFitTheirRequests:
    """I5: a reply answers a request that was asked, in its kind, and goes to where that request came from.

    A notice goes to where a member last joined from. A first join that comes again is answered, and changes nothing.
    """

    def __init__(self, asked: Asked | None = None) -> None:
        self.asked = asked or Asked()
        self.members: dict[str, str] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.outputs:
            if isinstance(output, GONE):
                self.members.pop(output.member_id, None)
            if not isinstance(output, Reply):
                continue
            answer, request = output.answer, self.asked.by(output)
            if isinstance(answer, JoinGroupAnswer) and answer.code == NONE:
                is_again = not getattr(request, "member_id", "") and answer.member_id in self.members
                self.members[answer.member_id] = self.members[answer.member_id] if is_again else output.to
            if isinstance(answer, RebalanceNotice):
                assert answer.request_id is None, "a notice answers nobody"
                assert self.members.get(answer.member_id, output.to) == output.to, f"not {output.to}'s: {answer}"
                continue
            assert request is not None, f"nobody at {output.to} asked {answer.request_id}"
            kind = ErrorAnswer if isinstance(request, Unreadable) else None
            assert type(answer) is kind or type(answer).__name__ == type(request).__name__ + "Answer"
            assert NUMBERS[answer.error] == answer.code


class EachRequestIsAnsweredOnce:
    """I6: each request gets exactly one reply, at once or when what it is parked for happens. None is forgotten."""

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
                assert self.answered[asker] <= self.asked[asker], f"{asker} was answered before"
            elif forgotten(output):
                self.parked.pop(output.group_id, None)
        if step.groups is not None:
            for group_id, group in step.groups.items():
                self.parked[group_id] = {p for m in group.members.values() for p in parked_by(m)}
            parked = set().union(*self.parked.values())
            kept = parked | {(r.request.reply_to, r.request.request_id) for r in step.deferred}  # type: ignore[union-attr]
            assert self.open <= kept, f"nobody will ever answer {self.open - kept}"
            assert parked <= self.asked.keys(), f"nobody asked {parked - self.asked.keys()}"


def parked_by(member: Member) -> Iterator[Asker]:
    """Name the requests of a member that are answered later."""
    for parked in (member.awaiting_join, member.awaiting_sync):
        if parked:
            yield parked.reply_to, parked.request_id


class RepeatsMakeNobodyNew:
    """I7: a first join that comes again makes no other member, however often and whenever it does.

    Not so where its asker wants an id first (KIP-394), or has an instance id, which goes to whoever came last.
    """

    def __init__(self, asked: Asked | None = None) -> None:
        self.asked = asked or Asked()
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
    """I8: of two records of one key the later one has the later time, or in the same moment the higher version.

    So a reader knows a record that is repeated late, also of a group that was forgotten and founded anew since.
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
    assert output.ended_ms is not None, f"a tombstone tells its time: {output}"
    return output.ended_ms


class VersionsHaveNoGap:
    """I8: what a group publishes, records and events alike, is numbered 1, 2, 3 and so on."""

    def __init__(self) -> None:
        self.latest: dict[str, int] = {}

    def watch(self, step: Step) -> None:
        for output in step.news:
            if isinstance(output, Reply) or output.group_id is None:
                continue
            if isinstance(output, Published) and output.version is None:
                assert output.record is None, f"only a tombstone may be uncounted: {output}"
                assert output.group_id not in self.latest, f"the group is there, and counts: {output}"
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
