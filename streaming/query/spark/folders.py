"""The address of a checkpoint's folder: which file system it is on, as Hadoop's configuration says.

A user may leave out the host of a file system, or all but the path: the default file system has them. Spark's writer of
checkpoints needs the whole address, so it is completed once, before the folder is used.
"""

from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from streaming.config.settings import Settings
from streaming.query.spark.failures import Causes, explained
from streaming.query.spark.spark_config import CHECKPOINTING


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
