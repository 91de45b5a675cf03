"""The coordinator's responses to a member of the current generation, by request and by phase.

The rows of `handlers` have the checks that come before (membership and generation); a handler reads its response from
these tables. They have no column for a group without members, because every member id is unknown there.

Source: Kafka's GroupMetadataManager, classicGroupJoinExistingMember, classicGroupSync, classicGroupHeartbeat and
ClassicGroup.validateOffsetCommit.
"""

from enum import Enum, auto

from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase


class Rejoin(Enum):
    """The coordinator's action for a join of a known member."""

    PARK = auto()  # the join waits for the joins of the other members
    REPEAT = auto()  # the response was lost: the same response again, at once
    REBALANCE = auto()  # the join waits, and all members must rejoin
    SEAT = auto()  # the member has an offer of a seat, or leads in a freeze: answered at once


class Sync(Enum):
    """The coordinator's action for a sync."""

    REJOIN = auto()  # the generation has ended: REBALANCE_IN_PROGRESS
    PARK = auto()  # the sync waits for the leader's assignments
    PLAN = auto()  # the assignments are known: the response comes at once


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
    Phase.PREPARING:  ErrorCode.NONE,  # a member commits before its partitions are revoked
    Phase.COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
    Phase.STABLE:     ErrorCode.NONE,
}  # fmt: skip


def rejoin(phase: Phase, *, is_leader: bool, same_protocols: bool) -> Rejoin:
    """Return how to handle a join of a known member."""
    (leader, follower), changed = REJOIN[phase]
    if not same_protocols:
        return changed
    return leader if is_leader else follower
