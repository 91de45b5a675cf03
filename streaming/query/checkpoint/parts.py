"""The parts of a checkpoint's folder, and which of them are missing. Nothing here needs Spark."""

from collections.abc import Callable, Collection, Iterator

REPLANNED, REPLANNED_STATE = "replanned", "replanned-state"
"""The folders for files that were moved aside. A plan is named `BATCH.N` if it is the Nth plan of its batch."""


def missing_parts(plans: Collection[int], commits: Collection[int], exists: Callable[[str], bool]) -> Iterator[str]:
    """Yield the parts of Spark's folder that are missing although others show that they were there.

    Args:
        plans: The numbers of the batches that have a plan.
        commits: The numbers of the batches that have ended.
        exists: Returns whether Spark's folder has a file or folder of a name.
    """
    has_state = exists("state")
    if (commits or has_state) and not plans:
        yield "query/offsets"
    if not commits and max(plans, default=0) > 0:
        yield "query/commits"
    if commits and not has_state:
        yield "query/state"
    if plans and not exists("metadata"):  # Spark 4.0 would write another one
        yield "query/metadata"
