"""The history as tables: for Spark SQL directly from the topics, and as Parquet files."""
