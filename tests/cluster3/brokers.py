"""Three brokers and what may happen to them: kill -9, SIGSTOP, a restart, a client that is cut off, elections."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, ClusterMetadata
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from streaming.embedded import BROKER, Bundle, Cluster
from streaming.embedded.broker import Node, free_port
from tests.cluster3.proxy import Cut, Proxies, Proxy
from tests.system.waiting import HANG_S, wait_until

T = TypeVar("T")

SILENT = logging.getLogger("kafka.silent")
SILENT.disabled = True

IDS = (1, 2, 3)

CLIENTS = ("QUERY", "GATEWAY")
"""The listeners that have proxies, one before each broker: each is for the client that it is named after."""

PREFERRED, UNCLEAN = 0, 1


class ThreeBrokers:
    """A cluster of three with racks, replication factor 3 and min.insync.replicas 2.

    Args:
        properties: Kafka's broker properties, which override those of the cluster.
    """

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None, bundle: Bundle = BROKER) -> None:
        self._proxies = Proxies()
        self._proxy: dict[tuple[str, int], Proxy] = {}
        self.cluster = Cluster(folder, 3, properties=properties, properties_of=self._listeners, bundle=bundle)

    def __enter__(self) -> Self:
        self.cluster.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.kill()
        self._proxies.close()

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    def through_proxies(self, client: str) -> str:
        """Return the addresses at which `cut_off` can cut a client off from single brokers."""
        return ",".join(f"{self.cluster.brokers[n].host}:{self._proxy[client, n].port}" for n in IDS)

    def _listeners(self, node: Node) -> Mapping[str, str]:
        ports: list[int] = [node.port, node.controller_port]
        listeners = [f"PLAINTEXT://{node.host}:{node.port}"]
        advertised = list(listeners)
        for client in CLIENTS:
            ports.append(free_port(but=ports, host=node.host))
            self._proxy[client, node.node_id] = proxy = self._proxies.open(node.host, ports[-1])
            listeners.append(f"{client}://{node.host}:{ports[-1]}")
            advertised.append(f"{client}://{node.host}:{proxy.port}")
        return {
            "listeners": ",".join([*listeners, f"CONTROLLER://{node.host}:{node.controller_port}"]),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "CONTROLLER", *CLIENTS)
            ),
        }

    # -- faults --------------------------------------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        """Kill a broker with SIGKILL."""
        self.cluster.brokers[number].kill()

    def stop(self, number: int) -> None:
        """Stop a broker with SIGTERM, as an administrator does."""
        self.cluster.brokers[number].stop()

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that run."""
        return [number for number, broker in self.cluster.brokers.items() if broker.running]

    def start(self, number: int) -> None:
        """Start a broker that was killed or stopped. Return when the cluster counts it among its brokers."""
        self.cluster.brokers[number].start()

    def start_without_waiting(self, number: int) -> None:
        """Start a broker in a thread, where too few others run for it to become ready."""
        threading.Thread(target=self.start, args=(number,), daemon=True).start()

    def restart(self, number: int) -> None:
        """Stop a broker and start it again."""
        self.stop(number)
        self.start(number)

    def suspend(self, number: int) -> None:
        """Freeze a broker (SIGSTOP): its connections stay open, and nothing is answered."""
        os.kill(self.cluster.brokers[number].pid, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Resume a frozen broker (SIGCONT)."""
        os.kill(self.cluster.brokers[number].pid, signal.SIGCONT)

    def resume_all(self) -> None:
        for number in IDS:
            if (broker := self.cluster.brokers.get(number)) and broker.running:
                self.resume(number)

    def mend(self) -> None:
        """End all faults. Return when all brokers run, all clients pass, and all replicas are in sync."""
        self.resume_all()
        for proxy in self._proxy.values():
            self._proxies.set(proxy, Cut.NONE)
        with ThreadPoolExecutor(len(IDS)) as pool:  # two of three need each other
            list(pool.map(self.start, set(IDS) - set(self.running)))
        wait_until(self.is_whole)

    def cut_off(self, client: str, number: int, cut: Cut = Cut.SILENT) -> None:
        """Cut a client off from one broker, or let it pass again."""
        self._proxies.set(self._proxy[client, number], cut)

    # -- topics and leaders --------------------------------------------------------------------------------------------

    def ask(self, call: Callable[[Any], T]) -> T:
        """Return what a call of an admin client returns. One that chose a broker that is down is replaced."""
        done: list[T] = []

        def is_done() -> bool:
            try:
                with KafkaAdminClient(bootstrap_servers=self.running_servers, bootstrap_timeout_ms=15_000) as admin:
                    done.append(call(admin))
                return True
            except KafkaError as error:
                failures.append(error)
                return False

        failures: list[KafkaError] = []
        wait_until(is_done, account=lambda: failures[-1:])
        return done[0]

    @property
    def running_servers(self) -> list[str]:
        return [broker.bootstrap_servers for broker in self.cluster.brokers.values() if broker.running]

    def create(self, topic: str, partitions: int = 3) -> None:
        """Create a topic whose partition 0 prefers broker 1 as its leader, partition 1 broker 2, and so on.

        Return when every broker that runs knows it.
        """
        replicas = {n: [IDS[(n + k) % 3] for k in range(3)] for n in range(partitions)}
        self.ask(lambda admin: admin.create_topics({topic: {"assignments": replicas}}))
        wait_until(lambda: all(topic in _metadata(server).topics for server in self.running_servers))

    def is_whole(self) -> bool:
        """Return whether all partitions have a leader and all their replicas in sync."""
        return all(
            each.leader >= 0 and len(each.isrs) == len(each.replicas)
            for topic in _metadata(*self.running_servers).topics.values()
            for each in topic.partitions.values()
        )

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return list(_metadata(*self.running_servers).topics)

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition, -1 without one."""
        return {
            number: each.leader for number, each in _metadata(*self.running_servers).topics[topic].partitions.items()
        }

    def in_sync(self, topic: str, partition: int) -> set[int]:
        """Return the brokers whose replica of a partition is in sync."""
        return set(_metadata(*self.running_servers).topics[topic].partitions[partition].isrs)

    def make_offsets_topic(self) -> None:
        """Make Kafka's own coordinator create its topic, as the first group does."""

        def is_there() -> bool:
            consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": "first"}, logger=SILENT)
            with closing(consumer), suppress(KafkaException):
                consumer.committed([Place("__consumer_offsets", 0)], timeout=5)
            return "__consumer_offsets" in self.topics()

        wait_until(is_there)

    def controller(self) -> int:
        """Return the id of the active controller."""
        quorum = self.ask(lambda admin: admin.describe_metadata_quorum())
        return int(quorum["topics"][0]["partitions"][0]["leader_id"])

    def elect_preferred(self) -> None:
        """Move the leaders of all topics back to the first broker of each one's replicas."""
        self.ask(lambda admin: admin.elect_leaders(PREFERRED, raise_errors=False))

    def elect_unclean(self, topic: str, partition: int) -> None:
        """Elect a leader for a partition without one, although it lacks records."""
        self.ask(lambda admin: admin.elect_leaders(UNCLEAN, {topic: [partition]}))

    def place(self, topic: str, partition: int, replicas: list[int]) -> None:
        """Reassign a partition. The first replica is its preferred leader."""
        place = TopicPartition(topic, partition)
        self.ask(lambda admin: admin.alter_partition_reassignments({place: replicas}))

    def configure(self, topic: str, config: Mapping[str, str]) -> None:
        """Set settings of a topic."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(config))
        self.ask(lambda admin: admin.alter_configs([resource]))


def _metadata(*servers: str) -> ClusterMetadata:
    """Return the metadata that one of these brokers answers."""
    client = AdminClient({"bootstrap.servers": ",".join(servers)}, logger=SILENT)
    return client.list_topics(timeout=HANG_S)
