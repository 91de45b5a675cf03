"""A limit for the processor time of processes: a control group of Linux with a quota. It needs the rights of root."""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.benchmarks.bench import NotMeasurable

CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 20_000
"""A group that has used its quota stands still until the next period. A short period makes these pauses short."""

_EMPTY_WAIT_S = 10.0


@contextmanager
def limited_cores(name: str, cores: float, pids: Iterable[int]) -> Iterator[None]:
    """Limit the processor time of processes, and of those that they start in this block, to a part of the cores.

    Raises:
        NotMeasurable: This machine has no control groups, or this user may not make one.
    """
    version_1 = (CGROUPS / "cpu" / "cpu.cfs_quota_us").exists()
    parent = CGROUPS / "cpu" if version_1 else CGROUPS
    group = parent / f"{name}-{os.getpid()}"
    quota_us = round(cores * PERIOD_US)
    limits = (
        {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota_us)}
        if version_1
        else {"cpu.max": f"{quota_us} {PERIOD_US}"}
    )
    try:
        if not version_1:
            (parent / "cgroup.subtree_control").write_text("+cpu")
        group.mkdir()
        for file, value in limits.items():
            (group / file).write_text(value)
    except OSError as error:
        raise NotMeasurable(f"Control groups cannot be used here: {error}") from error
    try:
        for pid in pids:
            _move(pid, group)
        yield
    finally:
        _remove(group, parent)


def _move(pid: int, group: Path) -> None:
    with suppress(ProcessLookupError):
        (group / "cgroup.procs").write_text(str(pid))


def _remove(group: Path, parent: Path) -> None:
    """Move the processes back, also those that start meanwhile, and remove the group."""
    until_s = time.monotonic() + _EMPTY_WAIT_S
    while pids := (group / "cgroup.procs").read_text().split():
        for pid in map(int, pids):
            _move(pid, parent)
        if time.monotonic() > until_s:
            raise TimeoutError(f"{group} still has processes: {' '.join(pids)}")
    group.rmdir()
