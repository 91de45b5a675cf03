"""The Java process of Spark, which this process starts unless spark-submit did."""

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from subprocess import DEVNULL

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

log = logging.getLogger(__name__)


def start_java(config: Mapping[str, str]) -> bool:
    """Start Spark's Java process in a session of its own, unless it runs already. Return whether it was started.

    Signals to this process's group, such as those of a closed terminal or of a supervisor, do not reach Java. So Java
    lives until this process has stopped the query. Java ends by itself when this process ends in any way, because its
    standard input ends.

    Java and the Python workers write to standard error only if debug messages are on. Otherwise a worker that ends
    because Java has closed its connection would print a traceback.

    Args:
        config: The settings of Spark, which Java needs at its start.
    """
    if SparkContext._gateway is not None:
        return False
    is_shown = log.isEnabledFor(logging.DEBUG)
    process_options = {"start_new_session": True, "stderr": None if is_shown else DEVNULL}
    gateway = launch_gateway(SparkConf().setAll([*config.items()]), process_options)  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
    return True


def of_tasks(jars: Iterable[Path], *, is_local: bool) -> dict[str, str]:
    """Return the settings that give tasks the Kafka connector. On one machine its jars are part of the class path,
    which the class archive covers.

    Args:
        jars: Spark's Kafka connector.
        is_local: Whether tasks run in the driver's process.
    """
    if not is_local:
        return {"spark.jars": ",".join(map(str, jars))}
    class_path = os.pathsep.join(map(str, jars))
    return {
        "spark.driver.extraClassPath": class_path,
        "spark.executor.extraClassPath": class_path,
    }
