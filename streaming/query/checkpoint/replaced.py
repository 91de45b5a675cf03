"""The check at a start that the request topic still has the requests that the checkpoint has handled.

Brokers that elect an unclean leader, or lose power, cut off the end of a log. Clients and the alarm append other
requests at the same offsets, which the coordinator would pass over as handled. A log is cut off from some offset on, so
the last handled record shows each such case:

    the log ends before it                     the start is refused
    another record has its offset              the operator refuses the first batch of its shard: only the state has the
                                               time of the handled record, and this check reads that of the log's record
    its offset has expired, or has no record   nothing was replaced

One other case is recognized by time: a batch that is planned and not finished. A record before the end of a plan, with
a time that is later than the plan by more than `MARGIN_MS` and the clock slack, is not the record that was planned.

`log_watch` does the same while the query runs. What it finds is noted in the checkpoint, because the shard may have
handled later records by then, and these are in the log.
"""

from collections.abc import Mapping
from contextlib import closing
from threading import Event

import msgspec
from pyspark.sql import SparkSession

from streaming.config.settings import Settings
from streaming.config.timeouts import ANSWER_WAIT_S
from streaming.errors import CheckpointMismatch, Exit, UserError
from streaming.kafka.brokers import unreachable
from streaming.kafka.lookup import Found, Lookup
from streaming.kafka.offsets import NO_SUCH, OffsetAsker
from streaming.query.checkpoint import checkpoint
from streaming.query.checkpoint.outdated import MARGIN_MS
from streaming.query.spark.failures import REPLACED, SHORTENED

CLIENT_ID = "coordinator-replaced"

NOTE = "replaced.json"
"""The file in the checkpoint with what `log_watch` has found."""

OFFSETS_BACK = (1, 2)
"""The distances from the end of a batch at which its last record is looked up. A writer with transactions leaves a
marker after its records."""


class RequestsReplaced(UserError):
    """Handled requests are no longer in the request topic."""

    exit_code = Exit.NEEDS_A_PERSON


class Note(msgspec.Struct, frozen=True):
    """A handled request that the log has lost.

    Args:
        handled_ms, found_ms: The time of the handled record, and that of the record which has its offset now.
    """

    partition: int
    offset: int
    handled_ms: int
    found_ms: int


def refuse_replaced(spark: SparkSession, settings: Settings, stopping: Event | None = None) -> dict[int, Found]:
    """Check that no handled request is gone from the request topic, as far as this is possible without the state.

    With the setting `checkpoint_may_be_outdated`, check nothing, and forget what was found earlier.

    Args:
        stopping: The event that ends the waits for brokers.

    Returns:
        By shard, the last record of the log before the end of the newest finished batch, for `ShardOperator`.

    Raises:
        RequestsReplaced: Handled requests are gone.
        BrokerUnreachable: The brokers do not return the records.
    """
    if settings.checkpoint_may_be_outdated:
        checkpoint.delete_file(spark, f"{settings.checkpoint}/{NOTE}")
        return {}
    if (noted := _noted(spark, settings)) is not None:
        raise replaced(settings, noted.partition, noted.offset)
    if (newest := checkpoint.newest_plan(spark, settings)) is None:
        return {}
    finished = checkpoint.newest_finished_plan(spark, settings)
    finished_ends = {} if finished is None else finished.ends
    with closing(OffsetAsker(settings, CLIENT_ID, stopping=stopping)) as asker:
        _refuse_shorter(asker, settings, {p: max(end, finished_ends.get(p, 0)) for p, end in newest.ends.items()})
        _refuse_later(asker, settings, newest)
    with Lookup(settings, settings.requests_topic, CLIENT_ID) as lookup:
        return _last_records(lookup, settings, finished_ends)


def replaced(settings: Settings, partition: int, offset: int) -> RequestsReplaced:
    """Return the error about a handled request whose offset another record has."""
    return RequestsReplaced(REPLACED.format(requests=settings.requests_topic, partition=partition, offset=offset))


def write_note(spark: SparkSession, settings: Settings, found: Note) -> None:
    """Write what was found to the checkpoint, so that every start is refused."""
    checkpoint.write_file(spark, f"{settings.checkpoint}/{NOTE}", msgspec.json.encode(found))


def _noted(spark: SparkSession, settings: Settings) -> Note | None:
    path = f"{settings.checkpoint}/{NOTE}"
    if not checkpoint.exists(spark, path):
        return None
    try:
        return msgspec.json.decode(checkpoint.read_file(spark, path), type=Note)
    except msgspec.MsgspecError as error:
        raise CheckpointMismatch(f"{path} cannot be read ({error}): restore it from a back-up.") from error


def _refuse_shorter(asker: OffsetAsker, settings: Settings, read_to: Mapping[int, int]) -> None:
    for (_, partition), end in asker.await_all((settings.requests_topic, each) for each in read_to).items():
        if end < read_to[partition]:
            where = {"partition": partition, "offset": read_to[partition], "end": end}
            raise RequestsReplaced(SHORTENED.format(requests=settings.requests_topic, **where))


def _refuse_later(asker: OffsetAsker, settings: Settings, plan: checkpoint.Planned) -> None:
    """Raise RequestsReplaced if a record before the end of the plan has a later time than the plan.

    A partition's times never decrease, so a lookup of the first record of a later time finds such a record.
    """
    after_ms = plan.at_ms + MARGIN_MS + settings.clock_slack_ms
    later = asker.await_all(((settings.requests_topic, partition) for partition in plan.ends), after_ms)
    for (_, partition), offset in later.items():
        if NO_SUCH < offset < plan.ends[partition]:
            raise replaced(settings, partition, offset)


def _last_records(lookup: Lookup, settings: Settings, ends: Mapping[int, int]) -> dict[int, Found]:
    """Return the last record of each partition before an offset. A partition without such a record is omitted."""
    last: dict[int, Found] = {}
    for back in OFFSETS_BACK:
        wanted = {partition: end - back for partition, end in ends.items() if end >= back and partition not in last}
        found = lookup.records(wanted, ANSWER_WAIT_S) if wanted else {}
        if silent := wanted.keys() - found.keys():
            where = f"{settings.requests_topic}-{min(silent)} cannot be read"
            raise unreachable(settings, where, [settings.requests_topic])
        last |= {p: record for p, record in found.items() if record is not None and record.offset < ends[p]}
    return last
