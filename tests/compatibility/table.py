"""The table of versions, as docs/install.md has it."""

from collections.abc import Mapping

from tests.compatibility.columns import COLUMNS, Column
from tests.compatibility.steps import STEPS


def table(done: Mapping[Column, set[str]]) -> str:
    """Return the table, in Markdown.

    Args:
        done: The steps that each tested column has passed.
    """
    lines = ["| | " + " | ".join(STEPS) + " |", "| --- |" + " :---: |" * len(STEPS)]
    for column in COLUMNS:
        cells = ["yes" if step in done.get(column, ()) else "no" for step in STEPS]
        lines.append(f"| {column} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
