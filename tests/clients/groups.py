"""A group as a tool sees it, of whatever client its members are."""

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

UNSTABLE = 88
WAIT_S = 30.0


class Group:
    """A group that consumes one topic."""

    def __init__(self, bootstrap: str, name: str, topic: str, partitions: int) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._name = name
        self._places = [TopicPartition(topic, number) for number in range(partitions)]

    def members(self) -> list[tuple[str, set[int]]] | None:
        """Return the client id and the partitions of each member; None while the group rebalances, or is unknown."""
        try:
            found = self._admin.describe_consumer_groups([self._name], request_timeout=WAIT_S)[self._name].result()
        except KafkaException:
            return None
        if found.state not in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY):
            return None
        return [(each.client_id, {p.partition for p in each.assignment.topic_partitions}) for each in found.members]

    def is_shared_by(self, members: int) -> bool:
        """Return whether the group has this number of members, and each of them has partitions."""
        found = self.members()
        return found is not None and len(found) == members and all(partitions for _, partitions in found)

    def stable_offsets(self) -> dict[int, int | None]:
        """Return the committed offset of each partition; None for one that an open transaction names."""
        wanted = [ConsumerGroupTopicPartitions(self._name, self._places)]
        asked = self._admin.list_consumer_group_offsets(wanted, require_stable=True, request_timeout=WAIT_S)
        found: dict[int, int | None] = {}
        for each in asked[self._name].result().topic_partitions:
            if each.error is not None and each.error.code() != UNSTABLE:
                raise KafkaException(each.error)
            found[each.partition] = each.offset if each.error is None else None
        return found
