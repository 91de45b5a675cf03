"""The examples that need a real broker and a real query print what their docstrings show, against `coordinator up`."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.embedded import Broker, find_java
from tests.docs.pages import ROOT
from tests.docs.test_examples import EXAMPLES, shown
from tests.system.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.long, pytest.mark.nightly]

FILES = ["sharing_cameras.py", "scheduler.py", "asyncio_worker.py", "restore_offsets.py"]
"""The first three are also run with a coordinator in memory, by `tests/docs/test_examples.py`."""

MASKS = {
    r"\d\d:\d\d:\d\d\.\d{3}": "TIME",
    r"\d+(\.\d)? m?s\b": "DURATION",
    r"\b(w\d)-\w{4}\b": r"\1-ID",  # a member's short id
}
"""What differs from run to run, and what stands in its place when outputs are compared."""


def masked(text: str) -> list[str]:
    """Return the words of an output, masked. Line breaks do not count, since a docstring wraps long lines."""
    for pattern, mask in MASKS.items():
        text = re.sub(pattern, mask, text)
    return text.split()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start `coordinator up` as a stranger does, and return its addresses."""
    folder = tmp_path_factory.mktemp("up")
    ready_file, log = folder / "ready", folder / "log"
    command = [sys.executable, "-m", "streaming", "up", "--no-demo", "--ready-file", str(ready_file)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: ready_file.exists() or process.poll() is not None, account=log.read_text)
        yield json.loads(ready_file.read_text())
        process.terminate()
        process.wait(HANG_S)
    finally:
        process.kill()
        process.wait()


def output(*command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2 * HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(file: Path, servers: str, *arguments: str) -> None:
    """Check that an example prints the output of its docstring, apart from times and ids."""
    printed = output(sys.executable, str(file), "--bootstrap-servers", servers, *arguments)
    assert masked(printed) == masked(docstring_output(file)), printed


def docstring_output(file: Path) -> str:
    """Return the output that an example's docstring shows."""
    return shown(ast.get_docstring(ast.parse(file.read_text())) or "")


def test_a_rolling_deploy_passes_seats_on_and_the_history_job_counts_it(up: dict[str, str]) -> None:
    check(EXAMPLES / "rolling_deploy.py", up["bootstrap_servers"])
    check(EXAMPLES / "history_job.py", up["bootstrap_servers"], "--group", "rolling-deploy")


def test_a_coordinator_grows_under_live_workers(broker: Broker) -> None:
    check(EXAMPLES / "growing.py", broker.bootstrap_servers)


@pytest.mark.parametrize("file", FILES)
def test_an_example_prints_its_output_on_a_real_broker(file: str, up: dict[str, str]) -> None:
    check(EXAMPLES / file, up["bootstrap_servers"])


def test_librdkafka_consumes_through_the_gateway(up: dict[str, str]) -> None:
    check(EXAMPLES / "gateway" / "librdkafka_consumer.py", up["gateway"])


def test_java_consumes_through_the_gateway(up: dict[str, str]) -> None:
    file = EXAMPLES / "gateway" / "Consumer.java"
    class_path = output(sys.executable, str(EXAMPLES / "gateway" / "class_path.py")).strip()
    comment = file.read_text().partition("*/")[0]
    assert output(str(find_java()), "-cp", class_path, str(file), up["gateway"]) == shown(comment)
