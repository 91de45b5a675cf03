"""`coordinator checkpoint inspect`, `verify` and `export`: the contents of a checkpoint, checked or as a file."""

import json
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import msgspec

from streaming.config.settings import Settings
from streaming.errors import CheckpointMismatch
from streaming.moments import calendar_time
from streaming.progress import Work, shown
from streaming.query.checkpoint.exporting import Exported
from streaming.query.checkpoint.exporting import export as exported
from streaming.query.checkpoint.inspection import Contents, KeptShard, examine
from streaming.views.text import counted, escape

COLUMNS = ("SHARD", "GROUPS", "MEMBERS", "OFFSETS", "FORGOTTEN", "BYTES", "CODEC", "NEXT-DEADLINE", "ALARM")
NONE = "-"


def inspect(settings: Settings, *, as_json: bool) -> str:
    """Return the contents of the checkpoint as text.

    Raises:
        UserError: The folder contains no checkpoint, or the checkpoint has a defect.
    """
    contents = _examined(settings)
    if contents.findings:
        raise CheckpointMismatch(f"{contents.findings[0]} `coordinator checkpoint verify` lists all defects.")
    return _json(contents) if as_json else "\n".join(_lines_of(contents))


def verify(settings: Settings, *, as_json: bool) -> tuple[str, bool]:
    """Return the defects of the checkpoint as text, and whether it has any."""
    contents = _examined(settings)
    if as_json:
        return _json(contents), bool(contents.findings)
    groups = sum(len(shard.groups) for shard in contents.shards)
    fine = f"Nothing found: {groups} groups in {len(contents.shards)} shards, {_batches(contents)}."
    return "\n".join(contents.findings or [fine, *_in_use(contents)]), bool(contents.findings)


def export(
    settings: Settings, file: Path, *, is_dry_run: bool, is_stopped: bool, takes_unfinished: bool, as_json: bool
) -> str:
    """Write the groups of the checkpoint to a new file, and return the result as text.

    Raises:
        UserError: The checkpoint is in use or damaged, has an unfinished batch, or the file cannot be written.
    """
    with shown(Work("Exporting the checkpoint", "groups")) as work:
        done = exported(
            settings,
            file,
            is_dry_run=is_dry_run,
            is_stopped=is_stopped,
            takes_unfinished=takes_unfinished,
            tell=work.report,
        )
    return json.dumps(msgspec.to_builtins(done), indent=2) if as_json else "\n".join(_export_lines(done))


def _export_lines(done: Exported) -> Iterator[str]:
    head = done.head
    what = f"{counted(head.groups - done.removed, 'group')} and {counted(done.removed, 'removed group')}"
    of = f"of {escape(head.prefix)}, as of {_moment(head.made_ms)} (batch {head.batch})"
    if done.file is None:
        yield f"The file would have {what} {of}. Nothing was written."
    else:
        yield f"{done.file} has {what} {of}, in {done.size_bytes} bytes."
    if done.in_transit:
        yield f"Not in the file, because they are in transit to another coordinator: {_names(done.in_transit)}."
    if done.open_transactions:
        yield f"With open transactions, so that an import refuses them as they are: {_names(done.open_transactions)}."


def _names(group_ids: list[str]) -> str:
    return ", ".join(map(escape, group_ids))


def _examined(settings: Settings) -> Contents:
    with shown(Work("Reading the checkpoint", "files and shards")) as work:
        return examine(settings, work.report)


def _json(contents: Contents) -> str:
    return json.dumps(msgspec.to_builtins(contents), indent=2)


def _lines_of(contents: Contents) -> Iterator[str]:
    yield f"checkpoint   {contents.checkpoint}"
    yield f"topics       {', '.join(f'{name} ({id_})' for name, id_ in sorted(contents.topic_ids.items()))}"
    yield (
        f"fixed        request_partitions={contents.request_partitions} shuffle_partitions="
        f"{contents.shuffle_partitions} state_store={contents.state_store} plan_version={contents.plan_version}"
    )
    yield f"batches      {_batches(contents)}"
    yield f"requests     {sum(contents.requests_taken.values())} taken or planned"
    yield from _in_use(contents)
    yield ""
    yield from _table([COLUMNS, *map(_row, contents.shards)])


def _batches(contents: Contents) -> str:
    if contents.finished is None:
        return "no batch is finished yet"
    if contents.planned == contents.finished:
        return f"{contents.finished} is finished, of {_moment(contents.planned_at_ms)}"
    return f"{contents.finished} is finished; {contents.planned} is planned, and the next start begins with it"


def _in_use(contents: Contents) -> Iterator[str]:
    if contents.in_use:
        yield f"A coordinator runs on it. This is its state after batch {contents.finished}."


def _row(shard: KeptShard) -> tuple[str, ...]:
    groups = shard.groups
    return (
        str(shard.shard),
        str(len(groups)),
        str(sum(group.members for group in groups)),
        str(sum(group.offsets for group in groups)),
        str(shard.forgotten),
        str(shard.size_bytes),
        str(shard.codec_version),
        _moment(min((g.deadline_ms for g in groups if g.deadline_ms is not None), default=None)),
        _moment(shard.alarm_ms),
    )


def _moment(at_ms: int | None) -> str:
    if at_ms is None:
        return NONE
    at = calendar_time(at_ms, UTC)
    return str(at_ms) if at is None else f"{at.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
