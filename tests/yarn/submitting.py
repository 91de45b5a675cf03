"""The coordinator on YARN, submitted with the files of deploy/yarn."""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from streaming.config.settings import Settings
from tests.cluster.standalone import ROOT, SPARK, environment
from tests.system.conftest import Service
from tests.system.waiting import HANG_S, wait_until
from tests.yarn.hadoop import Hadoop

SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

DEFAULTS = {
    "spark.yarn.jars": f"local:{SPARK}/jars/*",  # each node has them, so a start uploads none
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.driver.extraJavaOptions": SMALL_JAVA,
    "spark.executor.extraJavaOptions": SMALL_JAVA,
    "spark.yarn.am.extraJavaOptions": SMALL_JAVA,
}
"""The site's spark-defaults.conf: what one small machine needs, and nothing that docs/cluster.md leaves out."""

OPTIONS = {"spark.yarn.maxAppAttempts": "1", "spark.executor.instances": "1"}
"""The options of a test, which override deploy/yarn/coordinator.properties."""

HOSTS = {"cluster": "hdfs://", "client": "{hdfs}"}
"""The begin of the checkpoint's address: Hadoop's configuration adds a host that is left out."""

HEALTH = re.compile(r"The health checks are at (http://[\w.-]+:\d+)\.")


def documented(mode: str) -> list[str]:
    """Return the words of the command in docs/cluster.md that submits the coordinator in a mode."""
    page = (ROOT / "docs" / "cluster.md").read_text()
    [command] = re.findall(rf"^deploy/yarn/submit\.sh .*--deploy-mode {mode}.*$", page, re.MULTILINE)
    program, *options = shlex.split(command)
    return [str(ROOT / program), *options]


@dataclass
class Submitted(Service):
    """A submitted coordinator. In cluster mode its process is spark-submit, and its driver runs in a container."""

    hadoop: Hadoop

    def await_ready(self) -> None:
        wait_until(lambda: self._is_ready() or self.process.poll() is not None, account=lambda: self.log)
        assert self.process.poll() is None, self.log

    def _is_ready(self) -> bool:
        if (found := HEALTH.search(self.log) or HEALTH.search(self.hadoop.output("RUNNING"))) is None:
            return False
        try:
            urlopen(f"{found[1]}/readyz", timeout=HANG_S).close()
        except OSError:  # also a response that is not 200
            return False
        return True


@dataclass
class Submitting:
    """What a submission needs: the servers, the project's code, and a Python program that has its dependencies.

    Args:
        folder: The folder for the site's defaults, and for logs.
    """

    hadoop: Hadoop
    folder: Path
    code: Path
    python: Path

    def submit(self, mode: str, topic_prefix: str, bootstrap_servers: str) -> Submitted:
        """Run deploy/yarn/submit.sh.

        Args:
            mode: `client` or `cluster`.
        """
        settings = Settings(
            bootstrap_servers=bootstrap_servers,
            topic_prefix=topic_prefix,
            replication_factor=1,
            request_partitions=4,
            checkpoint=f"{HOSTS[mode].format(hdfs=self.hadoop.hdfs)}/coordinator/{topic_prefix}",
            health_port=0,
        )
        names = settings.model_dump(exclude_unset=True)
        variables = {f"COORDINATOR_{name.upper()}": str(value) for name, value in names.items()}
        variables["PYSPARK_PYTHON"] = str(self.python)
        log_file = self.folder / f"log-{topic_prefix}"
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [str(word) for word in self._command(mode, variables)],
                cwd=self.folder,
                env=self._environment({} if mode == "cluster" else variables),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        no_file = self.folder / "no-ready-file"
        return Submitted(process, settings, Path(settings.checkpoint), no_file, log_file, self.hadoop)

    def _command(self, mode: str, variables: Mapping[str, str]) -> list[object]:
        of_master = {f"spark.yarn.appMasterEnv.{name}": value for name, value in variables.items()}
        options = {**OPTIONS, **(of_master if mode == "cluster" else {})}
        return [
            *documented(mode),
            *("--py-files", self.code),
            *(word for name, value in options.items() for word in ("--conf", f"{name}={value}")),
        ]

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        (self.folder / "spark-defaults.conf").write_text("\n".join(f"{key} {value}" for key, value in DEFAULTS.items()))
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("COORDINATOR_", "PYTHON", "PYSPARK"))}
        site = {"SPARK_CONF_DIR": str(self.folder), "HADOOP_CONF_DIR": str(self.hadoop.conf)}
        return {**inherited, **environment(), **site, **variables}
