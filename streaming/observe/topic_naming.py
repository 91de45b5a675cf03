"""A thread that names the changed topics of a group epoch with another metadata hash.

It follows the topics that groups of the consumer protocol subscribe to. When a group epoch has another hash, it
recomputes both hashes, and writes the changed topics to PREFIX.topics for the partition with that group; see
`topic_history`. What it has seen of the topics is written there too, so that the next process knows it.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from kafka.errors import IncompatibleBrokerVersion
from kafka.errors import KafkaError as BrokerError
from kafka.protocol.admin import DescribeClusterRequest

from coordinator.base.hashing import shard_of
from coordinator.messages.observed_events import TopicChange
from streaming.config.settings import Settings
from streaming.config.timeouts import ANSWER_WAIT_S
from streaming.kafka.any_broker import AnyBroker, Reconnecting, metadata_request
from streaming.kafka.brokers import unreachable
from streaming.kafka.clients import producer
from streaming.kafka.reader import TopicReader
from streaming.kafka.topic_facts import ABSENT, AT_ONCE_MAX, id_text, is_legal
from streaming.observe.naming import write_records
from streaming.observe.operator import TopicsOfEpoch
from streaming.observe.state import HashChange
from streaming.observe.tally import Observed
from streaming.observe.topic_history import Described, Fact, TopicHistory
from streaming.watcher import Watcher

CLIENT_ID = "coordinator-topics"

LOOK_EVERY_S = 30.0
"""The time between two looks at the topics while no group has a changed hash."""

TRY_EVERY_S = 1.0
"""The time between two looks while the topics of a changed hash are not named."""

TRY_FOR_S = 15.0
"""The time after which the topics of a changed hash count as not known. A broker may learn of a change later than
the group's coordinator."""

WRITE_AGAIN_S = 30.0
"""The time after which an answer is written again, if its partition still asks for it."""

TOPICS_MAX = 10_000
"""The topics that are followed. A group of others has changed topics that are not known."""

Answer = tuple[int, str, int, int]
"""A change of a hash: the partition of the source, the group, the group epoch and its hash."""


class SeenTopic(msgspec.Struct, frozen=True):
    """The value of a record with what was seen of a topic, the latest last; null stands for no such topic."""

    topic: str
    seen: list[Fact | None]


Written = TopicsOfEpoch | SeenTopic


class TopicNaming(Watcher):
    """The thread.

    Args:
        describe: Returns topics as they are now, None for one that does not exist; without those that the brokers do
            not show. Raises BrokerUnreachable.
        read: Returns what earlier processes have seen; raises BrokerUnreachable.
        write: Writes records; raises KafkaException if the brokers do not take them.
    """

    def __init__(
        self,
        describe: Callable[[Collection[str]], Mapping[str, Described | None]],
        read: Callable[[], Iterable[SeenTopic]],
        write: Callable[[Iterable[Written]], None],
        observed: Observed,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("the naming of changed topics", observed.has_topics.set, end_wait_s=0)
        self._describe, self._read, self._write, self._observed = describe, read, write, observed
        self._now_s = now_s
        self._history = TopicHistory()
        self._followed: dict[str, None] = {}
        self._unwritten: dict[str, None] = {}
        self._is_restored, self._looked_s = False, -math.inf
        self._waiting_since_s: dict[Answer, float] = {}
        self._written_s: dict[Answer, float] = {}
        self._found: dict[Answer, tuple[int, tuple[TopicChange, ...] | None]] = {}
        self._is_open = True

    @classmethod
    def of(cls, settings: Settings, observed: Observed) -> "TopicNaming":
        """Return a thread for the brokers of these settings."""
        writer = producer(settings, CLIENT_ID)
        brokers = Reconnecting({**settings.kafka_client_arguments(), "client_id": CLIENT_ID})

        def describe(names: Collection[str]) -> dict[str, Described | None]:
            try:
                return brokers.run(lambda asker: described(asker, names))
            except BrokerError as error:
                raise unreachable(settings, error) from error

        def write(records: Iterable[Written]) -> None:
            write_records(writer, settings.topics_topic, records, lambda each: _key(each, settings.request_partitions))

        return cls(describe, lambda: seen_topics(settings), write, observed)

    def update(self) -> bool:
        """Return whether changes of hashes still have no answer, after a look at the topics.

        Topics of which nothing is known and those of changed hashes are looked at each time, all others every
        `LOOK_EVERY_S`.

        Raises:
            BrokerUnreachable: No broker answers.
            KafkaException: The brokers do not take the answers.
        """
        if not self._is_restored:
            for each in self._read():
                self._history.restore(each.topic, each.seen)
            self._is_restored = True
        changes = [(number, each) for number, found in self._observed.hash_changes.items() for each in found]
        of_changes = {name for _, each in changes for name in (*each.topics, *each.topics_before)}
        names = {*self._history.names, *self._observed.new_topics(), *of_changes}
        fresh = sorted(names - self._followed.keys())[: TOPICS_MAX - len(self._followed)]
        self._followed |= dict.fromkeys(fresh)
        if (now_s := self._now_s()) >= self._looked_s + LOOK_EVERY_S:
            self._looked_s = now_s
            self._record(self._describe(list(self._followed)))
        elif wanted := [name for name in self._followed if name in of_changes or not self._history.seen(name)]:
            self._record(self._describe(wanted))
        return self._answer(changes)

    def _record(self, described: Mapping[str, Described | None]) -> None:
        changed = [name for name, each in described.items() if self._history.record(name, each)]
        self._unwritten |= dict.fromkeys(changed)
        if self._unwritten:
            self._write(SeenTopic(name, self._history.seen(name)) for name in self._unwritten)
            self._unwritten = {}

    def _answer(self, changes: Sequence[tuple[int, HashChange]]) -> bool:
        """Write the answers that are known, or that count as not known. Return whether any is missing."""
        now_s, answers, is_open = self._now_s(), dict[Answer, TopicsOfEpoch](), False
        keys = {(number, each.group_id, each.group_epoch, each.hash): each for number, each in changes}
        self._waiting_since_s = {key: self._waiting_since_s.get(key, now_s) for key in keys}
        self._written_s = {key: written_s for key, written_s in self._written_s.items() if key in keys}
        self._found = {key: found for key, found in self._found.items() if key in keys}
        for key, change in keys.items():
            if self._written_s.get(key, -math.inf) + WRITE_AGAIN_S > now_s:
                continue
            if (found := self._search(key, change)) is not None or now_s >= self._waiting_since_s[key] + TRY_FOR_S:
                answers[key] = TopicsOfEpoch(*key, found or ())
            else:
                is_open = True
        if answers:
            self._write(answers.values())
            self._written_s.update(dict.fromkeys(answers, now_s))
        return is_open

    def _search(self, key: Answer, change: HashChange) -> tuple[TopicChange, ...] | None:
        """Return the changed topics; None while they are not known. Only what is new is worth another search."""
        version, found = self._found.get(key, (-1, None))
        if found is None and version != self._history.version:
            found = self._history.explain(change)
            self._found[key] = self._history.version, found
        return found

    def _watch(self) -> None:
        while not self._closing.is_set():
            self._observed.has_topics.wait(TRY_EVERY_S if self._is_open else LOOK_EVERY_S)
            self._observed.has_topics.clear()
            self._is_open = False  # also after an error
            self._is_open = not self._closing.is_set() and self.update()
            if self._is_open:
                self._closing.wait(TRY_EVERY_S)


def _key(record: Written, partitions: int) -> tuple[bytes, int]:
    """Return the key and the partition of a record. The topic is compacted: the last answer of a group is left."""
    if isinstance(record, SeenTopic):
        return msgspec.json.encode(["seen", record.topic]), shard_of(record.topic, partitions)
    return msgspec.json.encode(["group", record.shard, record.group_id]), record.shard % partitions


def seen_topics(settings: Settings) -> list[SeenTopic]:
    """Return what earlier processes have seen of topics.

    Raises:
        BrokerUnreachable: No broker answers.
    """
    found: dict[str, SeenTopic] = {}
    decoder = msgspec.json.Decoder(SeenTopic)
    with TopicReader(settings, [settings.topics_topic], CLIENT_ID) as reader:
        for record in reader.backlog():
            with suppress(msgspec.MsgspecError, ValueError):
                if record.value is not None and record.key.startswith(b'["seen"'):
                    seen = decoder.decode(record.value)
                    found[seen.topic] = seen
    return list(found.values())


def described(brokers: AnyBroker, names: Collection[str]) -> dict[str, Described | None]:
    """Return topics as the brokers describe them; None for one that does not exist, and nothing about a hidden one.

    The racks are those of all brokers that are registered, as Kafka hashes them: also of fenced ones.

    Raises:
        KafkaError: No broker answered.
    """
    legal = list(filter(is_legal, names))
    found: dict[str, Described | None] = {name: None for name in names if not is_legal(name)}
    racks: dict[int, str | None] | None = None
    for start in range(0, len(legal), AT_ONCE_MAX):
        part = legal[start : start + AT_ONCE_MAX]
        response = brokers.ask(lambda part=part: metadata_request(part), within_s=ANSWER_WAIT_S)  # type: ignore[misc]
        brokers.learn(response)
        racks = racks if racks is not None else _racks(brokers, response)
        for topic in response.topics:
            if topic.error_code in ABSENT:
                found[topic.name] = None
            elif not topic.error_code and topic.name:
                found[topic.name] = Described(id_text(topic.topic_id), _replica_racks(topic, racks))
    return found


def _replica_racks(topic: Any, racks: Mapping[int, str | None]) -> list[list[str]]:
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    return [[rack for node in each.replica_nodes if (rack := racks.get(node)) is not None] for each in partitions]


def _racks(brokers: AnyBroker, metadata: Any) -> dict[int, str | None]:
    """Return the racks of all brokers. Those that are fenced are missing with brokers before 4.0 (KIP-1073)."""
    racks = {each.node_id: each.rack for each in metadata.brokers}
    with suppress(IncompatibleBrokerVersion):
        response = brokers.ask(
            lambda: DescribeClusterRequest(
                include_cluster_authorized_operations=False, endpoint_type=1, include_fenced_brokers=True
            ),
            within_s=ANSWER_WAIT_S,
        )
        racks |= {each.broker_id: each.rack for each in response.brokers}
    return racks
