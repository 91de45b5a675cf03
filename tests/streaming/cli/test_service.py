"""The processes that run until a signal."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from streaming.cli.services.service import _announce
from streaming.config.settings import Settings
from streaming.errors import Exit
from tests.system.waiting import HANG_S, wait_until

SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


@pytest.fixture
def early() -> Iterator[list[str]]:
    """Yield a list that gets a text for each signal that comes before the process stops on signals."""
    came: list[str] = []
    before = {number: signal.signal(number, lambda *_: came.append("too early")) for number in SIGNALS}
    yield came
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_a_stop_as_soon_as_the_ready_file_exists(
    early: list[str], number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "replace", lambda _beside, _ready_file: signal.raise_signal(number))
    stops: list[str] = []
    _announce(lambda: stops.append("stop"), tmp_path / "ready", Settings())
    assert (stops, early) == (["stop"], [])


HANGING_START = """
import signal, threading
from streaming.cli.services import service
service.START_END_WAIT_S = 0.01
service._stop_on_signals(lambda: None, threading.Event())
signal.raise_signal(signal.SIGTERM)
threading.Event().wait()
"""


HANGING_STOP = """
import signal, sys, threading
from subprocess import Popen
from types import SimpleNamespace
from streaming.cli.services import service
java = Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
gateway = SimpleNamespace(proc=java)
sys.modules["pyspark"] = SimpleNamespace(SparkContext=SimpleNamespace(_gateway=gateway))
print(java.pid, flush=True)
service.STOP_END_WAIT_S = 0.01
service._stop_on_signals(lambda: None, ends_in_time=True)
signal.raise_signal(signal.SIGTERM)
threading.Event().wait()
"""


def test_stop_that_does_not_end_is_cut_short() -> None:
    """Spark's reader of offsets has no limit for its wait for brokers. Java must not go on without us."""
    done = subprocess.run([sys.executable, "-c", HANGING_STOP], capture_output=True, timeout=HANG_S, check=False)
    assert done.returncode == Exit.FAILED
    assert b"The next start repeats" in done.stderr
    wait_until(lambda: not psutil.pid_exists(int(done.stdout)))


def test_start_that_waits_for_brokers_ends_after_a_signal() -> None:
    """It does not look at the signal. Without a limit, a supervisor would have to kill the process."""
    done = subprocess.run([sys.executable, "-c", HANGING_START], stderr=subprocess.PIPE, timeout=HANG_S, check=False)
    assert done.returncode == Exit.FAILED
    assert b"so the process ends without it." in done.stderr
