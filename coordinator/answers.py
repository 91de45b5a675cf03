"""What a member of the current generation hears, request by request and phase by phase.

The checks that come before (is it a member, is it this generation) stand in the rows of `kinds`; a handler looks its
answer up here. A group without members answers nobody from these tables: a member is unknown there.

Source: Kafka's GroupMetadataManager, classicGroupJoinExistingMember, classicGroupSync, classicGroupHeartbeat and
ClassicGroup.validateOffsetCommit.
"""

from enum import Enum, auto

from coordinator.errors import ErrorCode
from coordinator.phases import Phase


class Rejoin(Enum):
    """What becomes of a known member's join."""

    PARK = auto()  # it waits for the others
    REPEAT = auto()  # its reply was lost: the same once more, at once
    REBALANCE = auto()  # it waits, and everybody must rejoin


class Sync(Enum):
    """What becomes of a sync."""

    REJOIN = auto()  # its generation is over already: REBALANCE_IN_PROGRESS
    PARK = auto()  # it waits for the leader's plan
    PLAN = auto()  # the plan is known: its part at once


#                    same protocols: leader    follower          changed protocols: either
REJOIN = {
    Phase.PREPARING:  ((Rejoin.PARK,      Rejoin.PARK),   Rejoin.PARK),
    Phase.COMPLETING: ((Rejoin.REPEAT,    Rejoin.REPEAT), Rejoin.REBALANCE),
    Phase.STABLE:     ((Rejoin.REBALANCE, Rejoin.REPEAT), Rejoin.REBALANCE),
}  # fmt: skip

SYNC = {
    Phase.PREPARING:  Sync.REJOIN,
    Phase.COMPLETING: Sync.PARK,
    Phase.STABLE:     Sync.PLAN,
}  # fmt: skip

HEARTBEAT = {
    Phase.PREPARING:  ErrorCode.REBALANCE_IN_PROGRESS,
    Phase.COMPLETING: ErrorCode.NONE,
    Phase.STABLE:     ErrorCode.NONE,
}  # fmt: skip

COMMIT = {
    Phase.PREPARING:  ErrorCode.NONE,  # what a member does before it gives its partitions up
    Phase.COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
    Phase.STABLE:     ErrorCode.NONE,
}  # fmt: skip


def rejoin(phase: Phase, *, is_leader: bool, same_protocols: bool) -> Rejoin:
    """Look up what becomes of a known member's join."""
    (leader, follower), changed = REJOIN[phase]
    if not same_protocols:
        return changed
    return leader if is_leader else follower
