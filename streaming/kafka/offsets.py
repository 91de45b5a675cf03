"""The offsets of partitions at their ends, their beginnings or a time, as the partitions' leaders return them.

Each leader is asked by itself, so one that does not answer hides only its own partitions.

A consumer asks, and not librdkafka's admin client. While a leader or the controller is down, a request of the admin
client keeps two threads of librdkafka busy, which costs a core. After a leader has moved, the admin client answers
FENCED_LEADER_EPOCH until it refreshes its metadata, up to 15 minutes later.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from operator import itemgetter
from threading import Event
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streaming.config.settings import Settings
from streaming.config.timeouts import ANSWER_WAIT_S, ATTEMPT_WAIT_S, LEADERS_WAIT_S, RETRY_WAIT_S
from streaming.errors import BrokerUnreachable
from streaming.kafka.brokers import unreachable
from streaming.kafka.clients import consumer, metadata

AT_ONCE = 5_000
"""The maximum number of partitions of one request."""

LATEST, EARLIEST = -1, -2
"""Kafka's times for a partition's end and its beginning."""

NO_SUCH = -1
"""The offset if no record is as late as the time that was asked for."""

TopicAndPartition = tuple[str, int]
"""A topic and one of its partitions."""


class Why(Enum):
    """Why a partition's offset is not known."""

    ABSENT = "it does not exist"
    DENIED = "the brokers do not allow it"
    NO_LEADER = "it has no leader"
    SILENT = "its leader does not answer"


class Offsets(NamedTuple):
    """What the leaders have returned.

    Args:
        known: The offsets.
        unknown: The reason for each of the other partitions.
        leaders: The leader of each partition that has one.
        silent: The brokers that did not answer.
        answering: The brokers that did answer.
    """

    known: Mapping[TopicAndPartition, int]
    unknown: Mapping[TopicAndPartition, Why]
    leaders: Mapping[TopicAndPartition, int]
    silent: frozenset[int]
    answering: frozenset[int]

    @property
    def by_partition(self) -> dict[int, int]:
        """The offsets of the partitions of one topic."""
        return {partition: offset for (_, partition), offset in self.known.items()}


class ShareOffset(NamedTuple):
    """The position of a share group in a partition.

    Args:
        start: The first offset that is not acknowledged. It may stay behind while records after it are.
        lag: The records that nobody has acknowledged; None if the broker does not tell it.
    """

    start: int
    lag: int | None


ShareOffsets = dict[str, dict[tuple[str, int], ShareOffset]]
"""The positions of share groups, by group and partition."""


class OffsetAsker:
    """Asks for offsets. Several threads may use it.

    Args:
        is_stable: Whether an end is the last stable offset, before which no transaction is open; otherwise the high
            watermark.
        stopping: The event that ends `await_all`.
    """

    def __init__(
        self, settings: Settings, client_id: str, *, is_stable: bool = False, stopping: Event | None = None
    ) -> None:
        level = "read_committed" if is_stable else "read_uncommitted"
        self._settings = settings
        options = {"isolation.level": level, "allow.auto.create.topics": False}
        self._consumer: Consumer = consumer(settings, client_id, options)
        self._silent: frozenset[int] = frozenset()
        self._stopping = stopping or Event()

    def metadata(self, topic: str | None = None) -> Any:
        """Return the cluster's metadata, of all topics or of one.

        Raises:
            KafkaException: No broker answers.
        """
        return metadata(self._consumer, topic)

    def ask_all(self, topic: str, wait_s: float = ANSWER_WAIT_S) -> Offsets:
        """Return the ends of all partitions of a topic; nothing if it does not exist.

        Raises:
            KafkaException: No broker answers.
        """
        described = self.metadata(topic).topics[topic]
        return self.ask([(topic, partition) for partition in described.partitions], wait_s=wait_s)

    def ask(self, places: Iterable[TopicAndPartition], at_ms: int = LATEST, wait_s: float = ANSWER_WAIT_S) -> Offsets:
        """Return the offset of each partition at a time.

        Args:
            at_ms: Unix milliseconds, `LATEST` or `EARLIEST`. If no record is as late as that, the offset is `NO_SUCH`.
            wait_s: The longest wait for all leaders together, seconds.

        Raises:
            KafkaException: No broker answers.
        """
        wanted = sorted(set(places))
        names = {topic for topic, _ in wanted}
        if not wanted:
            return Offsets({}, {}, {}, frozenset(), frozenset())
        leaders, unknown = _leaders(self.metadata(names.pop() if len(names) == 1 else None), wanted)
        by_leader: dict[int, list[TopicAndPartition]] = {}
        for place, leader in leaders.items():
            by_leader.setdefault(leader, []).append(place)
        known: dict[TopicAndPartition, int] = {}
        silent, until_s = set[int](), time.monotonic() + wait_s
        for leader in sorted(by_leader, key=lambda broker: (broker in self._silent, broker)):
            of_leader = by_leader[leader]
            for begin in range(0, len(of_leader), AT_ONCE):
                some = of_leader[begin : begin + AT_ONCE]
                left_s = min(ATTEMPT_WAIT_S, until_s - time.monotonic())
                if leader in silent or left_s <= 0 or not self._ask_leader(some, at_ms, left_s, known, unknown):
                    silent.add(leader)
                    unknown |= dict.fromkeys(some, Why.SILENT)
        self._silent = frozenset(silent)
        return Offsets(known, unknown, leaders, self._silent, frozenset(by_leader) - self._silent)

    def _ask_leader(
        self,
        places: list[TopicAndPartition],
        at_ms: int,
        wait_s: float,
        known: dict[TopicAndPartition, int],
        unknown: dict[TopicAndPartition, Why],
    ) -> bool:
        """Add what the leader of some partitions returns. Return False if it returns nothing."""
        asked = [TopicPartition(topic, partition, at_ms) for topic, partition in places]
        try:
            found = self._consumer.offsets_for_times(asked, timeout=wait_s)
        except KafkaException:
            return False
        for each in found:
            place = each.topic, each.partition
            if each.error is None:
                known[place] = max(each.offset, NO_SUCH)
            else:
                unknown[place] = _REASONS.get(each.error.code(), Why.NO_LEADER)
        return True

    def await_all(self, places: Iterable[TopicAndPartition], at_ms: int = LATEST) -> dict[TopicAndPartition, int]:
        """Return the offset of each partition at a time, as soon as all leaders have answered. Leaders that move,
        or are not known yet, are asked again.

        Raises:
            BrokerUnreachable: The leader of a partition has not answered for `LEADERS_WAIT_S`, or the process stops.
        """
        wanted, until_s = list(places), time.monotonic() + LEADERS_WAIT_S
        while True:
            why, unknown = "", set[str]()
            try:
                found = self.ask(wanted, at_ms)
                if not found.unknown:
                    return dict(found.known)
                (topic, partition), reason = min(found.unknown.items(), key=itemgetter(0))
                why, unknown = f"{topic}-{partition}: {reason.value}", {topic}
            except KafkaException as error:
                why = error.args[0].str()
            if self._stopping.wait(RETRY_WAIT_S):
                raise BrokerUnreachable(f"The process stops, and no longer waits for the brokers ({why}).")
            if time.monotonic() >= until_s:
                raise unreachable(self._settings, why, unknown)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()


def _leaders(
    metadata: Any, wanted: Collection[TopicAndPartition]
) -> tuple[dict[TopicAndPartition, int], dict[TopicAndPartition, Why]]:
    """Return the leader of each partition, and for those without one the reason."""
    leaders: dict[TopicAndPartition, int] = {}
    unknown: dict[TopicAndPartition, Why] = {}
    for topic, partition in wanted:
        described = metadata.topics.get(topic)
        if described is None or partition not in described.partitions:
            error = None if described is None else described.error
            unknown[topic, partition] = Why.ABSENT if error is None else _REASONS.get(error.code(), Why.ABSENT)
        elif (leader := described.partitions[partition].leader) < 0:
            unknown[topic, partition] = Why.NO_LEADER
        else:
            leaders[topic, partition] = leader
    return leaders, unknown


_REASONS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: Why.ABSENT,
    KafkaError._UNKNOWN_PARTITION: Why.ABSENT,
    KafkaError._UNKNOWN_TOPIC: Why.ABSENT,
    KafkaError.TOPIC_EXCEPTION: Why.ABSENT,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Why.DENIED,
}
