"""An assignor as a member uses it, either one of ours or one for kafka-python: subscriptions and assignments as bytes.

To the group protocol these bytes are opaque. Their format is Kafka's ConsumerProtocol, so that our members and those of
other clients can share a group.

Source: kafka-python's AbstractPartitionAssignor; Kafka's ConsumerPartitionAssignor.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from kafka import TopicPartition
from kafka.errors import KafkaError
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from coordinator.assignors import Assignor, Cluster, RebalanceProtocol, Subscriber, by_topic
from coordinator.base.consumer_protocol import (
    VERSION_MAX,
    Subscription,
    assigned_partitions,
    write_assignment,
    write_subscription,
)

log = logging.getLogger(__name__)

PartitionsOf = Callable[[str], Collection[int] | None]
"""Returns a topic's partitions; None if the topic does not exist."""

RacksOf = Callable[[str], Sequence[frozenset[str]]]
"""Returns the racks with a replica of each of a topic's partitions, in order."""


class LastAssignment(NamedTuple):
    """The last assignment of this member."""

    partitions: Collection[TopicPartition]
    generation_id: int


NO_ASSIGNMENT = LastAssignment((), -1)


class Strategy(ABC):
    """An assignor as a member uses it, from either library."""

    name: str
    supported_protocols: frozenset[RebalanceProtocol]

    @abstractmethod
    def subscription(self, subscription: Subscription, last: LastAssignment) -> bytes:
        """Return this member's subscription, with the assignor's user data."""

    @abstractmethod
    def plan(
        self, subscribers: Sequence[Subscriber], partitions_of: PartitionsOf, racks_of: RacksOf
    ) -> dict[str, bytes]:
        """Compute the assignments, and return the bytes of each member."""

    @abstractmethod
    def accept(self, assignment: bytes, generation_id: int) -> list[TopicPartition]:
        """Return the partitions of this member's assignment."""


class Ours(Strategy):
    """An assignor of `coordinator.assignors`, or the user's own of that kind."""

    def __init__(self, assignor: Assignor) -> None:
        self._assignor = assignor
        self.name = assignor.name
        self.supported_protocols = frozenset(assignor.supported_protocols)

    def subscription(self, subscription: Subscription, last: LastAssignment) -> bytes:
        user_data = self._assignor.user_data(by_topic(last.partitions), last.generation_id)
        return write_subscription(msgspec.structs.replace(subscription, user_data=user_data))

    def plan(
        self, subscribers: Sequence[Subscriber], partitions_of: PartitionsOf, racks_of: RacksOf
    ) -> dict[str, bytes]:
        counts = {topic: len(partitions_of(topic) or ()) for topic in _topics(subscribers)}
        counts = {topic: count for topic, count in counts.items() if count}
        has_racks = any(s.subscription.rack_id for s in subscribers)
        cluster = Cluster(counts, {topic: racks_of(topic) for topic in counts} if has_racks else {})
        plan = self._assignor.assign(cluster, subscribers)
        return {member_id: write_assignment(share) for member_id, share in plan.items()}

    def accept(self, assignment: bytes, generation_id: int) -> list[TopicPartition]:
        partitions = assigned_partitions(assignment)
        if partitions is None:
            raise KafkaError("This member's assignment cannot be read")
        return sorted(TopicPartition(topic, n) for topic, numbers in partitions.items() for n in numbers)


class Theirs(Strategy):
    """An assignor for kafka-python, which stores the last assignment itself."""

    def __init__(self, assignor: Any) -> None:
        self._assignor = assignor
        self.name = assignor.name
        self.supported_protocols = frozenset(map(RebalanceProtocol, assignor.supported_protocols()))

    def subscription(self, subscription: Subscription, last: LastAssignment) -> bytes:
        return bytes(self._assignor.metadata(list(subscription.topics)).encode())

    def plan(
        self, subscribers: Sequence[Subscriber], partitions_of: PartitionsOf, racks_of: RacksOf
    ) -> dict[str, bytes]:
        members = [_Member(s.member_id, s.group_instance_id, _their_subscription(s.subscription)) for s in subscribers]
        plan = self._assignor.assign(_Cluster(_topics(subscribers), partitions_of), members)
        return {member_id: part.encode() for member_id, part in plan.items()}

    def accept(self, assignment: bytes, generation_id: int) -> list[TopicPartition]:
        try:
            part = ConsumerProtocolAssignment.decode(assignment)
        except Exception as error:
            raise KafkaError("This member's assignment cannot be read") from error
        try:
            self._assignor.on_assignment(part, generation_id)
        except Exception:  # only its own records fail; the assignment is valid all the same
            log.exception("the assignor %s failed to store its assignment", self.name)
        return sorted(part.partitions())


class _Member(NamedTuple):
    """A member in the form that kafka-python's assignors read."""

    member_id: str
    group_instance_id: str | None
    metadata: Any


class _Cluster:
    """The part of kafka-python's cluster metadata that its assignors read."""

    def __init__(self, topics: Iterable[str], partitions_of: PartitionsOf) -> None:
        self._partitions = {topic: set(partitions) for topic in topics if (partitions := partitions_of(topic))}

    def topics(self) -> set[str]:
        return set(self._partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self._partitions.get(topic)


def _their_subscription(subscription: Subscription) -> Any:
    owned = [
        ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=list(numbers))
        for topic, numbers in subscription.owned.items()
    ]
    return ConsumerProtocolSubscription(
        version=VERSION_MAX,
        topics=list(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=owned,
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )


def _topics(subscribers: Iterable[Subscriber]) -> list[str]:
    return sorted({topic for subscriber in subscribers for topic in subscriber.subscription.topics})
