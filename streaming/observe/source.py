"""The source topic as the brokers describe it: its partitions, their ends, and how long its records are kept."""

import logging
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import NamedTuple
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]
from kafka.errors import TopicAuthorizationFailedError

from coordinator.base.config import MINUTE_MS
from streaming.config.settings import Settings
from streaming.config.timeouts import ANSWER_WAIT_S, ATTEMPT_WAIT_S
from streaming.errors import Exit, RightMissing, UserError
from streaming.kafka.acls import SOURCE_TOPIC
from streaming.kafka.any_broker import UNKNOWN_TOPIC, values_of
from streaming.kafka.clients import admin, metadata
from streaming.kafka.offsets import LATEST, OffsetAsker
from streaming.kafka.topics import any_broker, refuse_error

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
    with any_broker(settings) as brokers:
        topic = brokers.describe_topics([SOURCE_TOPIC])[SOURCE_TOPIC]
    if topic.error_code == TopicAuthorizationFailedError.errno:
        raise RightMissing(NOT_ALLOWED)
    if topic.error_code != UNKNOWN_TOPIC:
        refuse_error(SOURCE_TOPIC, "show", topic.error_code)
    return Source(_id_text(topic.topic_id), len(topic.partitions)) if topic.partitions else None


def _id_text(topic_id: UUID) -> str:
    """Return a topic id as checkpoints have it: in base64, without padding."""
    return b64encode(topic_id.bytes).rstrip(b"=").decode()


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


def ends(settings: Settings, source: Source, *, is_stable: bool = True) -> dict[int, int]:
    """Return the end of each partition.

    Args:
        is_stable: Return the last stable offset, before which no transaction is open; otherwise the high watermark.

    Raises:
        BrokerUnreachable: The leader of a partition does not answer.
    """
    with closing(OffsetAsker(settings, CLIENT_ID, is_stable=is_stable)) as asker:
        return _offsets(asker, range(source.partitions))


def retention_ms(settings: Settings) -> int | None:
    """Return how long the brokers keep the offsets of an empty group; None if they do not tell it."""
    try:
        value = _retention_minutes(settings)
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
    kept_ms = _tombstones_kept_ms(settings)
    with closing(OffsetAsker(settings, CLIENT_ID)) as asker:
        latest = _offsets(asker, read_to)
        if short := [partition for partition, end in latest.items() if end < read_to[partition]]:
            raise SourceLost(
                f"{SOURCE_TOPIC} ends before the records that were read, in partition {short[0]} at {latest[short[0]]}"
                f" and not at {read_to[short[0]]} or later, as after a loss of a broker's data: {AT_START}."
            )
        if kept_ms is None:
            return
        since_ms = now_ms - int(kept_ms) // ABSENT_SHARE
        fresh = _offsets(asker, read_to, since_ms)
    begins = {partition: latest[partition] if offset < 0 else offset for partition, offset in fresh.items()}
    if any(begin > read_to[partition] for partition, begin in begins.items()):
        raise SourceLost(
            f"The observer has not read {SOURCE_TOPIC} for more than half of its delete.retention.ms ({kept_ms}), so"
            f" what was deleted meanwhile may not be told any more: {AT_START}."
        )


def _tombstones_kept_ms(settings: Settings) -> str | None:
    """Return the topic's `delete.retention.ms`; None if we may not see it.

    Raises:
        BrokerUnreachable: No broker answers.
        TopicRefused: No broker knows the topic.
    """
    with any_broker(settings) as brokers:
        config = brokers.describe_configs([SOURCE_TOPIC])[SOURCE_TOPIC]
    if config.error_code == UNKNOWN_TOPIC:
        refuse_error(SOURCE_TOPIC, "show the configuration of", config.error_code)
    return values_of(config).get("delete.retention.ms")


def _retention_minutes(settings: Settings) -> str | None:
    """Return the `offsets.retention.minutes` of the first broker that answers; None if we may not see it.

    Raises:
        KafkaException: No broker answers.
    """
    asker, name = admin(settings, CLIENT_ID), "offsets.retention.minutes"
    failures: list[KafkaException] = []
    for broker in sorted(metadata(asker).brokers):  # each one tells only its own
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        try:
            found = asker.describe_configs([resource], request_timeout=ATTEMPT_WAIT_S)[resource].result()
        except KafkaException as error:
            if error.args[0].code() in MAY_NOT_SEE:
                log.debug("the configuration of the brokers is not shown: %s", error)
                return None
            failures.append(error)
        else:
            return str(found[name].value) if name in found else None
    raise failures[-1]


def _offsets(asker: OffsetAsker, partitions: Iterable[int], at_ms: int = LATEST) -> dict[int, int]:
    found = asker.await_all(((SOURCE_TOPIC, partition) for partition in partitions), at_ms)
    return {partition: offset for (_, partition), offset in found.items()}
