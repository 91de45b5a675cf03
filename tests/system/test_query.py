"""The query's plan: the decisions before any row is read."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name for it)

from streaming.query.coordinator import Coordinator
from streaming.query.dataframe import even_keys


@pytest.mark.parametrize(("shards", "tasks"), [(16, 2), (16, 8), (16, 16), (6, 4), (3, 1)])
def test_shards_are_assigned_to_tasks_in_turn(coordinator: Coordinator, shards: int, tasks: int) -> None:
    """With Spark's own partitioning, the numbers of shards of two tasks differ by one at most."""
    spark = SparkSession.active()
    keys = even_keys(spark, shards, tasks)
    assert [key % shards for key in keys] == list(range(shards)), "the operator knows a shard by its key"
    frame = spark.createDataFrame([(key,) for key in keys], "key int").repartition(tasks, "key")
    dealt = {row.key: row.task for row in frame.select("key", F.spark_partition_id().alias("task")).collect()}
    assert [dealt[key] for key in keys] == [shard % tasks for shard in range(shards)]
