"""The settings of Spark that a user has set, and which of them count.

spark-submit reads its options and its defaults file before it starts Python. Without spark-submit, our settings are
options on the command line of Java, which override the defaults file, so the file is read here.

    a name that only we set       our value
    a name that the user sets     the user's value
    a name of `JOINED`            both values
    a name that has to be ours    ours; another value is refused
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home

from streaming.config.settings import Settings
from streaming.config.spellings import read_properties
from streaming.errors import Exit, UserError
from streaming.query.spark.spark_config import NEEDED, STATE_STORES, WORKER_PATH

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
