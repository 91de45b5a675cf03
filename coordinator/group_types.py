"""The functions of a shard that depend on the type of a group: deadlines, short replies, published records."""

from collections.abc import Iterator
from typing import Any

from coordinator import deadlines, membership
from coordinator.config import Config
from coordinator.consumer import deadlines as consumer_deadlines
from coordinator.consumer import heartbeats, raising
from coordinator.consumer.publishing import following
from coordinator.consumer_group import ConsumerGroup
from coordinator.consumer_requests import ConsumerGroupHeartbeat
from coordinator.consumer_vitals import ConsumerVitals
from coordinator.describe import publishing
from coordinator.group import Group, Vitals
from coordinator.heartbeats import AnyHeartbeat, Heartbeat
from coordinator.outputs import Output, Reply
from coordinator.seats import debts
from coordinator.timers import Timers


def timers_of(group: Group | ConsumerGroup) -> Timers[Any]:
    """Return the deadlines of groups of that type."""
    return consumer_deadlines.TIMERS if isinstance(group, ConsumerGroup) else deadlines.TIMERS


def answer_of_vitals(
    vitals: Vitals | ConsumerVitals, request: AnyHeartbeat, at_ms: int, config: Config
) -> Reply | None:
    """Return the reply to a heartbeat that needs only the vitals of its group; None for every other one."""
    if type(request) is Heartbeat:
        return membership.heartbeat_of_vitals(vitals, request, at_ms) if type(vitals) is Vitals else None
    assert type(request) is ConsumerGroupHeartbeat, "only heartbeats have a short path"
    return heartbeats.heartbeat_of_vitals(vitals, request, at_ms, config)


def with_published(
    group: Group | ConsumerGroup, outputs: Iterator[Output], request: Any, at_ms: int, config: Config
) -> Iterator[Output]:
    """Return the outputs of a request, with the records and events that the group publishes after them."""
    if isinstance(group, ConsumerGroup):
        return following(group, outputs, at_ms, config, getattr(request, "member_id", ""))
    return publishing(group, outputs)


def reconsidered(group: Group | ConsumerGroup, at_ms: int, config: Config) -> Iterator[Output]:
    """Apply other policies to what a group holds, and return the outputs, with the records and events after them."""
    if isinstance(group, ConsumerGroup):
        return following(group, raising.reconsider(group, at_ms, config), at_ms, config)
    return publishing(group, debts.reconsider(group, at_ms, config))
