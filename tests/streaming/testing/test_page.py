"""The example of the page about testing runs, with the plugin and without this repository's own fixtures."""

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS, ROOT, blocks
from tests.system.waiting import HANG_S


def test_the_example_of_the_page_passes(tmp_path: Path) -> None:
    (code,) = (block.code for block in blocks(DOCS / "testing-your-consumers.md") if block.language == "python")
    (tmp_path / "test_worker.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "streaming.testing.plugin", "test_worker.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout + done.stderr
