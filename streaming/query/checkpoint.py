"""Whose state a checkpoint is: written beside it at the first start, and compared at every later one.

    CHECKPOINT/identity.json    what this module writes: topic ids, what is fixed for the state's life, the id secret
    CHECKPOINT/query/           Spark's own: offsets, commits, state
    CHECKPOINT/replanned/       plans of batches that were put aside, to be planned anew
    CHECKPOINT/replanned-state/ what such a batch had written of its state, where it was the first batch of all

State that meets another topic or another number of shards would be wrong without anybody noticing; so such a start is
refused. The folder may be on any file system that Spark can reach.
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
"""Which sources and which stateful operator the query is made of: Spark goes on with a checkpoint of the same only."""

REPLANNED, REPLANNED_STATE = "replanned", "replanned-state"
"""The folders of what was put aside; each plan is named for its batch, and by how often that was done."""

TASKS = "spark.sql.shuffle.partitions"
"""Among the settings that Spark notes with each plan, and goes on with whatever it is told."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What cannot change for the life of a checkpoint.

    Args:
        fencing_token_floor: No fencing token is below it: above all that were given under the prefix before.
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
        """The same with the checksum of all else, without which a bit of the secret could turn and nobody notice."""
        return msgspec.structs.replace(self, checksum=_checksum(msgspec.structs.asdict(self)))


def claim(
    spark: SparkSession, settings: Settings, topic_ids: dict[str, str], find_floor: Callable[[], int]
) -> Identity:
    """Read whose state the checkpoint is and see that it is ours; where there is none, make it ours.

    Args:
        find_floor: Called for a blank checkpoint alone: returns its `fencing_token_floor`.

    Raises:
        CheckpointMismatch: one sentence that names all that differs.
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
        _write(spark, path, wanted.sealed)
        return wanted
    if differences := _differences(found, wanted):
        raise CheckpointMismatch(
            f"The checkpoint {settings.checkpoint} is of another query: {'; '.join(differences)}. "
            "Start with the settings it was made with, or with another checkpoint folder."
        )
    _check_tasks(spark, settings, found)
    return found


def _check_tasks(spark: SparkSession, settings: Settings, found: Identity) -> None:
    """Raise CheckpointMismatch where Spark's latest plan has another number of tasks than the checkpoint."""
    plan = newest_plan(spark, settings)
    if plan is not None and plan.tasks != found.shuffle_partitions:
        raise CheckpointMismatch(
            f"The checkpoint {settings.checkpoint} is damaged (what Spark notes of its batches is of {plan.tasks}"
            f" tasks, not {found.shuffle_partitions}): restore it from a back-up, or start with an empty folder."
        )


def query_folder(settings: Settings) -> str:
    """Say where Spark keeps its own part of the checkpoint."""
    return f"{settings.checkpoint}/query"


def planned_at_ms(spark: SparkSession, settings: Settings) -> int | None:
    """Return for which time the newest batch was planned; None where no plan is there or can be read.

    A plan that was put aside counts as well: its batch may have written some of its outputs.
    """
    plans, aside = f"{query_folder(settings)}/offsets", f"{settings.checkpoint}/{REPLANNED}"
    files = [f"{plans}/{number}" for number in batches(spark, plans)[-1:]]
    files += [f"{aside}/{name}" for name in names(spark, aside) if not name.startswith(".")]
    times_ms = [at_ms for file in files if (at_ms := _planned_at_ms(spark, file)) is not None]
    return max(times_ms, default=None)


def _planned_at_ms(spark: SparkSession, file: str) -> int | None:
    try:
        _, planned, *_ = read_file(spark, file).decode().splitlines()
        return int(json.loads(planned)["batchTimestampMs"])
    except (ValueError, KeyError, TypeError):
        return None


class Planned(NamedTuple):
    """Spark's plan of a batch.

    Args:
        at_ms: Its time, Unix milliseconds.
        tasks: Among how many it deals the shards, whatever the settings are.
        ends: By request partition the offset behind the last record that it takes.
    """

    at_ms: int
    tasks: int
    ends: dict[int, int]


def newest_plan(spark: SparkSession, settings: Settings) -> Planned | None:
    """Read the plan of the newest batch; None where there is none, or it cannot be read."""
    plans = f"{query_folder(settings)}/offsets"
    planned_batches = batches(spark, plans)
    return _planned(spark, settings, f"{plans}/{planned_batches[-1]}") if planned_batches else None


def put_aside(spark: SparkSession, settings: Settings) -> list[Planned]:
    """Read the plans that were put aside to be planned anew, in the order of their times.

    Raises:
        CheckpointMismatch: one cannot be read.
    """
    aside = f"{settings.checkpoint}/{REPLANNED}"
    found = []
    for name in names(spark, aside):
        if name.startswith("."):
            continue  # a checksum of Hadoop's
        if (plan := _planned(spark, settings, f"{aside}/{name}")) is None:
            raise CheckpointMismatch(f"{aside}/{name} is no plan of a batch: restore it from a back-up.")
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


def read_identity(spark: SparkSession, folder: str) -> Identity | None:
    """Say whose state a checkpoint is; None where that is not written.

    Raises:
        CheckpointMismatch: it cannot be read.
    """
    path = _identity_file(folder)
    if not exists(spark, path):
        return None
    try:
        written = read_file(spark, path)
        found = msgspec.json.decode(written, type=Identity)
    except msgspec.MsgspecError as error:
        raise CheckpointMismatch(f"{path} cannot be read ({error}): restore it from a back-up.") from None
    if found.checksum and found.checksum != _checksum(msgspec.json.decode(written)):
        raise CheckpointMismatch(f"{path} cannot be read (it fails its checksum): restore it from a back-up.")
    return found


def _checksum(fields: Mapping[str, Any]) -> str:
    """Return the checksum of all fields but the checksum itself, known to this version or not."""
    rest = {name: value for name, value in fields.items() if name != "checksum"}
    return f"{zlib.crc32(msgspec.json.encode(rest, order='sorted')):08x}"


def _identity_file(folder: str) -> str:
    return f"{folder}/identity.json"


# -- files, wherever Spark can reach -----------------------------------------------------------------------------------


def exists(spark: SparkSession, path: str) -> bool:
    """Tell whether there is a file or folder."""
    files, hadoop_path = _file_system(spark, path)
    return bool(files.exists(hadoop_path))


def read_file(spark: SparkSession, path: str) -> bytes:
    """Read a file whole."""
    files, hadoop_path = _file_system(spark, path)
    stream = files.open(hadoop_path)
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def names(spark: SparkSession, folder: str) -> list[str]:
    """Name what is in a folder; nothing where there is none."""
    if not exists(spark, folder):
        return []
    files, hadoop_path = _file_system(spark, folder)
    return [str(status.getPath().getName()) for status in files.listStatus(hadoop_path)]


def batches(spark: SparkSession, folder: str) -> list[int]:
    """Name the batches that a folder of Spark's has a file of, the first one first."""
    return sorted(int(name) for name in names(spark, folder) if name.isdigit())


def move(spark: SparkSession, path: str, place: str) -> None:
    """Move a file or a folder to another folder of the same file system, which is made where it is not there.

    Raises:
        CheckpointMismatch: it cannot be moved.
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


def _write(spark: SparkSession, path: str, identity: Identity) -> None:
    """Write the file whole or not at all: beside its place first, then renamed."""
    jvm: Any = spark.sparkContext._jvm
    files, beside = _file_system(spark, f"{path}.new")
    permission = jvm.org.apache.hadoop.fs.permission.FsPermission("600")
    stream = files.create(beside, True)
    try:
        stream.write(msgspec.json.encode(identity))
        stream.hsync()
    finally:
        stream.close()
    files.setPermission(beside, permission)
    _, place = _file_system(spark, path)
    if not files.rename(beside, place):
        raise CheckpointMismatch(f"{path} cannot be written: is another coordinator starting on this checkpoint?")
