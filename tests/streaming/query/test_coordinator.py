"""The files that the query needs beside its modules."""

from streaming.query.coordinator import SPARK_LOG


def test_the_configuration_of_sparks_log_exists():
    """Without this file Spark logs in its own format, whatever `--log-format` is."""
    assert SPARK_LOG.is_file()
