"""HDFS and YARN on this machine: a NameNode, a DataNode, a ResourceManager and a NodeManager, from Maven's artifacts.

Each server is a Java process on loopback with free ports. The folder `conf` has the configuration of servers and
clients: `HADOOP_CONF_DIR` names it.
"""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape

import psutil

from streaming.embedded import fetch, find_java
from streaming.embedded.child import Child
from streaming.embedded.jars import Bundle
from tests.system.waiting import HANG_S, wait_until

JARS = Bundle("hadoop", "Hadoop's servers", Path(__file__).parent)
SMALL_JAVA = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
OPENED = "--add-opens=java.base/java.lang=ALL-UNNAMED"
STOP_S = 10
LOG_LINES = 60

SERVERS = {
    # name: the class, and the line of its log that says that it is ready
    "namenode": ("org.apache.hadoop.hdfs.server.namenode.NameNode", r"NameNode RPC up at"),
    "datanode": ("org.apache.hadoop.hdfs.server.datanode.DataNode", r"successfully registered with NN"),
    "resourcemanager": ("org.apache.hadoop.yarn.server.resourcemanager.ResourceManager", r"Transitioned to active"),
    "nodemanager": ("org.apache.hadoop.yarn.server.nodemanager.NodeManager", r"Registered with ResourceManager"),
}

LOG4J = """
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c{1}: %m%n
"""


class Hadoop:
    """The servers. Use it in a `with` block.

    Args:
        folder: The folder for configuration, logs and data.
        servers: The servers to start.
    """

    def __init__(self, folder: Path, servers: Collection[str] = tuple(SERVERS)) -> None:
        self._servers = servers
        self._folder = folder.resolve()
        self._children: dict[str, Child] = {}
        self.conf = self._folder / "conf"
        self.container_logs = self._folder / "containers"

    def __enter__(self) -> Self:
        try:
            self._configure()
            self._format()
            for name in self._servers:
                self._start(name)
            for name in self._servers:
                self._await(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # without a ResourceManager
            for application in self.applications("RUNNING", "ACCEPTED"):
                self.kill(application["id"])
        for child in reversed(self._children.values()):
            child.stop(wait_s=STOP_S)

    @property
    def hdfs(self) -> str:
        """The address of HDFS."""
        return f"hdfs://localhost:{self._ports['namenode']}"

    def applications(self, *states: str) -> list[dict[str, Any]]:
        """Return the applications in some states; all without states."""
        wanted = f"?states={','.join(states)}" if states else ""
        with urlopen(f"{self._api}/apps{wanted}", timeout=HANG_S) as answer:
            return list((json.load(answer)["apps"] or {}).get("app", []))

    def kill(self, application: str) -> None:
        """Kill an application, as `yarn application -kill` does."""
        body = json.dumps({"state": "KILLED"}).encode()
        user = os.environ.get("USER", "root")
        url = f"{self._api}/apps/{application}/state?user.name={user}"
        urlopen(Request(url, body, {"Content-Type": "application/json"}, method="PUT"), timeout=HANG_S).close()

    def exists(self, path: str) -> bool:
        """Return whether HDFS has a file or a folder."""
        url = f"http://localhost:{self._ports['namenode.http']}/webhdfs/v1{path}?op=GETFILESTATUS"
        try:
            urlopen(url, timeout=HANG_S).close()
        except HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder on HDFS."""
        url = f"http://localhost:{self._ports['namenode.http']}/webhdfs/v1{folder}?op=LISTSTATUS"
        with urlopen(url, timeout=HANG_S) as answer:
            return [str(file["pathSuffix"]) for file in json.load(answer)["FileStatuses"]["FileStatus"]]

    def processes(self, word: str) -> list[psutil.Process]:
        """Return the processes in containers whose command has a word."""
        return [p for p in psutil.process_iter(["cmdline", "cwd"]) if self._runs(p.info, word)]

    def _runs(self, process: Mapping[str, Any], word: str) -> bool:
        is_here = (process["cwd"] or "").startswith(str(self._folder))
        return is_here and any(word in each for each in process["cmdline"] or [])

    def output(self, *states: str) -> str:
        """Return what the containers of applications in some states have printed."""
        folders = [self.container_logs / str(application["id"]) for application in self.applications(*states)]
        return "".join(file.read_text(errors="replace") for folder in folders for file in folder.rglob("std*"))

    def account(self) -> str:
        """Return the ends of all logs, those of containers first."""
        logs = [*sorted(self.container_logs.rglob("std*")), *sorted(self._folder.glob("*.log"))]
        return "\n".join(f"-- {log.relative_to(self._folder)}\n{_end(log)}" for log in logs if log.stat().st_size)

    @property
    def _api(self) -> str:
        return f"http://localhost:{self._ports['resourcemanager.webapp']}/ws/v1/cluster"

    def _configure(self) -> None:
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.conf.mkdir(parents=True)
        for site in ("hdfs", "datanode"):
            (self.conf / "webapps" / site).mkdir(parents=True)
        (self.conf / "log4j.properties").write_text(LOG4J)
        for file, properties in self._sites().items():
            (self.conf / file).write_text(_xml(properties))

    def _sites(self) -> dict[str, Mapping[str, object]]:
        at = {name: f"localhost:{port}" for name, port in self._ports.items()}
        capacity = "yarn.scheduler.capacity"
        return {
            "core-site.xml": {"fs.defaultFS": self.hdfs, "hadoop.tmp.dir": self._folder / "data"},
            "hdfs-site.xml": {
                "dfs.replication": 1,
                "dfs.namenode.http-address": at["namenode.http"],
                "dfs.datanode.address": at["datanode"],
                "dfs.datanode.ipc.address": at["datanode.ipc"],
                "dfs.datanode.http.address": at["datanode.http"],
                "dfs.datanode.hostname": "localhost",
            },
            "yarn-site.xml": {
                **{f"yarn.{name}.address": at[name] for name in PORTS if name.startswith(("res", "nodem"))},
                "yarn.resourcemanager.hostname": "localhost",
                "yarn.resourcemanager.am.max-attempts": 10,
                "yarn.scheduler.minimum-allocation-mb": 128,
                "yarn.nodemanager.hostname": "localhost",
                "yarn.nodemanager.log-dirs": self.container_logs,
                "yarn.nodemanager.resource.memory-mb": 8192,
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.delete.debug-delay-sec": 3_600,
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 100,
                "yarn.nodemanager.recovery.enabled": "true",
                "yarn.nodemanager.recovery.dir": self._folder / "recovery",
            },
            "capacity-scheduler.xml": {
                f"{capacity}.root.queues": "default",
                f"{capacity}.root.default.capacity": 100,
                f"{capacity}.maximum-am-resource-percent": 0.8,
            },
        }

    def _format(self) -> None:
        command = self._command("namenode", "-format", "-nonInteractive")
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, timeout=HANG_S)
        assert done.returncode == 0, done.stderr

    def _command(self, name: str, *arguments: str) -> list[str]:
        class_path = os.pathsep.join(map(str, [self.conf, *fetch(JARS)]))
        java = find_java()
        home = f"JAVA_HOME={java.resolve().parents[1]}"
        env = shutil.which("env")
        assert env is not None
        return [env, home, str(java), *SMALL_JAVA, OPENED, "-cp", class_path, SERVERS[name][0], *arguments]

    def _start(self, name: str) -> None:
        log = self._folder / f"{name}.log"
        self._children[name] = Child(self._command(name), folder=self._folder, log_file=log, die_with_parent=True)

    def _await(self, name: str) -> None:
        log, child, (_, ready) = self._folder / f"{name}.log", self._children[name], SERVERS[name]

        def is_ready() -> bool:
            assert child.exit_code is None, _end(log)
            return log.exists() and re.search(ready, log.read_text(errors="replace")) is not None

        wait_until(is_ready, account=lambda: _end(log))


PORTS = (
    *("namenode", "namenode.http", "datanode", "datanode.ipc", "datanode.http"),
    *("resourcemanager", "resourcemanager.scheduler", "resourcemanager.resource-tracker", "resourcemanager.admin"),
    *("resourcemanager.webapp", "nodemanager", "nodemanager.localizer", "nodemanager.webapp"),
)
"""The addresses on which the servers listen. Those of YARN have the names of its settings."""


def free_ports(number: int) -> Iterator[int]:
    """Yield ports on which no process of this machine listens."""
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        ports = [int(server.getsockname()[1]) for server in servers]
    yield from ports


def _xml(properties: Mapping[str, object]) -> str:
    rows = (
        f"<property><name>{name}</name><value>{escape(str(value))}</value></property>"
        for name, value in properties.items()
    )
    return f"<configuration>{''.join(rows)}</configuration>"


def _end(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:]) if log.exists() else ""
