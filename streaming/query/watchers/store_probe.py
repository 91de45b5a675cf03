"""Whether the store of a checkpoint answers: a small read, by a client of its own that soon gives up.

The clients that write the checkpoint try each request again, some for minutes and more and more rarely. So nothing can
be learned from them during an outage, and its end is noticed late.
"""

from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from streaming.config.settings import Settings
from streaming.errors import StoreUnavailable
from streaming.query.spark.failures import SAFE_MODE, Causes, SparkRefused, account_of, because

HDFS = "org.apache.hadoop.hdfs.DistributedFileSystem"

FILE = "identity.json"
"""A small file of each checkpoint. If it is missing, the answer of the store says so."""

CLIENT = {
    # HDFS
    "ipc.client.connect.timeout": "3000",
    "ipc.client.connect.max.retries": "1",
    "ipc.client.connect.max.retries.on.timeouts": "0",
    "ipc.client.rpc-timeout.ms": "3000",
    "dfs.client.failover.sleep.max.millis": "1000",
    "dfs.client.retry.window.base": "100",
    "dfs.client.socket-timeout": "3000",
    # S3
    "fs.s3a.attempts.maximum": "1",
    "fs.s3a.retry.limit": "1",
    "fs.s3a.retry.interval": "100ms",
    "fs.s3a.retry.throttle.limit": "1",
    "fs.s3a.connection.establish.timeout": "3s",
    "fs.s3a.connection.timeout": "3s",
}
"""The settings of the client, in Hadoop's names: it tries once or twice, and waits some seconds."""


class StoreProbe:
    """A client for the store of a checkpoint. One thread uses it.

    Args:
        settings: The settings with the whole address of the checkpoint.
        causes: The table of the query's failures.
    """

    def __init__(self, spark: SparkSession, settings: Settings, causes: Causes) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._settings, self._causes = settings, causes
        self._hadoop = jvm.org.apache.hadoop
        self._configuration = self._hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
        for name, value in CLIENT.items():
            self._configuration.set(name, value)
        self._file = self._hadoop.fs.Path(settings.checkpoint, FILE)
        self._files: Any = None

    def _open(self) -> None:
        """Make the client, which sends nothing."""
        self._files = self._hadoop.fs.FileSystem.newInstance(self._file.toUri(), self._configuration)

    def prepare(self) -> None:
        """Make the client, which takes some seconds for S3. If that fails, `ask` finds out why."""
        with suppress(Py4JJavaError):
            self._open()

    def ask(self) -> StoreUnavailable | None:
        """Return why the store does not answer, or takes no writes; None if it does. Any refusal is an answer."""
        try:
            return self._check()
        except Py4JJavaError as error:
            return self._unavailable(account_of(error))

    def _check(self) -> StoreUnavailable | None:
        if self._files is None:
            self._open()
        if self._files.getClass().getName() == HDFS and self._files.isInSafeMode():
            return self._unavailable(SAFE_MODE)
        stream = self._files.open(self._file)
        try:
            stream.readAllBytes()
        finally:
            stream.close()
        return None

    def _unavailable(self, account: str) -> StoreUnavailable | None:
        found = because(account, self._settings, SparkRefused, self._causes)
        return found if isinstance(found, StoreUnavailable) else None

    def close(self) -> None:
        """Close the connections."""
        files, self._files = self._files, None
        if files is not None:
            with suppress(Py4JError):  # the store is away, or Java is
                files.close()
