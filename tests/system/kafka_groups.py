"""Groups of the broker's own coordinator, whose members are processes with librdkafka."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.system.waiting import HANG_S, wait_until


class KafkaMember:
    """A member in a process of its own."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: str, client_id: str, **config: object) -> None:
        wanted = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "client.id": client_id,
            "partition.assignment.strategy": "range",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 100,
            **config,
        }
        if wanted.get("group.protocol") == "consumer":
            for name in ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"):
                del wanted[name]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.kafka_worker", json.dumps(wanted), topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.assignments: list[list[int]] = []
        self._committed = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def owned(self) -> list[int]:
        return self.assignments[-1] if self.assignments else []

    def await_owned(self, *partitions: int) -> "KafkaMember":
        """Wait until the member owns exactly these partitions."""
        wait_until(lambda: self.owned == list(partitions), account=lambda: self.assignments)
        return self

    def commit(self, partition: int, offset: int) -> None:
        """Commit an offset, and wait for the broker's response."""
        committed = self._committed
        self._send(f"commit {partition} {offset}\n")
        wait_until(lambda: self._committed > committed)

    def close(self) -> None:
        """Leave the group, and end."""
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.wait(HANG_S)

    def kill(self) -> None:
        """End by SIGKILL, without leaving."""
        self.process.kill()
        self.process.wait(HANG_S)

    def _send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("committed"):
                self._committed += 1
            else:
                self.assignments.append(json.loads(line))


class KafkaGroup:
    """A group of a topic of its own, and its members."""

    def __init__(self, bootstrap_servers: str, group_id: str, topic: str, stack: ExitStack) -> None:
        self.group_id, self.topic = group_id, topic
        self._servers, self._stack = bootstrap_servers, stack
        self.admin: Any = AdminClient({"bootstrap.servers": bootstrap_servers})
        self.admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(HANG_S)

    def join(self, client_id: str, **config: object) -> KafkaMember:
        """Start a member."""
        member = KafkaMember(self._servers, self.group_id, self.topic, client_id, **config)
        self._stack.callback(member.kill)
        return member


@contextmanager
def kafka_group(bootstrap_servers: str, group_id: str) -> Iterator[KafkaGroup]:
    """Return a group of the broker's own coordinator. Its members end with the block."""
    with ExitStack() as stack:
        yield KafkaGroup(bootstrap_servers, group_id, f"orders-of-{group_id}", stack)
