"""Lines and columns as kafka-consumer-groups.sh prints them: the widths of columns are those of its printf formats."""

import sys
from collections.abc import Iterable, Sequence

from streaming.cli.output import to_cell


def say(text: str = "") -> None:
    """Print a line to standard output."""
    print(text)  # noqa: T201


def warn(text: str) -> None:
    """Print a line to standard error."""
    print(text, file=sys.stderr)  # noqa: T201


def widths_of(least: Sequence[int], rows: Iterable[Sequence[str]]) -> list[int]:
    """Return the widths of columns: the widest cell, and at least the given width; 0 for a column without padding."""
    return [
        max(width, *map(len, column)) if width else 0
        for width, column in zip(least, zip(*rows, strict=True), strict=True)
    ]


def in_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return the cells of a row, each as wide as its column."""
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


def under_a_blank_line(head: Sequence[str], rows: Sequence[Sequence[object]], least: Sequence[int]) -> None:
    """Print rows under their heading, after a blank line. Columns have at least the given widths."""
    cells = [list(head), *([to_cell(value) for value in row] for row in rows)]
    widths = widths_of(least, cells)
    for row in cells:
        print(f"\n{in_line(row, widths)}", end="")  # noqa: T201
    say()
