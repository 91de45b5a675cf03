"""The check of a task, before it has any output, that its batch is not another driver's.

Spark lets a driver run a batch when it has written the batch's plan, `offsets/N`. On a local disk Spark checks that no
plan exists and then renames a file to that name. So of two drivers in the same instant both succeed, and the plan of
the second one replaces that of the first. Each task compares the plan on the disk with its own batch:

    the plan has another time        another driver has replaced it, and runs the batch as it planned it
    the batch is finished already    another driver has finished it, while this one was suspended
    the checkpoint has another id    another driver has taken over the lease, while this one was suspended

So a driver that was first, and one that comes late, ends before its output. The file systems of clusters refuse a
second plan by themselves; tasks on other machines check nothing.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from pyspark import TaskContext

from streaming.query.operator.durable import BATCH

DRIVER = "driver"
"""The file in the checkpoint's folder with the id of the driver that took over last. Only drivers with a lease write
it."""


class NotOurBatch(Exception):
    """Another driver runs the batch, or has run it."""


def check_batch(checkpoint: Path | None, planned_ms: int, driver: str | None) -> None:
    """Check that the running task's batch belongs to its driver. Only the first call in a task does so.

    Args:
        checkpoint: The folder of the checkpoint, if it is on a disk of this machine; else None.
        planned_ms: The time for which the driver planned the batch, Unix milliseconds.
        driver: The id of a driver with a lease; None without a lease.

    Raises:
        NotOurBatch: Another driver runs the batch, or has run it.
    """
    task = TaskContext.get() if checkpoint is not None else None
    batch = task.getLocalProperty(BATCH) if task is not None else None
    if checkpoint is not None and task is not None and batch is not None:
        _check(checkpoint, int(batch), planned_ms, driver, task.taskAttemptId())


@lru_cache(maxsize=1)
def _check(checkpoint: Path, batch: int, planned_ms: int, driver: str | None, _attempt: int) -> None:
    if found := list(objections(checkpoint, batch, planned_ms, driver)):
        raise NotOurBatch(f"batch {batch} {found[0]}")


def objections(checkpoint: Path, batch: int, planned_ms: int, driver: str | None) -> Iterator[str]:
    """Yield the reasons why a batch is another driver's. A file that does not exist is no reason."""
    query = checkpoint / "query"
    with _existing():
        found_ms = json.loads((query / "offsets" / str(batch)).read_text().splitlines()[1])["batchTimestampMs"]
        if found_ms != planned_ms:
            yield f"was planned for {found_ms} by another driver, and for {planned_ms} by this one"
    if (query / "commits" / str(batch)).exists():
        yield "was finished by another driver"
    with _existing():
        if driver is not None and (found := (checkpoint / DRIVER).read_text()) != driver:
            yield f"comes after driver {found} has taken over"


@contextmanager
def _existing() -> Iterator[None]:
    """Skip the rest of the block if its file does not exist. Spark itself reports a plan that is damaged."""
    try:
        yield
    except (FileNotFoundError, ValueError, IndexError, KeyError, TypeError):
        return


def take_over(checkpoint: Path, driver: str) -> None:
    """Write the id of the driver that takes over, so that tasks of an earlier driver end before their output."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    beside = checkpoint / f"{DRIVER}.{driver}"
    beside.write_text(driver)
    beside.replace(checkpoint / DRIVER)
