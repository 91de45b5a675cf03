"""A coordinator and gateways on three brokers, members that commit all the time, and what a fault does to them."""

import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata
from kafka import TopicPartition as OurPlace
from kafka.errors import KafkaError

from coordinator.base.hashing import shard_of
from streaming.client import GroupConsumer, GroupMember
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.errors import UserError
from tests.chaos.gateways import GatewayProcess
from tests.cluster3.brokers import IDS, SILENT, ThreeBrokers
from tests.ports import free_port
from tests.system.asking import Asker
from tests.system.conftest import Service, start_service
from tests.system.waiting import HANG_S, wait_until

TOPIC = "work"
PREFIX = "three"
SHARDS = 6
LOOK_PAUSE_S = 0.2
"""The time between two looks at a process's readiness."""

SESSION_MS = 120_000
"""The session timeout of members, longer than any fault lasts on a busy machine: none may lose its membership."""

ALIKE_S = 25.0
"""The time after which readiness must agree with what the probes see: `reach.SILENT_S`, and a question of the pulse."""


class Probe(threading.Thread):
    """A member of a group of its own, in a thread, that commits one offset after the other. The classes below say how.

    `acknowledged` has the time of each acknowledged commit, of the machine's monotonic clock. The n-th commit is of the
    offset n.
    """

    commits = True
    pause_s = 1.0

    def __init__(self, group: str) -> None:
        super().__init__(name=f"probe {group}", daemon=True)
        self.group = group
        self.stopping = threading.Event()
        self.acknowledged: list[float] = []
        self.errors: list[tuple[float, str]] = []
        self.assigned = self.lost = 0
        self.failure: BaseException | None = None

    def work(self) -> None:
        """Be a member, and call `commit_next` again and again, until the probe is to stop or an error is raised."""
        raise NotImplementedError

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.work()
            except (KafkaException, KafkaError, UserError) as error:
                self.note(error)
            except BaseException as error:
                self.failure = error
                raise

    def note(self, error: Exception) -> None:
        self.errors.append((time.monotonic(), f"{type(error).__name__}: {error}"))
        self.stopping.wait(self.pause_s)

    @property
    def next_offset(self) -> int:
        return len(self.acknowledged) + 1

    def stop(self) -> None:
        self.stopping.set()

    def is_served_between(self, from_s: float, to_s: float) -> bool:
        """Return whether a commit was acknowledged between two times."""
        return any(from_s < at_s <= to_s for at_s in self.acknowledged)

    def longest_gap_s(self, from_s: float, to_s: float) -> float:
        """Return the longest time without an acknowledged commit that touches the time from `from_s` to `to_s`."""
        before = [at_s for at_s in self.acknowledged if at_s < from_s][-1:] or [from_s]
        within = [at_s for at_s in self.acknowledged if from_s <= at_s <= to_s]
        times = [*before, *within, to_s]
        return max(later - earlier for earlier, later in itertools.pairwise(times))


class Stock(Probe):
    """librdkafka's consumer.

    Args:
        config: librdkafka's settings.
    """

    def __init__(self, group: str, config: Mapping[str, Any]) -> None:
        super().__init__(group)
        self._config = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", **config}

    def work(self) -> None:
        with closing(Consumer(self._config, logger=SILENT)) as consumer:
            consumer.subscribe([TOPIC], on_assign=self._on_assign, on_lost=self._on_lost)
            while not self.stopping.is_set():
                consumer.poll(self.pause_s)
                if not consumer.assignment():
                    continue
                try:
                    self.commit(consumer)
                except KafkaException as error:
                    self.note(error)

    def commit(self, consumer: Consumer) -> None:
        (told,) = consumer.commit(offsets=[TopicPartition(TOPIC, 0, self.next_offset)], asynchronous=False)
        if told.error is not None:
            raise KafkaException(told.error)
        self.acknowledged.append(time.monotonic())

    def _on_assign(self, _consumer: Consumer, _places: object) -> None:
        self.assigned += 1

    def _on_lost(self, _consumer: Consumer, _places: object) -> None:
        self.lost += 1


CLOSE_WAIT_MS = 5_000


class Listening(Probe, ConsumerRebalanceListener):  # type: ignore[misc]
    """A probe that is told about its partitions as kafka-python tells it."""

    def on_partitions_revoked(self, _places: object) -> None:
        pass

    def on_partitions_assigned(self, _places: object) -> None:
        self.assigned += 1

    def on_partitions_lost(self, _places: object) -> None:
        self.lost += 1


class Transactional(Listening):
    """kafka-python's consumer, whose producer commits the offsets, each in a transaction of its own.

    librdkafka's producer is no probe: after the death of a broker its call may never return, also where Kafka's own
    coordinator has the group.

    Args:
        servers: The bootstrap servers of both.
    """

    def __init__(self, group: str, servers: str) -> None:
        super().__init__(group)
        self._config = {"bootstrap_servers": servers, "client_id": group, "reconnect_backoff_max_ms": 1_000}

    def work(self) -> None:
        consumer = KafkaConsumer(
            group_id=self.group, enable_auto_commit=False, session_timeout_ms=SESSION_MS, **self._config
        )
        producer = KafkaProducer(transactional_id=self.group, **self._config)
        with ExitStack() as stack:
            stack.callback(consumer.close, timeout_ms=CLOSE_WAIT_MS)
            stack.callback(producer.close, timeout=CLOSE_WAIT_MS / 1_000)
            producer.init_transactions()
            consumer.subscribe([TOPIC], listener=self)
            while not self.stopping.is_set():
                consumer.poll(self.pause_s * 1_000)
                if consumer.assignment():
                    self._commit(producer, consumer)

    def _commit(self, producer: KafkaProducer, consumer: KafkaConsumer) -> None:
        producer.begin_transaction()
        try:
            offsets = {OurPlace(TOPIC, 0): OffsetAndMetadata(self.next_offset, "", -1)}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()
            self.acknowledged.append(time.monotonic())
        except KafkaError as error:
            self.note(error)
            producer.abort_transaction()


class Ours(Listening):
    """Our own consumer, which writes to the coordinator's topics.

    Args:
        config: The settings of a GroupConsumer.
    """

    def __init__(self, group: str, config: Mapping[str, Any]) -> None:
        super().__init__(group)
        self._config = {"group_id": group, "client_id": group, "enable_auto_commit": False, **config}

    def work(self) -> None:
        with GroupConsumer(**self._config) as consumer:
            consumer.subscribe([TOPIC], listener=self)
            while not self.stopping.is_set():
                consumer.poll(self.pause_s * 1_000)
                if not consumer.assignment():
                    continue
                try:
                    consumer.commit({OurPlace(TOPIC, 0): OffsetAndMetadata(self.next_offset, "", -1)})
                    self.acknowledged.append(time.monotonic())
                except KafkaError as error:
                    self.note(error)


class Sharing(Probe):
    """A `GroupMember` that wants one resource after the other. It commits nothing: to own a resource counts.

    Args:
        config: The settings of a GroupMember.
    """

    commits = False

    def __init__(self, group: str, config: Mapping[str, Any]) -> None:
        super().__init__(group)
        self._config = {"group_id": group, "client_id": group, **config}

    def work(self) -> None:
        with GroupMember(["resource-0"], on_lost=self._on_lost, **self._config) as member:
            while not self.stopping.wait(self.pause_s):
                wanted = {f"resource-{self.next_offset % 2}"}
                member.subscribe(wanted)
                while member.poll(self.pause_s) != wanted and not self.stopping.is_set():
                    pass
                self.acknowledged.append(time.monotonic())

    def _on_lost(self, _resources: object) -> None:
        self.lost += 1


class Ready(NamedTuple):
    """One look at /readyz."""

    at_s: float
    is_ready: bool
    why: tuple[str, ...]


class Health(threading.Thread):
    """Looks at a process's /readyz all the time."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name=f"health of {name}", daemon=True)
        self.of, self._port = name, port
        self._is_of_query = name.startswith("query")
        self._stopping = threading.Event()
        self.looks: list[Ready] = []

    def run(self) -> None:
        while not self._stopping.wait(LOOK_PAUSE_S):
            with suppress(OSError, http.client.HTTPException, ValueError):
                self.looks.append(self.look())

    def look(self) -> Ready:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            return Ready(time.monotonic(), response.status == 200, tuple(json.loads(response.read())["why"]))
        finally:
            connection.close()

    def stop(self) -> None:
        self._stopping.set()

    def untrue_s(self, probes: Sequence[Probe], from_s: float) -> float:
        """Return for how long readiness has not agreed with the probes."""
        return sum((lasted_s for lasted_s, _ in self.untrue(probes, from_s)), 0.0)

    def untrue(self, probes: Sequence[Probe], from_s: float) -> list[tuple[float, Ready]]:
        """Return the looks at which readiness has not agreed with the probes, and for how long each has lasted.

        It disagrees if it says ready though no probe has been served for `ALIKE_S`, and none is within `BACK_S`; or
        not ready though each of them has been served all the time for `ALIKE_S`. A gateway is ready although the query
        does not answer.
        """
        found, last_s = [], from_s
        for look in [look for look in self.looks if look.at_s >= from_s]:
            if look.is_ready:
                is_untrue = self._is_of_query and not any(
                    probe.is_served_between(look.at_s - ALIKE_S, look.at_s + BACK_S) for probe in probes
                )
            else:
                is_untrue = all(probe.longest_gap_s(look.at_s - ALIKE_S, look.at_s) < SERVED_GAP_S for probe in probes)
            if is_untrue:
                found.append((look.at_s - last_s, look))
            last_s = look.at_s
        return found


BACK_S = 10.0
"""The time that a client needs to notice that the query serves again: it has waited before its next try."""

SERVED_GAP_S = 5.0
"""A probe that commits at least as often as this is served. Batches may take seconds on a busy machine."""


class Scene:
    """The processes, in one folder: `coordinator run`, gateways, and the probes.

    The query and the first gateway can be cut off from a broker: their listeners are QUERY and GATEWAY.

    Args:
        commit_every_s: The pause between two commits of a probe. Short ones keep the query busy all the time.
        settings: Settings of the coordinator and of the gateways.
    """

    def __init__(
        self, three: ThreeBrokers, folder: Path, *, gateways: int = 2, commit_every_s: float = 1.0, **settings: object
    ) -> None:
        self.three, self._folder, self._commit_every_s = three, folder, commit_every_s
        self.prefix = f"{PREFIX}-{folder.name}"
        self._settings = {
            "replication_factor": 3,
            "request_partitions": SHARDS,
            "group_consumer_session_timeout_ms": SESSION_MS,
            **settings,
        }
        self.services: list[Service] = []
        self.observer: Service | None = None
        self.gateways = [GatewayProcess(folder, number) for number in range(gateways)]
        self.probes: list[Probe] = []
        self.health: dict[str, Health] = {}

    def __enter__(self) -> Self:
        if TOPIC not in self.three.topics():
            self.three.create(TOPIC)
        try:
            self.start_driver()
            self.service.await_ready()
            for number, gateway in enumerate(self.gateways):
                servers = self.three.through_proxies("GATEWAY") if number == 0 else self.three.bootstrap_servers
                port = free_port()
                gateway.start(servers, self.prefix, COORDINATOR_HEALTH_PORT=str(port))
                self._watch(f"gateway-{number}", port)
            for gateway in self.gateways:
                gateway.await_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for thread in (*self.probes, *self.health.values()):
            thread.stop()
        for gateway in self.gateways:
            gateway.kill()
        for service in (*self.services, *([self.observer] if self.observer else [])):
            if service.process.poll() is None:
                service.kill()

    @property
    def service(self) -> Service:
        return self.services[-1]

    @property
    def settings(self) -> Settings:
        return self.service.settings

    def start_driver(self, **settings: object) -> Service:
        """Start `coordinator run` on the scene's checkpoint."""
        port = free_port()
        service = start_service(
            self._folder,
            len(self.services),
            bootstrap_servers=self.three.through_proxies("QUERY"),
            topic_prefix=self.prefix,
            group_initial_rebalance_delay_ms=100,
            health_port=port,
            **{**self._settings, **settings},
        )
        self.services.append(service)
        self._watch(f"query-{len(self.services)}", port)
        return service

    def start_observer(self) -> Service:
        """Start `coordinator observe` beside the scene, and return it when it is ready."""
        (folder := self._folder / "observer").mkdir()
        port = free_port()
        self.three.make_offsets_topic()
        self.observer = start_service(
            folder,
            command="observe",
            bootstrap_servers=self.three.bootstrap_servers,
            observe_prefix=f"{self.prefix}-observed",
            observe_checkpoint=str(folder / "observed"),
            replication_factor=3,
            health_port=port,
        )
        self._watch("observer", port)
        self.observer.await_ready()
        return self.observer

    def _watch(self, name: str, port: int) -> None:
        self.health[name] = Health(name, port)
        self.health[name].start()

    # -- probes --------------------------------------------------------------------------------------------------------

    def start_probes(self, *probes: Probe) -> list[Probe]:
        """Start probes, and return them when each has committed twice."""
        self.probes += probes
        for probe in probes:
            probe.pause_s = self._commit_every_s
            probe.start()
        self.await_served(probes, 0.0)
        return list(probes)

    def stock(self, protocol: str = "classic") -> list[Probe]:
        """Start a probe through the gateways for a group on each broker: its shard has that broker as the leader."""
        config = {"bootstrap.servers": self.gateway_servers, "group.protocol": protocol}
        config |= {"session.timeout.ms": SESSION_MS} if protocol == "classic" else {}
        return self.start_probes(*(Stock(group, config) for group in self._groups(f"stock-{protocol}")))

    def transactional(self) -> list[Probe]:
        """Start a probe that commits in transactions through the gateways, for a group on each broker."""
        probes = (Transactional(group, self.gateway_servers) for group in self._groups("transactional"))
        return self.start_probes(*probes)

    def own(self, protocol: str = "classic") -> list[Probe]:
        """Start a probe of our own consumer for a group on each broker."""
        config = self._own_config(protocol)
        return self.start_probes(*(Ours(group, config) for group in self._groups(f"own-{protocol}")))

    def sharing(self, protocol: str = "classic") -> list[Probe]:
        """Start a probe of members that share resources, for a group on each broker."""
        config = self._own_config(protocol)
        return self.start_probes(*(Sharing(group, config) for group in self._groups(f"sharing-{protocol}")))

    def _own_config(self, protocol: str) -> dict[str, Any]:
        config = {"bootstrap_servers": self.three.bootstrap_servers, "topic_prefix": self.prefix}
        config["group_protocol"] = protocol
        return config | ({"session_timeout_ms": SESSION_MS} if protocol == "classic" else {})

    def control(self) -> list[Probe]:
        """Start a probe of Kafka's own coordinator for a group on each broker."""
        self.three.make_offsets_topic()
        leaders = self.three.leaders("__consumer_offsets")
        names = _one_for_each("control", lambda group: leaders[abs(_java_hash(group)) % len(leaders)])
        config = {"bootstrap.servers": self.three.bootstrap_servers, "session.timeout.ms": SESSION_MS}
        return self.start_probes(*(Stock(group, config) for group in names))

    @property
    def gateway_servers(self) -> str:
        return ",".join(gateway.address for gateway in self.gateways)

    def _groups(self, name: str) -> list[str]:
        leaders = self.three.leaders(self.settings.requests_topic)
        return _one_for_each(name, lambda group: leaders[shard_of(group, SHARDS)])

    def lost_commits(self) -> list[str]:
        """Stop our probes, and return those whose last acknowledged commit is gone."""
        lost = []
        for probe in [probe for probe in self.probes if not probe.group.startswith("control")]:
            probe.stop()
            probe.join(HANG_S)
            if not probe.commits:
                continue
            acknowledged = len(probe.acknowledged)
            with Transport(self.settings.kafka_client_arguments(), self.prefix) as transport:
                offset = Asker(transport, probe.group).fetch_stable().get((TOPIC, 0), -1)
            if offset < acknowledged:
                lost.append(f"{probe.group}: {acknowledged} was acknowledged, and {offset} is committed")
        return lost

    # -- figures -------------------------------------------------------------------------------------------------------

    @property
    def processes(self) -> list[psutil.Process]:
        """Our processes: the drivers with Java and Python workers, and the gateways."""
        pids = [service.process.pid for service in self.services if service.process.poll() is None]
        pids += [gateway.process.pid for gateway in self.gateways if gateway.process and gateway.process.poll() is None]
        own = [psutil.Process(pid) for pid in pids]
        return [*own, *(child for process in own for child in process.children(recursive=True))]

    def processor_s(self) -> float:
        """Return the processor time that our processes have used, seconds."""
        total_s = 0.0
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total_s += times.user + times.system
        return total_s

    def await_served(self, probes: Sequence[Probe], after_s: float) -> None:
        """Wait until each probe has committed twice since a time."""

        def account() -> object:
            return [(p.group, p.errors[-2:]) for p in probes], self.service.log[-1_500:]

        def are_served() -> bool:
            assert not [p.failure for p in probes if p.failure], account()
            return all(len([t for t in p.acknowledged if t > after_s]) > 1 for p in probes)

        wait_until(are_served, account=account)


def _one_for_each(name: str, broker_of: Callable[[str], int]) -> list[str]:
    """Return a group's name for each broker."""
    names = [f"{name}-{number}" for number in range(200)]
    return [next(each for each in names if broker_of(each) == broker) for broker in IDS]


def _java_hash(text: str) -> int:
    """Return String.hashCode of an ASCII text."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value
