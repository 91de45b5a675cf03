"""Where the partitions of groups' topics end, as the brokers tell it; the lag is what lies behind a commit."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable
from streaming.kafka.clients import ANSWER_WAIT_S, admin
from streaming.views.group import GroupView, Place

AT_ONCE = 5_000
"""Partitions that are asked about at a time."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""What Kafka lets a topic be named. Groups may commit any name: asked about another, librdkafka waits its time out."""

PARTITIONS = range(2**31)
"""What Kafka lets a partition be. Groups may commit any: of a negative one librdkafka wants to hear nothing."""

Ends = Mapping[Place, int]


def places(groups: Iterable[GroupView]) -> set[Place]:
    """Say which partitions groups have committed or own."""
    return {place for group in groups for place in (*group.committed(), *group.owned())}


def lag(end: int | None, committed: int | None) -> int | None:
    """Say how many records a group has not committed; None where either is not known, and never below 0."""
    return None if end is None or committed is None or committed < 0 else max(0, end - committed)


class EndOffsets:
    """Asks the brokers."""

    def __init__(self, settings: Settings) -> None:
        self._servers = settings.bootstrap_servers
        self._admin = admin(settings, "coordinator-lag")

    def of(self, wanted: Iterable[Place], when: Any = None) -> dict[Place, int]:
        """Return the end of each partition, or its offset at another time; those that there are not are left out.

        A partition without a leader has an end that nobody knows, and is left out as well. Of another time that would
        read as if it had no such offset: whoever asks for one is told instead.

        Args:
            when: Another `OffsetSpec` than the latest.

        Raises:
            BrokerUnreachable: no broker answers; or, asked for another time, one partition's does not.
        """
        passing = _NOT_THERE if when else None
        when = when or OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = [TopicPartition(*place) for place in sorted(wanted) if _is_possible(place)]
        ends: dict[Place, int] = {}
        for begin in range(0, len(asked), AT_ONCE):
            of_these = dict.fromkeys(asked[begin : begin + AT_ONCE], when)
            try:
                answers = self._admin.list_offsets(of_these, request_timeout=ANSWER_WAIT_S)
                told = {place: self._offset(answer, passing) for place, answer in answers.items()}
                if told and all(end is None for end in told.values()):
                    self._admin.list_topics(timeout=ANSWER_WAIT_S)  # brokers that are away read like absent topics
                ends |= {(place.topic, place.partition): end for place, end in told.items() if end is not None}
            except (KafkaException, TimeoutError) as error:
                raise BrokerUnreachable.at(self._servers, error) from error
        return ends

    def partitions(self, topics: Collection[str]) -> dict[str, list[int]]:
        """Return each topic's partitions; topics that there are not are left out.

        Raises:
            BrokerUnreachable: no broker answers.
        """
        try:
            known = self._admin.list_topics(timeout=ANSWER_WAIT_S).topics  # of one topic alone it would make it
        except KafkaException as error:
            raise BrokerUnreachable.at(self._servers, error) from error
        return {topic: sorted(known[topic].partitions) for topic in topics if topic in known and not known[topic].error}

    @staticmethod
    def _offset(answer: Any, passing: Collection[int] | None) -> int | None:
        """Read one partition's answer: None where it is an error, if that is one of these or any will do."""
        try:
            return int(answer.result(2 * ANSWER_WAIT_S).offset)
        except KafkaException as error:
            if passing is None or error.args[0].code() in passing:
                return None
            raise


def _is_possible(place: Place) -> bool:
    topic, partition = place
    return partition in PARTITIONS and _LEGAL.fullmatch(topic) is not None


_NOT_THERE = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._NOENT,  # none of all that were asked about
    }
)
