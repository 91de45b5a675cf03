"""Events of policies: rebalances that are held, seats that pass on, quarantines and freezes."""

from coordinator.messages.fields import Event, MemberEvent


class RebalanceHeld(MemberEvent, frozen=True, kw_only=True, tag="rebalance_held"):
    """A policy holds a rebalance: it begins at `until_ms` at the latest, unless its cause is gone before that.

    The cause is a newcomer, which stands by without partitions, or partitions that were added. `policy` is succession,
    settle or freeze.
    """

    policy: str
    cause: str
    until_ms: int


class SeatVacated(MemberEvent, frozen=True, kw_only=True, tag="seat_vacated"):
    """A member is gone, and a policy keeps its assignment for another member. Nobody owns `partitions` from now on.

    Without another member, a rebalance begins at `until_ms`; in a freeze a present member gets the partitions.
    """

    policy: str
    cause: str
    reason: str | None
    partitions: dict[str, list[int]]
    until_ms: int


class SeatTaken(MemberEvent, frozen=True, kw_only=True, tag="seat_taken"):
    """A member has the assignment of `before` from now on, in the running generation.

    Args:
        how: `took`: the member came after the other one had gone. `passed`: it stood by. `adopted`: it has the
            partitions beside its own.
        before: The member id that had the assignment; "" for partitions that were added.
        partitions: The partitions that it got.
        unowned_ms: How long nobody owned them.
    """

    how: str
    before: str
    partitions: dict[str, list[int]]
    unowned_ms: int
    fencing_token: int


class MemberQuarantined(MemberEvent, frozen=True, kw_only=True, tag="member_quarantined"):
    """A newcomer has no partitions until `until_ms`, because its memberships have ended too often.

    Args:
        identity: The instance id, or the client id and the host.
        flaps: The number of these ends within the time of the policy, 20 at most.
        times: How often the client has been in quarantine, this time included.
    """

    identity: str
    flaps: int
    times: int
    until_ms: int


class QuarantineEnded(MemberEvent, frozen=True, kw_only=True, tag="quarantine_ended"):
    """A member may have partitions again. `why` is over, nobody_else or policy."""

    identity: str
    why: str


class FreezeBegun(Event, frozen=True, kw_only=True, tag="freeze_begun"):
    """A freeze holds a rebalance of the group for the first time. It lasts until `until_ms`."""

    until_ms: int


class FreezeBroken(Event, frozen=True, kw_only=True, tag="freeze_broken"):
    """The assignments change although the group is frozen.

    Args:
        why: unowned_too_long, metadata_changed or operator.
        how: `adopted`: a present member gets the partitions of the member that the event names. `rebalanced`: all
            members join again, because of the member that the event names, if any.
        until_ms: The end of the freeze.
    """

    why: str
    how: str
    member_id: str
    client_id: str
    client_host: str
    until_ms: int


class PolicySet(Event, frozen=True, kw_only=True, tag="policy_set"):
    """A shard uses other policies from now on."""

    principal: str
    client_id: str
    client_host: str
    partition: int
    made_ms: int
    policies: int
