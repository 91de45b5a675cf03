"""The figures of the benchmarks: the table that shows them, and the file with them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.meaning import Meaning
from tests.benchmarks.meanings import MEANINGS

TABLE_WIDTH_MIN = 150
LATEST = Path(__file__).with_name("latest.json")

_MET, _MISSED = "[green]met[/]", "[red]missed[/]"

Figures = Mapping[str, float]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least `percent` of 100 values do not exceed."""
    assert ordered, "a percentile needs at least one value"
    return ordered[max(0, -int(-len(ordered) * percent // 100) - 1)]


def merge(figures: Figures, file: Path = LATEST) -> None:
    """Add figures to the file, which keeps the figures of other benchmarks."""
    unknown = figures.keys() - MEANINGS.keys()
    assert not unknown, f"figures without a meaning: {sorted(unknown)}"
    known = json.loads(file.read_text()) if file.exists() else {}
    merged = {name: value for name, value in {**known, **figures}.items() if name in MEANINGS}
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(merged, indent=2, sort_keys=True) + "\n")
    beside.replace(file)


def show(figures: Figures) -> None:
    """Print figures as a table. Each row has the goal and the verdict."""
    table = Table("figure", "value", "goal", "", "meaning")
    table.columns[1].justify = table.columns[2].justify = "right"
    for name, meaning in MEANINGS.items():
        if name in figures:
            table.add_row(name, _plain(figures[name]), *_verdict(figures[name], meaning), meaning.says)
    console = Console()
    console.width = max(console.width, TABLE_WIDTH_MIN)
    console.print(table)


def _verdict(value: float, meaning: Meaning) -> tuple[str, str]:
    if meaning.goal_min is not None:
        return f">= {_plain(meaning.goal_min)}", _MET if value >= meaning.goal_min else _MISSED
    if meaning.goal_max is not None:
        return f"<= {_plain(meaning.goal_max)}", _MET if value <= meaning.goal_max else _MISSED
    return "", ""


def _plain(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:,.2f}"
