"""Tests of busy processes: they end with the block that they run beside, however it ends."""

import os
import select
import signal
import subprocess
import sys

import pytest

from tests.busy import BUSY_PER_CORE, CORES, busy_processes
from tests.system.waiting import HANG_S

PARENT = """
import signal
from tests.busy import busy_processes
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests with SIGINT ignored
with busy_processes() as busy:
    print(*(child.pid for child in busy), flush=True)
    signal.pause()
"""


class Stopped(Exception):
    """The block does not reach its end."""


def test_busy_processes_run_during_the_block_and_end_with_it() -> None:
    with busy_processes() as busy:
        assert len(busy) == BUSY_PER_CORE * CORES
        assert not any(child.ended.is_set() for child in busy)
    assert [child.exit_code for child in busy] == [-signal.SIGKILL] * len(busy)


@pytest.mark.parametrize("error", [Stopped, KeyboardInterrupt])
def test_busy_processes_end_with_a_block_that_fails(error: type[BaseException]) -> None:
    with pytest.raises(error), busy_processes() as busy:
        raise error
    assert [child.exit_code for child in busy] == [-signal.SIGKILL] * len(busy)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a process to its parent")
@pytest.mark.parametrize("cause", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_busy_processes_end_with_their_parent(cause: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        running = {os.pidfd_open(int(process_id)) for process_id in parent.stdout.readline().split()}
        try:
            parent.send_signal(cause)
            for process in running:
                assert select.select([process], [], [], HANG_S)[0] == [process]
        finally:
            for process in running:
                os.close(process)
    assert len(running) == BUSY_PER_CORE * CORES
