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
from coordinator.state.classic_group import Group
from coordinator.state.consumer_group import ConsumerGroup


class ShardTime(ShardState):
    """A shard and its deadlines."""

    def _begin(self, group: Group | ConsumerGroup, received: Received) -> int:
        """Set a group's time to that of a request, and return it."""
        vitals = group.vitals
        vitals.now_ms = max(received.at_ms, vitals.now_ms)
        vitals.note_lateness(self._times.now_ms, self._config.late_notice_ms)
        return vitals.now_ms

    def _pass_time(self) -> Iterator[Output]:
        """Fire the deadlines of groups whose requests are all handled, until the budget is used up."""
        horizon_ms = self._times.horizon_ms
        for group_id in self._groups.due_by(horizon_ms):
            if self._budget.is_spent:
                return
            if group_id not in self._waiting:
                brought = list(self._advance(group_id, horizon_ms, self._times.now_ms))
                self._budget.spend(group_id, brought, 0)
                yield from brought
        yield from self._end_drains(horizon_ms)

    def _end_drains(self, horizon_ms: int) -> Iterator[Output]:
        """Refuse the releases of names that have waited for too long."""
        for group_id in drain.due_by(self._moves, horizon_ms) if self._moves is not None else ():
            if group_id not in self._waiting:
                yield from self._end_drain(group_id, horizon_ms)

    def _end_drain(self, group_id: str, at_ms: int) -> Iterator[Output]:
        """Release a name whose open transactions have ended, or refuse its release after too long a wait."""
        if self._moves is not None:
            yield from source.end_drain(self._moves, group_id, at_ms)

    def _advance(self, group_id: str, until_ms: int, noticed_ms: int) -> Iterator[Output]:
        vitals = self._groups.vitals_of(group_id)
        if vitals is None or vitals.earliest_ms > max(until_ms, vitals.now_ms):
            return
        group = self._groups.open(group_id)
        assert group is not None, "a group with vitals exists"
        until_ms, epoch = max(until_ms, vitals.now_ms), group.generation_id
        yield from timers_of(group).advance(group, until_ms, noticed_ms, self._policies.config_of(group_id))
        if (yield from self._conclude(group, has_lost_consumer=group.generation_id > epoch)):
            yield from self._advance(group_id, until_ms, noticed_ms)

    def _conclude(self, group: Group | ConsumerGroup, *, has_lost_consumer: bool) -> Generator[Output, None, bool]:
        """Remove a group that has ended, or replace it by a classic one if need be. Return whether it was replaced."""
        if group.phase is Phase.DEAD:
            self._groups.forget(group)
            if self._moves is not None:
                self._moves.note_end(group.group_id, group.vitals.now_ms)
                yield from self._end_drain(group.group_id, group.vitals.now_ms)
        elif isinstance(group, ConsumerGroup) and must_downgrade(group, self._config):
            now_ms = group.vitals.now_ms
            self._groups.put((yield from downgrade(group, now_ms, self._config, has_lost_consumer=has_lost_consumer)))
            return True
        return False
