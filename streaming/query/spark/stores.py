"""The stores on which a checkpoint may be, and what Spark needs for each.

Two drivers on one checkpoint may plan the same batch in the same instant, as after a suspension. Then the store has to
give one of them the plan, and refuse it to the other:

    file:    Spark renames a file to the plan; two may succeed, and `ownership` ends one of them before its output
    hdfs:    the NameNode renames a file to the plan once
    s3a:     one request writes the plan, on condition that there is none; see `checkpoint_files`

A store that is in no row is refused: Spark would look for the plan, and then write its own over it.

Hadoop's configuration says on which file system a checkpoint's folder is. A user may leave out the host of a file
system, or all but the path: the default file system has them. Spark's writer of checkpoints needs the whole address, so
it is completed once, before the folder is used.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from streaming.config.settings import Settings
from streaming.embedded import S3, Bundle, fetch
from streaming.errors import Exit, UserError
from streaming.query.spark import checkpoint_files
from streaming.query.spark.failures import Causes, explained
from streaming.query.spark.spark_config import CHECKPOINTING, FILE_MANAGER, IS_SPARK_4_0


class Store(NamedTuple):
    """A kind of store.

    Args:
        jars: What Spark lacks to reach the store; None if it lacks nothing.
        settings: The settings of Spark for the store, which those of the user override.
        is_conditional: Whether the checkpoint's files are written with conditions, which the store has to check.
    """

    jars: Bundle | None = None
    settings: Mapping[str, str] = {}
    is_conditional: bool = False


S3_SETTINGS = {
    FILE_MANAGER: checkpoint_files.NAME,
    "spark.hadoop.fs.s3a.input.stream.type": "classic",  # files are small, and are read once from their begin
    "spark.hadoop.fs.s3a.connection.expect.continue": "false",  # a write would wait for the store twice
    # A request is given up after some 10 s, not after 5 minutes: `store_watch` waits, and sees at once that a store is
    # back. A client that tries again more and more rarely may notice it minutes later.
    "spark.hadoop.fs.s3a.attempts.maximum": "2",
    "spark.hadoop.fs.s3a.retry.limit": "3",
    "spark.hadoop.fs.s3a.retry.throttle.limit": "6",
    # The smallest that Hadoop accepts, and the longest wait for a response: 200 s by default.
    "spark.hadoop.fs.s3a.connection.establish.timeout": "15s",
    "spark.hadoop.fs.s3a.connection.timeout": "20s",
}

STORES: Mapping[str, Store] = {
    "file": Store(),
    "hdfs": Store(),
    "s3a": Store(S3, S3_SETTINGS, is_conditional=True),
}
"""The stores, by the scheme of a checkpoint's address."""


class StoreRefused(UserError):
    """The checkpoint is on a store on which two drivers could write one batch."""

    exit_code = Exit.NEEDS_A_PERSON


def of(folder: str) -> Store:
    """Return the store of a checkpoint. A path without a scheme is on this machine, or on the cluster's own store.

    Raises:
        StoreRefused: No such store is known.
    """
    return _of_scheme(urlsplit(folder).scheme or "file", folder)


def _of_scheme(scheme: str, folder: str) -> Store:
    if (store := STORES.get(scheme)) is None:
        instead = "s3a: in place of it" if scheme in ("s3", "s3n") else "one of those in docs/checkpoints.md"
        raise StoreRefused(
            f"The checkpoint {folder} is on a store ({scheme}:) on which two drivers could write one batch: use"
            f" {instead}."
        )
    return store


def _found(folder: str) -> Store:
    """Return the store of a checkpoint that may only be read: one without needs of its own, if it is unknown."""
    return STORES.get(urlsplit(folder).scheme or "file", Store())


def jars(settings: Settings, report: Callable[[str], None] | None = None) -> tuple[Path, ...]:
    """Return the jars that Spark needs for the store of the checkpoint. Download them if they are missing.

    Raises:
        JarsUnavailable: A jar cannot be downloaded.
    """
    bundle = _found(settings.checkpoint).jars
    return () if bundle is None else fetch(bundle, report=report)


def spark_settings(settings: Settings) -> dict[str, str]:
    """Return the settings of Spark for the store of the checkpoint."""
    found = dict(_found(settings.checkpoint).settings)
    if found:
        found |= {name: value for name, value in _address(settings).items() if value}
    return found


def _address(settings: Settings) -> dict[str, str]:
    """Return the settings that say where an S3 server is. One with an endpoint of its own has buckets in its paths."""
    return {
        "spark.hadoop.fs.s3a.endpoint": settings.store_endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": settings.store_region,
        "spark.hadoop.fs.s3a.path.style.access": "true" if settings.store_endpoint else "",
    }


def install(spark: SparkSession, settings: Settings) -> None:
    """Add the classes with which Spark writes a checkpoint on this store to the driver and to all executors.

    Raises:
        StoreRefused: This version of Spark comes with a Hadoop that has no conditional writes.
    """
    if not _found(settings.checkpoint).is_conditional:
        return
    if IS_SPARK_4_0:
        raise StoreRefused(
            f"A checkpoint on {urlsplit(settings.checkpoint).scheme}: needs Spark 4.2: install pyspark 4.2."
        )
    checkpoint_files.install(spark)


def check(spark: SparkSession, settings: Settings) -> None:
    """Check, before the checkpoint is written, that its store gives a plan to one driver only.

    Raises:
        StoreRefused: It does not.
    """
    folder = settings.checkpoint
    scheme = checkpoint_files.scheme_of(spark, folder)
    if _of_scheme(scheme, folder).is_conditional and not checkpoint_files.excludes(spark, folder):
        raise StoreRefused(
            f"The store of the checkpoint {folder} writes an object although it is there (it ignores If-None-Match), so"
            " two drivers could write one batch: use another store, or a newer version of its server."
        )


def is_conditional(spark: SparkSession, path: str) -> bool:
    """Return whether a file of a checkpoint is written with a condition."""
    store: Any = STORES.get(checkpoint_files.scheme_of(spark, path))
    return store is not None and store.is_conditional


# -- addresses of folders ----------------------------------------------------------------------------------------------


def located(spark: SparkSession, settings: Settings, causes: Causes) -> Settings:
    """Return the settings with the whole address of the checkpoint, which Spark can use. Nothing is written.

    Args:
        causes: The table of the query's failures.

    Raises:
        SparkRefused: Spark cannot use the folder; the text names the cause.
    """
    jvm: Any = spark.sparkContext._jvm
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    with explained(settings, causes):
        folder = whole_address(jvm, hadoop, settings.checkpoint)
        manager = getattr(getattr(_package(jvm), "CheckpointFileManager$"), "MODULE$")
        manager.create(jvm.org.apache.hadoop.fs.Path(f"{folder}/query"), hadoop)
    return settings.model_copy(update={"checkpoint": folder})


def whole_address(jvm: Any, hadoop: Any, folder: str) -> str:
    """Return the address of a folder with its file system and host. A path of this machine stays as it is.

    Args:
        hadoop: Hadoop's configuration, which names the default file system.
    """
    path = jvm.org.apache.hadoop.fs.Path(folder)
    whole = str(path.getFileSystem(hadoop).makeQualified(path).toString())
    return folder if _is_path(folder) and urlsplit(whole).scheme == "file" else whole


def is_local(jvm: Any, hadoop: Any, folder: str) -> bool:
    """Return whether a folder is on the file system of this machine. No file system is opened."""
    default = str(jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(hadoop).getScheme())
    return (default if _is_path(folder) else urlsplit(folder).scheme) == "file"


def _is_path(folder: str) -> bool:
    return not urlsplit(folder).scheme


def _package(jvm: Any) -> Any:
    for name in CHECKPOINTING.split("."):
        jvm = getattr(jvm, name)
    return jvm
