"""The names of topic ids, as far as a partition knows them."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from functools import lru_cache

from streaming.observe.schemas import ZERO_ID
from streaming.observe.state import Owned, TopicAndPartition


@lru_cache(maxsize=4_096)
def id_text(topic_id: bytes) -> str | None:
    """Return a topic id as Kafka prints it; None for no id."""
    if topic_id == ZERO_ID:
        return None
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


class Names:
    """The names of topic ids. An id without a name stands for the name, and is noted in `unnamed`."""

    def __init__(self, known: dict[str, str], unnamed: list[str]) -> None:
        self.known = known
        self.unnamed = dict.fromkeys(unnamed)

    def of(self, topic_id: str) -> str:
        """Return the name of a topic, or its id if the name is not known."""
        name = self.known.get(topic_id)
        if name is None:
            self.unnamed[topic_id] = None
            return topic_id
        return name

    def learn(self, topic_id: str, name: str) -> bool:
        """Note the name of an id. Return whether it was missed."""
        self.known[topic_id] = name
        if topic_id in self.unnamed:
            del self.unnamed[topic_id]
            return True
        return False

    def are_named(self, places: Iterable[TopicAndPartition]) -> bool:
        """Return whether no id stands for the name of a topic in these partitions."""
        return all(topic not in self.unnamed for topic, _ in places)

    def named(self, *parts: Owned) -> dict[str, list[int]]:
        """Return partitions by the names of their topics, in order."""
        found: dict[str, list[int]] = {}
        for topic_id, numbers in (item for owned in parts for item in owned.items()):
            found.setdefault(self.of(topic_id), []).extend(numbers)
        return {topic: sorted(numbers) for topic, numbers in sorted(found.items())}

    def places(self, *parts: Owned) -> Iterator[TopicAndPartition]:
        """Yield partitions by the names of their topics."""
        for owned in parts:
            for topic_id, numbers in owned.items():
                name = self.of(topic_id)
                yield from ((name, number) for number in numbers)
