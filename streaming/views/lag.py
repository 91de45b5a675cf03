"""End offsets of the partitions of groups' topics, read from the brokers. The lag is the end minus the committed
offset.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable
from streaming.kafka.clients import ANSWER_WAIT_S, admin
from streaming.views.fields import PartitionKey
from streaming.views.group import GroupView

AT_ONCE = 5_000
"""The maximum number of partitions of one request."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""The topic names that Kafka allows. Groups may commit any name, and librdkafka waits for its timeout for any other
name.
"""

PARTITIONS = range(2**31)
"""The partition numbers that Kafka allows. Groups may commit any number, and librdkafka rejects a negative one."""

Ends = Mapping[PartitionKey, int]


def places(groups: Iterable[GroupView]) -> set[PartitionKey]:
    """Return the partitions that groups have committed or own."""
    return {place for group in groups for place in (*group.committed(), *group.owned())}


def lag(end: int | None, committed: int | None) -> int | None:
    """Return the number of records that a group has not committed, 0 or more; None if an offset is unknown."""
    return None if end is None or committed is None or committed < 0 else max(0, end - committed)


class EndOffsets:
    """A reader of offsets from the brokers."""

    def __init__(self, settings: Settings) -> None:
        self._servers = settings.bootstrap_servers
        self._admin = admin(settings, "coordinator-lag")

    def of(self, wanted: Iterable[PartitionKey], when: Any = None) -> dict[PartitionKey, int]:
        """Return the end offset of each partition, or its offset at another time. Partitions that do not exist are
        omitted.

        A partition without a leader has no known end, so it is omitted too. For another time that would read as if no
        such offset existed, so an error is raised instead.

        Args:
            when: Another `OffsetSpec` than the latest.

        Raises:
            BrokerUnreachable: no broker answers; or, for another time, the leader of one partition does not answer.
        """
        passing = _NOT_THERE if when else None
        when = when or OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = [TopicPartition(*place) for place in sorted(wanted) if _is_possible(place)]
        ends: dict[PartitionKey, int] = {}
        for begin in range(0, len(asked), AT_ONCE):
            of_these = dict.fromkeys(asked[begin : begin + AT_ONCE], when)
            try:
                answers = self._admin.list_offsets(of_these, request_timeout=ANSWER_WAIT_S)
                told = {place: self._offset(answer, passing) for place, answer in answers.items()}
                if told and all(end is None for end in told.values()):
                    self._admin.list_topics(timeout=ANSWER_WAIT_S)  # unavailable brokers look like absent topics
                ends |= {(place.topic, place.partition): end for place, end in told.items() if end is not None}
            except (KafkaException, TimeoutError) as error:
                raise BrokerUnreachable.at(self._servers, error) from error
        return ends

    def partitions(self, topics: Collection[str]) -> dict[str, list[int]]:
        """Return the partitions of each topic. Topics that do not exist are omitted.

        Raises:
            BrokerUnreachable: no broker answers.
        """
        try:
            known = self._admin.list_topics(timeout=ANSWER_WAIT_S).topics  # a request for one topic would create it
        except KafkaException as error:
            raise BrokerUnreachable.at(self._servers, error) from error
        return {topic: sorted(known[topic].partitions) for topic in topics if topic in known and not known[topic].error}

    @staticmethod
    def _offset(answer: Any, passing: Collection[int] | None) -> int | None:
        """Return one partition's offset; None for an error, if the error is in `passing` or `passing` is None."""
        try:
            return int(answer.result(2 * ANSWER_WAIT_S).offset)
        except KafkaException as error:
            if passing is None or error.args[0].code() in passing:
                return None
            raise


def _is_possible(place: PartitionKey) -> bool:
    topic, partition = place
    return partition in PARTITIONS and _LEGAL.fullmatch(topic) is not None


_NOT_THERE = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._NOENT,  # no partition of the request exists
    }
)
