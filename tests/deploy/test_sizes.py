"""Modules have at most 900 lines, and functions at most 40, except those that are named here.

A longer module usually has a second subject. A name that is no longer needed also fails the test.
"""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULE_LINES_MAX = 900
FUNCTION_LINES_MAX = 40

LONGER_FUNCTIONS = {
    "streaming/cli/services/service.py run_embedded",
    "tests/chaos/__main__.py main",
    "tests/coordinator/assignors/groups.py draw",
    "tests/deploy/test_health.py test_the_query_reports_why_it_is_not_ready_and_why_it_is_unhealthy",
    "tests/differential/wire.py message",
    "tests/system/test_away.py test_members_survive_an_unavailable_coordinator",
    "tests/system/test_client_outages.py test_all_clients_continue_after_requests_have_expired",
    "tests/system/test_consuming.py test_no_record_is_lost_with_all_faults_together",
    "tests/system/test_gateway_rights.py test_an_honest_client_produces_and_consumes",
    "tests/system/test_groups_cli.py test_offsets_are_reset_restored_and_deleted",
    "tests/system/test_moves.py test_copied_checkpoint_continues_where_the_original_stopped",
    "tests/system/test_operations.py test_from_a_start_to_a_damaged_state",
    "tests/system/test_refused_writes.py test_batch_that_cannot_be_written_has_no_effect_and_is_repeated",
    "tests/system/test_replan.py cut_smaller",
}


def sources() -> Iterator[tuple[str, str]]:
    """Yield the path and the source of each module of the repository."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    paths = listed.stdout.split() or [
        str(p.relative_to(ROOT)) for p in sorted(ROOT.rglob("*.py")) if ".venv" not in p.parts
    ]
    for path in paths:
        if (ROOT / path).exists():
            yield path, (ROOT / path).read_text()


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is a command of the CLI. The signature of a command is the table of its options."""
    return any(ast.unparse(decorator).startswith("app.") for decorator in function.decorator_list)


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function, or of the body of a command."""
    first = function.body[0] if is_command(function) else function
    assert function.end_lineno is not None
    return function.end_lineno - first.lineno + 1


def functions(path: str, source: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of lines of each function of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path} {node.name}", lines_of(node)


def test_modules_are_short() -> None:
    assert not [path for path, source in sources() if len(source.splitlines()) > MODULE_LINES_MAX]


def test_functions_are_short() -> None:
    sizes = [each for path, source in sources() for each in functions(path, source)]
    assert len(sizes) > 1_000, "the repository's functions must be found"
    assert {name for name, lines in sizes if lines > FUNCTION_LINES_MAX} == LONGER_FUNCTIONS
