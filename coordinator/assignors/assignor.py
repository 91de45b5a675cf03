"""The interface of an assignor, its input and output, and the order of members that all assignors use.

Source: Kafka's ConsumerPartitionAssignor, AbstractPartitionAssignor and its MemberInfo; KIP-345, KIP-429, KIP-881.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import ClassVar

from msgspec import Struct

from coordinator.base.consumer_protocol import Subscription

TopicPartition = tuple[str, int]

Plan = dict[str, dict[str, list[int]]]
"""The assignments: numbers of partitions by topic, by member id. A member with no partitions has an entry too."""


class RebalanceProtocol(IntEnum):
    """The way in which partitions change owners (KIP-429). A member uses the highest that all its assignors support."""

    EAGER = 0  # revoke all partitions, then join
    COOPERATIVE = 1  # keep all partitions, join, then revoke those that are no longer assigned


class Subscriber(Struct, frozen=True):
    """A member of the group, with the data that an assignor needs."""

    member_id: str
    group_instance_id: str | None
    subscription: Subscription


class Cluster(Struct, frozen=True):
    """The partitions to assign.

    Args:
        partitions: How many partitions each topic has. Topics without an entry are skipped.
        racks: Of each topic, partition by partition, the racks that hold a replica. Only `range` uses them.
    """

    partitions: Mapping[str, int]
    racks: Mapping[str, Sequence[frozenset[str]]] = {}


class Assignor(ABC):
    """A way to assign partitions. It stores nothing between assignments: members send their owned partitions.

    The same subscribers in any order get the same assignments.
    """

    name: ClassVar[str]
    supported_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)

    def user_data(self, owned: Mapping[str, Sequence[int]], generation_id: int) -> bytes | None:
        """Return the data for this assignor in a member's subscription.

        Args:
            owned: The member's latest assignment from this assignor, by topic.
            generation_id: The generation of that assignment, -1 if the member had none.
        """
        return None

    @abstractmethod
    def assign(self, cluster: Cluster, subscribers: Iterable[Subscriber]) -> Plan:
        """Return assignments: each partition of a subscribed topic has one owner, which subscribes to the topic."""


def in_order(subscribers: Iterable[Subscriber]) -> list[Subscriber]:
    """Sort static members by instance id, which outlives member ids, before dynamic ones by member id."""
    return sorted(subscribers, key=lambda s: (s.group_instance_id is None, s.group_instance_id or s.member_id))


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers by topic, all in order."""
    gathered: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        gathered.setdefault(topic, []).append(number)
    return gathered
