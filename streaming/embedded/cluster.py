"""An embedded Kafka cluster: several KRaft nodes, each a process with a loopback address and a rack of its own.

Topics have a replica on each broker, and a write needs a majority of them (min.insync.replicas), as production has it.
The cluster's folder has a folder for each broker: `broker-1`, `broker-2` and so on.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from streaming.embedded.broker import (
    HOST,
    START_ATTEMPTS,
    Broker,
    Node,
    formatted_cluster_id,
    free_port,
    last_port,
    new_cluster_id,
)
from streaming.embedded.jars import BROKER, Bundle
from streaming.errors import BrokerFailed, PortTaken

BROKERS_MAX = 9
"""The largest cluster: as many brokers as one machine may want, and as many racks."""

HEAP_MB = 320
"""The maximum heap of each broker. Three of them fit into 2 GiB."""

Properties = Mapping[str, str]


class Cluster:
    """An embedded cluster: `start`, `stop`, or a `with` block.

    Args:
        data_dir: The cluster's folder; created if missing, reused if a cluster of as many brokers has used it before.
        size: The number of brokers, 1 to `BROKERS_MAX`.
        port: The clients' port of the first broker; the others have the next ones. Unless given: the ports of the last
            start if they are free, else any free ports.
        properties: Kafka's broker properties, which override ours.
        properties_of: Returns further properties of one broker.
        report: Called with a sentence before each slow step.
        bundle: The brokers' jars.
    """

    def __init__(
        self,
        data_dir: Path,
        size: int = 3,
        *,
        port: int | None = None,
        properties: Properties | None = None,
        properties_of: Callable[[Node], Properties] = lambda _: {},
        report: Callable[[str], None] | None = None,
        bundle: Bundle = BROKER,
    ) -> None:
        assert 1 <= size <= BROKERS_MAX, f"a cluster has 1 to {BROKERS_MAX} brokers"
        self.data_dir, self.size = data_dir.absolute(), size
        self._port_wanted, self._properties_of, self._bundle = port, properties_of, bundle
        self._properties = _replicated(size) | dict(properties or {})
        self._report = report or (lambda _: None)
        self.brokers: dict[int, Broker] = {}
        """The brokers by their ids, 1 to `size`; empty before the first start."""

    def __repr__(self) -> str:
        running = sum(broker.running for broker in self.brokers.values())
        return f"<Cluster {running} of {self.size} brokers running in {self.data_dir}>"

    @property
    def bootstrap_servers(self) -> str:
        """The clients' addresses of all brokers, known from `start` on."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def all(self) -> Sequence[Broker]:
        """The brokers, in the order of their ids."""
        return list(self.brokers.values())

    @property
    def pids(self) -> list[int]:
        """The processes of the running brokers."""
        return [broker.pid for broker in self.brokers.values() if broker.running]

    def start(self) -> Self:
        """Start all brokers. Return when each accepts requests.

        Raises:
            JavaMissing, JarsUnavailable: java or the jars are missing.
            PortTaken: another program listens on a requested port.
            BrokerFailed: a broker ended, or did not answer in time.
        """
        self._report(f"Starting an embedded Kafka cluster of {self.size} brokers.")
        for attempt in range(1, START_ATTEMPTS + 1):
            self.brokers = {node.node_id: self._broker(node) for node in self._nodes()}
            try:
                with ThreadPoolExecutor(self.size) as pool:
                    list(pool.map(Broker.start, self.brokers.values()))
                break
            except BaseException as error:
                self.stop()
                if not isinstance(error, PortTaken) or self._port_wanted is not None or attempt == START_ATTEMPTS:
                    raise
        self._report(
            f"The embedded Kafka cluster listens on {self.bootstrap_servers}, as processes"
            f" {', '.join(map(str, self.pids))}; its data is in {self.data_dir}."
        )
        return self

    def stop(self) -> None:
        """Stop all brokers at the same time (SIGTERM), or kill those that do not end in time.

        Brokers without a majority are killed at once: they would wait for the others, and have nothing to hand over.
        """
        end = Broker.stop if len(self.pids) > self.size / 2 else Broker.kill
        if self.brokers:
            with ThreadPoolExecutor(self.size) as pool:
                list(pool.map(end, self.brokers.values()))

    def kill(self) -> None:
        """Kill all brokers, as a power loss would."""
        for broker in self.brokers.values():
            broker.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _nodes(self) -> list[Node]:
        """Return the brokers' places: those of the last start in the folder, as far as their ports are free."""
        numbers = range(1, self.size + 1)
        hosts = {number: loopback(number) for number in numbers}
        if self._port_wanted is None:
            last = {number: last_port(self._folder(number), hosts[number]) for number in numbers}
        else:
            last = {number: self._port_wanted + number - 1 for number in numbers}
        taken = {port for port in last.values() if port}
        controllers, ports = dict[int, int](), dict[int, int]()
        for number in numbers:
            controllers[number] = free_port(but=taken, host=hosts[number])
            taken.add(controllers[number])
            ports[number] = last[number] or free_port(but=taken, host=hosts[number])
            taken.add(ports[number])
        voters = ",".join(f"{number}@{hosts[number]}:{controllers[number]}" for number in numbers)
        cluster_id = self._cluster_id() or new_cluster_id()
        return [
            Node(number, hosts[number], ports[number], controllers[number], voters, cluster_id) for number in numbers
        ]

    def _cluster_id(self) -> str | None:
        """Return the id that the folder's brokers have; None in a new folder.

        Raises:
            BrokerFailed: The folder belongs to more brokers.
        """
        if self._folder(self.size + 1).exists():
            raise BrokerFailed(
                f"The folder {self.data_dir} belongs to a cluster of more than {self.size} brokers. Start as many as"
                " before, or choose another folder."
            )
        ids = (formatted_cluster_id(self._folder(number)) for number in range(1, self.size + 1))
        return next((found for found in ids if found), None)

    def _broker(self, node: Node) -> Broker:
        properties = {"broker.rack": f"rack-{node.node_id}", **self._properties, **self._properties_of(node)}
        return Broker(
            self._folder(node.node_id), properties=properties, bundle=self._bundle, node=node, heap_mb=HEAP_MB
        )

    def _folder(self, number: int) -> Path:
        return self.data_dir / f"broker-{number}"


def loopback(number: int) -> str:
    """Return the loopback address of a broker: its own one on Linux. Other systems have only the first."""
    return f"127.0.0.{number}" if sys.platform == "linux" else HOST


def _replicated(size: int) -> dict[str, str]:
    """Return the properties of a cluster whose topics survive the loss of a broker."""
    replicas, in_sync = str(min(size, 3)), str(min(size, 3) // 2 + 1)
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        # With Kafka's default of 50 partitions each, an election takes seconds of two cores.
        "offsets.topic.num.partitions": str(4 * size),
        "transaction.state.log.num.partitions": str(4 * size),
        "share.coordinator.state.topic.num.partitions": str(4 * size),
        # Kafka's own defaults, which `broker.properties` shortens for a broker that is alone.
        "broker.session.timeout.ms": "9000",
        "broker.heartbeat.interval.ms": "2000",
    }
