"""The options of spark-submit, and the options that the coordinator always sets."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from streaming.embedded import connector, fetch, find_java
from streaming.errors import Exit
from tests.cluster.standalone import SPARK, Cluster, bare_python, environment, zipped
from tests.hosts.network import HERE
from tests.system.waiting import HANG_S

pytestmark = pytest.mark.long

SOCKETS = "spark.python.unix.domain.socket.enabled"

DRIVER = """
import json, sys
from streaming.config.settings import Settings
from streaming.errors import UserError
from streaming.query.spark import session
try:
    conf = session.open_session(Settings.load(shuffle_partitions=3)).sparkContext.getConf()
except UserError as error:
    sys.stderr.write(f"{error}\\n")
    sys.exit(error.exit_code)
open(sys.argv[1], "w").write(json.dumps({**dict(conf.getAll()), "file": session.__file__}))
"""

WORKERS = """
import sys
from streaming.config.settings import Settings
from streaming.query.spark import session

def operator(_):
    import sys
    return str(getattr(sys.modules.get("streaming.query.operator.operator"), "__file__", "not imported"))

context = session.open_session(Settings.load()).sparkContext
open(sys.argv[1], "w").write(context.parallelize([0], 1).map(operator).first())
"""
"""A driver that asks a Python worker for the file of the operator, which only its daemon can have imported."""


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    (file := tmp_path / "driver.py").write_text(DRIVER)
    return file


def run(
    command: list[object], python: object = sys.executable, folder: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    dropped = ("COORDINATOR_", "SPARK_ENV_LOADED", "PYTHONPATH")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**inherited, **environment(), "PYSPARK_PYTHON": str(python), **variables},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def submit(driver: Path, found: Path, conf: Mapping[str, str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the driver with spark-submit in client mode."""
    options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    jars = ",".join(map(str, fetch(connector())))
    command = [SPARK / "bin" / "spark-submit", "--master", "local[1]", *options, "--jars", jars, driver, found]
    return run(command, PYTHONPATH=str(Path.cwd()), **variables)


def test_options_of_spark_submit_win_except_those_that_a_checkpoint_fixes(driver: Path, tmp_path: Path) -> None:
    """A site may have defaults for all its jobs. Its number of shuffle partitions must not reach a checkpoint."""
    options = {"spark.locality.wait": "7s", "spark.sql.shuffle.partitions": "200"}
    done = submit(driver, found := tmp_path / "conf.json", options)
    assert done.returncode == 0, done.stderr
    conf_found = json.loads(found.read_text())
    assert conf_found["spark.locality.wait"] == "7s"
    assert conf_found["spark.sql.shuffle.partitions"] == "3"
    assert conf_found["spark.speculation"] == "false", "the coordinator's own option applies if spark-submit has none"
    assert conf_found["spark.master"] == "local[1]"
    assert conf_found[SOCKETS] == "true", "a local master has a short temporary folder"


def test_another_master_than_that_of_spark_submit_is_refused(driver: Path, tmp_path: Path) -> None:
    done = submit(driver, tmp_path / "conf.json", {}, COORDINATOR_MASTER="local[2]")
    assert done.returncode == Exit.NEEDS_A_PERSON, done.stdout
    assert done.stdout.endswith(
        "spark-submit names the master local[1], and local[2] was asked for: leave the setting master out, or name the"
        " same master.\n"
    )


def test_application_master_starts_the_package_from_a_zip(driver: Path, tmp_path: Path) -> None:
    """An application master runs none of Spark's scripts, and gives the master and the options as Java's properties."""
    code, found = zipped(tmp_path / "code.zip"), tmp_path / "conf.json"
    properties = {"spark.master": "local[3]", "spark.submit.deployMode": "cluster", "spark.locality.wait": "7s"}
    command = [
        *(find_java(), "-XX:TieredStopAtLevel=1", *(f"-D{name}={value}" for name, value in properties.items())),
        *("-cp", os.pathsep.join([f"{SPARK}/jars/*", *map(str, fetch(connector()))])),
        *("org.apache.spark.deploy.PythonRunner", driver, code, found),
    ]
    done = run(command, bare_python(tmp_path / "python"))
    assert done.returncode == 0, done.stderr
    conf_found = json.loads(found.read_text())
    assert conf_found["file"].startswith(f"{code}{os.sep}"), "the test must run the zip"
    assert conf_found["spark.master"] == "local[3]"
    assert conf_found["spark.locality.wait"] == "7s"
    assert conf_found["spark.sql.shuffle.partitions"] == "3"


@pytest.fixture(params=["local", "standalone"])
def master(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield "local[1]"
        return
    with Cluster(tmp_path, workers=[HERE]) as cluster:
        yield cluster.url


def test_daemon_of_python_workers_imports_the_operator_from_a_zip(master: str, tmp_path: Path) -> None:
    """The first batch of a new executor does not wait for pandas, and no other worker imports it again."""
    (driver := tmp_path / "driver.py").write_text(WORKERS)
    code, found = zipped(tmp_path / "code.zip"), tmp_path / "found"
    python = bare_python(tmp_path / "python")
    jars = ",".join(map(str, fetch(connector())))
    options = ("--master", master, "--conf", "spark.executor.memory=512m", "--jars", jars, "--py-files", code)
    done = run([SPARK / "bin" / "spark-submit", *options, driver, found], python, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "code.zip" in found.read_text(), "the test must run the zip"


def test_defaults_of_spark_win_also_without_spark_submit(driver: Path, tmp_path: Path) -> None:
    """`coordinator run --master` gives its options to Java itself, where they would override the file."""
    theirs = {
        "spark.locality.wait": "7s",
        "spark.driver.memory": "600m",
        "spark.driver.extraJavaOptions": "-Dtheirs=1",
        "spark.sql.shuffle.partitions": "200",
    }
    (tmp_path / "spark-defaults.conf").write_text("\n".join(f"{name} {value}" for name, value in theirs.items()))
    found = tmp_path / "conf.json"
    variables = {"PYTHONPATH": str(Path.cwd()), "SPARK_CONF_DIR": str(tmp_path), "COORDINATOR_MASTER": "local[1]"}
    done = run([sys.executable, driver, found], **variables)
    assert done.returncode == 0, done.stderr
    conf_found = json.loads(found.read_text())
    assert conf_found["spark.locality.wait"] == "7s"
    assert conf_found["spark.driver.memory"] == "600m"
    assert conf_found["spark.driver.extraJavaOptions"].endswith(" -Dtheirs=1")
    assert "coordinator.spark.log" in conf_found["spark.driver.extraJavaOptions"], "lists have both parts"
    assert conf_found["spark.sql.shuffle.partitions"] == "3"
