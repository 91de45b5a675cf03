"""I9 to I12 and I22: former members stay out, sessions and waits end in time, groups are bounded."""

from dataclasses import dataclass
from typing import Any

from coordinator.base.config import Config
from coordinator.base.limits import NEVER_MS, PENDING_MAX
from coordinator.base.states import Phase
from coordinator.classic.deadlines import Deadline, deadlines
from coordinator.messages.events import MemberExpired, MemberFenced, MemberJoined
from coordinator.messages.fields import Event
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import JoinGroup, OffsetCommit, SyncGroup
from coordinator.messages.responses import HeartbeatAnswer, OffsetCommitAnswer, Reply, SyncGroupAnswer
from coordinator.state.classic_group import Group
from tests.coordinator.invariants.step import GONE, NONE, REBALANCE_IN_PROGRESS, KnownRequests, Step, forgotten


class TheGoneStayOut:
    """I9: after its member left or expired, an id gets no NONE to a heartbeat, sync or member's commit.

    It may join again: a repeated first join, whose response was lost, makes the same id at any later time.
    """

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.gone: set[str] = set()

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.outputs:
            if isinstance(output, GONE):
                self.gone.add(output.member_id)
            elif isinstance(output, MemberJoined):
                self.gone.discard(output.member_id)
            elif isinstance(output, Reply):
                request = self.asked.by(output)
                if output.answer.code == NONE and self._is_of_a_member(request):
                    assert request.member_id not in self.gone, f"{request.member_id} is no longer a member"

    def _is_of_a_member(self, request: Any) -> bool:
        if isinstance(request, OffsetCommit):
            return request.generation_id >= 0 and bool(request.offsets)
        return isinstance(request, Heartbeat | SyncGroup)


class SessionsAreKept:
    """I10: no session ends before its timeout has passed since the latest request that counted.

    The end of a round and the replacement of a static member's process count as well. A join with another timeout does
    not count itself: until the next request that counts, the shorter timeout applies.
    """

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.timeouts_ms: dict[tuple[str | None, str], int] = {}
        self.alive_ms: dict[tuple[str | None, str], int] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        named_ms = self._named(step)
        counted: set[tuple[str | None, str]] = set()
        for output in step.outputs:
            if isinstance(output, Reply):
                self._heard(output, counted)
            elif isinstance(output, MemberExpired) and output.why == "session_expired":
                member = output.group_id, output.member_id
                silence_ms = output.at_ms - self.alive_ms.get(member, -NEVER_MS)
                timeout_ms = min(self.timeouts_ms.get(member, 0), named_ms.get(member, NEVER_MS))
                assert silence_ms >= timeout_ms, f"after {silence_ms} ms only: {output}"
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self._published(output.record)
            if isinstance(output, MemberFenced):
                old, new = (output.group_id, output.member_id), (output.group_id, output.replaced_by)
                taken_over = output.group_id, output.group_instance_id or ""
                self.timeouts_ms[new] = min(self.timeouts_ms.get(old, 0), named_ms.get(taken_over, NEVER_MS))
                self.alive_ms[new] = output.at_ms
            if isinstance(output, GONE):
                for memory in (self.timeouts_ms, self.alive_ms):
                    memory.pop((output.group_id, output.member_id), None)  # a new join starts again
        counted -= named_ms.keys()
        for group in (step.groups or {}).values():
            for member_id, session in group.hot_state.sessions.items():
                member = group.group_id, member_id
                known_ms = session.timeout_ms if member in counted else self.timeouts_ms.get(member, NEVER_MS)
                self.timeouts_ms[member] = min(known_ms, session.timeout_ms)

    def _published(self, record: GroupRecord) -> None:
        if record.state is Phase.COMPLETING:
            for published in record.members:
                member = record.group_id, published.member_id
                self.alive_ms[member] = max(record.since_ms, self.alive_ms.get(member, -NEVER_MS))

    @staticmethod
    def _named(step: Step) -> dict[tuple[str | None, str], int]:
        """Return the timeouts of joins, by member id or, without one, by instance id.

        Within the step, each may apply from some time on.
        """
        named_ms: dict[tuple[str | None, str], int] = {}
        for _, request in step.requests:
            if isinstance(request, JoinGroup):
                member = request.group_id, request.member_id or request.group_instance_id or ""
                named_ms[member] = min(request.session_timeout_ms, named_ms.get(member, NEVER_MS))
        return named_ms

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
    """I10, I11: every wait has a deadline, no longer than requested; no deadline before the read time is left."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.earliest: dict[str, Deadline] = {}
        self.latest_ms = self.read_ms = -NEVER_MS
        self.longest: dict[str, _Longest] = {}
        self.is_honest = True

    def watch(self, step: Step) -> None:
        self.latest_ms = max(self.latest_ms, step.now_ms)
        if step.received:
            self.read_ms = max(self.read_ms, step.received[-1].at_ms)
        self.note(step)
        for output in step.news:
            if forgotten(output):
                self.earliest.pop(output.group_id, None)
        for group_id, group in (step.groups or {}).items():
            hot_state = group.hot_state
            self.latest_ms = max(self.latest_ms, hot_state.now_ms)
            if step.has_honest_clocks:  # otherwise `JumpsHarmNobody` checks the true times
                self.check_waits(group, self.latest_ms)
            earliest = self.earliest[group_id] = min(deadlines(group))
            assert hot_state.earliest_ms <= earliest.at_ms, f"the alarm comes after {earliest}"
            assert earliest.at_ms > hot_state.now_ms or earliest.at_ms == NEVER_MS, f"did not fire: {earliest}"
            assert group.phase is not Phase.PREPARING or hot_state.joins_ms < NEVER_MS, "the joins have no deadline"
            assert group.phase is not Phase.COMPLETING or hot_state.syncs_ms < NEVER_MS, (
                "the assignments have no deadline"
            )
            is_kept = any((offset.expire_timestamp_ms or 0) >= NEVER_MS for _, _, offset in group.all_offsets())
            is_kept = is_kept or bool(group.pending_commits)
            assert group.phase is not Phase.EMPTY or hot_state.offsets_ms < NEVER_MS or is_kept, (
                "an Empty group has no deadline"
            )
            for member in group.members.values():
                parked = member.awaiting_join or member.awaiting_sync
                assert parked or hot_state.sessions[member.member_id].deadline_ms < NEVER_MS, (
                    "a session has no deadline"
                )
            assert all(s.deadline_ms < NEVER_MS for s in hot_state.pending.values()), "a pending id has no deadline"
            is_full = group.joins_parked >= self.config.group_max_size  # a refused member was awaited
            is_over = group.phase is Phase.PREPARING and group.delay is None and group.everybody_joined and not is_full
            assert not is_over, f"{group_id} waits, and all members have joined"
        for group_id, earliest in self.earliest.items() if step.has_honest_clocks and not step.deferred else ():
            horizon_ms = min(step.now_ms, self.read_ms) - self.config.clock_slack_ms
            assert earliest.at_ms > horizon_ms, f"overdue in {group_id}: {earliest}"

    def note(self, step: Step) -> None:
        """Store the requested timeouts, and whether the clocks are right."""
        self.is_honest = step.has_honest_clocks
        for _, request in step.requests:
            if isinstance(request, JoinGroup):
                longest = self.longest.setdefault(request.group_id, _Longest())
                longest.note(request.session_timeout_ms, request.rebalance_timeout_ms)

    def check_waits(self, group: Group, latest_ms: int) -> None:
        """Check that a wait starts at `latest_ms` at the latest, and is no longer than requested."""
        hot_state, members = group.hot_state, group.members.values()
        sessions = [*hot_state.sessions.values(), *hot_state.pending.values()]
        longest = self.longest.setdefault(group.group_id, _Longest())
        longest.note(
            max((s.timeout_ms for s in sessions), default=0), max((m.rebalance_timeout_ms for m in members), default=0)
        )
        round_ms = max(longest.rebalance_ms, self.config.group_initial_rebalance_delay_ms)
        session_ms = longest.session_ms
        if any(m.rebalance_timeout_ms <= 0 for m in members):  # if absent, they are awaited for a session timeout
            round_ms = max(round_ms, session_ms)
        if any(member.awaiting_join for member in members):
            session_ms = max(session_ms, self.config.group_new_member_join_timeout_ms)
        if self.is_honest and group.delay and not hot_state.extended and hot_state.back_ms <= group.since_ms:
            extended_ms = hot_state.joins_ms - group.since_ms
            assert extended_ms <= round_ms, f"{group.group_id} is delayed by {extended_ms} ms"
        waits = [(hot_state.joins_ms, round_ms), (hot_state.syncs_ms, round_ms)]
        waits += [(session.deadline_ms, session_ms) for session in sessions]
        for deadline_ms, longest_ms in waits:
            if deadline_ms < NEVER_MS:
                assert deadline_ms <= latest_ms + longest_ms, f"{group.group_id} waits until {deadline_ms}"


@dataclass
class _Longest:
    """The longest timeouts that members of one group have requested."""

    session_ms: int = 0
    rebalance_ms: int = 0

    def note(self, session_ms: int, rebalance_ms: int) -> None:
        self.session_ms = max(self.session_ms, session_ms)
        self.rebalance_ms = max(self.rebalance_ms, rebalance_ms)


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
        for group_id, group in (*(step.groups or {}).items(), *step.consumer_groups.items()):
            assert group.hot_state.now_ms >= self.group_ms.get(group_id, group.hot_state.now_ms), (
                f"the time of {group_id} went back"
            )
            assert group.since_ms <= group.hot_state.now_ms, f"the phase of {group_id} starts in the future"
            self.group_ms[group_id] = group.hot_state.now_ms


class GroupsAreBounded:
    """I22: a generation has at most `group_max_size` members, without absent static ones."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def watch(self, step: Step) -> None:
        for group in (step.groups or {}).values():
            size_max = self.config.group_max_size
            dynamic = sum(not m.is_static for m in group.members.values())
            assert group.joins_parked <= size_max, f"{group.joins_parked} joins are parked"
            assert len(group.hot_state.pending) <= PENDING_MAX, f"{len(group.hot_state.pending)} ids are pending"
            assert group.phase is Phase.PREPARING or dynamic <= size_max, f"{dynamic} members"
            for session in group.hot_state.sessions.values():
                assert session.timeout_ms >= self.config.group_min_session_timeout_ms, "a session is too short"
                assert session.timeout_ms <= self.config.group_max_session_timeout_ms, "a session is too long"
            for _, _, offset in group.all_offsets():
                assert len(offset.metadata) <= self.config.offset_metadata_max_bytes
