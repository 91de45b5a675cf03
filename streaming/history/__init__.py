"""The history as tables: for Spark SQL straight from the topics, and as Parquet files."""
