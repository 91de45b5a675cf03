"""Subscriptions and plans as the bytes that consumers exchange, by kafka-python's assignors and its ConsumerProtocol.

So our members and those of other clients can share a group.

Source: Kafka's ConsumerProtocol; `kafka.coordinator.assignors`.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from kafka import TopicPartition
from kafka.errors import KafkaError
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from coordinator.outputs import JoinedMember
from coordinator.requests import Assignment, Protocol


class _Cluster:
    """As much of kafka-python's cluster metadata as assignors look at."""

    def __init__(self, topics: Collection[str], partitions_of: Callable[[str], Collection[int]]) -> None:
        self._partitions = {topic: set(partitions) for topic in topics if (partitions := partitions_of(topic))}

    def topics(self) -> set[str]:
        return set(self._partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self._partitions.get(topic)


class _Subscriber(NamedTuple):
    """A member as assignors look at it."""

    member_id: str
    group_instance_id: str | None
    metadata: Any


def protocols(assignors: Iterable[Any], topics: Collection[str]) -> tuple[Protocol, ...]:
    """Offer assignors, each with this member's subscription in its own terms."""
    return tuple(Protocol(a.name, a.metadata(sorted(topics)).encode()) for a in assignors)


def make_plan(
    assignor: Any, members: Sequence[JoinedMember], partitions_of: Callable[[str], Collection[int]]
) -> list[Assignment]:
    """Share out the partitions of all topics that any member subscribes to.

    Args:
        partitions_of: Tells a topic's partitions; none for a topic that is not there.

    Raises:
        KafkaError: the assignor failed; its error is the cause.
    """
    subscribers = [
        _Subscriber(m.member_id, m.group_instance_id, ConsumerProtocolSubscription.decode(m.metadata)) for m in members
    ]
    topics = {topic for subscriber in subscribers for topic in subscriber.metadata.topics}
    try:
        plan = assignor.assign(_Cluster(topics, partitions_of), subscribers)
    except Exception as error:
        raise KafkaError(f"The assignor {assignor.name} throws an error") from error
    return [Assignment(member_id, part.encode()) for member_id, part in plan.items()]


def read_assignment(assignor: Any, assignment: bytes, generation_id: int) -> list[TopicPartition]:
    """Read one's own part of a plan, and let the assignor remember it. No bytes at all are no partitions."""
    if not assignment:
        return []
    part = ConsumerProtocolAssignment.decode(assignment)
    assignor.on_assignment(part, generation_id)
    return sorted(part.partitions())
