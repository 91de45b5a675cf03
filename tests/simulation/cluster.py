"""The topics of a simulation, which are created, grown, deleted and made anew, and what gateways tell groups of them.

Each process has a gateway. A gateway's metadata may be old for a while: its facts are then those of an earlier time.
They may also be wrong, as a client may write any: two names share one id, or one request has a topic as deleted, and
then with the same id and fewer partitions.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from itertools import count
from random import Random

from coordinator.messages.consumer_requests import GroupTopics, ResolvedPattern, TopicFact

NAMES = ("t", "u", "v", "t-new")
PARTITIONS_MAX = 12
OLD_MS = 30_000
"""The longest time for which a gateway's metadata are old."""


class Cluster:
    """The topics by name, as they are and as they were before their last change."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._lives, self._numbers = count(), count(1)
        self._now: dict[str, TopicFact] = {name: TopicFact(name) for name in NAMES}
        for name in ("t", "u"):
            self._now[name] = TopicFact(name, self._new_id(name), 6)
        self._before, self._old_until_ms = dict(self._now), 0
        self._shrunk: set[str] = set()
        """The topics that have fewer partitions than before: groups are told first that they are gone."""

    def _new_id(self, name: str) -> str:
        text = f"{name}.{next(self._lives)}".encode().rjust(16, b"\0")
        return urlsafe_b64encode(text).rstrip(b"=").decode()

    def change(self, now_ms: int) -> None:
        """Create, grow, delete or make anew one topic."""
        chance, name = self._chance, self._chance.choice(NAMES)
        fact = self._now[name]
        self._shrunk.discard(name)
        self._before, self._old_until_ms = dict(self._now), now_ms + int(OLD_MS * chance.random() ** 2)
        if fact.partitions > 1 and chance.random() < 0.15:
            self._now[name] = TopicFact(name, fact.topic_id, max(fact.partitions - chance.choice((1, 4)), 1))
            self._shrunk.add(name)
        elif chance.random() < 0.1:
            other = self._now[chance.choice(NAMES)]
            self._now[name] = TopicFact(name, other.topic_id, max(other.partitions - chance.choice((0, 0, 2)), 0))
        elif fact.topic_id is None or chance.random() < 0.3:
            self._now[name] = TopicFact(name, self._new_id(name), chance.randint(1, 6))
        elif chance.random() < 0.3:
            self._now[name] = TopicFact(name)
        else:
            self._now[name] = TopicFact(name, fact.topic_id, min(fact.partitions + 2, PARTITIONS_MAX))

    def calm(self) -> None:
        """Show all gateways the topics as they are, and no two with one id."""
        self._old_until_ms = 0
        known: set[str | None] = set()
        for name, fact in self._now.items():
            if fact.topic_id in known:
                self._now[name] = TopicFact(name, self._new_id(name), max(fact.partitions, 1))
            known.add(self._now[name].topic_id or name)

    def facts(self, names: Iterable[str], now_ms: int) -> tuple[TopicFact, ...]:
        """Return what a gateway tells of topics."""
        is_old = self._old_until_ms > now_ms and self._chance.random() < 0.5
        facts = self._before if is_old else self._now
        return tuple(facts.get(name) or TopicFact(name) for name in dict.fromkeys(names))

    def _with_shrunk(self, facts: Iterable[TopicFact]) -> Iterator[TopicFact]:
        for fact in facts:
            if fact.topic in self._shrunk:
                yield TopicFact(fact.topic)
            yield fact

    def matching(self, pattern: str, now_ms: int) -> tuple[str, ...]:
        """Return the existing topics that a pattern matches: `^t.*` those that begin with t."""
        start = pattern.removeprefix("^").removesuffix(".*")
        return tuple(f.topic for f in self.facts(NAMES, now_ms) if f.topic_id and f.topic.startswith(start))

    def told(
        self, group_id: str, now_ms: int, names: Iterable[str] = NAMES, resolver: tuple[str, str] | None = None
    ) -> GroupTopics:
        """Make the request with which a gateway tells a group of topics.

        Args:
            resolver: A member's id and its pattern, which the gateway resolves as well.
        """
        regexes = ()
        if resolver is not None and resolver[1]:
            regexes = (ResolvedPattern(resolver[1], self.matching(resolver[1], now_ms), resolver[0]),)
        return GroupTopics(
            request_id=f"topics.{next(self._numbers)}",
            reply_to="a gateway",
            group_id=group_id,
            client_id="gateway",
            topics=tuple(self._with_shrunk(self.facts(names, now_ms))),
            regexes=regexes,
        )
