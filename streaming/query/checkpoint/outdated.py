"""The check for an outdated checkpoint: a restored back-up, although the coordinator has run after that back-up.

An outdated checkpoint would handle all requests since the back-up again. The outcome would differ wherever time had
decided: a session that had expired might not expire now. Published versions would get other contents, and acknowledged
commits would be refused. The events topic shows the defect: it contains times later than the last plan of the
checkpoint.
"""

import math
from collections.abc import Iterator

import msgspec
from pyspark.sql import SparkSession

from coordinator.base.config import MINUTE_MS
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, Exit, UserError
from streaming.kafka.reader import Record, TopicReader, TopicUnread
from streaming.query.checkpoint import checkpoint

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
    """Check that the checkpoint is not older than the published events.

    Raises:
        CheckpointOutdated: The checkpoint is older.
        BrokerUnreachable: No broker answers.
    """
    planned_ms = checkpoint.planned_at_ms(spark, settings)
    if planned_ms is None or settings.checkpoint_may_be_outdated:
        return
    later_ms = _later(settings, planned_ms + MARGIN_MS + settings.clock_slack_ms)
    if later_ms is not None:
        raise CheckpointOutdated(
            f"The checkpoint {settings.checkpoint} ends {(later_ms - planned_ms) // MINUTE_MS} min before events on"
            f" {settings.events_topic}: start with the newest checkpoint; if it is lost, see the runbook in"
            " docs/checkpoints.md."
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


def _time_of(event: bytes | None) -> int | None:
    try:
        return msgspec.json.decode(event or b"", type=_EventTime).at_ms
    except msgspec.MsgspecError:
        return None
