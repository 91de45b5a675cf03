"""The remedy for a batch that cannot run: its plan is moved aside, so that the next start plans the batch again.

Spark repeats a planned batch until it succeeds. A batch that needs more memory than the machine has never succeeds.
Without its plan, the next start reads the same requests in other batches: in smaller ones, if `max_requests_per_batch`
is lower. The same requests at the same time give the same outputs, however they are divided into batches. So they are
handled with the time of the moved plan, and outputs that the batch had already written are written again with equal
bytes.

State that the batch had written has a version without a finished batch: the new batch of that number replaces it. Only
the first batch of all requires an empty state folder, so its written state is moved aside with its plan.
"""

from pyspark.sql import SparkSession

from streaming.config.settings import Settings
from streaming.errors import CheckpointMismatch, Exit, InUse, NoCheckpoint, UserError
from streaming.query.checkpoint import checkpoint
from streaming.query.checkpoint.inspection import of_folder
from streaming.query.checkpoint.parts import REPLANNED, REPLANNED_STATE
from streaming.query.checkpoint.running import alone
from streaming.query.spark.failures import explained


class NothingPlanned(UserError):
    """The checkpoint has no planned batch that is not finished."""

    exit_code = Exit.NEEDS_A_PERSON


def replan(settings: Settings, *, is_dry_run: bool, is_stopped: bool) -> str:
    """Move the plan of the unfinished batch aside, and return one sentence about the result.

    Args:
        is_stopped: The caller asserts that no coordinator runs on the checkpoint, for a folder where this cannot be
            checked.

    Raises:
        NoCheckpoint: The folder contains no checkpoint.
        NothingPlanned: Every planned batch is finished.
        CheckpointMismatch: More than one batch is unfinished, a state that no coordinator produces.
        InUse: A coordinator runs on the checkpoint, or this cannot be checked.
    """
    spark, folder = of_folder(settings)
    with explained(settings):
        exists = checkpoint.exists(spark, f"{folder}/query")
    if not exists:
        raise NoCheckpoint(f"There is no checkpoint at {folder}: name the folder that `coordinator run` was given.")
    with explained(settings), alone(folder) as is_known:
        if not (is_known or is_stopped or is_dry_run):
            raise InUse(
                f"It is unknown here whether a coordinator runs on {folder}: stop it, and confirm with --stopped."
            )
        number = _unfinished(spark, folder)
        place = _free_place(spark, folder, number)
        if is_dry_run:
            return f"Batch {number} is planned and not finished: its plan would be moved to {place}."
        checkpoint.move(spark, f"{folder}/query/offsets/{number}", place)
        if number == 0 and checkpoint.exists(spark, f"{folder}/query/state"):
            aside = place.rpartition("/")[2]
            checkpoint.move(spark, f"{folder}/query/state", f"{folder}/{REPLANNED_STATE}/{aside}")
    return (
        f"Batch {number} is planned anew at the next start; its plan is kept in {place}. "
        "Start the coordinator with fewer requests in a batch: set COORDINATOR_MAX_REQUESTS_PER_BATCH."
    )


def _unfinished(spark: SparkSession, folder: str) -> int:
    plans = checkpoint.batches(spark, f"{folder}/query/offsets")
    commits = checkpoint.batches(spark, f"{folder}/query/commits")
    ahead = [number for number in plans if number > max(commits, default=-1)]
    if not ahead:
        raise NothingPlanned(f"No batch has to be planned anew: every batch with a plan in {folder} is finished.")
    if len(ahead) > 1:
        raise CheckpointMismatch(
            f"{folder} has plans of {len(ahead)} batches that are not finished, from {ahead[0]} on: "
            "`coordinator checkpoint verify` lists all defects."
        )
    return ahead[0]


def _free_place(spark: SparkSession, folder: str, number: int) -> str:
    taken = set(checkpoint.names(spark, f"{folder}/{REPLANNED}"))
    times = next(times for times in range(1, len(taken) + 2) if f"{number}.{times}" not in taken)
    return f"{folder}/{REPLANNED}/{number}.{times}"
