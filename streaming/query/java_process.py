"""The Java process of Spark, which this process starts unless spark-submit did."""

import logging
from subprocess import DEVNULL
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

log = logging.getLogger(__name__)


def start_java(config: dict[str, str]) -> Any:
    """Start Spark's Java process in a session of its own, and return it as py4j shows it; None if it runs already.

    Signals to this process's group, such as those of a closed terminal or of a supervisor, do not reach Java. So Java
    lives until this process has stopped the query. Java ends by itself when this process ends in any way, because its
    standard input ends.

    Java and the Python workers write to standard error only if debug messages are on. Otherwise a worker that ends
    because Java has closed its connection would print a traceback.

    Args:
        config: The settings of Spark that Java needs at its start.
    """
    if SparkContext._gateway is not None:
        return None
    is_shown = log.isEnabledFor(logging.DEBUG)
    process_options = {"start_new_session": True, "stderr": None if is_shown else DEVNULL}
    gateway = launch_gateway(SparkConf().setAll(list(config.items())), process_options)  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
    return gateway.jvm
