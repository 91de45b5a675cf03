"""When a group is at rest: Stable, with every living process as a member that knows its generation and partitions."""

from collections.abc import Iterable, Mapping, Sequence

from coordinator.base.consumer_protocol import assigned_partitions
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from coordinator.member.member import MemberState
from coordinator.messages.events import PlanMade
from coordinator.messages.outputs import Output
from coordinator.state.classic_group import Group, HotState
from coordinator.state.consumer_group import ConsumerGroup, ConsumerHotState
from coordinator.state.group import Session
from tests.simulation.actors import Process
from tests.simulation.consumers import REVOCATION_MS_MAX, Consumer, State

AnyProcess = Process | Consumer
AnyGroup = Group | ConsumerGroup

ROUNDS = 3
"""The rounds of heartbeats after a plan in which a group becomes Stable, if all of its members answer."""

ROUND_TRIP_MS_MAX = 8_000
"""The longest time from a heartbeat that is due to its answer, while the simulation is calm."""


REQUEST_TIMEOUT_MS_MAX = 10_000
"""The longest time after which a process sends a request again."""


def last_deadline_ms(groups: Iterable[AnyGroup], now_ms: int) -> int:
    """Return the latest of now, of the deadlines that are set, but for those of offsets, and of the groups' times.

    A group's time never goes back (I12). If a clock was ahead, the next wait of its groups starts at that time. If the
    coordinator was unavailable, all deadlines may be in the past.
    """
    waits = [at_ms for group in groups for at_ms in _waits_ms(group.hot_state)]
    return max((at_ms for at_ms in waits if at_ms < NEVER_MS and at_ms > now_ms), default=now_ms)


def _waits_ms(hot_state: HotState | ConsumerHotState) -> list[int]:
    sessions: list[Session] = list(hot_state.sessions.values())
    if isinstance(hot_state, ConsumerHotState):
        for waits in (hot_state.revocations, hot_state.joins, hot_state.syncs):
            sessions += waits.values()
        times_ms = [hot_state.plan_ms, hot_state.now_ms]
    else:
        sessions += hot_state.pending.values()
        times_ms = [hot_state.joins_ms, hot_state.syncs_ms, hot_state.policy_ms, hot_state.now_ms]
    return [*times_ms, *(session.deadline_ms for session in sessions)]


def restless(groups: Mapping[str, AnyGroup], living: Mapping[str, Sequence[AnyProcess]]) -> str | None:
    """Return a message about a group that is not at rest; None if all are.

    Args:
        living: The processes of each group.
    """
    messages = (_restless(group_id, groups.get(group_id), processes) for group_id, processes in living.items())
    return next((message for message in messages if message is not None), None)


def _restless(group_id: str, group: AnyGroup | None, living: Sequence[AnyProcess]) -> str | None:
    if not living:
        is_empty = group is None or group.phase is Phase.EMPTY
        return None if is_empty or group is None else f"{group_id} has no living member and is {group.phase.value}"
    if group is None or group.phase is not Phase.STABLE:
        return f"{group_id} is {group and group.phase.value}"
    if set(group.members) != {process.member_id for process in living}:
        return f"{group_id} has members {list(group.members)}, alive are {[p.member_id for p in living]}"
    return next((message for p in living if (message := _behind(group, p)) is not None), None)


def _behind(group: AnyGroup, process: AnyProcess) -> str | None:
    """Return a message about a process that does not know its generation or its partitions."""
    if isinstance(process, Process):
        member = process.member
        known = group.epoch_of(member.member_id) if isinstance(group, ConsumerGroup) else group.generation_id
        is_right = (member.state, member.generation_id) == (MemberState.STABLE, known)
        if not is_right:
            return f"{member.member_id} is {member.state.name} in generation {member.generation_id}"
        return _held(group, process) if isinstance(group, Group) else None
    if not isinstance(group, ConsumerGroup):
        return f"{group.group_id} is a classic group, and {process.member_id} is alive"
    member_id, assigned = process.member_id, group.members[process.member_id].assigned
    owned = {topic_id: set(numbers) for topic_id, numbers in process.owned.items() if numbers}
    is_right = process.state is State.FOLLOWING and process.epoch == group.epoch_of(member_id)
    if not is_right or owned != {topic_id: set(numbers) for topic_id, numbers in assigned.items()}:
        return f"{member_id} is {process.state.name} at {process.epoch} with {owned}, and should have {assigned}"
    return None


def _held(group: Group, process: Process) -> str | None:
    """Return a message about a group whose rebalance is held, or about a process that does not know its partitions."""
    if group.policy_state.is_held or group.policy_state.quarantined:
        return f"{group.group_id} is held, or has members in quarantine"
    assigned = assigned_partitions(group.members[process.member_id].assignment) or {}
    return None if process.owned == assigned else f"{process.member_id} has {process.owned}, and should have {assigned}"


class Rounds:
    """10.9, 6: a group whose members all answer is Stable within three rounds of heartbeats after its plan."""

    def __init__(self, interval_ms: int) -> None:
        self.longest_ms = ROUNDS * (interval_ms + REVOCATION_MS_MAX + ROUND_TRIP_MS_MAX)
        self.planned_ms: dict[str | None, int] = {}

    def begin(self, group_ids: Iterable[str], now_ms: int) -> None:
        """Count the rounds of all groups from now on, once the members have sent lost requests again."""
        self.planned_ms = dict.fromkeys(group_ids, now_ms + REQUEST_TIMEOUT_MS_MAX)

    def note(self, outputs: Iterable[Output], now_ms: int) -> None:
        """Store the times of plans."""
        for output in outputs:
            if isinstance(output, PlanMade):
                self.planned_ms[output.group_id] = now_ms

    def overdue(
        self, groups: Mapping[str, AnyGroup], living: Mapping[str, Sequence[AnyProcess]], now_ms: int
    ) -> str | None:
        """Return a message about a group that takes longer; None if none does. All of its members have to be alive, and
        no freeze may hold it.
        """
        messages = (self._overdue(groups.get(group_id), alive, now_ms) for group_id, alive in living.items())
        return next((message for message in messages if message is not None), None)

    def _overdue(self, group: AnyGroup | None, living: Sequence[AnyProcess], now_ms: int) -> str | None:
        if not isinstance(group, ConsumerGroup) or group.phase in (Phase.STABLE, Phase.EMPTY, Phase.ASSIGNING):
            return None  # an Assigning group has no plan for its epoch yet, for example because a policy holds it
        are_all_alive = group.members.keys() == {p.member_id for p in living if isinstance(p, Consumer)}
        took_ms = now_ms - self.planned_ms.get(group.group_id, now_ms)
        if group.hot_state.is_frozen or not are_all_alive or took_ms <= self.longest_ms:
            return None
        return f"{group.group_id} is {group.phase.value} {took_ms} ms after its plan"
