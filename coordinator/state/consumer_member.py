"""The data of one member of a group of the consumer protocol.

    assigned   the partitions that a member was given and may use
    revoking   the partitions that a member has to give up, and whose release it has not confirmed

Source: Kafka's ConsumerGroupMember; KIP-848.
"""

from collections.abc import Collection
from enum import IntEnum

from msgspec import Struct, field

from coordinator.messages.requests import Protocol
from coordinator.state.group import Session

Partitions = dict[str, dict[int, int]]
"""Partitions of a member: by topic id and number, the member epoch at which the member was given the partition."""


class MemberState(IntEnum):
    """The next step of a member. The numbers are those of Kafka's records."""

    STABLE = 0  # none
    UNREVOKED = 1  # confirm that it has given up `revoking`
    UNRELEASED = 2  # wait until the rest of its target is free


class MemberSession(Session, array_like=True):
    """A member's session, and the data of the member that a plain heartbeat reads.

    Args:
        epoch: The member epoch.
        is_settled: The member is STABLE at the assignment epoch.
        is_classic: The member uses the classic protocol.
    """

    epoch: int = 0
    is_settled: bool = False
    is_classic: bool = False


class Classic(Struct, array_like=True, frozen=True):
    """The assignors that a member of the classic protocol offers, with its subscription for each."""

    protocols: tuple[Protocol, ...]

    @property
    def protocols_bytes(self) -> int:
        """The size of the subscription metadata in bytes, over all assignors."""
        return sum(len(p.metadata) for p in self.protocols)


class ConsumerMember(Struct, array_like=True, kw_only=True):
    """A member. Its session and its epoch are in the hot state.

    Args:
        rebalance_timeout_ms: How long the member may take to give partitions up.
        names: The topics that the member subscribes to by name, sorted.
        regex: The pattern that it subscribes to; "" for none.
        assignor: The server assignor that it votes for; None without a vote.
        previous_epoch: The member epoch before the latest change of the member's partitions.
        fencing_token: The group's token when the member was last given a partition; 0 before.
        classic: None for a member of the consumer protocol.
        may_be_unaware: Heartbeats on the member's behalf have changed its epoch or its partitions, and the client may
            have had no response since. It has shown no epoch below `previous_epoch` as its own.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    reply_to: str
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    names: tuple[str, ...] = ()
    regex: str = ""
    assignor: str | None = None
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict)
    revoking: Partitions = field(default_factory=dict)
    fencing_token: int = 0
    classic: Classic | None = None
    may_be_unaware: bool = False

    @property
    def identity(self) -> str:
        """The identity by which a client is known from one membership to the next."""
        return self.client_id + self.client_host if self.group_instance_id is None else self.group_instance_id

    @property
    def subscription_bytes(self) -> int:
        """The approximate size of the member's subscription."""
        return subscription_bytes(self.names, self.regex)

    @property
    def protocols_bytes(self) -> int:
        """The size of the subscription metadata of a classic member, in bytes."""
        return 0 if self.classic is None else self.classic.protocols_bytes


def subscription_bytes(names: Collection[str], regex: str) -> int:
    """Return the approximate size of a subscription."""
    return names_bytes(names) + len(regex)


def names_bytes(names: Collection[str]) -> int:
    """Return the approximate size of topic names: their characters, and a byte for each name."""
    return sum(map(len, names)) + len(names)
