"""The topics of one conversation on one side: their names, their ids and their numbers of partitions.

Each side gives topics its own ids. In text a topic has its name, and a topic that was made anew has `x#2` for its
second id. Partitions of the usual topic have no name: `0,1` are two of topic t, and `u-0` is one of topic u.
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from coordinator.messages.consumer_requests import OwnedPartitions, TopicFact
from coordinator.messages.responses import AssignedTopic
from streaming.gateway.protocol.topic_ids import id_text
from tests.coordinator.telling import TOPIC
from tests.coordinator.trace import by_topic

SHARED = {"t": 3, "u": 3, "one": 1, "four": 4, "six": 6}
"""The topics that all conversations share, with their numbers of partitions."""

UNKNOWN = "?"
"""The label of a topic id that no topic has."""

UNKNOWN_ID = id_text(UUID(int=1 << 90).bytes)


class Topics:
    """The topics of a conversation.

    Args:
        prefix: The first part of the names of its own topics, which no other conversation has.
        own: The topics that its lines create or delete.
    """

    def __init__(self, prefix: str, own: Iterable[str]) -> None:
        self._prefix, self._own = prefix, frozenset(own)
        self._facts: dict[str, TopicFact] = {}
        self._ids = {UNKNOWN: UNKNOWN_ID}
        self._labels = {UNKNOWN_ID: UNKNOWN}
        self._lives: dict[str, int] = {}

    def learn(self, fact: TopicFact) -> None:
        """Store what a side says of a topic."""
        self._facts[fact.topic] = fact
        if fact.topic_id and fact.topic_id not in self._labels:
            name = self.short(fact.topic)
            life = self._lives[name] = self._lives.get(name, 0) + 1
            label = name if life == 1 else f"{name}#{life}"
            self._ids[label], self._labels[fact.topic_id] = fact.topic_id, label

    # -- names ---------------------------------------------------------------------------------------------------------

    def full(self, label: str) -> str:
        """Return the name that a topic of the text has on the side."""
        name = label.partition("#")[0]
        return f"{self._prefix}.{name}" if name in self._own else name

    def short(self, topic: str) -> str:
        """Return the name that a topic has in the text."""
        name = topic.removeprefix(f"{self._prefix}.")
        return name if name in self._own else topic

    def pattern(self, text: str) -> str:
        """Return a pattern of the text as one that matches only this conversation's own topics."""
        return text and f"{self._prefix}[.]{text}"

    def plain(self, pattern: str) -> str:
        """Return a pattern as in the text."""
        return pattern.removeprefix(f"{self._prefix}[.]")

    # -- ids -----------------------------------------------------------------------------------------------------------

    def id_of(self, label: str) -> str | None:
        """Return the id of a topic of the text; None if it has none."""
        if "#" in label or label == UNKNOWN:
            return self._ids[label]
        known = self._facts.get(self.full(label))
        return None if known is None else known.topic_id

    def name_of(self, name_or_id: str) -> str:
        """Return the text's name of a topic that a response names, or names by its id."""
        label = self._labels.get(name_or_id)
        return self.short(name_or_id) if label is None else label.partition("#")[0]

    # -- facts and partitions ------------------------------------------------------------------------------------------

    def facts(self, names: Iterable[str]) -> tuple[TopicFact, ...]:
        """Return the facts about topics, each by its name on the side, as a gateway's metadata have them."""
        return tuple(self._facts.get(name, TopicFact(name)) for name in dict.fromkeys(names))

    @property
    def existing(self) -> list[str]:
        """The names of this conversation's topics on the side, except for those that were deleted."""
        return [name for name, fact in self._facts.items() if fact.topic_id]

    def partitions(self, text: str) -> Iterator[OwnedPartitions]:
        """Yield the partitions that a text like `0,1,u-0` names."""
        for label, numbers in by_topic(text.split(",")).items():
            yield OwnedPartitions(self._ids[label], tuple(numbers))

    def tell(self, assigned: Iterable[AssignedTopic]) -> str:
        """Return partitions as text, in order; `nothing` if there are none."""
        found = sorted((self._told(each), number) for each in assigned for number in each.partitions)
        return ",".join(str(n) if label == TOPIC else f"{label}-{n}" for label, n in found) or "nothing"

    def _told(self, assigned: AssignedTopic) -> str:
        label = self._labels.get(assigned.topic_id, "unknown")
        if assigned.topic and self.short(assigned.topic) != label.partition("#")[0]:
            return f"{label}({assigned.topic})"
        return label
