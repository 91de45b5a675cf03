"""A checkpoint that a later one has overtaken: a back-up, put in place though the coordinator has gone on since.

It would take all requests since then once more, and come to other conclusions wherever time had decided: a session that
ended then would be spared now. Versions that are published would get other contents, and commits that were
acknowledged be refused. What gives it away is the events topic, which tells of times that its plans have not seen.

The other way round, brokers that lost their power may have lost requests that the checkpoint has handled. Clients and
the coordinator's own alarm append new ones in their place, which would be passed over, as handled, without a word. What
gives that away is the time at which the broker appended the last request that was handled: after the plan to handle it.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

import msgspec
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from pyspark.sql import SparkSession

from coordinator.config import MINUTE_MS
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, Exit, UserError
from streaming.query import checkpoint

MARGIN_MS = MINUTE_MS
"""A batch tells of nothing later than its plan, but for what clocks of brokers and driver differ."""

LOOK_S_MAX = 60.0
"""How long is looked. A batch that took minutes may have written much since its plan."""


class CheckpointOutdated(UserError):
    """Another checkpoint was in use after this one."""

    exit_code = Exit.NEEDS_A_PERSON


class _Told(msgspec.Struct):
    at_ms: int


def refuse_outdated(spark: SparkSession, settings: Settings) -> None:
    """See that nothing has happened to these groups that the checkpoint does not know.

    Raises:
        CheckpointOutdated: it has.
        BrokerUnreachable: no broker answers.
    """
    planned_ms, plan = checkpoint.planned_at_ms(spark, settings), checkpoint.newest_plan(spark, settings)
    if planned_ms is None or settings.checkpoint_may_be_outdated:
        return
    taken = {} if plan is None else plan.ends
    after_ms = planned_ms + MARGIN_MS + settings.clock_slack_ms
    try:
        with closing(KafkaConsumer(**settings.kafka_client_arguments(), group_id=None)) as consumer:
            later_ms = _later(consumer, settings, after_ms)
            replaced = None if later_ms is not None or not taken else _replaced(consumer, settings, taken, after_ms)
    except KafkaError as error:
        raise BrokerUnreachable.at(settings.bootstrap_servers, error) from error
    if later_ms is not None:
        raise CheckpointOutdated(
            f"The checkpoint {settings.checkpoint} ends {(later_ms - planned_ms) // MINUTE_MS} min before things that"
            f" {settings.events_topic} tells of: start with the newest one; if that is lost, see the runbook in"
            " docs/checkpoints.md."
        )
    if replaced is not None:
        raise CheckpointOutdated(
            f"Requests that were handled are gone from {settings.requests_topic}, and others have their offsets (up to"
            f" {replaced.offset} in partition {replaced.partition}), as after a broker's loss of power: see the"
            " runbook in docs/checkpoints.md."
        )


def _later(consumer: KafkaConsumer, settings: Settings, after_ms: int) -> int | None:
    """Find an event of a later time, and say of which."""
    numbers = consumer.partitions_for_topic(settings.events_topic) or ()
    asked = {TopicPartition(settings.events_topic, number): after_ms for number in numbers}
    begins = {place: found.offset for place, found in consumer.offsets_for_times(asked).items() if found}
    consumer.assign(list(begins))
    for place, offset in begins.items():
        consumer.seek(place, offset)
    return _read(consumer, consumer.end_offsets(list(begins)), after_ms) if begins else None


class _Replaced(NamedTuple):
    partition: int
    offset: int


def _replaced(consumer: KafkaConsumer, settings: Settings, taken: Mapping[int, int], after_ms: int) -> _Replaced | None:
    """Find a request that has the offset of one that was handled, and is of a later time.

    A partition's times never fall, so it is found by asking for the first record of a later time.
    """
    asked = {TopicPartition(settings.requests_topic, number): after_ms for number in taken}
    for place, found in consumer.offsets_for_times(asked).items():
        if found and found.offset < taken[place.partition]:
            return _Replaced(place.partition, taken[place.partition] - 1)
    return None


def _read(consumer: KafkaConsumer, ends: dict[TopicPartition, int], after_ms: int) -> int | None:
    until_s = time.monotonic() + LOOK_S_MAX
    while any(consumer.position(place) < end for place, end in ends.items()):
        if time.monotonic() > until_s:
            raise BrokerUnreachable(
                f"The brokers did not give all new events within {LOOK_S_MAX:.0f} s, so nobody can say whether this is"
                f" the newest checkpoint: start again, or set checkpoint_may_be_outdated if you know."
            )
        for records in consumer.poll(timeout_ms=200).values():
            for record in records:
                at_ms = _time_of(record.value)
                if at_ms is not None and at_ms > after_ms:
                    return at_ms
    return None


def _time_of(event: bytes | None) -> int | None:
    try:
        return msgspec.json.decode(event or b"", type=_Told).at_ms
    except msgspec.MsgspecError:
        return None
