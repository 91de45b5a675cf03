"""A site of five hosts: the driver with Spark's master, two workers, the broker, and a gateway."""

import os
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka import KafkaAdminClient

from streaming.config.settings import Settings
from tests.cluster.standalone import Cluster, bare_python, submit, zipped
from tests.hosts.network import Network
from tests.system.conftest import Service
from tests.system.waiting import HANG_S, wait_until

WORKERS = ("one", "two")
NAMES = ("driver", *WORKERS, "brokers", "gateway")

TOPIC = GROUP = "through-gateway"
KEEP_PLANS = {"spark.sql.streaming.minBatchesToRetain": "1000000"}
"""A judge may read all plans since the first batch."""


class Site:
    """The processes of a site, in one folder. Use it in a `with` block.

    Args:
        settings: Settings of the coordinator that differ from the defaults.
    """

    def __init__(self, folder: Path, **settings: object) -> None:
        self._folder, self._wanted = folder, settings
        self._stack = ExitStack()
        self._submitted = 0
        self.network = Network(*NAMES)
        self.service: Service

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.network)
            self.settings = Settings.load(
                bootstrap_servers=self._start_broker(stack),
                topic_prefix="hosts",
                replication_factor=1,
                checkpoint=str(self._folder / "state"),
                **self._wanted,
            )
            workers = [self.network[name] for name in WORKERS]
            self._cluster = stack.enter_context(Cluster(self._folder, master=self.network["driver"], workers=workers))
            self._code, self._python = zipped(self._folder / "code.zip"), bare_python(self._folder / "python")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start_broker(self, stack: ExitStack) -> str:
        host = self.network["brokers"]
        command = [*host.prefix, sys.executable, "-m", "tests.hosts.broker", str(self._folder / "broker"), host.address]
        broker = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        assert broker.stdin is not None
        assert broker.stdout is not None
        stack.callback(broker.stdin.close)
        return broker.stdout.readline().strip()

    def start_coordinator(self) -> None:
        """Submit the coordinator, in client mode."""
        self._submitted += 1
        host = self.network["driver"]
        self.service = submit(
            self._folder, self._submitted, self.settings, self._cluster.url, self._code, self._python,
            host=host, conf=KEEP_PLANS,
        )  # fmt: skip
        self._stack.callback(_end, self.service.process)

    def supervise(self) -> int:
        """Submit the coordinator again if it has ended, as a supervisor does. Return how often it was submitted."""
        if self.service.process.poll() is not None:
            self.start_coordinator()
        return self._submitted

    def start_gateway(self) -> str:
        """Start a gateway, and return its address."""
        host = self.network["gateway"]
        ready_file, port = self._folder / "gateway-ready", 9192
        command = [*host.prefix, sys.executable, "-m", "streaming", "gateway", "--host", host.address]
        variables = {
            "COORDINATOR_BOOTSTRAP_SERVERS": self.settings.bootstrap_servers,
            "COORDINATOR_TOPIC_PREFIX": self.settings.topic_prefix,
            "COORDINATOR_GATEWAY_ALLOW_PLAINTEXT": "true",
        }
        with (self._folder / "gateway.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, "--port", str(port), "--ready-file", str(ready_file)],
                env={**os.environ, **variables},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._stack.callback(_end, process)
        wait_until(lambda: ready_file.exists() or process.poll() is not None)
        assert process.poll() is None, (self._folder / "gateway.log").read_text()
        return f"{host.address}:{port}"


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(HANG_S)
    finally:
        process.kill()


class Member(threading.Thread):
    """A librdkafka consumer that commits all the time through a gateway. Use it in a `with` block.

    `acknowledged` is the newest offset that was committed without an error.
    """

    def __init__(self, bootstrap_servers: str, brokers: str) -> None:
        super().__init__(name="member", daemon=True)
        with KafkaAdminClient(bootstrap_servers=brokers) as admin:
            admin.create_topics({TOPIC: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
        config = {"bootstrap.servers": bootstrap_servers, "group.id": GROUP, "enable.auto.commit": False}
        self._consumer = Consumer(config)
        self._ending = threading.Event()
        self.acknowledged = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join(HANG_S)
        assert not self.is_alive(), "the member has not ended"

    def run(self) -> None:
        self._consumer.subscribe([TOPIC])
        offset = 0
        while not self._ending.is_set():
            self._consumer.poll(0.2)
            if self._consumer.assignment():
                offset += 1
                with suppress(KafkaException):
                    self._consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
                    self.acknowledged = offset
        self._consumer.close()

    def await_commit(self) -> None:
        """Wait for the acknowledgement of a commit that is sent after the call."""
        before = self.acknowledged
        wait_until(lambda: self.acknowledged > before + 1, account=lambda: f"{self.acknowledged} commits")

    def committed(self) -> int:
        """Return the group's committed offset."""
        (found,) = self._consumer.committed([TopicPartition(TOPIC, 0)], HANG_S)
        return int(found.offset)
