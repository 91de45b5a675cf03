"""A program beside ours: it is stopped, or dies with us."""

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

LIVES = ("/bin/sh", "-c", "echo up; exec sleep 60")
DEAF = ("/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 60; done")
WAIT_S = 10.0

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


def up(children: ExitStack, folder: Path, *command: str) -> Child:
    """Start a program and wait for its first words: it is itself by then, no longer on the way to be."""
    child = start(children, folder, *command)
    while not (folder / "log").exists() or not (folder / "log").read_text():
        assert not child.ended.wait(0.01)
    return child


def test_its_output_is_kept_and_its_end_is_an_event(tmp_path: Path, children: ExitStack) -> None:
    child = start(children, tmp_path, "/bin/sh", "-c", "echo out; echo err >&2; exit 3")
    assert child.ended.wait(WAIT_S)
    assert child.exit_code == 3
    assert (tmp_path / "log").read_text() == "out\nerr\n"


def test_stop_asks_first(tmp_path: Path, children: ExitStack) -> None:
    child = up(children, tmp_path, *LIVES)
    child.stop(WAIT_S)
    assert child.exit_code == -signal.SIGTERM


def test_stop_does_not_wait_for_ever(tmp_path: Path, children: ExitStack) -> None:
    child = up(children, tmp_path, *DEAF)
    child.stop(0.05)
    assert child.exit_code == -signal.SIGKILL


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Child(["/bin/no-such-program"], folder=tmp_path, log_file=tmp_path / "log", die_with_parent=False)


def test_it_outlives_the_thread_that_asked_for_it(tmp_path: Path, children: ExitStack) -> None:
    """prctl(2): the leash is pulled when the thread that forked ends, so no borrowed thread may fork."""
    made: list[Child] = []
    thread = threading.Thread(target=lambda: made.append(up(children, tmp_path, *LIVES)))
    thread.start()
    thread.join()
    assert not made[0].ended.wait(0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a process to its parent")
@pytest.mark.parametrize("wait", [True, False], ids=["while it runs", "while it starts"])
def test_it_dies_with_a_parent_that_is_killed(wait: bool, tmp_path: Path) -> None:
    code = PARENT.format(command=LIVES, wait=wait)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            readable, _, _ = select.select([child], [], [], WAIT_S)
            assert readable == [child]
        finally:
            os.close(child)
