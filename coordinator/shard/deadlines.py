"""The time of a shard's groups: which deadlines fire, and what ends a group or replaces it."""

from collections.abc import Generator, Iterator

from coordinator.base.states import Phase
from coordinator.consumer.classic_members import must_downgrade
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Received
from coordinator.moves import drain, source
from coordinator.shard.converting import downgrade
from coordinator.shard.group_types import timers_of
from coordinator.shard.state import ShardState
from coordinator.shard.step import Step
from coordinator.state.classic_group import Group
from coordinator.state.consumer_group import ConsumerGroup


class Deadlines:
    """The deadlines of a shard in one step, and the ends of groups that they bring."""

    def __init__(self, state: ShardState, step: Step) -> None:
        self._state, self._step = state, step

    def stands_still(self, group_id: str) -> bool:
        """Return whether no time passes for a group, because the step has deferred an earlier request to it."""
        return group_id in self._step.waiting

    def begin(self, group: Group | ConsumerGroup, received: Received) -> int:
        """Set a group's time to that of a request, unless it stands still. Return it."""
        hot_state = group.hot_state
        if self.stands_still(group.group_id):
            return hot_state.now_ms
        hot_state.now_ms = max(received.at_ms, hot_state.now_ms)
        hot_state.record_lateness(self._step.times.now_ms, self._state.config.late_notice_ms)
        return hot_state.now_ms

    def pass_time(self) -> Iterator[Output]:
        """Fire the deadlines of groups, until the budget is used up."""
        horizon_ms = self._step.times.horizon_ms
        for group_id in self._state.store.due_by(horizon_ms):
            if self._step.budget.is_spent:
                return
            brought = list(self.advance(group_id, horizon_ms, self._step.times.now_ms))
            self._step.budget.spend(group_id, brought, 0)
            yield from brought
        yield from self._end_drains(horizon_ms)

    def _end_drains(self, horizon_ms: int) -> Iterator[Output]:
        """Refuse the releases of names that have waited for too long."""
        for group_id in drain.due_by(self._state.move_store, horizon_ms) if self._state.move_store is not None else ():
            yield from self.end_drain(group_id, horizon_ms)

    def end_drain(self, group_id: str, at_ms: int) -> Iterator[Output]:
        """Release a name whose open transactions have ended, or refuse its release after too long a wait."""
        if self._state.move_store is not None and not self.stands_still(group_id):
            yield from source.end_drain(self._state.move_store, group_id, at_ms)

    def advance_all(self, until_ms: int) -> Iterator[Output]:
        """Fire the deadlines of all groups up to the time of a request."""
        for group_id in self._state.store.due_by(until_ms):
            yield from self.advance(group_id, until_ms, self._step.times.now_ms)

    def advance(self, group_id: str, until_ms: int, noticed_ms: int) -> Iterator[Output]:
        """Fire the deadlines of a group up to a time, unless it stands still."""
        hot_state = self._state.store.hot_state_of(group_id)
        if self.stands_still(group_id) or hot_state is None or hot_state.earliest_ms > max(until_ms, hot_state.now_ms):
            return
        group = self._state.store.open(group_id)
        assert group is not None, "a group with hot state exists"
        until_ms, epoch = max(until_ms, hot_state.now_ms), group.generation_id
        yield from timers_of(group).advance(group, until_ms, noticed_ms, self._state.policies.config_of(group_id))
        if (yield from self.conclude(group, has_lost_consumer=group.generation_id > epoch)):
            yield from self.advance(group_id, until_ms, noticed_ms)

    def conclude(self, group: Group | ConsumerGroup, *, has_lost_consumer: bool) -> Generator[Output, None, bool]:
        """Remove a group that has ended, or replace it by a classic one if need be. Return whether it was replaced."""
        if group.phase is Phase.DEAD:
            self._state.store.remove_ended(group)
            if self._state.move_store is not None:
                self._state.move_store.record_end(group.group_id, group.hot_state.now_ms)
                yield from self.end_drain(group.group_id, group.hot_state.now_ms)
        elif isinstance(group, ConsumerGroup) and must_downgrade(group, self._state.config):
            now_ms, config = group.hot_state.now_ms, self._state.config
            self._state.store.put((yield from downgrade(group, now_ms, config, has_lost_consumer=has_lost_consumer)))
            return True
        return False
