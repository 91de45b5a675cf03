"""Parts of a group of the consumer protocol: topics, patterns, the rebalance in progress, and the latest changes.

Source: Kafka's ResolvedRegularExpression; KIP-848.
"""

from msgspec import Struct

from coordinator.consumer_member import names_bytes


class Topic(Struct, array_like=True, frozen=True):
    """The fact about a topic: its id and its number of partitions; None and 0 if the topic does not exist."""

    topic_id: str | None = None
    partitions: int = 0


class Resolution(Struct, array_like=True, frozen=True):
    """The topics that a pattern matches, for the member whose heartbeat brought them.

    Args:
        topics: Sorted; None while no record has resolved the pattern.
    """

    member_id: str
    topics: tuple[str, ...] | None = None

    @property
    def topics_bytes(self) -> int:
        """The approximate size of the topics."""
        return names_bytes(self.topics or ())


class Change(Struct, array_like=True, frozen=True):
    """A rebalance in progress.

    Args:
        started_ms: When the group epoch was first raised.
        planned_ms: When the latest target assignment was computed; 0 before the first one.
        before: The members at the beginning.
    """

    started_ms: int
    planned_ms: int
    before: tuple[str, ...]


class News:
    """The changes of a group since the last outputs about changes. They are not a part of the state.

    Attributes:
        before: The members before the first of these changes; None if the members are the same.
        handovers: Topic id, number, old holder, new holder; a partition has one holder or none.
        has_unsubscribed: A member with a subscription was removed, or has another one; or a pattern matches other
            topics.
    """

    def __init__(self) -> None:
        self.is_changed = self.has_unsubscribed = False
        self.before: tuple[str, ...] | None = None
        self.handovers: list[tuple[str, int, str | None, str | None]] = []
