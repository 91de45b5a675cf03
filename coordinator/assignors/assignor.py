"""What an assignor is, what it is given and what it makes of it; and the order of members that all of them use.

Source: Kafka's ConsumerPartitionAssignor, AbstractPartitionAssignor and its MemberInfo; KIP-345, KIP-429, KIP-881.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import ClassVar

from msgspec import Struct

from coordinator.consumer_protocol import Subscription

TopicPartition = tuple[str, int]

Plan = dict[str, dict[str, list[int]]]
"""What each member gets: numbers of partitions by topic, by member id. A member that gets nothing is in it too."""


class RebalanceProtocol(IntEnum):
    """How partitions change hands (KIP-429). Of those that all assignors of a member support, the highest counts."""

    EAGER = 0  # give up everything, then join
    COOPERATIVE = 1  # join with everything, then give up what the plan takes away


class Subscriber(Struct, frozen=True):
    """A member of the group as an assignor sees it."""

    member_id: str
    group_instance_id: str | None
    subscription: Subscription


class Cluster(Struct, frozen=True):
    """What there is to share out.

    Args:
        partitions: How many partitions each topic has. Topics that are not there are skipped.
        racks: Of each topic, partition by partition, the racks that hold a replica. Only `range` looks at them.
    """

    partitions: Mapping[str, int]
    racks: Mapping[str, Sequence[frozenset[str]]] = {}


class Assignor(ABC):
    """A way to share out partitions. It keeps nothing from one plan to the next: what members own is in what they say.

    The same subscribers in any order get the same plan.
    """

    name: ClassVar[str]
    supported_protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)

    def user_data(self, owned: Mapping[str, Sequence[int]], generation_id: int) -> bytes | None:
        """Write what a member's subscription is to tell this assignor.

        Args:
            owned: What the member was given when this assignor's plan last reached it, by topic.
            generation_id: The generation of that plan, -1 if there was none.
        """
        return None

    @abstractmethod
    def assign(self, cluster: Cluster, subscribers: Iterable[Subscriber]) -> Plan:
        """Make a plan in which each partition of a subscribed topic has one owner, who subscribes to it."""


def in_order(subscribers: Iterable[Subscriber]) -> list[Subscriber]:
    """Sort static members by instance id, which outlives member ids, before dynamic ones by member id."""
    return sorted(subscribers, key=lambda s: (s.group_instance_id is None, s.group_instance_id or s.member_id))


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Gather the numbers of each topic, all in order."""
    gathered: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        gathered.setdefault(topic, []).append(number)
    return gathered
