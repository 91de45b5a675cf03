"""The output of rows: a table for a terminal, plain columns for a pipe, JSON, or CSV.

Cells contain ids that clients choose. Tables escape the characters that control a terminal. In CSV, an id that a
spreadsheet would run as a formula is marked as text.
"""

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from streaming.cli.lib.times import instant, moment
from streaming.errors import RequestRefused, UserError
from streaming.logs import fit_for_a_terminal, tell
from streaming.progress import Work, shown
from streaming.views.text import escape

if TYPE_CHECKING:
    from rich.console import Console

MISSING = "-"
"""The cell of an unknown value in a table, as in Kafka's tools."""

_RUN_BY_SPREADSHEETS = ("=", "+", "-", "@", "\t", "\r")

STYLES = {
    "Stable": "green",
    "PreparingRebalance": "yellow",
    "CompletingRebalance": "yellow",
    "Assigning": "yellow",
    "Reconciling": "yellow",
    "Empty": "dim",
    "Dead": "red",
}
"""The styles of cells with a group's state, on a terminal."""


class OutputFormat(StrEnum):
    """The formats of rows. `wide` and `csv` have all columns."""

    table = "table"
    wide = "wide"
    json = "json"
    csv = "csv"


class Column(NamedTuple):
    """One column.

    Args:
        of: Returns the cell of a row; None if the value is unknown.
        is_number: The column is right-aligned on a terminal.
        is_chosen: Clients choose the column's values.
        is_time: Unix milliseconds, written as a local time; in CSV with the UTC offset.
        is_wide: `table` omits the column.
        is_optional: `table` omits the column if no row has a value for it.
    """

    header: str
    of: Callable[[Any], object]
    is_number: bool = False
    is_chosen: bool = False
    is_wide: bool = False
    is_optional: bool = False
    is_time: bool = False

    def cell(self, row: Any) -> str:
        """Return the text of a row's cell in a table."""
        value = self.of(row)
        return to_cell(moment(value) if self.is_time else value)  # type: ignore[arg-type]

    def csv_cell(self, row: Any) -> str:
        """Return the text of a row's cell in CSV."""
        value = self.of(row)
        if value is None:
            return ""
        text = instant(value) if self.is_time else str(value.value if isinstance(value, Enum) else value)  # type: ignore[arg-type]
        if self.is_chosen and text.startswith(_RUN_BY_SPREADSHEETS):
            text = f"'{text}"
        return escape(text) if sys.stdout.isatty() else text


class Output:
    """The output of one command.

    Args:
        console: The terminal; None if standard output is not a terminal.
    """

    def __init__(self, form: OutputFormat, console: "Console | None" = None) -> None:
        self.form, self._console = form, console

    @classmethod
    def to_stdout(cls, form: OutputFormat) -> "Output":
        """Return an output to standard output, with a console if the format and standard output allow one."""
        if form in (OutputFormat.json, OutputFormat.csv) or not sys.stdout.isatty():
            return cls(form)
        from rich.console import Console

        return cls(form, Console(highlight=False, markup=False, emoji=False))

    def line(self, text: str = "") -> None:
        """Write a line whose text is already escaped for a terminal."""
        print(text)  # noqa: T201

    def answer(self, answer: object) -> None:
        """Write one or several answers of the views as JSON."""
        self.line(in_json(answer))

    def rows(self, columns: Sequence[Column], rows: Iterable[Any]) -> None:
        """Write rows under their headings."""
        rows = list(rows)
        if self.form is OutputFormat.csv:
            print(in_csv(columns, rows), end="")  # noqa: T201
            return
        shown = [column for column in columns if self._is_shown(column, rows)]
        if self._console is None:
            for line in in_columns(shown, rows):
                self.line(line)
        else:
            self._console.print(_table(shown, rows))

    def pairs(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Write a block of names and their values."""
        cells = [(name, to_cell(value)) for name, value in pairs]
        width = max(len(name) for name, _ in cells)
        for name, value in cells:
            if self._console is None:
                self.line(f"{name:<{width}}  {value}".rstrip())
            else:
                from rich.text import Text

                self._console.print(Text.assemble((f"{name:<{width}}  ", "bold"), (value, _style(value))))

    def _is_shown(self, column: Column, rows: list[Any]) -> bool:
        if self.form is OutputFormat.wide:
            return True
        return not column.is_wide and (not column.is_optional or any(column.of(row) is not None for row in rows))


def to_cell(value: object) -> str:
    """Return the text of a value in a table."""
    if value is None:
        return MISSING
    return escape(str(value.value if isinstance(value, Enum) else value)) or MISSING


def in_columns(columns: Sequence[Column], rows: Iterable[Any]) -> list[str]:
    """Return rows as plain text with aligned columns, the headings first."""
    cells = [[column.header for column in columns], *([c.cell(row) for c in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [" ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def in_csv(columns: Sequence[Column], rows: Iterable[Any]) -> str:
    """Return rows as CSV (RFC 4180), the headings first. The cell of an unknown value is empty."""
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow([column.header for column in columns])
    for row in rows:
        writer.writerow([column.csv_cell(row) for column in columns])
    return written.getvalue()


def in_json(answer: object) -> str:
    """Return answers of the views as JSON for people and programs: indented, and escaped for a terminal."""
    written = json.dumps(msgspec.to_builtins(answer), indent=2, ensure_ascii=not sys.stdout.isatty())
    return fit_for_a_terminal(written)


def _table(columns: Sequence[Column], rows: Iterable[Any]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(Text(column.header), justify="right" if column.is_number else "left", overflow="fold")
    for row in rows:
        cells = [column.cell(row) for column in columns]
        table.add_row(*(Text(cell, style=_style(cell)) for cell in cells))
    return table


def _style(cell: str) -> str:
    return STYLES.get(cell, "")


# -- the results of many groups ----------------------------------------------------------------------------------------


def collected(found: Iterator[Any], what: str, groups: int) -> list[Any]:
    """Return all results, and show the progress.

    Args:
        what: What is done, for the progress: "Importing the groups".
    """
    results: list[Any] = []
    try:
        with shown(Work(what, "groups", groups)) as work:
            for result in found:
                results.append(result)
                work.advance()
    except UserError:
        tell(f"{len(results)} of {groups} groups are done. The same command continues.")
        raise
    return results


def show(results: Sequence[Any], statuses: type[StrEnum], columns: Sequence[Column], output: Output) -> None:
    """Write the results, and raise the error of the first group that is refused.

    Args:
        results: Named tuples with the fields `group_id`, `status` and `why`.
        statuses: All statuses, in the order of the summary. The status of a refusal is "refused".

    Raises:
        RequestRefused: A group is refused.
    """
    write(columns, results, output)
    counts = Counter(result.status for result in results)
    tell(f"{', '.join(f'{counts[status]} {status}' for status in statuses if counts[status]) or 'no groups'}.")
    refused = [result for result in results if result.status == "refused"]
    if refused:
        raise RequestRefused(
            f"{len(refused)} of {len(results)} groups are refused, the first one is"
            f" {escape(refused[0].group_id)}: {escape(refused[0].why)}."
        )


def write(columns: Sequence[Column], rows: Sequence[Any], output: Output) -> None:
    """Write named tuples as a table or as JSON, as the user wants it."""
    if output.form is OutputFormat.json:
        output.answer([row._asdict() for row in rows])
    else:
        output.rows(columns, rows)
