"""Group phases and the moves between them.

Every phase change goes through `move`, and every legal change is a row of `MOVES`. A missing row is a bug in the
caller, never a client's mistake: a bad request is answered with an error code before that.

Source: Kafka's ClassicGroupState and its valid previous states (KIP-62, KIP-134).
"""

from enum import Enum

from coordinator.base.errors import IllegalMove


class Phase(Enum):
    """The phase of a group, with Kafka's own name for it. A classic group is never in one of the last three.

    A share group is Empty, Stable or Dead.
    """

    EMPTY = "Empty"  # no members; exists while offsets are kept
    PREPARING = "PreparingRebalance"  # joins are being collected
    COMPLETING = "CompletingRebalance"  # all joins have arrived; the leader's assignments are awaited
    STABLE = "Stable"  # the assignments of this generation are known
    DEAD = "Dead"  # removed
    ASSIGNING = "Assigning"  # consumer protocol: the group epoch waits for a plan
    RECONCILING = "Reconciling"  # consumer protocol: some member does not follow the plan yet
    NOT_READY = "NotReady"  # streams: topics of the topology are missing, or have wrong numbers of partitions

    __hash__ = object.__hash__  # every heartbeat looks up tables by phase; the default hash is slow


class GroupType(Enum):
    """The protocol of a group's members, with Kafka's own name for it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"  # KIP-848
    SHARE = "share"  # KIP-932; only groups that Kafka's coordinator keeps
    STREAMS = "streams"  # KIP-1071; only groups that Kafka's coordinator keeps

    @property
    def has_epochs(self) -> bool:
        """Whether heartbeats lead the members to a target; else all of them join each generation."""
        return self is not GroupType.CLASSIC


class Cause(Enum):
    """The causes of a phase change."""

    MEMBERS_CHANGED = "a member joins, leaves, expires or changes its subscription"
    JOINS_COMPLETE = "every member has joined, or the join deadline has passed"
    NOBODY_LEFT = "the join round ends without a member"
    LEADER_SYNCED = "the leader sends the assignments"
    FORGOTTEN = "the group is deleted, or has no member and no offset"


MOVES: dict[tuple[Phase, Cause], Phase] = {
    # a group that is ...  when ...                 becomes ...
    (Phase.EMPTY,      Cause.MEMBERS_CHANGED): Phase.PREPARING,
    (Phase.PREPARING,  Cause.JOINS_COMPLETE):  Phase.COMPLETING,
    (Phase.PREPARING,  Cause.NOBODY_LEFT):     Phase.EMPTY,
    (Phase.COMPLETING, Cause.LEADER_SYNCED):   Phase.STABLE,
    (Phase.COMPLETING, Cause.MEMBERS_CHANGED): Phase.PREPARING,
    (Phase.STABLE,     Cause.MEMBERS_CHANGED): Phase.PREPARING,
    (Phase.EMPTY,      Cause.FORGOTTEN):       Phase.DEAD,
}  # fmt: skip


def move(phase: Phase, cause: Cause) -> Phase:
    """Return the phase that `cause` leads to.

    Raises:
        IllegalMove: the table has no such row.
    """
    try:
        return MOVES[phase, cause]
    except KeyError:
        raise IllegalMove(f"{phase.value} when {cause.value}") from None
