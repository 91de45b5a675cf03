"""The export of the history to Parquet files, one for each table, as far back as the topics go.

The files contain the records of a coordinator and of its peers, because a group may have moved between them.

A file is written beside its final name and renamed when it is complete. `groups` and `offsets` contain only records
that are still in the compacted topic: the latest of each key, and earlier ones that are not compacted yet.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streaming.config.settings import Settings
from streaming.errors import UserError
from streaming.history.tables import TABLES, table_of, to_row
from streaming.views.api.fold import PublishedRecord, Views
from streaming.views.api.view_reader import ViewReader
from streaming.wire.records import Tombstone

ROWS_AT_ONCE = 20_000


class ExportFailed(UserError):
    """The files cannot be written."""


def export(
    settings: Settings,
    folder: Path,
    groups: Collection[str] | None = None,
    tell: Callable[[int, int], None] = lambda read, of: None,
) -> dict[Path, int]:
    """Write `events.parquet`, `groups.parquet` and `offsets.parquet`. Return the number of rows of each.

    Args:
        settings: Of one coordinator. The records of its `peers` are written too.
        folder: Created if it is missing; files of these names are replaced.
        groups: The groups whose history is written; None for all.
        tell: Called from time to time with the number of records read and the approximate total.

    Raises:
        BrokerUnreachable, NoCoordinator: the topics of one of the coordinators cannot be read. No file is written.
        ExportFailed: the files cannot be written.
    """
    try:
        with ExitStack() as opened:
            readings = {
                prefix: opened.enter_context(
                    ViewReader(settings.model_copy(update={"topic_prefix": prefix}), groups=groups)
                )
                for prefix in (settings.topic_prefix, *settings.peers)
            }
            folder.mkdir(parents=True, exist_ok=True)
            tables = {name: opened.enter_context(_Table(folder / f"{name}.parquet", TABLES[name])) for name in TABLES}
            before, total = 0, sum(reading.length for reading in readings.values())
            for prefix, reading in readings.items():
                reading.catch_up(partial(_report, tell, before, total), partial(_add, tables, groups, prefix))
                before += reading.length
                reading.views = Views()  # the memory of one coordinator's views is enough
            return {table.file: table.finish() for table in tables.values()}
    except (OSError, pa.ArrowException) as error:
        raise ExportFailed(f"{folder} cannot be written to: {error}.") from error


def _report(tell: Callable[[int, int], None], before: int, total: int, read: int, of: int) -> None:
    """Report the records of one coordinator together with the `before` ones of earlier coordinators."""
    tell(before + read, total)


def _add(
    tables: "Mapping[str, _Table]", groups: Collection[str] | None, topic_prefix: str, record: PublishedRecord
) -> None:
    """Add the row of a record of one coordinator to its table."""
    if not isinstance(record, Tombstone) and (groups is None or record.group_id in groups):
        tables[table_of(record)].add(to_row(record, topic_prefix))


class _Table:
    """A Parquet file that rows are added to."""

    def __init__(self, file: Path, schema: pa.Schema) -> None:
        self.file, self._schema = file, schema
        self._beside = file.with_name(f"{file.name}.new")
        self._rows: list[dict[str, Any]] = []
        self._written = 0

    def __enter__(self) -> "_Table":
        self._writer = pq.ParquetWriter(self._beside, self._schema, compression="zstd")
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
        self._beside.unlink(missing_ok=True)

    def add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= ROWS_AT_ONCE:
            self._flush()

    def finish(self) -> int:
        self._flush()
        self._writer.close()
        self._beside.replace(self.file)
        return self._written

    def _flush(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._written += len(self._rows)
        self._rows = []
