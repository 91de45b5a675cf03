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
from streaming.gateway.cluster import METADATA_AGE_MIN_S, METADATA_AGE_S, Cluster
from streaming.gateway.ids import id_text
from streaming.kafka.patterns import Matches, matching

log = logging.getLogger(__name__)

FACTS_MAX = 200_000
"""The topics with stored facts; beyond it all are dropped, and described again when they are needed."""

MATCHES_MAX = 1_000
"""The patterns with stored matches; beyond it all are dropped."""


class Topics:
    """What a gateway knows of topics.

    Args:
        cluster: Has the names of all topics.
        describe: Requests facts from the brokers and blocks, as `topic_facts`.
    """

    def __init__(self, cluster: Cluster, describe: Callable[[Sequence[str]], Mapping[str, TopicFact]]) -> None:
        self._cluster, self._describe = cluster, describe
        self._facts: dict[str, tuple[float, TopicFact]] = {}
        self._wanted: dict[str, None] = {}
        self._running: asyncio.Task[None] | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._names_by_id: dict[str, str] = {}
        self._learned_all_s = float("-inf")
        self._names = frozenset[str]()
        self._matches: dict[str, Matches] = {}

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

    def matching(self, pattern: str, may_see: Callable[[str], bool]) -> Matches:
        """Return the topics that a pattern matches, among those that a client may see.

        Args:
            may_see: Returns whether the client may see a topic.
        """
        if self._names != self._cluster.topics or len(self._matches) > MATCHES_MAX:
            self._names, self._matches = frozenset(self._cluster.topics), {}
        found = self._matches.get(pattern) or matching(pattern, self._names)
        self._matches[pattern] = found
        return found._replace(topics=tuple(filter(may_see, found.topics)))

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with that id; None if there is none, as far as is known."""
        return self._names_by_id.get(id_text(topic_id))

    def id_of(self, name: str) -> str | None:
        """Return the id of a topic, as text; None if there is none, or its facts are missing or too old."""
        return self._facts[name][1].topic_id if self._is_known(name, time.monotonic()) else None

    async def learn_all(self) -> None:
        """Request the facts about all topics, unless they are known well enough."""
        await self.learn_names()
        now_s = time.monotonic()
        if now_s - self._learned_all_s > METADATA_AGE_MIN_S:
            self._learned_all_s = now_s
            await self.learn(self._cluster.topics)

    async def learn_names(self) -> None:
        """Request the names of all topics from the brokers, unless they are known well enough."""
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
