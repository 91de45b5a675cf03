"""The identity of a checkpoint: written at the first start, and compared with the settings at every later start.

    CHECKPOINT/identity.json    written by this module: topic ids, settings that cannot change, the secret of member ids
    CHECKPOINT/query/           Spark's own files: offsets, commits, state
    CHECKPOINT/driver           the id of the driver that took over the lease last, only with a lease; see `ownership`
    CHECKPOINT/replanned/       plans of batches that were moved aside, so that the batches are planned anew
    CHECKPOINT/replanned-state/ the state that such a batch had written, if it was the first batch of all

State that is used with another topic or another number of shards would be wrong, and nothing would show it. So such a
start is refused. The folder may be on any file system that Spark can reach.
"""

import json
import secrets
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from pyspark.sql import SparkSession

from coordinator.codec import VERSION
from streaming.config.settings import Settings
from streaming.errors import CheckpointMismatch

PLAN_VERSION = 2
"""The version of the query's sources and stateful operator. Spark continues a checkpoint only with the same ones."""

REPLANNED, REPLANNED_STATE = "replanned", "replanned-state"
"""The folders for files that were moved aside. A plan is named `BATCH.N` if it is the Nth plan of its batch."""

TASKS = "spark.sql.shuffle.partitions"
"""One of the settings that Spark stores with each plan and then uses in place of the session's own settings."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The data that cannot change for the life of a checkpoint.

    Args:
        fencing_token_floor: No fencing token is below it. It is above all tokens that were given under the topic prefix
            before.
    """

    secret: str
    topic_ids: dict[str, str]
    request_partitions: int
    shuffle_partitions: int
    state_store: str
    codec_version: int = VERSION
    plan_version: int = 1
    fencing_token_floor: int = 0
    checksum: str = ""

    @property
    def sealed(self) -> "Identity":
        """The identity with the checksum of all other fields, which shows any changed bit, also one of the secret."""
        return msgspec.structs.replace(self, checksum=_checksum(msgspec.structs.asdict(self)))


def claim(
    spark: SparkSession, settings: Settings, topic_ids: dict[str, str], find_floor: Callable[[], int]
) -> Identity:
    """Return the identity of the checkpoint, which has to fit the settings. Write it to a new checkpoint.

    Args:
        find_floor: Returns the `fencing_token_floor`; called only for a new checkpoint.

    Raises:
        CheckpointMismatch: The identity does not fit; the sentence names all differences.
    """
    path = _identity_file(settings.checkpoint)
    wanted = Identity(
        secret=secrets.token_hex(32),
        topic_ids=topic_ids,
        request_partitions=settings.request_partitions,
        shuffle_partitions=settings.shuffle_partitions,
        state_store=settings.state_store,
        plan_version=PLAN_VERSION,
    )
    found = read_identity(spark, settings.checkpoint)
    if found is None:
        if exists(spark, f"{settings.checkpoint}/query/offsets"):
            raise CheckpointMismatch(
                f"The checkpoint {settings.checkpoint} has a query's state but no identity.json: "
                "restore that file from a back-up, or start with an empty checkpoint folder."
            )
        wanted = msgspec.structs.replace(wanted, fencing_token_floor=find_floor())
        write_file(spark, path, msgspec.json.encode(wanted.sealed))
        return wanted
    if differences := _differences(found, wanted):
        raise CheckpointMismatch(
            f"The checkpoint {settings.checkpoint} belongs to another query: {'; '.join(differences)}. "
            "Start with the settings it was made with, or with another checkpoint folder."
        )
    _check_tasks(spark, settings, found)
    return found


def _check_tasks(spark: SparkSession, settings: Settings, found: Identity) -> None:
    """Raise CheckpointMismatch if Spark's latest plan has another number of tasks than the checkpoint."""
    plan = newest_plan(spark, settings)
    if plan is not None and plan.tasks != found.shuffle_partitions:
        raise CheckpointMismatch(
            f"The checkpoint {settings.checkpoint} is damaged (Spark's notes of its batches are for {plan.tasks}"
            f" tasks, not {found.shuffle_partitions}): restore it from a back-up, or start with an empty folder."
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


def _differences(found: Identity, wanted: Identity) -> list[str]:
    differences = [
        f"{name} was {getattr(found, name)} and is {getattr(wanted, name)}"
        for name in ("request_partitions", "shuffle_partitions", "state_store", "plan_version")
        if getattr(found, name) != getattr(wanted, name)
    ]
    for topic in found.topic_ids.keys() | wanted.topic_ids.keys():
        if found.topic_ids.get(topic) != wanted.topic_ids.get(topic):
            differences.append(f"topic {topic} is not the one it was made with")
    return sorted(differences)


OF_AN_OBSERVER, OF_A_COORDINATOR = "source_partitions", "secret"
"""Fields that only the identity of an observer's checkpoint has, and only that of a coordinator's."""


def not_an_identity(written: bytes, path: str, error: Exception) -> CheckpointMismatch:
    """Return the error for an identity of the wrong form: it may be that of the other query."""
    try:
        fields = dict(msgspec.json.decode(written))
    except (msgspec.MsgspecError, TypeError, ValueError):
        fields = {}
    if OF_AN_OBSERVER in fields:
        return CheckpointMismatch(
            f"{path} is that of `coordinator observe`, whose groups are on its topics: name a coordinator's checkpoint."
        )
    if OF_A_COORDINATOR in fields:
        return CheckpointMismatch(f"{path} is that of `coordinator run`: start with another observe_checkpoint.")
    return CheckpointMismatch(f"{path} cannot be read ({error}): restore it from a back-up.")


def read_identity(spark: SparkSession, folder: str) -> Identity | None:
    """Return the identity of a checkpoint; None if the checkpoint has none.

    Raises:
        CheckpointMismatch: The identity cannot be read.
    """
    path = _identity_file(folder)
    if not exists(spark, path):
        return None
    try:
        written = read_file(spark, path)
        found = msgspec.json.decode(written, type=Identity)
    except msgspec.MsgspecError as error:
        raise not_an_identity(written, path, error) from None
    if found.checksum and found.checksum != _checksum(msgspec.json.decode(written)):
        raise CheckpointMismatch(f"{path} cannot be read (it fails its checksum): restore it from a back-up.")
    return found


def _checksum(fields: Mapping[str, Any]) -> str:
    """Return the checksum of all fields except the checksum itself, also of fields that this version does not know."""
    rest = {name: value for name, value in fields.items() if name != "checksum"}
    return f"{zlib.crc32(msgspec.json.encode(rest, order='sorted')):08x}"


def _identity_file(folder: str) -> str:
    return f"{folder}/identity.json"


# -- files on any file system that Spark can reach ---------------------------------------------------------------------


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether a file or folder exists."""
    files, hadoop_path = _file_system(spark, path)
    return bool(files.exists(hadoop_path))


def read_file(spark: SparkSession, path: str) -> bytes:
    """Read a whole file."""
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
    """Write the whole file or nothing: write it under another name first, then rename it.

    Raises:
        CheckpointMismatch: The file exists, or cannot be written.
    """
    jvm: Any = spark.sparkContext._jvm
    files, beside = _file_system(spark, f"{path}.new")
    permission = jvm.org.apache.hadoop.fs.permission.FsPermission("600")
    stream = files.create(beside, True)
    try:
        stream.write(data)
        stream.hsync()
    finally:
        stream.close()
    files.setPermission(beside, permission)
    _, place = _file_system(spark, path)
    if not files.rename(beside, place):
        raise CheckpointMismatch(f"{path} cannot be written: is another coordinator starting on this checkpoint?")
