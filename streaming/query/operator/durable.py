"""The sync to disk of the files that a batch depends on, before the batch returns any output.

Spark writes plans, commits and states, and syncs none of them. After a loss of power, the files of the last half minute
may be complete, torn, empty or missing. A checkpoint that lost some batches would read the same requests again under
other plans. Its outcome would differ wherever time had decided, although the first outcome is already published.

    the first call in a worker      all existing files, and the names of all folders above them
    before the output of batch N    its plan `offsets/N`, `commits/N-1`, and the task's own state after batch N-1

So a loss of power revokes no published output. Only files on a disk of this machine are synced; HDFS and object stores
keep a file once it is closed.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from pyspark import TaskContext

BATCH = "streaming.sql.batchId"
"""The property in which Spark gives a task the number of its batch."""


def sync_before_output(query: Path | None) -> None:
    """Sync the files that the running task's batch depends on. Only the first call in a task does so.

    Args:
        query: The folder of Spark's part of the checkpoint, if it is on a disk of this machine; else None.

    Raises:
        OSError: The disk does not keep a file. The batch must not continue.
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
    """Sync all existing files once for each worker, because an earlier process may not have synced them.

    The name of a folder that the start made is an entry in the folder above it. A loss of power can lose that name like
    a file.
    """
    for above in query.parent.parents:
        with suppress(PermissionError):  # a user without the right to open a folder did not make the folder in it
            _sync_file(above)
    for folder, _, files in os.walk(query.parent):
        for file in files:
            _sync_file(Path(folder, file))
        _sync_file(Path(folder))


def _of_version(states: Path, version: int) -> Iterator[Path]:
    """Find the files of one version of a task's state. The state stores use different suffixes behind the version
    number."""
    number = str(version)
    for name in os.listdir(states) if states.is_dir() else ():
        if name.startswith(number) and not name[len(number) : len(number) + 1].isdigit():
            yield states / name


def _sync_file(path: Path) -> None:
    """Sync a file or a folder. A missing one needs no sync, because Spark deletes old files."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
