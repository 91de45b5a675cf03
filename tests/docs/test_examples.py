"""The examples print what their docstrings show. They run with the coordinator in memory."""

import os
import runpy
import subprocess
import sys

import pytest

from streaming.testing import InMemoryCoordinator
from tests.docs.pages import LINK, ROOT
from tests.system.waiting import HANG_S

EXAMPLES = ROOT / "examples"


def shown(docstring: str) -> str:
    """Return the last indented block of an example's docstring, which is its output."""
    return "".join(f"{line.strip()}\n" for line in docstring.strip().rpartition("\n\n")[2].splitlines())


@pytest.mark.parametrize("file", ["asyncio_worker.py", "sharing_cameras.py", "scheduler.py"])
def test_an_example_prints_its_output(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(EXAMPLES / file))
    with InMemoryCoordinator():
        example["main"]([])
    assert capsys.readouterr().out == shown(example["__doc__"])


def test_the_tests_of_revocation_pass() -> None:
    file = EXAMPLES / "test_revocation.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "streaming.testing.plugin", str(file)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    expected = shown(runpy.run_path(str(file))["__doc__"]).strip()
    assert expected in done.stdout, done.stdout + done.stderr


def test_the_table_has_every_example() -> None:
    table = (EXAMPLES / "README.md").read_text()
    linked = {(EXAMPLES / target).resolve() for target in LINK.findall(table)}
    starts = [file for file in EXAMPLES.rglob("*") if file.suffix in {".py", ".java"} and file.name != "class_path.py"]
    assert linked == {*starts, EXAMPLES / "grafana" / "README.md"}
