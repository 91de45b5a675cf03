"""The topics that a consumer subscribes to: names, or a pattern that names have to match."""

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from kafka import ConsumerRebalanceListener
from kafka.errors import IllegalStateError
from kafka.util import ensure_valid_topic_name

from streaming.client.participant import subscribed_to
from streaming.client.topics import TopicWatch


class Pattern(Protocol):
    """A compiled pattern."""

    @property
    def pattern(self) -> str:
        """The text of the pattern."""

    def match(self, string: str, /) -> object | None:
        """Return a match if the pattern matches a topic's name; None if it does not."""


class Subscription:
    """A consumer's subscription, empty at first, and its listener.

    Args:
        watch: The source of the topics that a pattern is compared with.
        excludes_internal: Whether Kafka's internal topics never match a pattern.
        compiled: Compiles a pattern, or raises an error for one that is not valid.
    """

    def __init__(
        self, watch: TopicWatch, *, excludes_internal: bool, compiled: Callable[[str], Pattern] = re.compile
    ) -> None:
        self._watch, self._excludes_internal, self._compiled = watch, excludes_internal, compiled
        self.names: frozenset[str] = frozenset()
        self.pattern: Pattern | None = None
        self.listener: ConsumerRebalanceListener | None = None

    def __bool__(self) -> bool:
        return bool(self.names or self.pattern)

    def __str__(self) -> str:
        return f"subscribed to the pattern {self.pattern.pattern}" if self.pattern else subscribed_to(self.names)

    def replace(self, topics: Iterable[str], pattern: str | None, listener: ConsumerRebalanceListener | None) -> None:
        """Subscribe to topics by name or by a pattern, in place of the previous subscription.

        Raises:
            ValueError, TypeError, re.error, IllegalStateError: as `GroupConsumer.subscribe`.
        """
        if isinstance(topics, str):
            raise TypeError("Topics must be a list (or non-str sequence)")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener must be a ConsumerRebalanceListener")
        if pattern is not None and not isinstance(pattern, str):
            raise TypeError(f"pattern must be text, not {pattern!r}; a listener goes by its name")
        wanted = frozenset(topics)
        for topic in wanted:
            ensure_valid_topic_name(topic)
        if not wanted and not pattern:
            raise ValueError("Must provide topics or pattern")
        if (wanted and (pattern or self.pattern)) or (pattern and self.names):
            raise IllegalStateError("Subscribe to topics by name or by a pattern, not to both")
        self.pattern, self.names, self.listener = self._compiled(pattern) if pattern else None, wanted, listener

    def clear(self) -> None:
        """Subscribe to no topic."""
        self.names, self.pattern = frozenset(), None

    def topics(self) -> frozenset[str]:
        """Return the topics subscribed to; those that match a pattern as far as they are seen."""
        if self.pattern is None:
            return self.names
        return frozenset(name for name in self._watch.snapshot.topics if self.has(name))

    def has(self, topic: str) -> bool:
        """Return whether partitions of a topic may be assigned to the consumer."""
        if self.pattern is None:
            return topic in self.names
        seen = self._watch.snapshot.topics.get(topic)
        is_hidden = seen is not None and seen.is_internal and self._excludes_internal
        return bool(self.pattern.match(topic)) and not is_hidden
