"""The query as one DataFrame: its source, the operator, and the rows that the sink writes.

requests ─> groupBy(shard's key) ─> ShardOperator ─> replies, groups, events
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name for it)

from coordinator.base.config import Config
from streaming.config.peers import NO_PEERS
from streaming.config.settings import Settings
from streaming.query.checkpoint import checkpoint
from streaming.query.checkpoint.identity import Identity
from streaming.query.checkpoint.running import local_folder
from streaming.query.operator.continuity import LastRecord
from streaming.query.operator.operator import INPUT_COLUMNS, OUTPUT_SCHEMA, STATE_SCHEMA, ShardOperator
from streaming.query.watchers.progress import observed
from streaming.wire.records import AT_MS, VERSION, OutputTopics

NO_RECORDS: Mapping[int, LastRecord] = MappingProxyType({})

_HASH_SEED = 42  # the seed of Spark's HashPartitioning


def build(
    spark: SparkSession,
    settings: Settings,
    identity: Identity,
    driver: str | None = None,
    peer_partitions: Mapping[str, int] = NO_PEERS,
    last_records: Mapping[int, LastRecord] = NO_RECORDS,
) -> DataFrame:
    """Build the query: from the request topic to records for the output topics.

    Args:
        driver: The id of the driver, if it holds a lease; else None.
        peer_partitions: The number of request partitions of each peer, by its prefix.
        last_records: As in `ShardOperator`.
    """
    requests = (
        spark.readStream.format("kafka")
        .options(**settings.kafka_source_options())
        .option("subscribe", settings.requests_topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")  # lost requests stop the query; Spark never skips them silently
        .option("maxOffsetsPerTrigger", settings.max_requests_per_batch)
        .option("kafka.fetch.max.wait.ms", "1")  # the default delays every batch by half a second
    )
    folder = local_folder(settings.checkpoint)
    return answered(spark, settings, identity, requests.load(), folder, driver, peer_partitions, last_records)


def answered(
    spark: SparkSession,
    settings: Settings,
    identity: Identity,
    requests: DataFrame,
    folder: Path | None = None,
    driver: str | None = None,
    peer_partitions: Mapping[str, int] = NO_PEERS,
    last_records: Mapping[int, LastRecord] = NO_RECORDS,
) -> DataFrame:
    """Build the part of the query behind its source.

    Args:
        requests: Records with the columns of Spark's Kafka source.
        folder: The folder of the checkpoint, if it is on a disk of this machine; else None.
        driver: The id of the driver, if it holds a lease; else None.
        peer_partitions: The number of request partitions of each peer, by its prefix.
        last_records: As in `ShardOperator`.
    """
    keys = F.array(*map(F.lit, even_keys(spark, settings.request_partitions, settings.shuffle_partitions)))
    records = requests.select(
        keys[F.col("partition")].alias("key"), "offset", F.unix_millis("timestamp").alias("at_ms"), "value"
    )
    assert tuple(records.columns) == INPUT_COLUMNS, "the operator reads other columns"
    config = settings.group_config(identity.fencing_token_floor, peer_partitions)
    operator = _operator(spark, settings, identity, config, folder, driver, last_records)
    packs = (
        records.coalesce(settings.shuffle_partitions)  # a task for each topic partition costs more than its read
        .groupBy("key")
        .applyInPandasWithState(operator, OUTPUT_SCHEMA, STATE_SCHEMA, "append", "ProcessingTimeTimeout")
    )
    return unpacked(observed(packs).where("topic is not null"))


def _operator(
    spark: SparkSession,
    settings: Settings,
    identity: Identity,
    config: Config,
    folder: Path | None,
    driver: str | None,
    last_records: Mapping[int, LastRecord],
) -> ShardOperator:
    peering = settings.peering()
    return ShardOperator(
        partitions=settings.request_partitions,
        secret=bytes.fromhex(identity.secret),
        config=config,
        topics=OutputTopics(
            settings.replies_topic, settings.groups_topic, settings.events_topic, settings.requests_topic, peering
        ),
        peering=peering,
        signing=settings.signing() if settings.access == "rules" else None,
        synced=folder / "query" if folder is not None and settings.checkpoint_synced else None,
        checkpoint=folder,
        driver=driver,
        replanned=[(plan.at_ms, plan.ends) for plan in checkpoint.put_aside(spark, settings)],
        last_records=dict(last_records),
    )


def even_keys(spark: SparkSession, shards: int, tasks: int) -> list[int]:
    """Find a key for each shard, so that Spark's hash gives every task the same number of shards.

    With their own numbers as keys, 16 shards would be divided between two tasks as 7 and 9, and eight tasks would get 0
    to 4 shards each. A shard's key is its number plus a multiple of `shards`.
    """
    jvm: Any = spark.sparkContext._jvm
    hash_of = jvm.org.apache.spark.unsafe.hash.Murmur3_x86_32(_HASH_SEED).hashInt
    candidates = (range(shard, 2**31, shards) for shard in range(shards))
    return [next(key for key in keys if hash_of(key) % tasks == shard % tasks) for shard, keys in enumerate(candidates)]


def unpacked(packs: DataFrame) -> DataFrame:
    """Convert `Pack`s into the rows that the sink writes."""
    version, at_ms = F.col("versions")[F.col("place")], F.col("times")[F.col("place")]
    ended, counted = _header(AT_MS, at_ms), _header(VERSION, version)
    headers = F.when(version.isNotNull(), F.array(counted, ended)).otherwise(F.array(ended))
    return packs.select("*", F.posexplode("keys").alias("place", "key")).select(
        "topic",
        "partition",
        "key",
        F.col("values")[F.col("place")].alias("value"),
        F.when(at_ms.isNotNull(), headers).alias("headers"),
    )


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.alias("value"))
