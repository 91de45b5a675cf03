"""The options of spark-submit, and the options that the coordinator always sets."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.embedded import connector, fetch
from tests.cluster.standalone import SPARK, environment
from tests.system.waiting import HANG_S

pytestmark = pytest.mark.long

DRIVER = """
import json, sys
from streaming.query.coordinator import open_session
from streaming.config.settings import Settings
conf = open_session(Settings.load(shuffle_partitions=3)).sparkContext.getConf()
open(sys.argv[1], "w").write(json.dumps(dict(conf.getAll())))
"""


def test_options_of_spark_submit_win_except_those_that_a_checkpoint_fixes(tmp_path: Path) -> None:
    """A site may have defaults for all its jobs. Its number of shuffle partitions must not reach a checkpoint."""
    driver, found = tmp_path / "driver.py", tmp_path / "conf.json"
    driver.write_text(DRIVER)
    options = {"spark.locality.wait": "7s", "spark.sql.shuffle.partitions": "200"}
    conf = [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
    command = [SPARK / "bin" / "spark-submit", "--master", "local[1]", *conf]
    command += ["--jars", ",".join(map(str, fetch(connector()))), driver, found]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COORDINATOR_")}
    done = subprocess.run(
        list(map(str, command)),
        env={**inherited, **environment(), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    conf_found = json.loads(found.read_text())
    assert conf_found["spark.locality.wait"] == "7s"
    assert conf_found["spark.sql.shuffle.partitions"] == "3"
    assert conf_found["spark.speculation"] == "false", "the coordinator's own option applies if spark-submit has none"
