"""The environment of a scenario: its own topics and group, and its workers."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaAdminClient, KafkaProducer

from tests.clients.kinds import Kind
from tests.clients.worker import Partition, Worker
from tests.system.waiting import HANG_S

SESSION_MS = 6_000
DEFAULTS = {
    "topics": None,
    "pattern": None,
    "protocol": "classic",
    "assignor": "range",
    "instance": None,
    "session_ms": 90_000,
    "heartbeat_ms": 500,
    "max_poll_ms": 90_000,
    "metadata_ms": 90_000,
    "access": {},
}
"""A worker's configuration, unless a scenario changes it. With these timeouts, time alone causes no event."""


@dataclass(frozen=True)
class Venue:
    """The shared parts of all plays: the broker, the clients' address, and a folder with the Go programs."""

    broker: str
    bootstrap: str
    folder: Path


class Play:
    """One scenario, played by one client. `name` is the name of its group, and the prefix of its topics' names."""

    def __init__(self, venue: Venue, name: str, admin: KafkaAdminClient, producer: KafkaProducer) -> None:
        self.name = name
        self._venue, self._admin, self._producer = venue, admin, producer
        self._workers: list[Worker] = []
        self._ends: dict[Partition, int] = {}
        self._changed = threading.Condition()

    def topic(self, *, partitions: int, records: int = 0, suffix: str = "") -> str:
        """Create a topic with `records` records in each partition, and return its name."""
        topic = self.name + suffix
        wanted = {"num_partitions": partitions, "replication_factor": 1}
        self._admin.create_topics({topic: wanted}, wait_for_metadata=True)
        self._ends |= {(topic, number): 0 for number in range(partitions)}
        self.produce(topic, records)
        return topic

    def produce(self, topic: str, count: int) -> None:
        """Append `count` records to each partition of a topic. Each value contains the topic, partition and offset."""
        for partition in self.partitions(topic):
            for _ in range(count):
                value = f"{topic} {partition[1]} {self._ends[partition]}"
                self._producer.send(topic, value.encode(), partition=partition[1])
                self._ends[partition] += 1
        self._producer.flush()

    def partitions(self, topic: str) -> set[Partition]:
        return {partition for partition in self._ends if partition[0] == topic}

    def ends(self, topic: str = "") -> list[tuple[int, int]]:
        """Return each partition of a topic, or of the play's topic, with the number of its records."""
        return [(number, end) for (name, number), end in sorted(self._ends.items()) if name == (topic or self.name)]

    def start(self, kind: Kind, **options: object) -> Worker:
        """Start a worker in the play's group. It subscribes to the play's topic, unless `options` has another."""
        name = f"{self.name}-{len(self._workers)}"
        config = {
            **DEFAULTS,
            "bootstrap": self._venue.bootstrap,
            "group": self.name,
            "client_id": name,
            "topics": None if "pattern" in options else [self.name],
            **options,
        }
        folder = self._venue.folder
        worker = Worker(kind, config, folder, folder / f"{name}.log", self._changed)
        self._workers.append(worker)
        return worker

    def until(self, is_so: Callable[[], object]) -> float:
        """Wait until the workers' events fulfil a condition; return the seconds until then."""
        began_s = time.monotonic()
        with self._changed:
            assert self._changed.wait_for(is_so, HANG_S), "\n".join(["still waiting:", *map(repr, self._workers)])
        return time.monotonic() - began_s

    def until_shared(self, topic: str, *workers: Worker) -> float:
        """Wait until each of these workers owns partitions of the topic, and every partition has exactly one owner."""

        def is_shared() -> bool:
            owned = [worker.owned for worker in workers]
            return all(owned) and sum(map(len, owned)) == len(set().union(*owned)) == len(self.partitions(topic))

        return self.until(is_shared)

    def until_read(self, worker: Worker) -> None:
        """Wait until a worker has read all its partitions to the end."""
        self.until(lambda: all(worker.read[p][-1:] == [self._ends[p] - 1] for p in worker.owned))

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()


@contextmanager
def playing(venue: Venue, name: str) -> Iterator[Play]:
    """Yield a play. At the end of the block, kill all of its processes."""
    with KafkaAdminClient(bootstrap_servers=venue.broker) as admin:
        producer = KafkaProducer(bootstrap_servers=venue.broker)
        play = Play(venue, name, admin, producer)
        try:
            yield play
        finally:
            play.close()
            producer.close()
