"""The history for Spark SQL: the tables `events`, `groups` and `offsets` over the topics, or over exported files.

    spark = SparkSession.builder.getOrCreate()          # with Spark's Kafka connector
    register(spark, Settings(bootstrap_servers="..."), peers=["new"])
    spark.sql(query("rebalances_by_cause")).show()

A crash leaves repeats in the topics. They are equal to the last byte, and the tables contain them once.

The queries read the views of `FOLLOWING`, which join the records of a group that has moved between coordinators.
"""

from collections.abc import Collection
from importlib.resources import files
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name for it)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from streaming.config.peers import other_prefixes
from streaming.config.settings import Settings
from streaming.history.tables import AT_MS, NOT_PUBLISHED, TABLES
from streaming.kafka.reader import TopicReader

TOPICS = {"events": "events", "groups": "groups", "offsets": "groups"}
"""The topic of each table, without its prefix."""

FOLLOWING = ("group_moves", "followed_events", "followed_groups")
"""The views of `streaming/history/following`, each after those that it reads."""


def register(spark: SparkSession, settings: Settings, peers: Collection[str] | None = None) -> None:
    """Register the tables of a coordinator and of others as temporary views. Each query of them reads the topics again.

    Args:
        peers: The topic prefixes of the other coordinators; by default the setting `peers`.

    Raises:
        ValueError: More than `PEERS_MAX` peers are named.
        BrokerUnreachable, NoCoordinator: The topics of a peer cannot be read.
    """
    own = settings.topic_prefix
    others = other_prefixes(own, settings.peers if peers is None else peers)
    if others:
        topics = [f"{prefix}.{topic}" for prefix in others for topic in dict.fromkeys(TOPICS.values())]
        TopicReader(settings, topics, "coordinator-history").close()
    for name in TABLES:
        _from_topics(spark, settings, name, [own, *others]).createOrReplaceTempView(name)
    _follow(spark)


def register_files(spark: SparkSession, folder: Path) -> None:
    """Register the tables over the files that `coordinator export` has written."""
    for name in TABLES:
        spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)
    _follow(spark)


def queries() -> list[str]:
    """Return the names of the queries that come with this package."""
    return sorted(file.name.removesuffix(".sql") for file in (files(__package__) / "queries").iterdir())


def query(name: str) -> str:
    """Return the text of a query that comes with this package."""
    return (files(__package__) / "queries" / f"{name}.sql").read_text()


def _follow(spark: SparkSession) -> None:
    for name in FOLLOWING:
        text = (files(__package__) / "following" / f"{name}.sql").read_text()
        spark.sql(text).createOrReplaceTempView(name)


def _schema(name: str) -> StructType:
    return from_arrow_schema(TABLES[name])


def _from_topics(spark: SparkSession, settings: Settings, name: str, prefixes: Collection[str]) -> DataFrame:
    suffix = f".{TOPICS[name]}"
    topics = ",".join(f"{prefix}{suffix}" for prefix in prefixes)
    read = spark.read.format("kafka").option("subscribe", topics).option("startingOffsets", "earliest")
    for option, value in settings.kafka_source_options().items():
        read = read.option(option, value)
    records = read.load().where("value IS NOT NULL")
    if name != "events":
        kind = F.get_json_object(F.col("key").cast("string"), "$[0]")
        records = records.where(kind == name.removesuffix("s"))
    published = StructType([field for field in _schema(name) if field.name not in NOT_PUBLISHED])
    row = F.from_json(F.col("value").cast("string"), published).alias("row")
    prefix = F.regexp_replace("topic", f"\\{suffix}$", "").alias("topic_prefix")
    at = F.timestamp_millis(F.col(AT_MS[name])).alias("at")
    rows = records.select(row, prefix).select("row.*", "topic_prefix").select("*", at)
    return _distinct(rows.select(*[field.name for field in TABLES[name]]))


def _distinct(rows: DataFrame) -> DataFrame:
    """Drop repeats. Spark cannot compare maps, so a column with maps is not compared."""
    plain = [column for column, kind in rows.dtypes if "map<" not in kind]
    return rows.dropDuplicates(plain)
