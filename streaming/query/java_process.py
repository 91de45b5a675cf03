"""The Java process of Spark, which this process starts unless spark-submit did."""

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from subprocess import DEVNULL

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from streaming.query import local_files

log = logging.getLogger(__name__)


def start_java(config: Mapping[str, str], jars: Iterable[Path]) -> dict[str, str]:
    """Start Spark's Java process in a session of its own, unless it runs already.

    Signals to this process's group, such as those of a closed terminal or of a supervisor, do not reach Java. So Java
    lives until this process has stopped the query. Java ends by itself when this process ends in any way, because its
    standard input ends.

    Java and the Python workers write to standard error only if debug messages are on. Otherwise a worker that ends
    because Java has closed its connection would print a traceback.

    Args:
        config: The settings of Spark that Java needs at its start, with Spark's master.
        jars: Spark's Kafka connector.

    Returns:
        The settings that depend on where Spark's tasks run.
    """
    is_local = config["spark.master"].startswith("local")
    added = _of_tasks(jars, is_local=is_local)
    if SparkContext._gateway is not None:
        return added
    is_shown = log.isEnabledFor(logging.DEBUG)
    process_options = {"start_new_session": True, "stderr": None if is_shown else DEVNULL}
    settings = SparkConf().setAll([*config.items(), *added.items()])
    gateway = launch_gateway(settings, process_options)  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
    if is_local:
        local_files.use_in(gateway.jvm)
    return added


def _of_tasks(jars: Iterable[Path], *, is_local: bool) -> dict[str, str]:
    """Return the settings that give tasks the Kafka connector and this package. On one machine the jars are part of the
    class path, which the class archive covers."""
    if not is_local:  # executors may get the package only when a worker starts
        return {"spark.jars": ",".join(map(str, jars))}
    class_path = os.pathsep.join(map(str, jars))
    return {
        "spark.driver.extraClassPath": class_path,
        "spark.executor.extraClassPath": class_path,
        "spark.python.daemon.module": "streaming.query.worker_daemon",
    }
