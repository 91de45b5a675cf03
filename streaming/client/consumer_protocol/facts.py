"""A consumer's subscription with the facts from the brokers' metadata: the ids and partition counts of its topics.

The coordinator reads no metadata. The clients of a group of the consumer protocol send it the facts about its topics.
"""

from collections.abc import Collection, Iterable

from coordinator.member.consumer_config import Wanted
from coordinator.messages.consumer_requests import TopicFact
from streaming.client.subscription import Subscription
from streaming.client.topics import Snapshot, TopicWatch


class SubscribedTopics:
    """The subscription of one consumer.

    Args:
        age_ms: How often the topics are read, in milliseconds.
    """

    def __init__(self, subscription: Subscription, watch: TopicWatch, age_ms: int) -> None:
        self._subscription, self._watch, self._age_ms = subscription, watch, age_ms
        self._question: object = None
        self._read: tuple[object, Snapshot | None] = None, None
        self._wanted: Wanted | None = None

    def wanted(self, requested: frozenset[str]) -> Wanted | None:
        """Return the subscription; None until its topics have been read. The same object if nothing has changed.

        Args:
            requested: Further topics about which the coordinator has asked.
        """
        names, pattern, snapshot = self._subscription.names, self._subscription.pattern, self._watch.snapshot
        topics = None if pattern else names | requested
        question = topics, pattern
        if question != self._question:
            self._question = question
            self._watch.ask(self, topics, self._age_ms)
        if not _knows(snapshot, topics):
            return None
        if (question, requested) != self._read[0] or snapshot is not self._read[1]:
            self._read, self._wanted = ((question, requested), snapshot), self._made(snapshot, requested)
        return self._wanted

    def _made(self, snapshot: Snapshot, requested: frozenset[str]) -> Wanted:
        names, pattern = self._subscription.names, self._subscription.pattern
        if pattern is None:
            return Wanted(tuple(sorted(names)), facts=_facts(snapshot, sorted(names | requested)))
        matched = tuple(sorted(name for name in (*snapshot.topics, *snapshot.unclear) if self._subscription.has(name)))
        return Wanted((), pattern.pattern, matched, _facts(snapshot, dict.fromkeys((*matched, *sorted(requested)))))

    def forget(self) -> None:
        """Stop reading the topics."""
        self._question, self._read = None, (None, None)
        self._watch.forget(self)


def _knows(snapshot: Snapshot, topics: Collection[str] | None) -> bool:
    return snapshot.known is None if topics is None else snapshot.knows(topics)


def _facts(snapshot: Snapshot, names: Iterable[str]) -> dict[str, TopicFact]:
    """Return the facts about topics. A topic whose state is unclear at present has none."""
    return {name: _fact(snapshot, name) for name in names if name not in snapshot.unclear}


def _fact(snapshot: Snapshot, name: str) -> TopicFact:
    topic = snapshot.topics.get(name)
    return TopicFact(name) if topic is None else TopicFact(name, topic.topic_id, len(topic.racks))
