"""How commands write rows: a table that suits a terminal, plain columns for a pipe, JSON, or CSV.

Cells hold ids that strangers chose. Tables show escaped what a terminal would act on; in CSV an id that a spreadsheet
would run as a formula is marked as text.
"""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from streaming.cli.times import instant, moment
from streaming.logs import fit_for_a_terminal
from streaming.views.words import escape

if TYPE_CHECKING:
    from rich.console import Console

MISSING = "-"
"""What a table has where nothing is known; as Kafka's tools write it."""

_RUN_BY_SPREADSHEETS = ("=", "+", "-", "@", "\t", "\r")

STYLES = {
    "Stable": "green",
    "PreparingRebalance": "yellow",
    "CompletingRebalance": "yellow",
    "Empty": "dim",
    "Dead": "red",
}
"""Of cells that say a group's state, on a terminal."""


class OutputFormat(StrEnum):
    """How rows are written. `wide` and `csv` have all columns."""

    table = "table"
    wide = "wide"
    json = "json"
    csv = "csv"


class Column(NamedTuple):
    """One column.

    Args:
        of: Takes the cell out of a row; None where nothing is known.
        is_number: Aligned to the right on a terminal.
        is_chosen: Strangers chose what is in it.
        is_time: Unix milliseconds, written as a local time; in CSV with its distance from UTC.
        is_wide: Left out of `table`.
        is_optional: Left out of `table` where no row has anything in it.
    """

    header: str
    of: Callable[[Any], object]
    is_number: bool = False
    is_chosen: bool = False
    is_wide: bool = False
    is_optional: bool = False
    is_time: bool = False

    def cell(self, row: Any) -> str:
        """Write a row's cell as a table has it."""
        value = self.of(row)
        return to_cell(moment(value) if self.is_time else value)  # type: ignore[arg-type]

    def csv_cell(self, row: Any) -> str:
        """Write it as CSV has it."""
        value = self.of(row)
        if value is None:
            return ""
        text = instant(value) if self.is_time else str(value.value if isinstance(value, Enum) else value)  # type: ignore[arg-type]
        if self.is_chosen and text.startswith(_RUN_BY_SPREADSHEETS):
            text = f"'{text}"
        return escape(text) if sys.stdout.isatty() else text


class Output:
    """Where one command writes what it has found.

    Args:
        console: A terminal; None where there is none.
    """

    def __init__(self, form: OutputFormat, console: "Console | None" = None) -> None:
        self.form, self._console = form, console

    @classmethod
    def to_stdout(cls, form: OutputFormat) -> "Output":
        """Write to standard output, as suits what that is."""
        if form in (OutputFormat.json, OutputFormat.csv) or not sys.stdout.isatty():
            return cls(form)
        from rich.console import Console

        return cls(form, Console(highlight=False, markup=False, emoji=False))

    def line(self, text: str = "") -> None:
        """Write a line that is fit to be printed."""
        print(text)  # noqa: T201

    def answer(self, answer: object) -> None:
        """Write one of the views' answers, or several, as JSON."""
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
        """Write a block of names and what they stand for."""
        told = [(name, to_cell(value)) for name, value in pairs]
        width = max(len(name) for name, _ in told)
        for name, value in told:
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
    """Write a value as a table has it."""
    if value is None:
        return MISSING
    return escape(str(value.value if isinstance(value, Enum) else value)) or MISSING


def in_columns(columns: Sequence[Column], rows: Iterable[Any]) -> list[str]:
    """Write rows as plain text, the columns aligned, the headings first."""
    cells = [[column.header for column in columns], *([c.cell(row) for c in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [" ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def in_csv(columns: Sequence[Column], rows: Iterable[Any]) -> str:
    """Write rows as RFC 4180 has them, the headings first; a cell is empty where nothing is known."""
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow([column.header for column in columns])
    for row in rows:
        writer.writerow([column.csv_cell(row) for column in columns])
    return written.getvalue()


def in_json(answer: object) -> str:
    """Write answers of the views as JSON for people and programs: indented, and fit for a terminal."""
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
