"""The session of Spark and its Java process: started here, or those that spark-submit prepared."""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streaming.config.settings import Settings
from streaming.config.timeouts import TASK_TRIES
from streaming.embedded import archive, connector, fetch, find_java
from streaming.errors import Exit, UserError
from streaming.query.spark import local_files, stores
from streaming.query.spark.failures import explained
from streaming.query.spark.spark_config import (
    JAVA_OPTIONS,
    LOCAL_CONFIG,
    LOCAL_FILES_CONFIG,
    SPARK_LOG,
    driver_options,
    fixed,
    is_local_master,
    is_submitted,
    refuse_changed,
    tuning,
    user_config,
    with_users,
    worker_path,
)
from streaming.query.spark.stores import is_local

log = logging.getLogger(__name__)

# -- the process of Java -----------------------------------------------------------------------------------------------


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


APP_NAME = "group-coordinator"
CONNECTOR_PACKAGE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


class ConnectorMissing(UserError):
    """Spark's Kafka connector is missing."""

    exit_code = Exit.NEEDS_A_PERSON


class MasterMismatch(UserError):
    """Spark runs on another master than the one that was asked for."""

    exit_code = Exit.NEEDS_A_PERSON


class PackageInArchive(UserError):
    """The package is in an archive, which Java cannot read, and spark-submit has not started Java."""

    exit_code = Exit.NEEDS_A_PERSON


def check_java() -> None:
    """Check that this process can start Java, unless Java has started this process.

    Raises:
        JavaMissing: Java is missing, or it is too old.
    """
    if not is_submitted():
        find_java()


def open_session(
    settings: Settings,
    report: Callable[[str], None] | None = None,
    java_options: str | None = None,
    *,
    default_master: str | None = None,
) -> SparkSession:
    """Start Spark, or return the session that spark-submit prepared.

    Args:
        java_options: The options that say where Java loads its classes from. The default is the class archive, if one
            exists.
        default_master: Spark's master, if neither spark-submit nor the setting `master` names one. The default is that
            of Spark's defaults file, or else `local[2]`.

    Raises:
        JavaMissing, JarsUnavailable: Java or Spark's jars are missing.
        BadSparkSettings: Spark's own settings have a value that the coordinator cannot use.
        PackageInArchive: Spark has to be started, and Java cannot read the files of this package.
        MasterMismatch: Spark runs on another master than the one that was asked for.
        ConnectorMissing: Spark has no Kafka connector.
        SparkRefused: Spark could not start; the text names the cause.
    """
    check_java()
    users = user_config()
    refuse_changed(settings, users)
    os.environ.setdefault("PYSPARK_PYTHON", users.get("spark.pyspark.python", sys.executable))
    with explained(settings):
        if is_submitted():
            spark = _submitted_session(settings, users)
        else:
            master = settings.master or default_master or users.get("spark.master", "local[2]")
            spark = _own_session(settings, users, with_tries(master), report, java_options)
    if not _has_connector(spark):
        raise ConnectorMissing(
            f"Spark has no Kafka connector: give spark-submit --packages {CONNECTOR_PACKAGE}, or --jars with its jars."
        )
    stores.install(spark, settings)
    return spark


def _submitted_session(settings: Settings, users: Mapping[str, str]) -> SparkSession:
    """Return the session of the Java process that spark-submit has started."""
    master = users.get("spark.master", "")
    _refuse_another(settings.master, master, "spark-submit names the master")
    ours = {**tuning(master), **worker_path(master, users), **stores.spark_settings(settings)}
    spark = _session({**with_users(ours, users), **fixed(settings)})
    _refuse_another(master, spark.sparkContext.master, "Spark runs on")
    return spark


def _own_session(
    settings: Settings,
    users: Mapping[str, str],
    master: str,
    report: Callable[[str], None] | None,
    java_options: str | None,
) -> SparkSession:
    """Start Java, unless it runs, and return a session on a master."""
    if not SPARK_LOG.is_file():
        raise PackageInArchive(
            f"Java cannot read {SPARK_LOG}: give the archive to spark-submit with --py-files, or install the package."
        )
    is_local = is_local_master(master)
    options = driver_options(archive.using() if java_options is None else java_options)
    ours = {
        **tuning(master),
        **worker_path(master, users),
        **(LOCAL_CONFIG if is_local else {}),
        **stores.spark_settings(settings),
        **of_tasks([*fetch(connector(), report=report), *stores.jars(settings, report)], is_local=is_local),
        JAVA_OPTIONS: options,
    }
    own = {**fixed(settings), "spark.app.name": APP_NAME, "spark.master": master}
    is_new = start_java({**with_users(ours, users), **own})
    if is_local and _is_on_this_machine(settings.checkpoint):
        ours |= LOCAL_FILES_CONFIG
        if is_new:
            local_files.use_in(SparkContext._jvm)
    known = SparkConf()  # our options on Java's command line, and what the user has set in any way
    spark = _session({**{name: value for name, value in ours.items() if not known.contains(name)}, **own})
    if settings.master:
        _refuse_another(master, spark.sparkContext.master, "Spark runs on")
    return spark


def _is_on_this_machine(folder: str) -> bool:
    jvm: Any = SparkContext._jvm
    hadoop = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(SparkConf()._jconf)
    return is_local(jvm, hadoop, folder)


def _session(config: Mapping[str, str]) -> SparkSession:
    return SparkSession.builder.config(map={"spark.app.name": APP_NAME, **config}).getOrCreate()


def _refuse_another(wanted: str | None, found: str | None, where: str) -> None:
    if wanted and with_tries(wanted) != with_tries(found or ""):
        raise MasterMismatch(
            f"{where} {found}, and {wanted} was asked for: leave the setting master out, or name the same master."
        )


def with_tries(master: str) -> str:
    """Return a master that tries each task several times. A task of a local master has one try, unless it says more."""
    return re.sub(r"^local\[([^,\]]+)\]$", rf"local[\1,{TASK_TRIES}]", "local[1]" if master == "local" else master)


def _has_connector(spark: SparkSession) -> bool:
    try:
        spark.readStream.format("kafka").option("subscribe", "any").option("kafka.bootstrap.servers", "any:1").load()
    except AnalysisException:
        return False
    return True
