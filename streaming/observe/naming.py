"""A thread that writes the names of topic ids for the partitions that have asked for them.

Groups of the consumer protocol name topics by ids. The driver requests the ids of all topics from the brokers, and
writes the names to the topic PREFIX.topics, which the query reads. So the operator stays a function of its logs.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streaming.config.settings import Settings
from streaming.config.timeouts import ANSWER_WAIT_S
from streaming.kafka.clients import metadata, producer
from streaming.kafka.topic_facts import TopicFacts
from streaming.observe.operator import Name
from streaming.observe.tally import Observed
from streaming.watcher import Watcher

Record = TypeVar("Record", bound=msgspec.Struct)

CLIENT_ID = "coordinator-names"

ASK_AGAIN_S = 30.0
"""The time after which an id without a topic is looked for again: it may belong to a topic that we could not see. A
name is written again if its partition still asks for it then."""

FLUSH_S = 15.0


class Naming(Watcher):
    """The thread.

    Args:
        find: Returns the names of all topics by their ids; raises the errors of librdkafka, or
            BrokerUnreachable.
        write: Writes names, each with the partition of the source that asked for it; raises KafkaException if the
            brokers do not take them.
    """

    def __init__(
        self,
        find: Callable[[], Mapping[str, str]],
        write: Callable[[Iterable[Name]], None],
        observed: Observed,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("the naming of topic ids", observed.names_wanted.set, end_wait_s=0)
        self._find, self._write, self._observed, self._now_s = find, write, observed, now_s
        self._names: dict[str, str] = {}
        self._absent_s: dict[str, float] = {}
        self._written_s: dict[tuple[int, str], float] = {}

    @classmethod
    def of(cls, settings: Settings, observed: Observed) -> "Naming":
        """Return a thread for the brokers of these settings."""
        facts, writer = TopicFacts(settings, CLIENT_ID), producer(settings, CLIENT_ID)

        def find() -> dict[str, str]:
            names = metadata(writer).topics
            return {fact.topic_id: name for name, fact in facts.of(names, ANSWER_WAIT_S).items() if fact.topic_id}

        def key_of(name: Name) -> tuple[bytes, int]:
            return msgspec.json.encode(["topic", name.shard, name.topic_id]), name.shard % settings.request_partitions

        return cls(find, lambda names: write_records(writer, settings.topics_topic, names, key_of), observed)

    def answer(self) -> None:
        """Write the names that were asked for, as far as the brokers have such topics."""
        now_s = self._now_s()
        wanted = [
            (partition, topic_id)
            for partition, ids in sorted(self._observed.unnamed.items())
            for topic_id in ids
            if self._written_s.get((partition, topic_id), -math.inf) + ASK_AGAIN_S <= now_s
        ]
        unknown = {topic_id for _, topic_id in wanted if topic_id not in self._names}
        if any(now_s >= self._absent_s.get(topic_id, now_s) for topic_id in unknown):
            self._names.update(self._find())
            self._absent_s = {topic_id: now_s + ASK_AGAIN_S for topic_id in unknown if topic_id not in self._names}
        found = [Name(*each, self._names[each[1]]) for each in wanted if each[1] in self._names]
        if found:
            self._write(found)
            self._written_s.update(((name.shard, name.topic_id), now_s) for name in found)

    def _watch(self) -> None:
        while not self._closing.is_set():
            self._observed.names_wanted.wait(ASK_AGAIN_S)
            self._observed.names_wanted.clear()
            if not self._closing.is_set():
                self.answer()


def write_records(
    writer: Producer, topic: str, records: Iterable[Record], key_of: Callable[[Record], tuple[bytes, int]]
) -> None:
    """Write records as JSON, and wait until the brokers have them.

    Args:
        key_of: Returns the key and the partition of a record.

    Raises:
        KafkaException: The brokers do not take a record, or not in `FLUSH_S`.
    """
    failed: list[KafkaError] = []

    def report(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    for record in records:
        key, partition = key_of(record)
        writer.produce(topic, msgspec.json.encode(record), key, partition, on_delivery=report)
    if writer.flush(FLUSH_S) or failed:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))
