"""The facts about topics that groups of the consumer protocol subscribe to: their ids and partition counts.

A subscription waits for facts that are missing or old. Subscriptions that come at the same time wait for the same
request to the brokers: one request runs at most, and one waits for its end.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka import KafkaException

from coordinator.consumer_requests import TopicFact
from coordinator.limits import SUBSCRIBED_NAMES_MAX
from streaming.gateway.cluster import METADATA_AGE_MIN_S, METADATA_AGE_S, Cluster
from streaming.gateway.ids import id_text
from streaming.kafka.patterns import Matches, Patterns

log = logging.getLogger(__name__)

FACTS_MAX = 200_000
"""The topics with stored facts; beyond it all are dropped, and described again when they are needed."""

PATTERNS_AT_ONCE = 16
"""The patterns that are matched while others wait."""

REST_PART = 5
"""How often the time for the facts about all topics passes at least before they are requested again."""

Sees = Callable[[str], bool]
"""Returns whether a client may see a topic. It is called in a thread."""


class Topics:
    """The facts about topics that a gateway has.

    Args:
        cluster: The cluster, with the names of all topics.
        describe: Requests facts from the brokers and blocks, as `topic_facts`.
    """

    def __init__(self, cluster: Cluster, describe: Callable[[Sequence[str]], Mapping[str, TopicFact]]) -> None:
        self._cluster, self._describe = cluster, describe
        self._facts: dict[str, tuple[float, TopicFact]] = {}
        self._wanted: dict[str, None] = {}
        self._running: asyncio.Task[None] | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._names_by_id: dict[str, str] = {}
        self._learning_all: asyncio.Task[None] | None = None
        self._learn_all_from_s = float("-inf")
        self._patterns, self._resolving = Patterns(), asyncio.Lock()

    def are_known(self, names: Iterable[str]) -> bool:
        """Return whether there are facts about all topics that are not too old."""
        now_s = time.monotonic()
        return all(self._is_known(name, now_s) for name in names)

    def _is_known(self, name: str, now_s: float) -> bool:
        if (known := self._facts.get(name)) is None:
            return False
        told_s, fact = known
        return now_s - told_s <= (METADATA_AGE_MIN_S if fact.topic_id is None else METADATA_AGE_S)

    def facts_of(self, names: Iterable[str]) -> tuple[TopicFact, ...]:
        """Return the known facts about topics."""
        return tuple(self._facts[name][1] for name in names if name in self._facts)

    async def resolve(self, wanted: Sequence[tuple[str, Sees]]) -> list[Matches]:
        """Return the topics that each pattern matches, among those that a client may see.

        This runs in a thread, `PATTERNS_AT_ONCE` at a time. Callers take turns.

        Args:
            wanted: Each pattern, and the function that returns whether the client may see a topic.
        """
        found: list[Matches] = []
        for start in range(0, len(wanted), PATTERNS_AT_ONCE):
            async with self._resolving:
                some = wanted[start : start + PATTERNS_AT_ONCE]
                found += await asyncio.to_thread(self._resolve, some, self._cluster.names)
        return found

    def _resolve(self, wanted: Sequence[tuple[str, Sees]], names: frozenset[str]) -> list[Matches]:
        return [_seen(self._patterns.matching(pattern, names), may_see) for pattern, may_see in wanted]

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with that id; None if no stored fact has the id."""
        return self._names_by_id.get(id_text(topic_id))

    def id_of(self, name: str) -> str | None:
        """Return the id of a topic, as text; None if there is none, or its facts are missing or too old."""
        return self._facts[name][1].topic_id if self._is_known(name, time.monotonic()) else None

    async def learn_all(self) -> None:
        """Request the facts about all topics, unless they are known well enough.

        A request with an unknown id leads to this, so the brokers are not asked all the time: each time they rest for
        `REST_PART` times as long as the last one took.
        """
        await self.learn_names()
        if self._learning_all is None and time.monotonic() >= self._learn_all_from_s:
            self._learning_all = asyncio.get_running_loop().create_task(self._learn_all())
        if self._learning_all is not None:
            await asyncio.shield(self._learning_all)

    async def _learn_all(self) -> None:
        since_s = time.monotonic()
        try:
            await self.learn(self._cluster.names)
        finally:
            now_s = time.monotonic()
            self._learn_all_from_s = now_s + max(METADATA_AGE_MIN_S, REST_PART * (now_s - since_s))
            self._learning_all = None

    async def learn_names(self) -> None:
        """Request the names of all topics from the brokers, unless they were requested recently."""
        if not self._cluster.is_recent:
            await self._cluster.refresh()

    async def learn(self, names: Iterable[str]) -> None:
        """Request the facts about topics from the brokers. The old facts remain if no broker answers."""
        self._wanted.update(dict.fromkeys(names))
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_task(self._ask(self._running))
        await asyncio.shield(self._waiting)

    async def _ask(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._waiting = self._waiting, None
        wanted, self._wanted = list(self._wanted), {}
        try:
            facts = await asyncio.to_thread(self._describe, wanted)
        except KafkaException as error:
            log.warning("the brokers do not describe topics: %s", error)
            return
        if len(self._facts) + len(facts) > FACTS_MAX:
            self._facts.clear()
            self._names_by_id.clear()
        now_s = time.monotonic()
        for name, fact in facts.items():
            self._store(name, fact, now_s)

    def _store(self, name: str, fact: TopicFact, now_s: float) -> None:
        _, before = self._facts.get(name, (now_s, fact))
        self._facts[name] = now_s, fact
        if before.topic_id is not None and before.topic_id != fact.topic_id:
            del self._names_by_id[before.topic_id]
        if fact.topic_id is not None:
            self._names_by_id[fact.topic_id] = name


def _seen(found: Matches, may_see: Sees) -> Matches:
    """Return the matches that a client may see. Their number is bounded, because a request to the coordinator is."""
    topics = tuple(filter(may_see, found.topics))
    if len(topics) > SUBSCRIBED_NAMES_MAX:
        return Matches(error=f"the pattern matches {len(topics)} topics, and {SUBSCRIBED_NAMES_MAX} are the maximum")
    return found if len(topics) == len(found.topics) else Matches(topics, found.error)
