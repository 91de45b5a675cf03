"""Tests of `coordinator tables`, and of the diagram in docs/topics.md, which is its output."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from coordinator.base.errors import ErrorCode
from coordinator.base.states import MOVES
from coordinator.classic import checks
from coordinator.shard.handlers import HANDLERS
from streaming.cli.admin.tables import TABLES, diagram, tables
from streaming.cli.main import app

PAGE = Path(__file__).parents[3] / "docs" / "topics.md"


def test_the_diagram_of_the_page_equals_the_table_in_the_code() -> None:
    """S51: the page contains the printed diagram."""
    assert diagram() in PAGE.read_text()


def test_every_move_and_every_check_is_printed() -> None:
    """S51, S53: the output has every row of `MOVES` and every check of a request kind."""
    text = tables()
    for (before, cause), after in MOVES.items():
        assert f"| {before.value} | {cause.value} | {after.value} |" in text
    of_kinds = [check for kind in HANDLERS.values() for check in (*kind.on_its_own, *kind.of_the_group)]
    for check in (checks.group_id_fits, *of_kinds):
        assert check.__name__.replace("_", " ") in text
        assert check.__doc__ is not None
        assert check.__doc__.split(":")[0].split(",")[0] in ErrorCode.__members__, (
            "a check's docstring begins with its error code"
        )


@pytest.mark.parametrize("table", TABLES)
def test_a_single_table_can_be_printed(table: str) -> None:
    shown = CliRunner().invoke(app, ["tables", table])
    assert shown.exit_code == 0
    assert shown.output.rstrip("\n") == tables(table)


def test_an_unknown_table_is_wrong_usage() -> None:
    assert CliRunner().invoke(app, ["tables", "all"]).exit_code == 2
