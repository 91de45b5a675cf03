"""An embedded Kafka broker: one KRaft node in a separate process, bound to a loopback address. It is alone, or one of
the nodes of a `Cluster`.

The broker's folder contains all its files: `data`, kept from one start to the next; `broker.log`, the broker's output;
`server.properties` and `log4j2.properties`, written again at each start from `broker.properties` and
`log4j2.properties` beside this module. As for Kafka's start scripts, KAFKA_JVM_PERFORMANCE_OPTS in the environment has
further options for Java.
"""

import base64
import os
import random
import re
import shlex
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kafka import KafkaAdminClient
from kafka.errors import KafkaError, NoError, TopicAlreadyExistsError, for_code

from streaming.embedded.child import Child
from streaming.embedded.jars import BROKER, Bundle, fetch
from streaming.embedded.java import find_java
from streaming.errors import BrokerFailed, PortTaken

HOST = "127.0.0.1"
PORTS = range(20_000, 32_768)  # below those of outgoing connections, so that a restart finds its own port free
START_ATTEMPTS = 3  # with ports that we choose, if another program took one first
START_WAIT_S = 180.0  # a process that ends is noticed at once: this is for one that hangs
STOP_WAIT_S = 20.0
READY_POLL_S = 0.05
PROBE_WAIT_MS = 2_000

_PROBE = {"ready": {"num_partitions": 1, "replication_factor": 1}}  # a topic that is never created

_HERE = Path(__file__).parent
_FORMAT_OPTIONS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_BROKER_OPTIONS = ("-Xms128m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExitOnOutOfMemoryError")
_FORMAT = ("kafka.tools.StorageTool", "format", "--config", "server.properties", "--ignore-formatted")
_LOG_OPTIONS = ("-Dlog4j2.configurationFile=log4j2.properties", "-Djava.awt.headless=true")

# The most informative lines of a failed start, best first. The last match of the first pattern that matches is shown.
_TELLING = (
    re.compile(r"^(?:Caused by: |Exception in thread \S+ )?(?:\w+\.)+\w*(?:Exception|Error): (.+)$", re.MULTILINE),
    re.compile(r"^\[[^\]]+\] (?:ERROR|FATAL) (.+?)(?: \([\w.$]+\))?$", re.MULTILINE),
    re.compile(r"^(\S.*)$", re.MULTILINE),
)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker's place in a cluster of several.

    Args:
        host: The loopback address of its ports.
        voters: The controllers of the cluster, as Kafka's setting `controller.quorum.voters`.
    """

    node_id: int
    host: str
    port: int
    controller_port: int
    voters: str
    cluster_id: str


class Broker:
    """One embedded broker: `start`, `stop`, or a `with` block.

    Args:
        data_dir: The broker's folder; created if missing, reused if a broker has used it before.
        port: The clients' port. Unless given: the port of the last start if it is free, else any free port.
        properties: Kafka's broker properties, which override ours.
        die_with_parent: Whether the broker ends with our process even if that is killed (on Linux).
        report: Called with a sentence before each slow step.
        bundle: The broker's jars; a bundle of another version of Kafka runs that version.
        node: The broker's place in a cluster; None for a broker that is alone.
        heap_mb: The maximum size of Java's heap, MiB.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        die_with_parent: bool = True,
        report: Callable[[str], None] | None = None,
        bundle: Bundle = BROKER,
        node: Node | None = None,
        heap_mb: int = 512,
    ) -> None:
        self.bundle = bundle
        self.node = node
        self.host = HOST if node is None else node.host
        self._heap_mb = heap_mb
        self.data_dir = data_dir.absolute()
        self.log_file = self.data_dir / "broker.log"
        self._port_wanted = self._port = port if node is None else node.port
        self._properties = dict(properties or {})
        self._die_with_parent = die_with_parent
        self._report = report or (lambda _: None)
        self._child: Child | None = None

    def __repr__(self) -> str:
        return f"<Broker {self._port} {'running' if self.running else 'stopped'} in {self.data_dir}>"

    @property
    def bootstrap_servers(self) -> str:
        """The clients' address, known from `start` on. A restart keeps it unless another program has taken the port."""
        assert self._port is not None, "the broker has not been started"
        return f"{self.host}:{self._port}"

    @property
    def pid(self) -> int:
        assert self._child is not None, "the broker is not running"
        return self._child.pid

    @property
    def all(self) -> Sequence["Broker"]:
        """The broker itself, as `Cluster.all` has all brokers of a cluster."""
        return [self]

    @property
    def running(self) -> bool:
        return self._child is not None and not self._child.ended.is_set()

    @property
    def has_failed(self) -> bool:
        """Whether the broker has ended by itself, or another program has ended it."""
        return self._child is not None and self._child.ended.is_set()

    def start(self) -> Self:
        """Start the broker. Return when it accepts requests and creates topics. One of a cluster needs a majority of
        the brokers for that.

        Raises:
            JavaMissing, JarsUnavailable: java or the jars are missing.
            PortTaken: another program listens on the requested port.
            BrokerFailed: the broker ended, or did not answer in time; names its log and the most informative line
                there.
        """
        assert not self.running, "the broker is running"
        java, jars = find_java(), fetch(self.bundle, report=self._report)
        self._report("Starting the embedded Kafka broker.")
        for attempt in range(1, START_ATTEMPTS + 1):
            port, controller_port = self._choose_ports()
            try:
                self._launch(java, jars, port, controller_port)
                break
            except PortTaken as error:
                if self._port_wanted is not None or attempt == START_ATTEMPTS:
                    raise PortTaken(_port_taken(port)) from error
            except OSError as error:
                raise BrokerFailed(
                    f"The embedded Kafka broker cannot use its folder {self.data_dir} ({error.strerror})."
                    f" Free space there, or choose another folder."
                ) from error
        self._port = port
        self._report(f"The embedded Kafka broker listens on {self.bootstrap_servers}; its data is in {self.data_dir}.")
        return self

    def stop(self) -> None:
        """Stop the broker (SIGTERM), or kill it after `STOP_WAIT_S`. A stopped broker stays stopped."""
        if self._child is not None:
            self._child.stop(STOP_WAIT_S)
            self._child = None

    def kill(self) -> None:
        """Kill the broker, as a crash would."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _choose_ports(self) -> tuple[int, int]:
        """Return the clients' port and the controller's port.

        Raises:
            PortTaken: the requested port is not free.
        """
        if self._port_wanted is not None and not is_free(self._port_wanted, self.host):
            raise PortTaken(_port_taken(self._port_wanted))
        if self.node is not None:
            return self.node.port, self.node.controller_port
        port = self._port_wanted or last_port(self.data_dir, self.host) or free_port()
        return port, free_port(but={port})

    def _launch(self, java: Path, jars: Sequence[Path], port: int, controller_port: int) -> None:
        """Start the broker on these ports and wait until it is ready. If that fails, no process remains."""
        self._write_configuration(port, controller_port)
        common = ("-cp", ":".join(map(str, jars)), *_LOG_OPTIONS)
        deadline_s = time.monotonic() + START_WAIT_S
        log_from = self.log_file.stat().st_size if self.log_file.exists() else 0
        try:
            if not (self.data_dir / "data" / "meta.properties").exists():
                cluster_id = self.node.cluster_id if self.node else new_cluster_id()
                formatter = self._run(java, *_FORMAT_OPTIONS, *common, *_FORMAT, "--cluster-id", cluster_id)
                if not formatter.ended.wait(START_WAIT_S) or formatter.exit_code != 0:
                    raise self._failure(log_from)
            options = shlex.split(os.environ.get("KAFKA_JVM_PERFORMANCE_OPTS", ""))
            heap = f"-Xmx{self._heap_mb}m"
            child = self._run(java, *_BROKER_OPTIONS, heap, *options, *common, "kafka.Kafka", "server.properties")
            while _cluster_of_ready(self.host, port, self._node_id) != formatted_cluster_id(self.data_dir):
                if child.ended.wait(READY_POLL_S) or time.monotonic() > deadline_s:
                    raise self._failure(log_from)
        except BaseException:
            self.kill()
            raise

    @property
    def _node_id(self) -> int:
        return int(self._properties.get("node.id", 1)) if self.node is None else self.node.node_id

    def _write_configuration(self, port: int, controller_port: int) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        ours = {
            "node.id": str(self._node_id),
            "listeners": f"PLAINTEXT://{self.host}:{port},CONTROLLER://{self.host}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.host}:{port}",
            "controller.quorum.voters": self.node.voters if self.node else f"1@{HOST}:{controller_port}",
        }
        added = "".join(f"{name}={value}\n" for name, value in (ours | self._properties).items())
        (self.data_dir / "server.properties").write_text((_HERE / "broker.properties").read_text() + "\n" + added)
        shutil.copyfile(_HERE / "log4j2.properties", self.data_dir / "log4j2.properties")

    def _run(self, java: Path, *arguments: str) -> Child:
        self._child = Child(
            [str(java), *arguments],
            folder=self.data_dir,
            log_file=self.log_file,
            die_with_parent=self._die_with_parent,
        )
        return self._child

    def _failure(self, log_from: int) -> PortTaken | BrokerFailed:
        """Return the error of a failed start, from the broker's log since `log_from`."""
        with self.log_file.open("rb") as log:
            log.seek(log_from)
            said = log.read().decode(errors="replace")
        if "Address already in use" in said:
            return PortTaken(said)
        why = _telling_line(said) if not self.running else f"it did not answer within {START_WAIT_S:.0f} s"
        return BrokerFailed(f"The embedded Kafka broker did not start: {why.rstrip('.')}. Its log is {self.log_file}.")


def _telling_line(said: str) -> str:
    matches = (pattern.findall(said) for pattern in _TELLING)
    return next((found[-1] for found in matches if found), "it printed nothing")


def _port_taken(port: int) -> str:
    return f"Another program uses port {port}. Stop that program, or choose another port for the broker."


def is_free(port: int, host: str = HOST) -> bool:
    """Return whether a process may listen on a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does: closed connections may linger
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(but: Collection[int] = (), host: str = HOST) -> int:
    """Return a random free port that is none of `but`. It is random, since two brokers may start at the same time."""
    return next(port for port in random.sample(PORTS, len(PORTS)) if port not in but and is_free(port, host))


def last_port(data_dir: Path, host: str = HOST) -> int | None:
    """Return the clients' port of the last start in a broker's folder; None if there is none, or if it is not free."""
    file = data_dir / "server.properties"
    if not file.exists():
        return None
    last = re.search(rf"^listeners=PLAINTEXT://{re.escape(host)}:(\d+)", file.read_text(), re.MULTILINE)
    return int(last[1]) if last and is_free(int(last[1]), host) else None


def new_cluster_id() -> str:
    """Return an id in Kafka's format. It does not begin with a dash, which would look like an option."""
    return "K" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def formatted_cluster_id(data_dir: Path) -> str | None:
    """Return the cluster id that a broker's folder was formatted with; None if it was not, or if the file is damaged,
    which the broker reports itself.
    """
    file = data_dir / "data" / "meta.properties"
    found = re.search(r"^cluster\.id=(.+)$", file.read_text(), re.MULTILINE) if file.exists() else None
    return found[1] if found else None


def _cluster_of_ready(host: str, port: int, node_id: int) -> str | None:
    """Return the cluster id of the broker at `port`; None until the controllers count it among the brokers and it can
    create a topic.

    The id distinguishes our broker from another one that took the port first.
    """
    try:
        socket.create_connection((host, port), timeout=1.0).close()
        with KafkaAdminClient(bootstrap_servers=f"{host}:{port}", bootstrap_timeout_ms=PROBE_WAIT_MS) as admin:
            (probe,) = admin.create_topics(_PROBE, validate_only=True, raise_errors=False)["topics"]
            ready = for_code(probe["error_code"]) in (NoError, TopicAlreadyExistsError)
            cluster = admin.describe_cluster()
            is_member = any(broker["broker_id"] == node_id for broker in cluster["brokers"])
            return str(cluster["cluster_id"]) if ready and is_member else None
    except (OSError, KafkaError):
        return None
