"""The check for an outdated checkpoint: a restored back-up, although the coordinator has run after that back-up.

An outdated checkpoint would handle all requests since the back-up again. The outcome would differ wherever time had
decided: a session that had expired might not expire now. Published versions would get other contents, and acknowledged
commits would be refused. The events topic shows the defect: it contains times later than the last plan of the
checkpoint.

The opposite case also exists: brokers that lost power may have lost requests that the checkpoint has handled. Clients
and the coordinator's alarm append new requests at the same offsets, and the coordinator would silently skip them as
handled. The time at which the broker appended the last handled request shows this defect: that time is after the plan
of its batch.
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
"""A batch publishes no event later than its plan, except by the difference between the clocks of brokers and driver."""

LOOK_S_MAX = 60.0
"""The longest time to read events. A batch that took minutes may have written many events since its plan."""

CLIENT_ID = "coordinator-outdated"


class CheckpointOutdated(UserError):
    """Another checkpoint was in use after this one."""

    exit_code = Exit.NEEDS_A_PERSON


class _EventTime(msgspec.Struct):
    at_ms: int


def refuse_outdated(spark: SparkSession, settings: Settings) -> None:
    """Check that the checkpoint is not older than the published events, and that its handled requests still exist.

    Raises:
        CheckpointOutdated: The checkpoint is older, or handled requests were replaced.
        BrokerUnreachable: No broker answers.
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
            f"The checkpoint {settings.checkpoint} ends {(later_ms - planned_ms) // MINUTE_MS} min before events on"
            f" {settings.events_topic}: start with the newest checkpoint; if it is lost, see the runbook in"
            " docs/checkpoints.md."
        )
    if replaced is not None:
        raise CheckpointOutdated(
            f"Handled requests are missing from {settings.requests_topic}, and other requests have their offsets (up to"
            f" {replaced.offset} in partition {replaced.partition}), as after a power loss of a broker: see the"
            " runbook in docs/checkpoints.md."
        )


def _later(settings: Settings, after_ms: int) -> int | None:
    """Return the time of an event after `after_ms`; None if no such event exists."""
    with TopicReader(settings, [settings.events_topic], CLIENT_ID, silence_s=math.inf) as events:
        begins = events.offsets_at(after_ms)
        events.seek(begins)
        return first_later(events.backlog(begins, within_s=LOOK_S_MAX), after_ms)


def first_later(events: Iterator[Record], after_ms: int) -> int | None:
    """Return the time of the first event after `after_ms`; None if no such event exists.

    Raises:
        BrokerUnreachable: The events could not be read to their end.
    """
    try:
        times_ms = (_time_of(record.value) for record in events)
        return next((at_ms for at_ms in times_ms if at_ms is not None and at_ms > after_ms), None)
    except TopicUnread as error:
        raise BrokerUnreachable(
            f"The brokers did not return all new events within {LOOK_S_MAX:.0f} s, so it is unknown whether this is"
            f" the newest checkpoint: start again, or set checkpoint_may_be_outdated if you know that it is."
        ) from error


class _Replaced(NamedTuple):
    partition: int
    offset: int


def _replaced(settings: Settings, taken: Mapping[int, int], after_ms: int) -> _Replaced | None:
    """Find a request that has the offset of a handled request and a later time.

    A partition's times never decrease, so a lookup of the first record of a later time finds such a request.
    """
    with TopicReader(settings, [settings.requests_topic], CLIENT_ID, partitions=lambda _: taken.keys()) as requests:
        for (_, partition), offset in requests.offsets_at(after_ms).items():
            if offset < taken[partition]:
                return _Replaced(partition, taken[partition] - 1)
    return None


def _time_of(event: bytes | None) -> int | None:
    try:
        return msgspec.json.decode(event or b"", type=_EventTime).at_ms
    except msgspec.MsgspecError:
        return None
