"""A broker, a coordinator, members and a producer: processes that can be killed, paused and started again.

Only the producer is a thread of this process: the judge compares the members with its records.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from kafka import KafkaAdminClient, KafkaProducer

from coordinator.base.consumer_protocol import read_assignment
from coordinator.messages.group_records import OffsetRecord
from coordinator.messages.policy_events import SeatTaken
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.errors import NoAnswer
from streaming.kafka.offsets import OffsetAsker
from streaming.verify import Report, verify
from streaming.wire.records import decode_event, decode_group_record
from tests.chaos.gateways import GatewayProcess
from tests.chaos.judge import Run
from tests.cluster3.brokers import ThreeBrokers
from tests.system.asking import Asker
from tests.system.conftest import Service, start_service
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until

TOPIC = GROUP = "work"
PARTITIONS = 6
STRATEGIES = ("range", "cooperative-sticky")


class Producing(threading.Thread):
    """Appends numbered records at a steady rate until it is stopped."""

    def __init__(self, bootstrap_servers: str, per_second: int) -> None:
        super().__init__(daemon=True)
        self._servers, self._pause_s = bootstrap_servers, 1 / per_second
        self._stopping = threading.Event()
        self.acknowledged = 0

    def run(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._servers,
            acks="all",
            enable_idempotence=False,  # kafka-python's idempotent producer stops for ever after a long outage
            max_in_flight_requests_per_connection=1,
            linger_ms=20,
            request_timeout_ms=5_000,
        )
        number = 0
        while not self._stopping.wait(self._pause_s):
            sent = producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            sent.add_callback(self._count)
            number += 1
        producer.close()

    def _count(self, _: object) -> None:
        self.acknowledged += 1

    def finish(self) -> None:
        self._stopping.set()
        self.join(HANG_S)
        assert not self.is_alive(), "the broker did not accept the last records"


class Deployment:
    """All processes of a chaos run, in one folder.

    Args:
        session_timeout_ms: The session timeout of the members.
        gateways: The number of gateways. If it is not 0, every second member is kafka-python's consumer and uses them.
        brokers: The brokers; None for a single one.
        master: Spark's master, or None for the setting's default.
        stand_by: Whether each driver stands by while another one serves.
    """

    def __init__(
        self,
        folder: Path,
        *,
        members: int,
        strategy: str,
        session_timeout_ms: int,
        per_second: int = 400,
        gateways: int = 0,
        brokers: ThreeBrokers | None = None,
        master: str | None = None,
        stand_by: bool = False,
    ) -> None:
        self._folder, self._members, self._strategy = folder, members, strategy
        self._session_timeout_ms, self._per_second = session_timeout_ms, per_second
        self._settings: dict[str, object] = {"stand_by": stand_by} | ({} if master is None else {"master": master})
        self._drivers: list[Service] = []
        self._brokers = brokers
        self.broker = Broker(folder / "broker")
        self.gateways = [GatewayProcess(folder, number) for number in range(gateways)]
        self.members: list[subprocess.Popen[bytes]] = []
        self.paused: list[int] = []
        self._started = 0

    def __enter__(self) -> Self:
        if self._brokers is None:
            self.broker.start()
        try:
            with KafkaAdminClient(bootstrap_servers=self.bootstrap_servers) as admin:
                wanted = {"num_partitions": PARTITIONS, "replication_factor": self._replicas}
                admin.create_topics({TOPIC: wanted}, wait_for_metadata=True)
            self.start_coordinator()
            self.service.await_ready()
            for number, gateway in enumerate(self.gateways):
                gateway.start(self.bootstrap_servers if number else self._servers_of("GATEWAY"), "chaos")
            for gateway in self.gateways:
                gateway.await_ready()
            for _ in range(self._members):
                self.start_member()
            self.producing = Producing(self.bootstrap_servers, self._per_second)
            self.producing.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume(*list(self.paused))
        for member in self.members:
            member.kill()
            member.wait()
        for gateway in self.gateways:
            gateway.kill()
        for driver in self._drivers:
            if driver.process.poll() is None:
                driver.kill()
        self.broker.kill()

    # -- starting ------------------------------------------------------------------------------------------------------

    def start_coordinator(self) -> None:
        """Start a coordinator on the same checkpoint as the earlier ones."""
        self.service: Service = self.start_driver()

    def start_driver(self) -> Service:
        """Start one more driver on the checkpoint."""
        self._started += 1
        driver = start_service(
            self._folder,
            self._started,
            bootstrap_servers=self._servers_of("QUERY"),
            topic_prefix="chaos",
            replication_factor=self._replicas,
            group_initial_rebalance_delay_ms=300,
            group_min_session_timeout_ms=1_000,
            **self._settings,
        )
        self._drivers.append(driver)
        return driver

    def start_member(self) -> subprocess.Popen[bytes]:
        """Start a member with a new name."""
        self._started += 1
        name = f"member-{self._started}"
        config = {
            **self._connection_arguments(self._started), "group_id": GROUP,
            "client_id": name, "auto_offset_reset": "earliest", "enable_auto_commit": False,
            "session_timeout_ms": self._session_timeout_ms, "heartbeat_interval_ms": self._session_timeout_ms // 4,
            "partition_assignment_strategy": [self._strategy],
        }  # fmt: skip
        (self._folder / f"{name}.history").touch()
        command = [sys.executable, "-m", "tests.chaos.member", str(self._folder / f"{name}.history"), TOPIC]
        with (self._folder / f"{name}.log").open("wb") as log:
            member = subprocess.Popen([*command, json.dumps(config)], stderr=log)
        self.members.append(member)
        return member

    def _connection_arguments(self, number: int) -> dict[str, object]:
        """Return the arguments with which a member reaches the coordinator: by its topics, or through gateways."""
        if self.gateways and number % 2:
            return {"bootstrap_servers": self.gateway_addresses}
        return {"bootstrap_servers": self.bootstrap_servers, "topic_prefix": "chaos"}

    @property
    def bootstrap_servers(self) -> str:
        return (self._brokers or self.broker).bootstrap_servers

    def _servers_of(self, client: str) -> str:
        """Return the brokers' addresses for a client that may be cut off from single brokers."""
        return self.bootstrap_servers if self._brokers is None else self._brokers.through_proxies(client)

    @property
    def _replicas(self) -> int:
        return 1 if self._brokers is None else 3

    @property
    def gateway_addresses(self) -> list[str]:
        return [gateway.address for gateway in self.gateways]

    @property
    def is_up(self) -> bool:
        """Whether the coordinator runs and has become ready."""
        return self.service.process.poll() is None and self.service.ready_file.exists()

    @property
    def alive(self) -> list[subprocess.Popen[bytes]]:
        return [member for member in self.members if member.poll() is None]

    # -- pausing -------------------------------------------------------------------------------------------------------

    def pause(self, pid: int) -> list[int]:
        """Stop a process and its children with SIGSTOP; return their process ids."""
        family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
        for each in family:
            os.kill(each, signal.SIGSTOP)
        self.paused += family
        return family

    def resume(self, *pids: int) -> None:
        for pid in pids:
            self.paused.remove(pid)
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGCONT)

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        return self.service.settings

    @property
    def histories(self) -> list[Path]:
        return sorted(self._folder.glob("*.history"))

    @property
    def logs(self) -> list[Path]:
        """The logs of all drivers, gateways and members."""
        return sorted(file for file in self._folder.iterdir() if file.name.startswith("log-") or file.suffix == ".log")

    def acknowledged(self) -> int:
        """Count the acknowledged commits of all members."""
        return sum(file.read_bytes().count(b'"acknowledged"') for file in self.histories)

    def await_progress(self) -> None:
        """Wait until members commit again."""
        before = self.acknowledged()
        wait_until(lambda: self.acknowledged() > before, account=self._account)

    def await_settled(self) -> None:
        """Wait until all members are in one Stable group that has all partitions, and commit.

        A cooperative rebalance that takes partitions away is followed by one that gives them to others (KIP-429).
        """
        with Transport(self.settings.kafka_client_arguments(), self.settings.topic_prefix) as transport:
            asker = Asker(transport, GROUP)

            def is_settled() -> bool:
                group = asker.describe()
                owned = [set(read_assignment(member.assignment)[0].get(TOPIC, [])) for member in group.members]
                is_whole = set().union(*owned) == set(range(PARTITIONS))
                return bool(group.state.value == "Stable" and len(owned) == self._members and is_whole)

            wait_until(is_settled, account=asker.describe)
        self.await_progress()

    def events(self) -> list[dict[str, Any]]:
        return Reader(self.settings, GROUP).events()

    def commits(self) -> Iterator[OffsetRecord]:
        """Yield the commits that are published, in the coordinator's order."""
        return self.commits_of(self.settings)

    def seats(self) -> Iterator[SeatTaken]:
        """Yield the seats that members have taken, in the coordinator's order."""
        return self.seats_of(self.settings)

    @staticmethod
    def commits_of(settings: Settings) -> Iterator[OffsetRecord]:
        for record in Reader(settings, GROUP).records(settings.groups_topic):
            key, read = decode_group_record(record.key, record.value)
            if isinstance(read, OffsetRecord) and key[1] == GROUP:
                yield read

    @staticmethod
    def seats_of(settings: Settings) -> Iterator[SeatTaken]:
        for record in Reader(settings, GROUP).records(settings.events_topic):
            read = decode_event(record.value)
            if isinstance(read, SeatTaken):
                yield read

    def ends(self) -> dict[int, int]:
        asker = OffsetAsker(self.settings, "chaos")
        wait_until(lambda: not asker.ask_all(TOPIC).unknown)
        return {partition: end for (_, partition), end in asker.ask_all(TOPIC).known.items()}

    # -- the end -------------------------------------------------------------------------------------------------------

    def _is_served(self) -> bool:
        """Start a coordinator that has ended by itself, as after a fault of the broker; return whether it is up."""
        if self.service.process.poll() is not None:
            self.start_coordinator()
        return self.is_up

    def _is_answered(self, ask: Callable[[], bool]) -> bool:
        """Return whether `ask` gets the expected response. At the end, `verify` reports requests without a response."""
        try:
            return self._is_served() and ask()
        except NoAnswer:
            return False

    def _account(self) -> str:
        return f"{self.acknowledged()} commits; {self.service.log[-2_000:]}"

    def end_run(self) -> tuple[Run, list[Report]]:
        """Wait without faults until all records are committed, make all members leave, and return the results.

        The second one has what `coordinator verify` found for each coordinator.
        """
        self.resume(*list(self.paused))
        wait_until(self._is_served, account=lambda: self.service.log)
        while len(self.alive) < self._members:
            self.start_member()
        self.producing.finish()
        ends = self.ends()
        assert sum(ends.values()) >= self.producing.acknowledged, "the broker has lost records"
        with Transport(self.settings.kafka_client_arguments(), self.settings.topic_prefix) as transport:
            asker, wanted = Asker(transport, GROUP), {(TOPIC, p): end for p, end in ends.items()}
            wait_until(lambda: self._is_answered(lambda: asker.fetch() == wanted), account=self._account)
            for member in self.alive:
                member.terminate()
            for member in self.members:
                member.wait(HANG_S)
            wait_until(
                lambda: self._is_answered(lambda: asker.describe().state.value == "Empty"), account=self._account
            )
        assert self.service.stop() == 0, self.service.log
        return Run(self.histories, list(self.commits()), ends, self.seats()), [verify(self.settings, settling_ms=0)]
