"""The classes in `CheckpointFiles.java`, with which Spark writes a checkpoint on an object store.

The driver compiles them at its start with the compiler that Spark has for its own generated code. Its Java process and
its executors load them from a jar.
"""

import tempfile
import uuid
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.query.spark import janino
from streaming.query.spark.spark_config import CHECKPOINTING

NAME = "CheckpointFiles"
SOURCE = resources.files("streaming.query.spark").joinpath(f"{NAME}.java").read_text()

DRIVER = "coordinator.checkpoint.driver"
"""The setting of Hadoop with the id of this process, which is stored with each file that must not replace another: a
request that the client has given up may come late, and is that of no other driver."""

_EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException"
_DAMAGED = "org.apache.hadoop.fs.ChecksumException"


class Exists(Exception):
    """A file of this name exists, so the store refuses another one."""


class Damaged(ValueError):
    """A file is not as it was written."""


def install(spark: SparkSession) -> None:
    """Compile the classes, unless they are there, and add them to the driver's Java process and to all executors.

    Raises:
        Py4JError: This version of Spark or of Hadoop has other classes.
    """
    context = spark.sparkContext
    jvm: Any = context._jvm
    if _configuration(spark).get(DRIVER) is None:
        _configuration(spark).set(DRIVER, uuid.uuid4().hex)
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource(f"{NAME}.class") is not None:
        return
    classes = janino.bytecodes(jvm, SOURCE.replace("SPARK", CHECKPOINTING))
    folder = Path(tempfile.mkdtemp(prefix="coordinator-classes-"))
    jar = folder / "checkpoint-files.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for name, code in classes.items():
            archive.writestr(f"{name}.class", code)
    jvm.java.io.File(str(folder)).deleteOnExit()
    jvm.java.io.File(str(jar)).deleteOnExit()
    loader.addURL(jvm.java.net.URL(jar.as_uri()))
    if not str(context.master).startswith("local"):  # tasks in this process have its classes
        context._jsc.addJar(str(jar))


def scheme_of(spark: SparkSession, path: str) -> str:
    """Return the scheme of the file system that Hadoop uses for a path."""
    jvm: Any = spark.sparkContext._jvm
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    scheme = hadoop_path.toUri().getScheme()
    return str(scheme or jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(_configuration(spark)).getScheme())


def excludes(spark: SparkSession, folder: str) -> bool:
    """Write a file twice in a folder of an object store, and return whether the store refused it the second time."""
    jvm: Any = spark.sparkContext._jvm
    return bool(getattr(jvm, NAME).excludes(jvm.org.apache.hadoop.fs.Path(folder), _configuration(spark)))


def write(spark: SparkSession, path: str, data: bytes) -> None:
    """Write a file on an object store.

    Raises:
        Exists: A file of this name exists.
    """
    jvm: Any = spark.sparkContext._jvm
    try:
        getattr(jvm, NAME).write(jvm.org.apache.hadoop.fs.Path(path), data, _configuration(spark))
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() == _EXISTS:
            raise Exists(path) from error
        raise


def read(spark: SparkSession, path: str) -> bytes:
    """Read a whole file on an object store.

    Raises:
        Damaged: The file does not have the checksum that was stored with it.
    """
    jvm: Any = spark.sparkContext._jvm
    try:
        return bytes(getattr(jvm, NAME).read(jvm.org.apache.hadoop.fs.Path(path), _configuration(spark)))
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() == _DAMAGED:
            raise Damaged("it fails its checksum") from error
        raise


def _configuration(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.hadoopConfiguration()
