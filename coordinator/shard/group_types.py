"""The functions of a shard that depend on the type of a group: deadlines, short replies, published records."""

from collections.abc import Iterator
from typing import Any

from coordinator.base.config import Config
from coordinator.classic import deadlines, join, policy_deadlines
from coordinator.classic.describe import publishing
from coordinator.common.timers import Timers
from coordinator.consumer import deadlines as consumer_deadlines
from coordinator.consumer import epochs, heartbeat
from coordinator.consumer.publish import group_after
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.heartbeats import AnyHeartbeat, Heartbeat
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Request
from coordinator.messages.responses import Reply
from coordinator.state.classic_group import Group, HotState
from coordinator.state.consumer_group import ConsumerGroup, ConsumerHotState


def timers_of(group: Group | ConsumerGroup) -> Timers[Any]:
    """Return the deadlines of groups of that type."""
    return consumer_deadlines.TIMERS if isinstance(group, ConsumerGroup) else deadlines.TIMERS


def answer_from_hot_state(
    hot_state: HotState | ConsumerHotState, request: AnyHeartbeat, at_ms: int, config: Config
) -> Reply | None:
    """Return the reply to a heartbeat that needs only the hot state of its group; None for every other one."""
    if type(request) is Heartbeat:
        return join.answer_heartbeat(hot_state, request, at_ms) if type(hot_state) is HotState else None
    assert type(request) is ConsumerGroupHeartbeat, "only heartbeats have a short path"
    return heartbeat.answer_heartbeat(hot_state, request, at_ms, config)


def with_published(
    group: Group | ConsumerGroup, outputs: Iterator[Output], request: Request, at_ms: int, config: Config
) -> Iterator[Output]:
    """Return the outputs of a request, with the records and events that the group publishes after them."""
    if isinstance(group, ConsumerGroup):
        return group_after(group, outputs, at_ms, config, getattr(request, "member_id", ""))
    return publishing(group, outputs)


def reconsidered(group: Group | ConsumerGroup, at_ms: int, config: Config) -> Iterator[Output]:
    """Apply other policies to what a group holds, and return the outputs, with the records and events after them."""
    if isinstance(group, ConsumerGroup):
        return group_after(group, epochs.reconsider(group, at_ms, config), at_ms, config)
    return publishing(group, policy_deadlines.reconsider(group, at_ms, config))
