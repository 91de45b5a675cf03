"""The processor time of the threads of a coordinator, read from the kernel."""

import os
import sys
import threading
from pathlib import Path

import pytest

from tests.benchmarks import batch_threads
from tests.benchmarks.batch_threads import OTHERS, PYTHON, cpu_s, show

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the time of each thread")


def test_a_thread_is_found_by_the_beginning_of_its_name() -> None:
    task = Path(f"/proc/self/task/{threading.get_native_id()}")
    name = (task / "comm").read_text()
    try:
        (task / "comm").write_text("C2 (Compiler) 1")
        kind, time_s = batch_threads._thread(task)
        assert (kind, time_s > 0) == (OTHERS, True)
        (task / "comm").write_text("C2 CompilerThre")
        assert batch_threads._thread(task)[0] == "compilers of Java"
    finally:
        (task / "comm").write_text(name.strip())
    assert batch_threads._thread(Path("/proc/self/task/none")) == (OTHERS, 0.0)


def test_processes_without_java_count_as_python() -> None:
    assert cpu_s(os.getpid())[PYTHON] > 0


def test_the_table_begins_with_the_most(capsys: pytest.CaptureFixture[str]) -> None:
    show({"little": 0.5, "much": 1.5}, batches=10, seconds=20.0)
    assert capsys.readouterr().out.splitlines() == [
        "10 batches in 20 s; 0.100 core",
        "  150.0 ms a batch  0.0750 core  much",
        "   50.0 ms a batch  0.0250 core  little",
    ]
