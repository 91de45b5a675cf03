"""What must never break, one checker a promise (promises.md, section 1).

A checker is shown every step: what was asked, what came out, and, where the test can look inside, the groups as they
are after it. It raises AssertionError at the first step that breaks its promise. Whoever cannot look inside (a system
test reading topics) passes `groups=None`; then the checkers that need a look have nothing to say. Whoever knows which
groups a step has left as they were, to the byte, need not show those again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from coordinator.config import Config
from coordinator.consumer_protocol import CONSUMERS
from coordinator.deadlines import Deadline, deadlines
from coordinator.errors import ErrorCode
from coordinator.group import NEVER_MS, Group, Member
from coordinator.limits import GRAVE_MS
from coordinator.outputs import (
    ErrorAnswer,
    Event,
    GroupDeleted,
    GroupRecord,
    HeartbeatAnswer,
    JoinGroupAnswer,
    MemberExpired,
    MemberFenced,
    MemberJoined,
    MemberLeft,
    OffsetCommitAnswer,
    OffsetFetchAnswer,
    OffsetRecord,
    OffsetsDeleted,
    OffsetsExpired,
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
    """One batch: what the shard was given, what it gave back, and what it is now.

    Args:
        groups: All that the step may have changed.
    """

    received: Sequence[Received]
    outputs: Sequence[Output]
    now_ms: int
    groups: Mapping[str, Group] | None = None

    @cached_property
    def news(self) -> Sequence[Output]:
        """What came out, but for answers to heartbeats: nearly all there is, and they tell most checkers nothing."""
        return [o for o in self.outputs if type(o) is not Reply or type(o.answer) is not HeartbeatAnswer]

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
    """Requests by who asked them: the memory that most checkers share.

    Args:
        times_ms: When each came, every time that it did, but for what `answered_at_ms` has told already.
    """

    requests: dict[Asker, Request | Unreadable] = field(default_factory=dict)
    times_ms: dict[Asker, list[int]] = field(default_factory=dict)
    _latest: Step | None = None

    def note(self, step: Step) -> None:
        """Remember what was asked in a step; whoever shares this memory may have done so."""
        if step is self._latest:
            return
        self._latest = step
        for received, request in step.requests:
            self.requests[request.reply_to or "", request.request_id] = request
            self.times_ms.setdefault((request.reply_to or "", request.request_id), []).append(received.at_ms)

    def by(self, reply: Reply) -> Any:
        return self.requests.get((reply.to, reply.answer.request_id))

    def answered_at_ms(self, reply: Reply) -> int:
        """Tell when the request came that a reply answers; of several copies, the first that had no answer."""
        times_ms = self.times_ms[reply.to, reply.answer.request_id or ""]
        return times_ms.pop(0) if len(times_ms) > 1 else times_ms[0]


def forgotten(output: Output) -> bool:
    """Tell whether an output is the tombstone of a whole group: whatever comes after is another group."""
    return isinstance(output, Published) and output.key[0] == "group" and output.record is None


class GenerationsGrow:
    """I2: a generation never falls and never repeats; it grows by one at each completed join phase, and only there.

    A group that was forgotten goes on from where it was, for as long as anybody may remember it.
    """

    def __init__(self) -> None:
        self.latest: dict[str, int] = {}
        self.forgotten_ms: dict[str, int] = {}
        self.now_ms = -NEVER_MS

    def watch(self, step: Step) -> None:
        self.now_ms = max(self.now_ms, step.now_ms)
        for output in step.news:
            if isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self._published(output.record)
            elif isinstance(output, Event) and output.group_id is not None:
                assert output.generation_id in (self._of(output.group_id), self._of(output.group_id) + 1), output
                if isinstance(output, GroupDeleted):
                    self.forgotten_ms[output.group_id] = output.at_ms
        for group_id, group in (step.groups or {}).items():
            assert group.generation_id == self._of(group_id), f"{group_id} moved to another generation unpublished"

    def _of(self, group_id: str) -> int:
        return self.latest.get(group_id, 0)

    def _published(self, record: GroupRecord) -> None:
        is_new = record.group_id not in self.latest
        if (forgotten_ms := self.forgotten_ms.pop(record.group_id, None)) is not None:
            is_new = True
            if not record.generation_id and max(self.now_ms, record.since_ms) >= forgotten_ms + GRAVE_MS:
                self.latest[record.group_id] = 0
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
        for output in step.news:
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

    def __init__(self, asked: Asked | None = None) -> None:
        self.asked = asked or Asked()
        self.heard: dict[tuple[str, int], tuple[Any, ...]] = {}
        self.rolls: dict[tuple[str, int], frozenset[str]] = {}
        self.first: dict[str, str] = {}
        """The id that a static member had first: a new process of it is no new member."""

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.news:
            if isinstance(output, MemberFenced):
                self.first[output.replaced_by] = self._first(output.member_id)
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
        return self.first.get(member_id, member_id)


class RepliesFitTheirRequests:
    """I5: a reply answers a request that was asked, in its kind, and goes to where that request came from."""

    def __init__(self, asked: Asked | None = None) -> None:
        self.asked = asked or Asked()
        self.members: dict[str, str] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.outputs:
            if not isinstance(output, Reply):
                continue
            answer = output.answer
            if isinstance(answer, JoinGroupAnswer) and answer.code == NONE:
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
        for output in step.news:
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
    """I9: an id whose member left or expired never again hears NONE to a heartbeat, a sync or a member's commit.

    Unless it joins anew: a first join whose reply was lost is asked again, and makes the same id however late it comes.
    """

    def __init__(self, asked: Asked | None = None) -> None:
        self.asked = asked or Asked()
        self.gone: set[str] = set()

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.outputs:
            if isinstance(output, MemberLeft | MemberExpired | MemberFenced):
                self.gone.add(output.member_id)
            elif isinstance(output, MemberJoined):
                self.gone.discard(output.member_id)
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

    def __init__(self, asked: Asked | None = None) -> None:
        self.asked = asked or Asked()
        self.timeouts_ms: dict[tuple[str | None, str], int] = {}
        self.alive_ms: dict[tuple[str | None, str], int] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        counted: set[tuple[str | None, str]] = set()
        for output in step.outputs:
            if isinstance(output, Reply):
                self._heard(output, counted)
            elif isinstance(output, MemberExpired) and output.why == "session_expired":
                member = output.group_id, output.member_id
                silence_ms = output.at_ms - self.alive_ms.get(member, -NEVER_MS)
                assert silence_ms >= self.timeouts_ms.get(member, 0), f"after {silence_ms} ms only: {output}"
            if isinstance(output, MemberLeft | MemberExpired | MemberFenced):
                for memory in (self.timeouts_ms, self.alive_ms):
                    memory.pop((output.group_id, output.member_id), None)  # who joins anew begins anew
        joined = {(r.group_id, r.member_id) for _, r in step.requests if isinstance(r, JoinGroup)}
        counted -= joined
        for group in (step.groups or {}).values():
            for member_id, session in group.vitals.sessions.items():
                member = group.group_id, member_id
                known_ms = session.timeout_ms if member in counted else self.timeouts_ms.get(member, NEVER_MS)
                self.timeouts_ms[member] = min(known_ms, session.timeout_ms)

    def _heard(self, reply: Reply, counted: set[tuple[str | None, str]]) -> None:
        request, answer = self.asked.by(reply), reply.answer
        if isinstance(answer, HeartbeatAnswer):
            counts = answer.code in (NONE, REBALANCE_IN_PROGRESS)
        elif isinstance(answer, OffsetCommitAnswer):
            counts = any(p.code == NONE for p in answer.partitions)
        else:
            counts = isinstance(answer, SyncGroupAnswer) and answer.code == NONE
        if counts:
            at_ms = self.asked.answered_at_ms(reply)
            member = request.group_id, request.member_id
            if at_ms > self.alive_ms.get(member, -NEVER_MS):
                self.alive_ms[member] = at_ms
                counted.add(member)


class NothingWaitsForEver:
    """I11: every wait has a deadline, and after a step nothing is overdue: the shard's alarm is never late."""

    def __init__(self, clock_slack_ms: int) -> None:
        self.clock_slack_ms = clock_slack_ms
        self.earliest: dict[str, Deadline] = {}

    def watch(self, step: Step) -> None:
        for output in step.news:
            if forgotten(output):
                self.earliest.pop(output.group_id, None)
        for group_id, group in (step.groups or {}).items():
            vitals = group.vitals
            earliest = self.earliest[group_id] = min(deadlines(group))
            assert vitals.earliest_ms <= earliest.at_ms, f"the alarm comes after {earliest}"
            assert earliest.at_ms > vitals.now_ms or earliest.at_ms == NEVER_MS, f"passed over: {earliest}"
            assert group.phase is not Phase.PREPARING or vitals.joins_ms < NEVER_MS, "joins are collected for ever"
            assert group.phase is not Phase.COMPLETING or vitals.syncs_ms < NEVER_MS, "the plan is awaited for ever"
            is_kept = any((offset.expire_timestamp_ms or 0) >= NEVER_MS for _, _, offset in group.all_offsets())
            assert group.phase is not Phase.EMPTY or vitals.offsets_ms < NEVER_MS or is_kept, "an Empty group for ever"
            for member in group.members.values():
                parked = member.awaiting_join or member.awaiting_sync
                assert parked or vitals.sessions[member.member_id].deadline_ms < NEVER_MS, "a session without an end"
        for group_id, earliest in self.earliest.items():
            assert earliest.at_ms > step.now_ms - self.clock_slack_ms, f"overdue in {group_id}: {earliest}"


class TimeNeverGoesBack:
    """I12: a group's time never goes back, whatever the clocks do."""

    def __init__(self) -> None:
        self.latest: dict[str, int] = {}
        self.group_ms: dict[str, int] = {}

    def watch(self, step: Step) -> None:
        for output in step.news:
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

    def __init__(self, asked: Asked | None = None) -> None:
        self.asked = asked or Asked()
        self.committed: dict[str, dict[tuple[str, int], tuple[int, int, str]]] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.news:
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


class PlansArePassedOn:
    """I1: who owns what is what the leader's plan says, to the byte; whom it leaves out owns nothing.

    So a partition has at most one owner in a generation, unless the leader itself gives it to two.
    """

    def __init__(self, asked: Asked | None = None) -> None:
        self.asked = asked or Asked()
        self.leaders: dict[str, str | None] = {}
        self.plans: dict[tuple[str, int], dict[str, bytes]] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        early: list[tuple[SyncGroup, bytes]] = []  # members that came before the leader hear first
        for output in step.news:
            if forgotten(output):
                self.plans = {key: plan for key, plan in self.plans.items() if key[0] != output.group_id}
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self._published(output.record)
            elif isinstance(output, MemberFenced):
                plan = self.plans.get((output.group_id or "", output.generation_id or 0), {})
                plan[output.replaced_by] = plan.get(output.member_id, b"")
            elif isinstance(output, Reply) and isinstance(output.answer, SyncGroupAnswer) and not output.answer.code:
                request = self.asked.by(output)
                early.append((request, output.answer.assignment))
                if self._knows_the_plan(request):
                    self._compare(early)
                    early = []
        assert not early, f"no leader has said what {early} hear"

    def _published(self, record: GroupRecord) -> None:
        self.leaders[record.group_id] = record.leader
        if record.state is Phase.STABLE:
            plan = self.plans.get((record.group_id, record.generation_id))
            assert plan is not None, f"nobody has brought the plan: {record}"
            for member in record.members:
                assert member.assignment == plan.get(member.member_id, b""), f"not as planned: {member}"

    def _knows_the_plan(self, request: SyncGroup) -> bool:
        generation = request.group_id, request.generation_id
        if request.member_id == self.leaders[request.group_id]:
            self.plans.setdefault(generation, {a.member_id: a.assignment for a in request.assignments})
        return generation in self.plans

    def _compare(self, answers: list[tuple[SyncGroup, bytes]]) -> None:
        for request, assignment in answers:
            planned = self.plans[request.group_id, request.generation_id].get(request.member_id, b"")
            assert assignment == planned, f"{request.member_id} hears {assignment!r}, planned was {planned!r}"


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


@dataclass
class Roll:
    """Who is in a group, as its outputs tell: instance ids by member id."""

    state: Phase = Phase.EMPTY
    generation_id: int = 0
    members: dict[str, str | None] = field(default_factory=dict)

    def note(self, output: Output) -> None:
        if isinstance(output, Published) and isinstance(output.record, GroupRecord):
            self.state, self.generation_id = output.record.state, output.record.generation_id
            self.members = {m.member_id: m.group_instance_id for m in output.record.members}
        elif isinstance(output, MemberJoined):
            self.members[output.member_id] = output.group_instance_id
        elif isinstance(output, MemberLeft | MemberExpired | MemberFenced):
            del self.members[output.member_id]
            if isinstance(output, MemberFenced):
                self.members[output.replaced_by] = output.group_instance_id


class CommitsAreFenced:
    """I14: a commit is taken from a member of this generation, or from outside while nobody is in; else it stores
    nothing, and what it does not store it says, partition by partition.
    """

    def __init__(self, asked: Asked | None = None) -> None:
        self.asked = asked or Asked()
        self.rolls: defaultdict[str, Roll] = defaultdict(Roll)

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        stored: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for output in step.news:
            if isinstance(output, Reply):
                if isinstance(output.answer, OffsetCommitAnswer):
                    request = self.asked.by(output)
                    self._judge(request, output.answer, stored.pop(request.group_id, []))
            elif forgotten(output):
                del self.rolls[output.group_id]
            elif isinstance(output, Published) and isinstance(output.record, OffsetRecord):
                stored[output.group_id].append((output.record.topic, output.record.partition))
            elif output.group_id is not None:
                self.rolls[output.group_id].note(output)
        assert not stored, f"nobody is told of {dict(stored)}"

    def _judge(self, request: OffsetCommit, answer: OffsetCommitAnswer, stored: list[tuple[str, int]]) -> None:
        taken = [(p.topic, p.partition) for p in answer.partitions if p.code == NONE]
        assert taken == stored, f"{request.request_id} hears of {taken}, and {stored} are stored"
        roll = self.rolls.get(request.group_id)
        if not taken or (roll and request.generation_id < 0 and roll.state is Phase.EMPTY):
            return
        assert roll is not None, f"there is no group for {request.member_id} to commit to"
        assert request.member_id in roll.members, f"{request.member_id} is no member and commits"
        assert request.generation_id == roll.generation_id, f"{request.member_id} commits for another generation"
        assert request.group_instance_id in (None, roll.members[request.member_id]), "under another's instance id"


class OffsetsAreForgottenInTime:
    """I15: what expires has been kept as long as was promised, and nobody reads it; whatever goes is told of.

    The promise counts from when its group emptied; from the commit where there was no group, or its members stopped
    reading the topic; or is the commit's own.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.groups: dict[str, GroupRecord] = {}
        self.offsets: defaultdict[str, dict[tuple[str, int], OffsetRecord]] = defaultdict(dict)

    def watch(self, step: Step) -> None:
        gone: defaultdict[str, dict[tuple[str, int], OffsetRecord]] = defaultdict(dict)
        for output in step.news:
            if isinstance(output, Reply) or output.group_id is None:
                continue
            group_id = output.group_id
            if forgotten(output):
                for memory in (self.groups, self.offsets, gone):
                    memory.pop(group_id, None)
            elif isinstance(output, Published) and output.key[0] == "offset":
                known, place = self.offsets[group_id], (output.key[2], output.key[3])
                if isinstance(output.record, OffsetRecord):
                    known[place] = output.record
                else:
                    gone[group_id][place] = known.pop(place)
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self.groups[group_id] = output.record
            elif isinstance(output, OffsetsExpired | OffsetsDeleted):
                told = gone.pop(group_id, {})
                assert list(told) == list(output.partitions), f"{list(told)} are gone, told is {output}"
                for offset in told.values() if isinstance(output, OffsetsExpired) else ():
                    assert output.at_ms >= self._promised_ms(self.groups[group_id], offset), f"early: {offset}"
        assert not any(gone.values()), f"nobody is told of {dict(gone)}"

    def _promised_ms(self, group: GroupRecord, offset: OffsetRecord) -> int:
        assert group.state in (Phase.EMPTY, Phase.STABLE), f"{group.state} and an offset expires"
        since_ms = offset.commit_timestamp_ms
        if group.state is Phase.EMPTY and group.protocol_type:
            since_ms = group.since_ms
        if group.state is Phase.STABLE:
            assert group.protocol_type == CONSUMERS, "what its members read is not known"
            assert group.subscribed_topics is not None, "what its members read cannot be told"
            assert offset.topic not in group.subscribed_topics, f"{offset.topic} is being read"
        if offset.expire_timestamp_ms is not None:
            return offset.expire_timestamp_ms
        kept_ms = self.config.offsets_retention_by_group_ms.get(group.group_id, self.config.offsets_retention_ms)
        return since_ms + kept_ms


class GroupsAreBounded:
    """I22: a generation has at most `group_max_size` members, but for absent ones that have an instance id."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def watch(self, step: Step) -> None:
        for group in (step.groups or {}).values():
            size_max = self.config.group_max_size
            dynamic = sum(not m.is_static for m in group.members.values())
            assert group.joins_parked <= size_max, f"{group.joins_parked} joins are parked"
            assert group.phase is Phase.PREPARING or dynamic <= size_max, f"{dynamic} members"
            for _, _, offset in group.all_offsets():
                assert len(offset.metadata) <= self.config.offset_metadata_max_bytes


def all_checkers(config: Config) -> list[Checker]:
    """Make one checker for each promise, to be shown the same steps from the first one on."""
    asked = Asked()
    return [
        RepliesFitTheirRequests(asked),  # the first one: the others ask what a reply's request was
        GenerationsGrow(),
        PhasesAreLegal(),
        GenerationsAreAgreed(asked),
        PlansArePassedOn(asked),
        EachRequestIsAnsweredOnce(),
        RepeatsMakeNobodyNew(asked),
        VersionsHaveNoGap(),
        TheGoneStayOut(asked),
        SessionsAreKept(asked),
        NothingWaitsForEver(config.clock_slack_ms),
        TimeNeverGoesBack(),
        CommitsAreKept(asked),
        CommitsAreFenced(asked),
        OffsetsAreForgottenInTime(config),
        GroupsAreBounded(config),
    ]
