"""The parts of docs/sizing.md that follow from the formulas and from the shipped costs.

`make docs-tables` writes them into the page, between two comments that name the part.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from streaming.cli.admin.size import columns, number
from streaming.cli.lib.output import Output, OutputFormat
from streaming.sizing.batches import Load
from streaming.sizing.costs import COSTS, Figure, shipped_costs
from streaming.sizing.lines import LINES, Size, sizes

PAGE = Path(__file__).parents[2] / "docs" / "sizing.md"
PART = re.compile(r"(?<=<!-- begin (?P<name>\w{4}) -->\n).*?(?=<!-- end (?P=name) -->)", re.DOTALL)

EXAMPLE = Load(groups=100_000, members=10, heartbeat_interval_ms=3_000, rebalances_per_hour=50)
COMMAND = "coordinator size --groups 100000 --members 10 --heartbeat-interval 3s --rebalances-per-hour 50"
GROWTH = (1_000, 10_000, 100_000)
"""Groups of 10 members with heartbeats every 3 s."""


def written(text: str) -> str:
    """Return the page with its parts."""
    return PART.sub(lambda found: PARTS[found["name"]](shipped_costs()), text)


def _example(table: Mapping[str, Figure]) -> str:
    with redirect_stdout(StringIO()) as printed:
        Output(OutputFormat.table).rows(columns(OutputFormat.table), sizes(EXAMPLE, table).lines)
    return f"```\n$ {COMMAND}\n{printed.getvalue()}```\n"


def _growth(table: Mapping[str, Figure]) -> str:
    found = [{size.line: size for size in sizes(Load(groups, 10, 3_000), table).lines} for groups in GROWTH]
    head = ("", *(f"{10 * groups:,} members" for groups in GROWTH))
    return _markdown(head, ((_name(name), *(_total(each[name]) for each in found)) for name in LINES))


def _total(size: Size) -> str:
    value = size.each if size.total is None else size.total
    return "not computed" if value is None else f"{number(value)} {size.unit}".rstrip()


def _lines(_: Mapping[str, Figure]) -> str:
    return _markdown(("line", "formula"), ((_name(name), line.formula) for name, line in LINES.items()))


def _costs(table: Mapping[str, Figure]) -> str:
    rows = (
        (
            f"`{name}`",
            cost.description,
            _value(table, name),
            table[name].figure if name in table else "not measured yet",
        )
        for name, cost in COSTS.items()
    )
    return _markdown(("cost", "meaning", "value", "figure"), rows) + _unmeasured(table)


def _unmeasured(table: Mapping[str, Figure]) -> str:
    """Return a sentence about the costs without a value, if there are any."""
    names = ", ".join(f"`{name}`" for name in COSTS if name not in table)
    return f"\nNot measured yet: {names}. A line that needs such a cost shows no number.\n" if names else ""


def _value(table: Mapping[str, Figure], name: str) -> str:
    return f"{table[name].value:g} {COSTS[name].unit}" if name in table else "none"


def _name(line: str) -> str:
    return line.replace("_", " ")


def _markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (head, ("---",) * len(head), *rows)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


PARTS: Mapping[str, Callable[[Mapping[str, Figure]], str]] = {
    "load": _example,
    "grow": _growth,
    "line": _lines,
    "cost": _costs,
}


def main() -> int:
    """Write the parts into the page."""
    PAGE.write_text(written(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
