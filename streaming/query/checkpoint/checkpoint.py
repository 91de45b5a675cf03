"""The identity of a checkpoint: written at the first start, and compared with the settings at every later start.

    CHECKPOINT/identity.json    see `identity`: topic ids, settings that cannot change, the secret of member ids
    CHECKPOINT/query/           Spark's own files: offsets, commits, state
    CHECKPOINT/driver           the id of the driver that took over the lease last, only with a lease; see `ownership`
    CHECKPOINT/replanned/       plans of batches that were moved aside, so that the batches are planned anew
    CHECKPOINT/replanned-state/ the state that such a batch had written, if it was the first batch of all
    CHECKPOINT/replaced.json    a handled request that the log has lost, so that every start is refused; see `replaced`

State that is used with another topic or another number of shards would be wrong, and nothing would show it. So such a
start is refused. The folder may be on any file system that Spark can reach.
"""

import json
import os
import secrets
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from pyspark.sql import SparkSession

from coordinator.state.codec import VERSION
from streaming.config.settings import Settings
from streaming.errors import CheckpointMismatch
from streaming.kafka.topics import ALTERED
from streaming.query.checkpoint.identity import FILE, Identity, decoded, differences
from streaming.query.checkpoint.parts import REPLANNED
from streaming.query.checkpoint.running import local_folder
from streaming.query.spark import checkpoint_files, stores
from streaming.query.spark.failures import OTHER_CODEC

TASKS = "spark.sql.shuffle.partitions"
"""One of the settings that Spark stores with each plan and then uses in place of the session's own settings."""


def claim(
    spark: SparkSession, settings: Settings, topic_ids: dict[str, str], find_floor: Callable[[], int]
) -> Identity:
    """Return the identity of the checkpoint, which has to fit the settings. Write it to a new checkpoint.

    Args:
        find_floor: Returns the `fencing_token_floor`; called only for a new checkpoint.

    Raises:
        CheckpointMismatch: The identity is of a version with another codec, or does not fit; the sentence names all
            differences.
    """
    path = _identity_file(settings.checkpoint)
    wanted = Identity(
        secret=secrets.token_hex(32),
        topic_ids=topic_ids,
        request_partitions=settings.request_partitions,
        shuffle_partitions=settings.shuffle_partitions,
        state_store=settings.state_store,
    )
    found = read_identity(spark, settings.checkpoint)
    if found is None:
        if exists(spark, f"{settings.checkpoint}/query/offsets"):
            raise CheckpointMismatch(
                f"The checkpoint {settings.checkpoint} has a query's state but no identity.json: "
                "restore that file from a back-up, or start with an empty folder and another topic_prefix."
            )
        wanted = msgspec.structs.replace(wanted, fencing_token_floor=find_floor())
        write_file(spark, path, msgspec.json.encode(wanted.sealed))
        return wanted
    if found.codec_version != VERSION:
        raise CheckpointMismatch(OTHER_CODEC.format(checkpoint=settings.checkpoint, codec=found.codec_version))
    if changed := differences(found, wanted):
        raise CheckpointMismatch(
            f"The checkpoint {settings.checkpoint} belongs to another query: {'; '.join(changed)}. "
            "Start with the settings it was made with, or with another checkpoint folder and topic_prefix; for topics,"
            f" see {ALTERED}."
        )
    _check_tasks(spark, settings, found)
    return found


def _check_tasks(spark: SparkSession, settings: Settings, found: Identity) -> None:
    """Raise CheckpointMismatch if Spark's latest plan has another number of tasks than the checkpoint."""
    plan = newest_plan(spark, settings)
    if plan is not None and plan.tasks != found.shuffle_partitions:
        raise CheckpointMismatch(
            f"The checkpoint {settings.checkpoint} is damaged (Spark's notes of its batches are for {plan.tasks}"
            f" tasks, not {found.shuffle_partitions}): restore it from a back-up, or start with an empty folder and"
            " another topic_prefix."
        )


def query_folder(settings: Settings) -> str:
    """Return the folder of Spark's own part of the checkpoint."""
    return f"{settings.checkpoint}/query"


def planned_at_ms(spark: SparkSession, settings: Settings) -> int | None:
    """Return the time for which the newest batch was planned; None if no plan exists or can be read.

    A plan that was moved aside counts too: its batch may have written some of its outputs.
    """
    plans, aside = f"{query_folder(settings)}/offsets", f"{settings.checkpoint}/{REPLANNED}"
    files = [f"{plans}/{number}" for number in batches(spark, plans)[-1:]]
    files += [f"{aside}/{name}" for name in names(spark, aside) if not name.startswith(".")]
    times_ms = [at_ms for file in files if (at_ms := plan_time_ms(spark, file)) is not None]
    return max(times_ms, default=None)


def plan_time_ms(spark: SparkSession, file: str) -> int | None:
    """Return the time of a plan; None if it cannot be read."""
    try:
        _, planned, *_ = read_file(spark, file).decode().splitlines()
        return int(json.loads(planned)["batchTimestampMs"])
    except (ValueError, KeyError, TypeError):
        return None


class Planned(NamedTuple):
    """Spark's plan of a batch.

    Args:
        at_ms: The time of the plan, Unix milliseconds.
        tasks: The number of tasks that get the shards, whatever the settings are.
        ends: By request partition, the offset after the last record of the batch.
    """

    at_ms: int
    tasks: int
    ends: dict[int, int]


def newest_plan(spark: SparkSession, settings: Settings) -> Planned | None:
    """Return the plan of the newest batch; None if no plan exists, or if it cannot be read."""
    plans = f"{query_folder(settings)}/offsets"
    planned_batches = batches(spark, plans)
    return _planned(spark, settings, f"{plans}/{planned_batches[-1]}") if planned_batches else None


def newest_finished_plan(spark: SparkSession, settings: Settings) -> Planned | None:
    """Return the plan of the newest finished batch; None if no batch is finished, or if the plan cannot be read."""
    finished = batches(spark, f"{query_folder(settings)}/commits")
    return _planned(spark, settings, f"{query_folder(settings)}/offsets/{finished[-1]}") if finished else None


def put_aside(spark: SparkSession, settings: Settings) -> list[Planned]:
    """Return the plans that were moved aside, in the order of their times.

    Raises:
        CheckpointMismatch: A plan cannot be read.
    """
    aside = f"{settings.checkpoint}/{REPLANNED}"
    found = []
    for name in names(spark, aside):
        if name.startswith("."):
            continue  # a checksum file of Hadoop
        if (plan := _planned(spark, settings, f"{aside}/{name}")) is None:
            raise CheckpointMismatch(f"{aside}/{name} is not the plan of a batch: restore it from a back-up.")
        found.append(plan)
    return sorted(found, key=lambda plan: plan.at_ms)


def _planned(spark: SparkSession, settings: Settings, file: str) -> Planned | None:
    try:
        _, planned, source = read_file(spark, file).decode().splitlines()
        noted, ends = json.loads(planned), json.loads(source)[settings.requests_topic]
        tasks = int(noted["conf"][TASKS])
        return Planned(
            int(noted["batchTimestampMs"]), tasks, {int(partition): int(end) for partition, end in ends.items()}
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read_identity(spark: SparkSession, folder: str) -> Identity | None:
    """Return the identity of a checkpoint; None if the checkpoint has none.

    Raises:
        CheckpointMismatch: The identity cannot be read.
    """
    path = _identity_file(folder)
    if not exists(spark, path):
        return None
    try:
        return decoded(read_file(spark, path), path, Identity)
    except checkpoint_files.Damaged as error:
        raise CheckpointMismatch(f"{path} cannot be read ({error}): restore it from a back-up.") from None


def _identity_file(folder: str) -> str:
    return f"{folder}/{FILE}"


# -- files on any file system that Spark can reach ---------------------------------------------------------------------


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether a file or folder exists."""
    files, hadoop_path = _file_system(spark, path)
    return bool(files.exists(hadoop_path))


def read_file(spark: SparkSession, path: str) -> bytes:
    """Read a whole file.

    Raises:
        Damaged: The file has a checksum, as each has that is written to an object store, and is not as it was written.
    """
    if stores.is_conditional(spark, path):
        return checkpoint_files.read(spark, path)
    files, hadoop_path = _file_system(spark, path)
    stream = files.open(hadoop_path)
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def names(spark: SparkSession, folder: str) -> list[str]:
    """Return the names of the files and folders in a folder; an empty list if the folder does not exist."""
    if not exists(spark, folder):
        return []
    files, hadoop_path = _file_system(spark, folder)
    return [str(status.getPath().getName()) for status in files.listStatus(hadoop_path)]


def batches(spark: SparkSession, folder: str) -> list[int]:
    """Return the numbers of the batches that have a file in a folder of Spark, in ascending order."""
    return sorted(int(name) for name in names(spark, folder) if name.isdigit())


def move(spark: SparkSession, path: str, place: str) -> None:
    """Move a file or a folder to another folder of the same file system. Create that folder if it does not exist.

    Raises:
        CheckpointMismatch: The file or folder cannot be moved.
    """
    files, source = _file_system(spark, path)
    _, target = _file_system(spark, place)
    files.mkdirs(target.getParent())
    if files.exists(target) or not files.rename(source, target):
        raise CheckpointMismatch(f"{path} cannot be moved to {place}.")


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark.sparkContext._jvm
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), hadoop_path


def write_file(spark: SparkSession, path: str, data: bytes) -> None:
    """Write the whole file or nothing: with one request to an object store, otherwise under another name first.

    Raises:
        CheckpointMismatch: The file exists, or cannot be written.
    """
    if stores.is_conditional(spark, path):
        try:
            return checkpoint_files.write(spark, path, data)
        except checkpoint_files.Exists:
            raise _not_written(path) from None
    jvm: Any = spark.sparkContext._jvm
    files, beside = _file_system(spark, f"{path}.{uuid.uuid4()}.new")
    permission = jvm.org.apache.hadoop.fs.permission.FsPermission("600")
    stream = files.create(beside, True)
    try:
        stream.write(data)
        stream.hsync()
    finally:
        stream.close()
    files.setPermission(beside, permission)
    _, place = _file_system(spark, path)
    try:
        if not (_linked(str(beside), path) or files.rename(beside, place)):
            raise _not_written(path)
    finally:
        files.delete(beside, False)
    return None


def _linked(beside: str, path: str) -> bool:
    """Add the second name of a file on this machine, and return whether it has it: a rename would replace another one.

    Raises:
        CheckpointMismatch: The name is taken.
    """
    source, file = local_folder(beside), local_folder(path)
    if source is None or file is None:
        return False
    try:
        os.link(source, file)
    except FileExistsError:
        raise _not_written(path) from None
    except OSError:  # a file system without hard links
        return False
    return True


def _not_written(path: str) -> CheckpointMismatch:
    return CheckpointMismatch(f"{path} cannot be written: is another coordinator starting on this checkpoint?")


def delete_file(spark: SparkSession, path: str) -> None:
    """Delete a file, if it exists."""
    files, hadoop_path = _file_system(spark, path)
    files.delete(hadoop_path, False)
