"""The history for Spark SQL: the tables `events`, `groups` and `offsets` over the topics, or over exported files.

    spark = SparkSession.builder.getOrCreate()          # with Spark's Kafka connector
    register(spark, Settings(bootstrap_servers="..."))
    spark.sql(query("rebalances_by_cause")).show()

A crash leaves repeats in the topics. They are equal to the last byte, and the tables contain them once.
"""

from importlib.resources import files
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name for it)
from pyspark.sql.pandas.types import from_arrow_schema

from streaming.config.settings import Settings
from streaming.history.tables import AT_MS, TABLES


def register(spark: SparkSession, settings: Settings) -> None:
    """Register the three tables as temporary views. Each query of them reads the topics again."""
    topics = {"events": settings.events_topic, "groups": settings.groups_topic, "offsets": settings.groups_topic}
    for name, topic in topics.items():
        _from_topic(spark, settings, name, topic).createOrReplaceTempView(name)


def register_files(spark: SparkSession, folder: Path) -> None:
    """Register the three tables over the files that `coordinator export` has written."""
    for name in TABLES:
        spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)


def queries() -> list[str]:
    """Return the names of the queries that come with this package."""
    return sorted(file.name.removesuffix(".sql") for file in (files(__package__) / "queries").iterdir())


def query(name: str) -> str:
    """Return the text of a query that comes with this package."""
    return (files(__package__) / "queries" / f"{name}.sql").read_text()


def _from_topic(spark: SparkSession, settings: Settings, name: str, topic: str) -> DataFrame:
    read = spark.read.format("kafka").option("subscribe", topic).option("startingOffsets", "earliest")
    for option, value in settings.kafka_source_options().items():
        read = read.option(option, value)
    columns = [field for field in TABLES[name] if field.name != "at"]
    schema = from_arrow_schema(TABLES[name].empty_table().select([field.name for field in columns]).schema)
    records = read.load().where("value IS NOT NULL")
    if name != "events":
        kind = F.get_json_object(F.col("key").cast("string"), "$[0]")
        records = records.where(kind == name.removesuffix("s"))
    rows = records.select(F.from_json(F.col("value").cast("string"), schema).alias("row")).select("row.*")
    at = F.timestamp_millis(F.col(AT_MS[name])).alias("at")
    return _distinct(rows.select("*", at).select(*[field.name for field in TABLES[name]]))


def _distinct(rows: DataFrame) -> DataFrame:
    """Drop repeats. Spark cannot compare maps, so a column with maps is not compared."""
    plain = [column for column, kind in rows.dtypes if "map<" not in kind]
    return rows.dropDuplicates(plain)
