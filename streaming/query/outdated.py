"""A checkpoint that a later one has overtaken: a back-up, put in place though the coordinator has gone on since.

It would take all requests since then once more, and come to other conclusions wherever time had decided: a session that
ended then would be spared now. Versions that are published would get other contents, and commits that were
acknowledged be refused. What gives it away is the events topic, which tells of times that its plans have not seen.

The other way round, brokers that lost their power may have lost requests that the checkpoint has handled. Clients and
the coordinator's own alarm append new ones in their place, which would be passed over, as handled, without a word. What
gives that away is the time at which the broker appended the last request that was handled: after the plan to handle it.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from pyspark.sql import SparkSession

from coordinator.config import MINUTE_MS
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, Exit, UserError
from streaming.kafka.reader import Record, TopicReader, TopicUnread
from streaming.query import checkpoint

MARGIN_MS = MINUTE_MS
"""A batch tells of nothing later than its plan, but for what clocks of brokers and driver differ."""

LOOK_S_MAX = 60.0
"""How long is looked. A batch that took minutes may have written much since its plan."""

CLIENT_ID = "coordinator-outdated"


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
    later_ms = _later(settings, after_ms)
    replaced = None if later_ms is not None or not taken else _replaced(settings, taken, after_ms)
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


def _later(settings: Settings, after_ms: int) -> int | None:
    """Return the time of an event that came about later, None where there is none."""
    with TopicReader(settings, [settings.events_topic], CLIENT_ID, silence_s=math.inf) as events:
        begins = events.offsets_at(after_ms)
        events.seek(begins)
        return first_later(events.backlog(begins, within_s=LOOK_S_MAX), after_ms)


def first_later(events: Iterator[Record], after_ms: int) -> int | None:
    """Return the time of the first event that came about after a time, None where there is none.

    Raises:
        BrokerUnreachable: the events could not be read to their end.
    """
    try:
        times_ms = (_time_of(record.value) for record in events)
        return next((at_ms for at_ms in times_ms if at_ms is not None and at_ms > after_ms), None)
    except TopicUnread as error:
        raise BrokerUnreachable(
            f"The brokers did not give all new events within {LOOK_S_MAX:.0f} s, so nobody can say whether this is"
            f" the newest checkpoint: start again, or set checkpoint_may_be_outdated if you know."
        ) from error


class _Replaced(NamedTuple):
    partition: int
    offset: int


def _replaced(settings: Settings, taken: Mapping[int, int], after_ms: int) -> _Replaced | None:
    """Find a request that has the offset of one that was handled, and is of a later time.

    A partition's times never fall, so it is found by asking for the first record of a later time.
    """
    with TopicReader(settings, [settings.requests_topic], CLIENT_ID, partitions=lambda _: taken.keys()) as requests:
        for (_, partition), offset in requests.offsets_at(after_ms).items():
            if offset < taken[partition]:
                return _Replaced(partition, taken[partition] - 1)
    return None


def _time_of(event: bytes | None) -> int | None:
    try:
        return msgspec.json.decode(event or b"", type=_Told).at_ms
    except msgspec.MsgspecError:
        return None
