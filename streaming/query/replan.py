"""The way past a batch that cannot be run: its plan is put aside, so that the next start plans it anew.

Spark repeats a planned batch until it succeeds. A batch that takes more memory than there is never does. Without its
plan the next start takes the same requests in other batches: fewer at a time, if `max_requests_per_batch` says so.
The same requests give the same outputs however they are cut into batches, as of the same time. So they are handled as
of the time of the plan that was put aside, and what its batch had written already is written again with equal bytes.

State that the batch had written is of a version that no finished batch has: the new batch of that number replaces it.
Only the first batch of all wants an empty folder for its state, so what it had written is put aside with its plan.
"""

from pyspark.sql import SparkSession

from streaming.config.settings import Settings
from streaming.errors import CheckpointMismatch, Exit, InUse, NoCheckpoint, UserError
from streaming.query import checkpoint
from streaming.query.inspection import of_folder
from streaming.query.running import alone


class NothingPlanned(UserError):
    """The checkpoint has no planned batch that is not finished."""

    exit_code = Exit.NEEDS_A_PERSON


def replan(settings: Settings, *, is_dry_run: bool, is_stopped: bool) -> str:
    """Put the plan of the batch that is not finished aside, and say so in one sentence.

    Args:
        is_stopped: The caller knows that no coordinator runs on the checkpoint, where this cannot be seen.

    Raises:
        NoCheckpoint: there is none.
        NothingPlanned: every batch that is planned is finished.
        CheckpointMismatch: more than one is not, which no coordinator leaves behind.
        InUse: a coordinator runs on it, or that cannot be known.
    """
    folder = settings.checkpoint
    spark = of_folder(settings)
    if not checkpoint.exists(spark, f"{folder}/query"):
        raise NoCheckpoint(f"There is no checkpoint at {folder}: name the folder that `coordinator run` was given.")
    with alone(folder) as is_known:
        if not (is_known or is_stopped or is_dry_run):
            raise InUse(
                f"Whether a coordinator runs on {folder} cannot be seen from here: stop it, and say so with --stopped."
            )
        number = _unfinished(spark, folder)
        place = _free_place(spark, folder, number)
        if is_dry_run:
            return f"Batch {number} is planned and not finished: its plan would be moved to {place}."
        checkpoint.move(spark, f"{folder}/query/offsets/{number}", place)
        if number == 0 and checkpoint.exists(spark, f"{folder}/query/state"):
            aside = place.rpartition("/")[2]
            checkpoint.move(spark, f"{folder}/query/state", f"{folder}/{checkpoint.REPLANNED_STATE}/{aside}")
    return (
        f"Batch {number} is planned anew at the next start; its plan is kept in {place}. "
        "Start the coordinator with fewer requests in a batch: set COORDINATOR_MAX_REQUESTS_PER_BATCH."
    )


def _unfinished(spark: SparkSession, folder: str) -> int:
    plans = checkpoint.batches(spark, f"{folder}/query/offsets")
    commits = checkpoint.batches(spark, f"{folder}/query/commits")
    ahead = [number for number in plans if number > max(commits, default=-1)]
    if not ahead:
        raise NothingPlanned(f"Nothing is to be planned anew: each batch that {folder} has a plan of is finished.")
    if len(ahead) > 1:
        raise CheckpointMismatch(
            f"{folder} has plans of {len(ahead)} batches that are not finished, from {ahead[0]} on: "
            "`coordinator checkpoint verify` tells all that is wrong."
        )
    return ahead[0]


def _free_place(spark: SparkSession, folder: str, number: int) -> str:
    taken = set(checkpoint.names(spark, f"{folder}/{checkpoint.REPLANNED}"))
    times = next(times for times in range(1, len(taken) + 2) if f"{number}.{times}" not in taken)
    return f"{folder}/{checkpoint.REPLANNED}/{number}.{times}"
