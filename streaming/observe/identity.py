"""The identity of an observer's checkpoint, and the facts of its starts.

    CHECKPOINT/identity.json     what cannot change for the life of the checkpoint
    CHECKPOINT/starts/N.json     the facts at a start whose first new batch is N
    CHECKPOINT/query/            Spark's own files: offsets, commits, state

A batch that is repeated after a restart has to give equal outputs. So it uses the facts of the start that planned it.
"""

import json

import msgspec
from pyspark.sql import SparkSession

from streaming.config.settings import Settings
from streaming.errors import CheckpointMismatch
from streaming.kafka.acls import SOURCE_TOPIC
from streaming.observe.operator import Start
from streaming.observe.source import Source
from streaming.observe.state import VERSION
from streaming.query.checkpoint import checkpoint
from streaming.query.checkpoint.identity import FILE, Sealed, decoded, differences

PLAN_VERSION = 1
"""The version of the query's sources and operator. Spark continues a checkpoint only with the same ones."""

STARTS_KEPT = 2
"""The starts that a query is given: the last one, and the one before it, whose last batch may be repeated."""

_NAMES = ("source_partitions", "output_partitions", "shuffle_partitions", "state_store", "decoder_version",
          "plan_version")  # fmt: skip


class ObservedIdentity(Sealed, frozen=True, kw_only=True):
    """The data that cannot change for the life of an observer's checkpoint."""

    topic_ids: dict[str, str]
    source_partitions: int
    output_partitions: int
    shuffle_partitions: int
    state_store: str
    decoder_version: int = VERSION
    plan_version: int = PLAN_VERSION
    checksum: str = ""


def claim(spark: SparkSession, settings: Settings, source: Source, topic_ids: dict[str, str]) -> None:
    """Check that the checkpoint fits the settings and the topics. Write the identity of a new checkpoint.

    Raises:
        CheckpointMismatch: The identity does not fit; the sentence names all differences.
    """
    path = f"{settings.checkpoint}/{FILE}"
    wanted = ObservedIdentity(
        topic_ids={**topic_ids, SOURCE_TOPIC: source.topic_id},
        source_partitions=source.partitions,
        output_partitions=settings.request_partitions,
        shuffle_partitions=settings.shuffle_partitions,
        state_store=settings.state_store,
    )
    if not checkpoint.exists(spark, path):
        if checkpoint.exists(spark, f"{checkpoint.query_folder(settings)}/offsets"):
            raise CheckpointMismatch(
                f"The checkpoint {settings.checkpoint} has a query's state but no identity.json: "
                "restore that file from a back-up, or start with an empty folder and another observe_prefix."
            )
        checkpoint.write_file(spark, path, msgspec.json.encode(wanted.sealed))
        return
    found = decoded(checkpoint.read_file(spark, path), path, ObservedIdentity)
    if changed := differences(found, wanted, _NAMES):
        raise CheckpointMismatch(
            f"The checkpoint {settings.checkpoint} belongs to another query: {'; '.join(changed)}. "
            "Start with the settings it was made with, or with another observe_checkpoint and another observe_prefix."
        )


def record_start(
    spark: SparkSession, settings: Settings, ends: dict[int, int], retention_ms: int | None
) -> list[Start]:
    """Store the facts of this start, and return those of the last starts, the earliest first.

    Raises:
        CheckpointMismatch: The facts of a start cannot be read or written.
    """
    folder = f"{settings.checkpoint}/starts"
    planned = checkpoint.batches(spark, f"{checkpoint.query_folder(settings)}/offsets")
    first_batch = planned[-1] + 1 if planned else 0
    noted = sorted(int(name.removesuffix(".json")) for name in checkpoint.names(spark, folder) if name[:1].isdigit())
    earlier = [number for number in noted if number < first_batch][-STARTS_KEPT + 1 :]
    found = [_start(checkpoint.read_file(spark, f"{folder}/{number}.json"), folder) for number in earlier]
    path = f"{folder}/{first_batch}.json"
    if first_batch in noted:  # that start has planned no batch
        return [*found, _start(checkpoint.read_file(spark, path), folder)]
    start = Start(first_batch, ends, retention_ms)
    checkpoint.write_file(spark, path, msgspec.json.encode(start))
    return [*found, start]


def _start(written: bytes, folder: str) -> Start:
    try:
        return msgspec.json.decode(written, type=Start)
    except msgspec.MsgspecError as error:
        raise CheckpointMismatch(f"{folder} has a file that cannot be read ({error}): restore it.") from None


def planned_to(spark: SparkSession, settings: Settings) -> dict[int, int]:
    """Return the offsets to which the newest planned batch reads the source; empty if no batch was planned.

    Raises:
        CheckpointMismatch: The plan cannot be read.
    """
    folder = f"{checkpoint.query_folder(settings)}/offsets"
    planned = checkpoint.batches(spark, folder)
    if not planned:
        return {}
    try:
        *_, source = checkpoint.read_file(spark, f"{folder}/{planned[-1]}").decode().splitlines()
        return {int(partition): end for partition, end in json.loads(source)[SOURCE_TOPIC].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointMismatch(
            f"The checkpoint {settings.checkpoint} is damaged (a plan of a batch cannot be read): restore it from a"
            " back-up, or start with an empty folder and another observe_prefix."
        ) from error
