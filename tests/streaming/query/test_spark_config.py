"""The files that the query needs beside its modules, and the settings of Spark by master."""

import pytest

from streaming.query.operator import worker_daemon
from streaming.query.spark.spark_config import SPARK_LOG, WORKER_PATH, is_local_master, tuning, worker_path

SOCKETS = "spark.python.unix.domain.socket.enabled"


@pytest.mark.parametrize(
    ("master", "is_local"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[2,4]", True),
        ("local[*]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://master:7077", False),
        ("yarn", False),
        ("k8s://https://kubernetes.default.svc", False),
    ],
)
def test_python_workers_have_sockets_in_the_file_system_on_this_machine_only(master: str, is_local: bool) -> None:
    """A container's temporary folder is too long for the name of such a socket."""
    assert is_local_master(master) is is_local
    assert (SOCKETS in tuning(master)) is is_local


@pytest.mark.parametrize(
    ("master", "path"),
    [
        ("local[2]", "/home/ana/dist/coordinator.zip:/home/ana/more.zip"),
        ("spark://master:7077", "coordinator.zip:more.zip"),
    ],
)
def test_the_daemon_of_python_workers_finds_shipped_files(master: str, path: str) -> None:
    """Spark copies them into the working folder of each executor, and puts them on the path of workers only."""
    shipped = {"spark.submit.pyFiles": "/home/ana/dist/coordinator.zip,/home/ana/more.zip"}
    assert worker_path(master, shipped) == {WORKER_PATH: path}
    assert worker_path(master, {}) == worker_path(master, {"spark.submit.pyFiles": ""}) == {}
    assert tuning(master)["spark.python.daemon.module"] == worker_daemon.__name__


def test_the_configuration_of_sparks_log_exists():
    """Without this file Spark logs in its own format, whatever `--log-format` is."""
    assert SPARK_LOG.is_file()
