"""The facts about topics that clients' requests name: their ids and partition counts.

A request waits for facts that are missing. Old facts stay valid, and are requested again meanwhile: a member must not
lose its session because a broker is away. That a topic does not exist is never taken from a stored fact: the topic may
exist now, so the brokers are asked again, unless they do not answer. Requests of clients that come at the same time
wait for the same request to the brokers: one request runs at most, and one waits for its end.

Responses to Metadata that pass through the gateway have facts too. A topic that a client sees here is known here.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from coordinator.base.limits import SUBSCRIBED_NAMES_MAX
from coordinator.messages.consumer_requests import TopicFact
from coordinator.messages.fields import NO_TOPIC
from streaming.errors import UserError
from streaming.gateway.connection.tasks import Coalesced
from streaming.gateway.protocol.topic_ids import id_text
from streaming.gateway.relay.metadata import METADATA_AGE_S, Cluster
from streaming.kafka.patterns import Matches, Patterns

log = logging.getLogger(__name__)

FACTS_MAX = 200_000
"""The topics with stored facts; beyond it all are dropped, and described again when they are needed."""

PATTERNS_AT_ONCE = 16
"""The patterns that are matched while others wait."""

REST_PART = 5
"""How often the time for the facts about all topics passes at least before they are requested again."""

CURRENT_S = 1.0
"""The age up to which the id of a topic is not requested again for a fetch of its offsets."""

REST_S_MIN = 1.0
"""The least time before the facts about all topics are requested again."""

Describe = Callable[[Sequence[str], Sequence[bytes]], Mapping[str, TopicFact]]
"""Requests the facts about topics with these names or ids, and blocks."""

Sees = Callable[[str], bool]
"""Returns whether a client may see a topic. It is called in a thread."""


class Topics:
    """The facts about topics that a gateway has.

    Args:
        cluster: The cluster, with the names of all topics.
        describe: Requests facts from the brokers and blocks, as `TopicFacts.of`.
    """

    def __init__(self, cluster: Cluster, describe: Describe) -> None:
        self._cluster, self._describe = cluster, describe
        self._facts: dict[str, tuple[float, TopicFact]] = {}
        self._wanted: dict[str | bytes, None] = {}
        self._request = Coalesced(self._ask)
        self._names_by_id: dict[str, str] = {}
        self._learning_all: asyncio.Task[None] | None = None
        self._learn_all_from_s = float("-inf")
        self.are_brokers_silent = False
        """Whether the brokers have not answered the last request: then nothing proves that a topic does not exist."""

        self._patterns, self._resolving = Patterns(), asyncio.Lock()

    def are_known(self, names: Iterable[str]) -> bool:
        """Return whether there are facts about all topics that are not too old, or that cannot be had newer."""
        return all(map(self._is_known, names))

    def are_sufficient(self, names: Iterable[str]) -> bool:
        """Return whether there are facts about all topics. Old ones are requested again in the background.

        A topic that did not exist has to be looked for again.
        """
        return self.have(dict.fromkeys(names, 0))

    def have(self, wanted: Mapping[str, int]) -> bool:
        """Return whether all topics have at least as many partitions.

        Old facts are requested again in the background.
        """
        if not all(self._is_known(name) or self._exists(name) for name in wanted):
            return False
        from_s = time.monotonic() - METADATA_AGE_S / 2  # commits need ids that are not too old
        self._renew([name for name in wanted if self._facts[name][0] < from_s])
        return all(self._facts[name][1].partitions >= wanted[name] for name in wanted)

    def are_current(self, names: Iterable[str]) -> bool:
        """Return whether all topics existed `CURRENT_S` ago, or the brokers do not answer about them."""
        from_s = time.monotonic() - CURRENT_S
        old = [name for name in names if not self._exists(name) or self._facts[name][0] < from_s]
        if self.are_brokers_silent and all(name in self._facts for name in old):
            self._renew(old)
            return True
        return not old

    def _renew(self, names: Collection[str]) -> None:
        if names and not self._request.is_under_way:
            self._begin(names)

    def _is_known(self, name: str) -> bool:
        return name in self._facts and (self.are_brokers_silent or not self._is_old(name))

    def _is_old(self, name: str) -> bool:
        if (known := self._facts.get(name)) is None:
            return True
        asked_s, fact = known
        return fact.topic_id is None or time.monotonic() - asked_s > METADATA_AGE_S

    def _exists(self, name: str) -> bool:
        return name in self._facts and self._facts[name][1].topic_id is not None

    def partitions_of(self, name: str) -> int | None:
        """Return the number of a topic's partitions; None if there is no such topic, as far as is known."""
        return self._facts[name][1].partitions if self._exists(name) else None

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
        """Return the id of a topic, as text: `NO_TOPIC` if it did not exist when the brokers were asked last.

        Return None if its facts are missing or too old.
        """
        if name not in self._facts or (self._exists(name) and not self._is_known(name)):
            return None
        return self._facts[name][1].topic_id or NO_TOPIC

    # -- requests ------------------------------------------------------------------------------------------------------

    async def learn_all(self) -> None:
        """Request the facts about all topics, unless they are known well enough.

        A large cluster has many, so the brokers are not asked all the time: each time they rest for `REST_PART` times
        as long as the last one took.
        """
        if self._learning_all is None and time.monotonic() >= self._learn_all_from_s:
            self._learning_all = asyncio.get_running_loop().create_task(self._learn_all())
        if self._learning_all is not None:
            await asyncio.shield(self._learning_all)

    async def _learn_all(self) -> None:
        since_s = time.monotonic()
        try:
            await self.learn_names()
            await self.learn({*self._cluster.names, *filter(self._exists, self._facts)})
        finally:
            now_s = time.monotonic()
            self._learn_all_from_s = now_s + max(REST_S_MIN, REST_PART * (now_s - since_s))
            self._learning_all = None

    async def learn_names(self) -> None:
        """Request the names of all topics from the brokers."""
        await self._cluster.refresh()

    async def learn(self, names_or_ids: Iterable[str | bytes]) -> None:
        """Request the facts about topics from the brokers. The old facts remain if no broker answers."""
        await asyncio.shield(self._begin(names_or_ids))

    def _begin(self, names_or_ids: Iterable[str | bytes]) -> asyncio.Task[None]:
        self._wanted.update(dict.fromkeys(names_or_ids))
        return self._request.begin()

    async def _ask(self) -> None:
        wanted, self._wanted = list(self._wanted), {}
        names = [each for each in wanted if isinstance(each, str)]
        ids = [each for each in wanted if isinstance(each, bytes)]
        asked_s = time.monotonic()
        try:
            facts = await asyncio.to_thread(self._describe, names, ids)
        except UserError as error:
            log.warning("the brokers do not describe topics, whose facts stay as they were: %s", error)
            self.are_brokers_silent = True
            return
        self.are_brokers_silent = False
        self._make_room(len(facts))
        for fact in facts.values():
            self._store(fact, asked_s)
        for name in names:
            if name not in facts:  # the brokers do not show it to the gateway: it may have lost that right
                self._forget(name)

    # -- facts ---------------------------------------------------------------------------------------------------------

    def update(self, facts: Mapping[str, TopicFact]) -> None:
        """Store facts from a response to Metadata that passes through the gateway.

        Another broker may have told a newer id. So an id that differs from the stored one is not believed: the topic
        counts as unknown, and the brokers are asked when it is needed next.
        """
        now_s = time.monotonic()
        self._make_room(len(facts))
        for name, fact in facts.items():
            if fact.topic_id is None:
                continue
            _, before = self._facts.get(name, (now_s, TopicFact(name)))
            if before.topic_id is None or (before.topic_id == fact.topic_id and before.partitions < fact.partitions):
                self._store(fact, now_s)
            elif before.topic_id != fact.topic_id:
                self._forget(name)

    def _make_room(self, more: int) -> None:
        if len(self._facts) + more > FACTS_MAX:
            self._facts.clear()
            self._names_by_id.clear()

    def _store(self, fact: TopicFact, asked_s: float) -> None:
        self._forget(fact.topic)
        self._facts[fact.topic] = asked_s, fact
        if fact.topic_id is not None:
            self._names_by_id[fact.topic_id] = fact.topic

    def _forget(self, name: str) -> None:
        _, before = self._facts.pop(name, (0.0, TopicFact(name)))
        if before.topic_id is not None:
            self._names_by_id.pop(before.topic_id, None)


def _seen(found: Matches, may_see: Sees) -> Matches:
    """Return the matches that a client may see. Their number is bounded, because a request to the coordinator is."""
    topics = tuple(filter(may_see, found.topics))
    if len(topics) > SUBSCRIBED_NAMES_MAX:
        return Matches(error=f"the pattern matches {len(topics)} topics, and {SUBSCRIBED_NAMES_MAX} are the maximum")
    return found if len(topics) == len(found.topics) else Matches(topics, found.error)
