"""The processes that run until a signal."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.cli.services.service import _announce
from streaming.config.settings import Settings
from streaming.errors import Exit
from tests.system.waiting import HANG_S

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


def test_start_that_waits_for_brokers_ends_after_a_signal() -> None:
    """It does not look at the signal. Without a limit, a supervisor would have to kill the process."""
    done = subprocess.run([sys.executable, "-c", HANGING_START], stderr=subprocess.PIPE, timeout=HANG_S, check=False)
    assert done.returncode == Exit.FAILED
    assert b"so the process ends without it." in done.stderr
