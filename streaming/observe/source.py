"""The source topic as the brokers describe it: its partitions, their ends, and how long its records are kept."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]

from coordinator.config import MINUTE_MS
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, Exit, RightMissing, UserError
from streaming.kafka.clients import ANSWER_WAIT_S, admin
from streaming.kafka.reader import LEADER_WAIT_S, NO_LEADER_YET
from streaming.kafka.rights import SOURCE_TOPIC

log = logging.getLogger(__name__)

CLIENT_ID = "coordinator-observe"

LOOK_EVERY_S = 1.0
"""The time between two looks for a source topic that does not exist yet."""

MAY_NOT_SEE = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
"""The errors of a configuration for which our user has no right."""

NOT_THERE = "No group has used Kafka's own coordinator yet; waiting."

NOT_ALLOWED = (
    f"The observer's user may not read {SOURCE_TOPIC}: grant it Read on that topic. `coordinator acls observer"
    " --principal User:NAME` prints the commands; docs/observe.md lists the providers that do not allow it."
)

AT_START = "start with another observe_checkpoint and another observe_prefix"

ABSENT_SHARE = 2
"""Tombstones may be missing after this part of `delete.retention.ms`: one half."""


class SourceLost(UserError):
    """Records of the source may be missing, so that the checkpoint must not be used."""

    exit_code = Exit.NEEDS_A_PERSON


class Source(NamedTuple):
    """The source topic."""

    topic_id: str
    partitions: int


def find_source(settings: Settings) -> Source | None:
    """Return the source topic; None if it does not exist yet.

    Raises:
        RightMissing: We may not describe the topic.
        BrokerUnreachable: No broker answers.
    """
    asker = admin(settings, CLIENT_ID)
    told = asker.describe_topics(TopicCollection([SOURCE_TOPIC]), request_timeout=ANSWER_WAIT_S)
    try:
        topic = told[SOURCE_TOPIC].result()
    except KafkaException as error:
        match error.args[0].code():
            case KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            case KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise RightMissing(NOT_ALLOWED) from error
            case _:
                raise BrokerUnreachable.at(settings.bootstrap_servers, error.args[0].str()) from error
    return Source(str(topic.topic_id), len(topic.partitions)) if topic.partitions else None


def await_source(settings: Settings, report: Callable[[str], None], stopping: threading.Event) -> Source | None:
    """Wait until the source topic exists, and return it; None if the process is stopping.

    Kafka makes the topic when the first client looks for a group's coordinator.
    """
    is_reported = False
    while not stopping.is_set():
        if (source := find_source(settings)) is not None:
            return source
        if not is_reported:
            report(NOT_THERE)
            is_reported = True
        stopping.wait(LOOK_EVERY_S)
    return None


def have_source_made(settings: Settings) -> None:
    """Request the coordinator of a group, so that the brokers make the source topic. No group comes into being.

    Raises:
        BrokerUnreachable: No broker answers.
    """
    asker = admin(settings, CLIENT_ID)
    try:
        for future in asker.describe_consumer_groups([CLIENT_ID], request_timeout=ANSWER_WAIT_S).values():
            future.result()
    except KafkaException as error:
        log.debug("the brokers do not name a coordinator: %s", error)


def ends(
    settings: Settings, source: Source, *, is_stable: bool = True, wait_s: float = ANSWER_WAIT_S
) -> dict[int, int]:
    """Return the end of each partition.

    Args:
        is_stable: Return the last stable offset, before which no transaction is open; otherwise the high watermark.

    Raises:
        KafkaException: No broker answers.
    """
    level = IsolationLevel.READ_COMMITTED if is_stable else IsolationLevel.READ_UNCOMMITTED
    return _offsets(settings, range(source.partitions), OffsetSpec.latest(), level, wait_s)  # type: ignore[no-untyped-call]


def retention_ms(settings: Settings) -> int | None:
    """Return how long the brokers keep the offsets of an empty group; None if they do not tell it."""
    try:
        asker = admin(settings, CLIENT_ID)
        brokers = asker.list_topics(timeout=ANSWER_WAIT_S).brokers
        value = _config(settings, ResourceType.BROKER, str(min(brokers)), "offsets.retention.minutes")
    except (KafkaException, ValueError) as error:
        log.debug("the brokers do not tell their retention of offsets: %s", error)
        return None
    return int(value) * MINUTE_MS if value is not None else None


def refuse_long_absence(settings: Settings, read_to: Mapping[int, int], now_ms: int) -> None:
    """Check that no tombstone since the last batch can have been deleted.

    A tombstone is kept for `delete.retention.ms`. So no record that is still to be read may be older than half of it.

    Args:
        read_to: By partition, the offset before which all is translated.

    Raises:
        SourceLost: A tombstone may be missing, or the topic ends before the records that were read.
        BrokerUnreachable: No broker answers.
    """
    try:
        kept_ms = _config(settings, ResourceType.TOPIC, SOURCE_TOPIC, "delete.retention.ms")
        latest = _offsets(settings, read_to, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]
        if short := [partition for partition, end in latest.items() if end < read_to[partition]]:
            raise SourceLost(
                f"{SOURCE_TOPIC} ends before the records that were read, in partition {short[0]} at {latest[short[0]]}"
                f" and not at {read_to[short[0]]} or later, as after a loss of a broker's data: {AT_START}."
            )
        if kept_ms is None:
            return
        since_ms = now_ms - int(kept_ms) // ABSENT_SHARE
        fresh = _offsets(settings, read_to, OffsetSpec.for_timestamp(since_ms), IsolationLevel.READ_UNCOMMITTED)
    except KafkaException as error:
        raise BrokerUnreachable.at(settings.bootstrap_servers, error.args[0].str()) from error
    begins = {partition: latest[partition] if offset < 0 else offset for partition, offset in fresh.items()}
    if any(begin > read_to[partition] for partition, begin in begins.items()):
        raise SourceLost(
            f"The observer has not read {SOURCE_TOPIC} for more than half of its delete.retention.ms ({kept_ms}), so"
            f" what was deleted meanwhile may not be told any more: {AT_START}."
        )


def _config(settings: Settings, kind: Any, name: str, wanted: str) -> str | None:
    """Return a value of a topic's or a broker's configuration; None if we may not see it.

    Raises:
        KafkaException: No broker answers.
    """
    resource, asker = ConfigResource(kind, name), admin(settings, CLIENT_ID)
    try:
        found = asker.describe_configs([resource], request_timeout=ANSWER_WAIT_S)[resource].result()
    except KafkaException as error:
        if error.args[0].code() not in MAY_NOT_SEE:
            raise
        log.debug("the configuration of %s is not shown: %s", name, error)
        return None
    return str(found[wanted].value) if wanted in found else None


def _offsets(
    settings: Settings, partitions: Any, spec: OffsetSpec, level: IsolationLevel, wait_s: float = ANSWER_WAIT_S
) -> dict[int, int]:
    """Request offsets. A partition whose leader is not known yet, as of a new topic, is asked for again."""
    asker, until_s = admin(settings, CLIENT_ID), time.monotonic() + wait_s
    wanted = {TopicPartition(SOURCE_TOPIC, partition): spec for partition in partitions}
    while True:
        answers = asker.list_offsets(wanted, isolation_level=level, request_timeout=wait_s)
        try:
            return {place.partition: answer.result(2 * wait_s).offset for place, answer in answers.items()}
        except KafkaException as error:
            if error.args[0].code() not in NO_LEADER_YET or time.monotonic() > until_s:
                raise
        time.sleep(LEADER_WAIT_S)
