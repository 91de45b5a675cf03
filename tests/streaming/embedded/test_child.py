"""Tests of child processes: a child is stopped, or ends with its parent."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from streaming.embedded.child import Child
from tests.system.waiting import HANG_S

LIVES = ("/bin/sh", "-c", "echo up; exec sleep 60")
DEAF = ("/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 60; done")
PARENT = """
import signal
from pathlib import Path
from streaming.embedded.child import Child
log = Path("log")
child = Child({command}, folder=Path("."), log_file=log, die_with_parent=True)
while {wait} and not log.read_text():
    assert not child.ended.wait(0.01)
print(child.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def children() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(children: ExitStack, folder: Path, *command: str) -> Child:
    child = Child(command, folder=folder, log_file=folder / "log", die_with_parent=True)
    children.callback(child.kill)
    return child


def start_and_wait(children: ExitStack, folder: Path, *command: str) -> Child:
    """Start a program and wait for its first output; the program runs by then, not the forked parent."""
    child = start(children, folder, *command)
    while not (folder / "log").exists() or not (folder / "log").read_text():
        assert not child.ended.wait(0.01)
    return child


def test_the_output_of_a_child_is_kept_and_its_end_is_an_event(tmp_path: Path, children: ExitStack) -> None:
    child = start(children, tmp_path, "/bin/sh", "-c", "echo out; echo err >&2; exit 3")
    assert child.ended.wait(HANG_S)
    assert child.exit_code == 3
    assert (tmp_path / "log").read_text() == "out\nerr\n"


def test_stop_sends_sigterm_first(tmp_path: Path, children: ExitStack) -> None:
    child = start_and_wait(children, tmp_path, *LIVES)
    child.stop(HANG_S)
    assert child.exit_code == -signal.SIGTERM


def test_stop_kills_a_child_that_ignores_sigterm(tmp_path: Path, children: ExitStack) -> None:
    child = start_and_wait(children, tmp_path, *DEAF)
    child.stop(0.05)
    assert child.exit_code == -signal.SIGKILL


def test_a_missing_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Child(["/bin/no-such-program"], folder=tmp_path, log_file=tmp_path / "log", die_with_parent=False)


def test_a_child_outlives_the_thread_that_started_it(tmp_path: Path, children: ExitStack) -> None:
    """prctl(2): the signal comes when the thread that forked ends, so the caller's thread must not fork."""
    made: list[Child] = []
    thread = threading.Thread(target=lambda: made.append(start_and_wait(children, tmp_path, *LIVES)))
    thread.start()
    thread.join()
    assert not made[0].ended.wait(0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a process to its parent")
@pytest.mark.parametrize("wait", [True, False], ids=["while it runs", "while it starts"])
def test_a_child_ends_with_a_killed_parent(wait: bool, tmp_path: Path) -> None:
    code = PARENT.format(command=LIVES, wait=wait)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            readable, _, _ = select.select([child], [], [], HANG_S)
            assert readable == [child]
        finally:
            os.close(child)
