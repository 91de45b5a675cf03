"""The settings of Spark that the query has: its own, its tuning, and the options of Java.

The settings of a user override the tuning. spark-submit reads its options and its defaults file before it starts
Python. Without spark-submit, our settings are options on the command line of Java, which override the defaults file, so
the file is read here.

    a name that only we set       our value
    a name that the user sets     the user's value
    a name of `JOINED`            both values
    a name that has to be ours    ours; another value is refused
"""

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePath

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home

from streaming.config.settings import Settings
from streaming.config.spellings import read_properties
from streaming.errors import Exit, UserError
from streaming.logs import are_json

log = logging.getLogger(__name__)

SPARK_LOG = Path(__file__).with_name("log4j2.properties")
STOP_WAIT_S = 5
"""How long a stop waits for Spark's thread of the query, which may wait for brokers."""

IS_SPARK_4_0 = pyspark.__version__.startswith("4.0.")

CHECKPOINTING = "org.apache.spark.sql.execution.streaming" + ("" if IS_SPARK_4_0 else ".checkpointing")
"""The package of Spark's classes that write checkpoints. Spark 4.1 moved them."""

WORKER_PATH = "spark.executorEnv.PYTHONPATH"
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"

_STORE = "spark.sql.streaming.stateStore"
STATE_STORES = {
    "hdfs": {
        f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    },
    "rocksdb": {
        f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STORE}.checkpointFormatVersion": "2",  # Spark never reads a torn retry as committed state
    },
}

NEEDED = {
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # the alarm makes Spark run batches instead
}
"""The settings that have to be ours, beside those of the state store."""

SPARK_CONFIG = {
    f"{_STORE}.minDeltasForSnapshot": "100",
    "spark.sql.streaming.stopTimeout": f"{STOP_WAIT_S}s",
    "spark.sql.streaming.pollingDelay": "0ms",  # the wake-up or the trigger decides when a query asks for records
    # Spark checks retries of stages whose rows differ between attempts. Our rows are ranges of Kafka offsets and do not
    # differ.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableQueryLevelRollbackOnMismatch": "false",
    # Generated code is faster for each row, but generating it takes longer than the few rows of a batch.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",  # has no effect on stateful queries, and logs a warning about that
    "spark.sql.session.timeZone": "UTC",
    # Spark's own expression, and the names of Kafka's secret options
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|keystore[.]key|jaas",
    "spark.speculation": "false",
    "spark.python.daemon.module": "streaming.query.operator.worker_daemon",  # imports the operator for all its workers
    "spark.locality.wait": "0s",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.sql.ui.retainedExecutions": "50",
}
"""Spark settings that measurably improve the query."""

LOCAL_MASTER_CONFIG = {
    # The name of a socket has 107 bytes at most. Java's temporary folder is short here; that of a container is not.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""Additional Spark settings for a local master, also if spark-submit has started it."""

LOCAL_CONFIG = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.shuffle.compress": "false",  # shuffled data stays in the page cache
}
"""Additional Spark settings for a driver and an executor that are one process on one machine."""

LOCAL_FILES_CONFIG = {
    # The defaults start readlink four times for each file of the checkpoint, and add a checksum file.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    FILE_MANAGER: f"{CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
}
"""Additional Spark settings for a checkpoint on a disk of this machine. Other file systems, such as S3A, keep buffers
on this machine, and need Hadoop's own file system for them."""


COMPILE_LATER = " ".join(
    f"-XX:Tier4{name}={10 * default}"
    for name, default in {
        "InvocationThreshold": 5_000,
        "MinInvocationThreshold": 600,
        "CompileThreshold": 15_000,
        "BackEdgeThreshold": 40_000,
    }.items()
)
"""Java options: code is compiled for speed (by C2) when it was used ten times as often as by default. This compilation
takes much of a start's processor time, and of a coordinator's at rest."""


def is_local_master(master: str) -> bool:
    """Return whether driver and executor are one process on this machine."""
    return re.match(r"local(\[|$)", master) is not None


def tuning(master: str) -> dict[str, str]:
    """Return the settings of Spark that improve the query on a master."""
    return {**SPARK_CONFIG, **(LOCAL_MASTER_CONFIG if is_local_master(master) else {})}


def worker_path(master: str, users: Mapping[str, str]) -> dict[str, str]:
    """Return the setting with which the daemon of Python workers finds the files of `--py-files`. Spark gives them to
    the workers only. An executor on a cluster has them in its working folder.

    Args:
        users: The settings of Spark that the user has set.
    """
    shipped = [file for file in users.get("spark.submit.pyFiles", "").split(",") if file]
    files = shipped if is_local_master(master) else [PurePath(file).name for file in shipped]
    return {WORKER_PATH: os.pathsep.join(files)} if files else {}


def fixed(settings: Settings) -> dict[str, str]:
    """Return the settings of Spark that are ours, whatever the user sets."""
    return {
        **NEEDED,
        **STATE_STORES[settings.state_store],
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
    }


def driver_options(java_options: str) -> str:
    """Return the options of the driver's Java: its log, its garbage collector, its compiler, and the given ones."""
    level = "warn" if log.isEnabledFor(logging.DEBUG) else "off"
    return (
        f"-Dlog4j2.configurationFile={SPARK_LOG.as_uri()} -Dcoordinator.spark.log={level} "
        f"-Dcoordinator.spark.lines={'json' if are_json() else 'text'} "
        "-XX:+UseParallelGC "  # half the work of the default collector, whose threads run beside the tasks
        f"{COMPILE_LATER} "
        f"{java_options}"
    )


# -- the settings of users ---------------------------------------------------------------------------------------------


GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"
"""The variable in which Java tells a Python process that it has started where Java listens. Spark's scripts set other
variables too, but an application master runs none of them."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"

JOINED = {
    # a list, of which the user may have an own part: its separator
    "spark.jars": ",",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.executor.extraClassPath": os.pathsep,
    WORKER_PATH: os.pathsep,
    JAVA_OPTIONS: " ",
}

COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b\s*")
"""The option that chooses Java's garbage collector. Java does not start with two of them."""


class BadSparkSettings(UserError):
    """A setting of Spark has a value that the coordinator cannot use, or its file cannot be read."""

    exit_code = Exit.NEEDS_A_PERSON


def is_submitted() -> bool:
    """Return whether spark-submit, or the application master of a cluster, has started Java and then this process."""
    return GATEWAY_VARIABLE in os.environ


def user_config() -> dict[str, str]:
    """Return the settings of Spark that come from spark-submit or from its defaults file.

    Raises:
        BadSparkSettings: The file cannot be read.
    """
    if is_submitted():
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    file = Path(folder, "spark-defaults.conf")
    try:
        return {name: value.strip() for name, value in read_properties(file.read_text("utf-8")).items()}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadSparkSettings(f"{file} cannot be read ({error}): correct it, or name another folder.") from None


def with_users(ours: Mapping[str, str], users: Mapping[str, str]) -> dict[str, str]:
    """Return our settings without those that the user sets; lists have both parts, ours first."""
    left = {name: value for name, value in ours.items() if name not in users}
    for name in ours.keys() & users.keys() & JOINED.keys():
        own = ours[name]
        if name == JAVA_OPTIONS and COLLECTOR.search(users[name]):
            own = COLLECTOR.sub("", own)
        left[name] = f"{own}{JOINED[name]}{users[name]}"
    return left


def refuse_changed(settings: Settings, users: Mapping[str, str]) -> None:
    """Check that the user does not set another value where the coordinator needs its own.

    Raises:
        BadSparkSettings: The user does.
    """
    needed = {**NEEDED, **STATE_STORES[settings.state_store]}
    for name in sorted(needed.keys() & users.keys()):
        if users[name] != needed[name]:
            raise BadSparkSettings(
                f"Spark's settings have {name}={users[name]}, and a coordinator with state_store {settings.state_store}"
                f" needs {needed[name]}: leave {name} out."
            )
