"""Has the disk hold what a batch rests on, before the batch says anything.

Spark writes plans, commits and states, and syncs none of them: after a loss of power the last half minute of them would
be there, torn, empty or missing as it happens. A checkpoint that went back by some batches would take the same requests
again under other plans, and conclude otherwise wherever time had decided, though the first conclusions are published.

    the first time a worker works   all files that are there, and the names of all folders above them
    before batch N says anything    its plan `offsets/N`, `commits/N-1`, and the task's own state after batch N-1

So a loss of power takes back nothing that was said. Only what is on a disk of this machine is synced; HDFS and object
stores keep what was closed.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from pyspark import TaskContext

BATCH = "streaming.sql.batchId"
"""The property by which Spark tells a task its batch."""


def sync_before_output(query: Path | None) -> None:
    """Sync what the running task's batch rests on; once for each task, however often it is called.

    Args:
        query: The folder of Spark's part of the checkpoint, where it is on a disk of this machine; else None.

    Raises:
        OSError: the disk does not keep it. The batch must not go on.
    """
    task = TaskContext.get() if query is not None else None
    batch = task.getLocalProperty(BATCH) if task is not None else None
    if query is not None and task is not None and batch is not None:
        _sync(query, int(batch), task.partitionId())


@lru_cache(maxsize=1)
def _sync(folder: Path, batch: int, task: int) -> None:
    _sync_all(folder)
    states = folder / "state" / "0" / str(task)
    for file in (folder / "offsets" / str(batch), folder / "commits" / str(batch - 1), *_of_version(states, batch)):
        _sync_file(file)
    for each in (folder / "offsets", folder / "commits", states):
        _sync_file(each)


@lru_cache(maxsize=1)
def _sync_all(query: Path) -> None:
    """Sync all that is there, as others may have left it: once for each worker.

    A folder that the start has made is named in the folder above it, and that name is lost as a file is.
    """
    for above in query.parent.parents:
        with suppress(PermissionError):  # who may not open a folder has not made the one in it
            _sync_file(above)
    for folder, _, files in os.walk(query.parent):
        for file in files:
            _sync_file(Path(folder, file))
        _sync_file(Path(folder))


def _of_version(states: Path, version: int) -> Iterator[Path]:
    """Find the files of one version of a task's state: what stands behind the number tells which store wrote them."""
    number = str(version)
    for name in os.listdir(states) if states.is_dir() else ():
        if name.startswith(number) and not name[len(number) : len(number) + 1].isdigit():
            yield states / name


def _sync_file(path: Path) -> None:
    """Sync a file or folder; one that is gone, as Spark deletes what is old, needs none."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
