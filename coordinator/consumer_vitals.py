"""The vitals of a group of the consumer protocol: what every heartbeat reads and changes."""

from msgspec import Struct, field

from coordinator.consumer_member import Pulse
from coordinator.group_parts import GroupVitals, Session
from coordinator.limits import NEVER_MS
from coordinator.phases import Phase

INITIAL_EPOCH = 1


class ConsumerVitals(GroupVitals, Struct, array_like=True):
    """The part of a group that a heartbeat reads and writes. All times are in Unix milliseconds.

    Args:
        group_epoch: Raised by one for each change that needs a new target assignment.
        sessions: By member id, in the order in which the members joined.
        assignment_epoch: The group epoch for which the target assignment was computed.
        unsettled: How many members are not settled.
        revocations: By member id, the deadline of a member that has to give up partitions.
        joins, syncs: By member id of a classic member, the deadline of the join for which the coordinator has asked,
            and of the sync that follows a join.
        plan_ms: When the next target assignment is computed, or the hold of a policy on it may end.
        asks: Whether responses ask for topics or for a pattern's topics, also those to plain heartbeats.
        offsets_ms, earliest_ms, back_ms, instances, publish_ms: As in the vitals of a classic group.
        seats_ms: When a quarantine of `ConsumerGroup.seats` ends; none ends earlier.
        is_frozen: A freeze holds the target assignment of the group epoch.
    """

    phase: Phase = Phase.EMPTY
    group_epoch: int = INITIAL_EPOCH
    now_ms: int = 0
    sessions: dict[str, Pulse] = field(default_factory=dict)
    assignment_epoch: int = INITIAL_EPOCH
    unsettled: int = 0
    revocations: dict[str, Session] = field(default_factory=dict)
    joins: dict[str, Session] = field(default_factory=dict)
    syncs: dict[str, Session] = field(default_factory=dict)
    plan_ms: int = NEVER_MS
    offsets_ms: int = NEVER_MS
    earliest_ms: int = NEVER_MS
    back_ms: int = 0
    instances: dict[str, str] = field(default_factory=dict)
    publish_ms: int = NEVER_MS
    asks: bool = False
    seats_ms: int = NEVER_MS
    is_frozen: bool = False
