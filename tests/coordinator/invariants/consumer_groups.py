"""next-generation.md 10.9, in the state of groups of the consumer protocol."""

from typing import NamedTuple

from coordinator.base.config import Config
from coordinator.base.limits import NEVER_MS
from coordinator.consumer.deadlines import deadlines
from coordinator.messages.events import GroupConverted, MemberExpired
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.requests import JoinGroup
from coordinator.messages.responses import (
    ConsumerGroupHeartbeatAnswer,
    HeartbeatAnswer,
    JoinGroupAnswer,
    Reply,
    SyncGroupAnswer,
)
from coordinator.state.consumer_group import AWAY_EPOCH, ConsumerGroup
from coordinator.state.consumer_member import ConsumerMember, MemberState, Partitions
from tests.coordinator.invariants.step import (
    GONE,
    NONE,
    REBALANCE_IN_PROGRESS,
    KnownRequests,
    Step,
    forgotten,
)

Place = tuple[str, int]
MemberKey = tuple[str, str]


def places(partitions: Partitions) -> set[Place]:
    """Return partitions as topic ids and numbers."""
    return {(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers}


def targets_of(group: ConsumerGroup, member_id: str) -> set[Place]:
    """Return a member's part of the latest plan."""
    return {(t, n) for t, numbers in group.targets.get(member_id, {}).items() for n in numbers}


def is_at_rest(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether a member is STABLE at the assignment epoch."""
    is_current = group.epoch_of(member.member_id) == group.hot_state.assignment_epoch
    return member.state is MemberState.STABLE and is_current


def has_own_plan(group: ConsumerGroup) -> bool:
    """Return whether a server assignor has made the plan of the group epoch.

    The first plan of a converted group is that of its classic leader, which may be any.
    """
    return bool(group.assignor) and group.hot_state.group_epoch == group.hot_state.assignment_epoch


class PartitionsHaveOneHolder:
    """10.9, 1: no partition is in the assigned or revoking ones of two members, or in both of one member."""

    def watch(self, step: Step) -> None:
        for group in step.consumer_groups.values():
            held: dict[Place, str] = {}
            for member in group.members.values():
                assigned, revoking = places(member.assigned), places(member.revoking)
                assert not assigned & revoking, f"{member.member_id} has {assigned & revoking}, and gives it up"
                for place in assigned | revoking:
                    holder = held.setdefault(place, member.member_id)
                    assert holder == member.member_id, f"{place} is of {holder} and of {member.member_id}"


class EpochsGrow:
    """10.9, 2: member epoch <= assignment epoch <= group epoch, or -2; none of them falls in one life of the group."""

    def __init__(self) -> None:
        self.latest: dict[str, tuple[int, int]] = {}
        self.members: dict[str, dict[str, int]] = {}

    def watch(self, step: Step) -> None:
        for output in step.news:
            if forgotten(output) or isinstance(output, GroupConverted):
                self.latest.pop(output.group_id or "", None)
                self.members.pop(output.group_id or "", None)
            elif isinstance(output, GONE):
                self.members.get(output.group_id or "", {}).pop(output.member_id, None)
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self._published(output.record)
        for group_id, group in step.consumer_groups.items():
            self._grows(group_id, group.hot_state.group_epoch, group.hot_state.assignment_epoch)
            before = self.members.get(group_id, {})
            for member_id, session in group.hot_state.sessions.items():
                is_within = session.epoch == AWAY_EPOCH or 0 <= session.epoch <= group.hot_state.assignment_epoch
                assert is_within, f"{member_id} has the epoch {session.epoch} in {group.hot_state}"
                known = before.get(member_id, 0)
                assert session.epoch == AWAY_EPOCH or session.epoch >= known, f"{member_id} fell from {known}"
            self.members[group_id] = {m: session.epoch for m, session in group.hot_state.sessions.items()}

    def _published(self, record: GroupRecord) -> None:
        if record.type == "consumer":
            assert isinstance(record.assignment_epoch, int), f"no assignment epoch: {record}"
            self._grows(record.group_id, record.generation_id, record.assignment_epoch)

    def _grows(self, group_id: str, group_epoch: int, assignment_epoch: int) -> None:
        before = self.latest.get(group_id, (0, 0))
        assert assignment_epoch <= group_epoch, f"{group_id} has a plan for {assignment_epoch} at {group_epoch}"
        assert group_epoch >= before[0], f"the epoch of {group_id} fell from {before[0]} to {group_epoch}"
        assert assignment_epoch >= before[1], f"the plan of {group_id} is for {assignment_epoch}, after {before[1]}"
        self.latest[group_id] = group_epoch, assignment_epoch


class TheSettledHaveTheirTargets:
    """10.9, 3: with a plan of the group epoch, a member that is STABLE at it has its target, and gives nothing up."""

    def watch(self, step: Step) -> None:
        for group in step.consumer_groups.values():
            unsettled = 0
            for member in group.members.values():
                is_settled = is_at_rest(group, member)
                unsettled += not is_settled
                assert group.hot_state.sessions[member.member_id].is_settled == is_settled, f"{member.member_id} is not"
                if is_settled and has_own_plan(group):
                    subscribed = group.topic_ids_of(member)
                    wanted = {place for place in targets_of(group, member.member_id) if place[0] in subscribed}
                    has = places(member.assigned)
                    assert has == wanted, f"{member.member_id} has {sorted(has)}, its target is {sorted(wanted)}"
                    assert not member.revoking, f"{member.member_id} is stable and gives up {member.revoking}"
            assert group.hot_state.unsettled == unsettled, f"{group.hot_state.unsettled} are counted, not {unsettled}"
            assert group.phase is group.state, f"{group.group_id} is {group.phase}, and has to be {group.state}"


class RevocationsEnd:
    """10.9, 4: a member that has to give up partitions is UNREVOKED, and has a deadline for it.

    No deadline of a group is left behind, and none is later than its timeout from now on.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.read_ms = self.latest_ms = -NEVER_MS
        self.earliest_ms: dict[str, int] = {}
        self.longest_ms: dict[MemberKey, int] = {}
        """The longest session timeout of each member: a session that has begun goes on if its timeout is shortened."""

    def watch(self, step: Step) -> None:
        self.latest_ms = max(self.latest_ms, step.now_ms)
        if step.received:
            self.read_ms = max(self.read_ms, step.received[-1].at_ms)
        for output in step.news:
            if forgotten(output) or isinstance(output, GroupConverted):
                self.earliest_ms.pop(output.group_id or "", None)
        for group_id, group in step.consumer_groups.items():
            self.latest_ms = max(self.latest_ms, group.hot_state.now_ms)
            for member in group.members.values():
                self._waits(group, member, is_honest=step.has_honest_clocks)
            is_waiting = group.hot_state.group_epoch > group.hot_state.assignment_epoch and bool(group.members)
            assert (group.hot_state.plan_ms < NEVER_MS) == is_waiting, f"the plan of {group_id}: {group.hot_state}"
            earliest = min(deadlines(group))
            assert group.hot_state.earliest_ms <= earliest.at_ms, f"the alarm comes after {earliest}"
            self.earliest_ms[group_id] = earliest.at_ms
        horizon_ms = min(step.now_ms, self.read_ms) - self.config.clock_slack_ms
        for group_id, at_ms in self.earliest_ms.items() if step.has_honest_clocks and not step.deferred else ():
            assert at_ms > horizon_ms, f"a deadline of {group_id} was due at {at_ms}"

    def _waits(self, group: ConsumerGroup, member: ConsumerMember, *, is_honest: bool) -> None:
        hot_state, member_id = group.hot_state, member.member_id
        is_away = group.epoch_of(member_id) == AWAY_EPOCH
        assert not member.revoking or member.state is MemberState.UNREVOKED, f"{member_id} gives up, and is stable"
        must_confirm = member.state is MemberState.UNREVOKED and not is_away and member.classic is None
        assert (member_id in hot_state.revocations) == must_confirm, f"{member_id} has a wrong revocation deadline"
        for waits in (hot_state.revocations, hot_state.joins, hot_state.syncs):
            if (wait := waits.get(member_id)) is not None and is_honest:
                longest_ms = self.latest_ms + max(wait.timeout_ms, 0)
                assert wait.deadline_ms <= longest_ms, f"{member_id} waits until {wait.deadline_ms}"
        session, key = hot_state.sessions[member_id], (group.group_id, member_id)
        longest_ms = self.longest_ms[key] = max(session.timeout_ms, self.longest_ms.get(key, 0))
        assert session.deadline_ms < NEVER_MS, f"the session of {member_id} has no end"
        if is_honest:
            assert session.deadline_ms <= self.latest_ms + longest_ms, f"{member_id} lives on: {session}"


class PlansAreComplete:
    """10.9, 5: a plan gives each partition of each subscribed topic to one subscriber. Uniform plans are balanced."""

    def watch(self, step: Step) -> None:
        for group in step.consumer_groups.values():
            if group.members and has_own_plan(group):
                self._is_complete(group)

    @staticmethod
    def _is_complete(group: ConsumerGroup) -> None:
        owners: dict[Place, str] = {}
        for member_id, member in group.members.items():
            subscribed = group.topic_ids_of(member)
            for place in targets_of(group, member_id):
                assert place[0] in subscribed, f"{member_id} is to get {place}, and does not subscribe to it"
                assert owners.setdefault(place, member_id) == member_id, f"{place} is to go to two members"
        topics = {t.topic_id: t.partitions for t in group.topics.values()}
        wanted = {
            (topic_id, number)
            for topic_id in set().union(*(group.topic_ids_of(m) for m in group.members.values()))
            for number in range(topics[topic_id])
        }
        assert owners.keys() == wanted, f"{sorted(owners.keys() ^ wanted)} are planned wrongly in {group.group_id}"
        kinds = {(m.names, m.regex) for m in group.visible}
        if group.assignor == "uniform" and len(kinds) == 1 and not all(next(iter(kinds))):
            sizes = [len(targets_of(group, member.member_id)) for member in group.visible]
            assert max(sizes) - min(sizes) <= 1, f"the plan is not balanced: {sizes}"


class Life(NamedTuple):
    """When a member was last heard, and how long it may be silent."""

    heard_ms: int
    timeout_ms: int


class ConsumerSessionsAreKept:
    """3.7, 10.6: a session ends after its timeout without an accepted request, not before, and not later.

    A heartbeat that the gateway repeats on a member's behalf does not renew it; neither does one that is refused.
    """

    def __init__(self, config: Config, asked: KnownRequests) -> None:
        self.config, self.asked = config, asked
        self.deadlines_ms: dict[MemberKey, tuple[int, bool]] = {}
        self.lives: dict[MemberKey, Life] = {}
        self.classics: set[MemberKey] = set()
        """The members that speak the classic protocol in a group of the consumer protocol."""
        self.groups: set[str] = set()
        """The groups that are of the consumer protocol now."""

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        counted: set[MemberKey] = set()
        for output in step.outputs:
            if isinstance(output, Reply):
                self._heard(output, counted)
            elif isinstance(output, GroupConverted) or forgotten(output):
                self._begins_anew(output.group_id or "")
            elif isinstance(output, GONE):
                key = output.group_id or "", output.member_id
                life = self.lives.pop(key, None)
                self.deadlines_ms.pop(key, None)
                if isinstance(output, MemberExpired) and output.why == "session_expired" and life is not None:
                    silence_ms = output.at_ms - life.heard_ms
                    assert silence_ms >= life.timeout_ms, f"after {silence_ms} ms only: {output}"
        for group_id, group in step.consumer_groups.items():
            for member_id, session in group.hot_state.sessions.items():
                key = group_id, member_id
                if key in self.classics and not session.is_classic:
                    counted.add(key)  # it has changed its protocol, and begins a session
                (self.classics.add if session.is_classic else self.classics.discard)(key)
                deadline_ms, was_extended = self.deadlines_ms.get(key, (NEVER_MS, False))
                is_longer = session.deadline_ms > deadline_ms and not (session.extended and not was_extended)
                assert not is_longer or key in counted, f"{member_id} sent nothing, and its session is longer"
                self.deadlines_ms[key] = session.deadline_ms, session.extended
                if key in self.lives:
                    life = self.lives[key]
                    known_ms = session.timeout_ms if key in counted else life.timeout_ms
                    self.lives[key] = Life(life.heard_ms, min(known_ms, session.timeout_ms))

    def _begins_anew(self, group_id: str) -> None:
        self.groups.discard(group_id)
        self.lives = {key: life for key, life in self.lives.items() if key[0] != group_id}
        self.deadlines_ms = {key: known for key, known in self.deadlines_ms.items() if key[0] != group_id}

    def _heard(self, reply: Reply, counted: set[MemberKey]) -> None:
        answer, request = reply.answer, self.asked.by(reply)
        match answer:
            case ConsumerGroupHeartbeatAnswer(code=0):
                if request.again and answer.member_epoch >= 0:
                    self.groups.add(request.group_id)
                    if request.member_epoch == 0:
                        counted.add((request.group_id, answer.member_id))  # a new member begins a session with it
                counts = answer.member_epoch >= 0 and not request.again
            case HeartbeatAnswer():
                counts = answer.code in (NONE, REBALANCE_IN_PROGRESS)
            case SyncGroupAnswer(code=0) | JoinGroupAnswer(code=0):
                counts = True
            case _:
                return
        key = request.group_id, getattr(answer, "member_id", None) or request.member_id
        at_ms = self.asked.answered_at_ms(reply)
        if isinstance(answer, ConsumerGroupHeartbeatAnswer) and counts:
            self.groups.add(request.group_id)
        if counts and request.group_id in self.groups:
            counted.add(key)
            is_classic = isinstance(request, JoinGroup)
            named_ms = request.session_timeout_ms if is_classic else self.config.group_consumer_session_timeout_ms
            life = self.lives.get(key, Life(-NEVER_MS, NEVER_MS))
            self.lives[key] = Life(max(at_ms, life.heard_ms), min(life.timeout_ms, named_ms))
