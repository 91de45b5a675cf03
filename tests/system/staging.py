"""Groups on the shared coordinator for tests: members that poll in turn, and worker processes that can be killed."""

import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Self

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from coordinator.member.member import MemberState
from coordinator.messages.requests import ExpelMember
from streaming.client import GroupConsumer, GroupMember, Transport
from streaming.config.settings import Settings
from streaming.views.api.watching import follow
from tests.system.asking import Asker
from tests.system.reading import Reader
from tests.system.waiting import HANG_S

TURN_MS = 20
NUMBERS = itertools.count()

Call = tuple[str, list[int]]


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """A listener that records its calls: the kind of each call, and the numbers of the partitions."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", numbers(revoked)))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append(("assigned", numbers(assigned)))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.calls.append(("lost", numbers(lost)))


def numbers(partitions: Iterable[TopicPartition]) -> list[int]:
    return sorted(p.partition for p in partitions)


class Worker:
    """A member in its own process, and the messages that it has sent so far."""

    def __init__(self, **config: Any) -> None:
        command = [sys.executable, "-m", "tests.system.worker", json.dumps(config)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._messages.put(json.loads(line))

    def tells(self, what: str, while_doing: Callable[[], object]) -> Any:
        """Call `while_doing` until the worker sends a message of this kind, and return the message's value."""
        until_s = time.monotonic() + HANG_S
        while time.monotonic() < until_s:
            while_doing()
            with suppress(queue.Empty):
                told = self._messages.get(timeout=TURN_MS / 1000)
                while what not in told:
                    told = self._messages.get_nowait()
                return told[what]
        raise AssertionError(f"the worker sent no {what!r}")

    def drain(self) -> None:
        """Discard the messages that the worker has sent so far."""
        while not self._messages.empty():
            self._messages.get()

    def ask_for(self, what: str) -> None:
        """Send the worker a command that it runs after its next poll; it may be paused now."""
        assert self.process.stdin is not None
        print(what, file=self.process.stdin, flush=True)

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Group:
    """A group that no other test uses, its members, and the records that it publishes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.number = next(NUMBERS)
        self.group_id = f"group-{self.number}"
        self._stack = ExitStack()
        self._asker: Asker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def config(self, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.settings.bootstrap_servers, "topic_prefix": self.settings.topic_prefix,
            "group_id": self.group_id, "session_timeout_ms": 6_000, "heartbeat_interval_ms": 500,
        } | more  # fmt: skip

    def worker(self, **more: Any) -> Worker:
        worker = Worker(**self.config(**more))
        self._stack.callback(worker.close)
        return worker

    def turn(self) -> None:
        """Poll once with every member."""
        raise NotImplementedError

    def account(self) -> object:
        """Return the group's state for the message of a wait that timed out."""
        raise NotImplementedError

    def _latest_events(self) -> list[Any]:
        """Return the group's latest events, for the message of a wait that timed out."""
        return Reader(self.settings, self.group_id).events()[-20:]

    def until(self, is_so: Callable[[], object], *, alone: Callable[[], object] | None = None) -> None:
        """Call `turn`, or `alone` if it is given, until the condition holds."""
        until_s = time.monotonic() + HANG_S
        while not is_so():
            assert time.monotonic() < until_s, (self.account(), self._latest_events())
            (alone or self.turn)()

    def published(self, kind: type) -> Iterator[Any]:
        """Yield this group's events and records of one kind from the beginning, until the caller stops reading."""
        until_s = time.monotonic() + HANG_S
        for line in follow(
            self.settings, groups={self.group_id}, from_beginning=True, stop=lambda: time.monotonic() > until_s
        ):
            if isinstance(line.record, kind):
                yield line.record

    def rebalances(self) -> list[tuple[str, str]]:
        """Return the cause and the given reason of each rebalance so far."""
        events = Reader(self.settings, self.group_id).events()
        return [(e["cause"], e["reason"] or "") for e in events if e["event"] == "rebalance_started"]

    def requests(self, kind: str) -> list[dict[str, Any]]:
        """Return this group's requests of one kind that the log has until now."""
        records = Reader(self.settings, self.group_id).records(self.settings.requests_topic)
        mine = [json.loads(record.value) for record in records if record.key == self.group_id.encode()]
        return [request for request in mine if request["kind"] == kind]

    @property
    def asker(self) -> Asker:
        """An asker for this group that is no member of it."""
        if self._asker is None:
            settings = self.settings
            transport = self._stack.enter_context(Transport(settings.kafka_client_arguments(), settings.topic_prefix))
            self._asker = Asker(transport, self.group_id)
        return self._asker

    def expel(self, member_id: str) -> None:
        """Expel a member as an operator; the member gets no notice."""
        assert self.asker.administer(ExpelMember, member_id=member_id, reason="for the test").error == "NONE"


class Stage(Group):
    """A topic and the consumers of a group, driven by turns from the test's own thread."""

    def __init__(self, settings: Settings, partitions: int) -> None:
        super().__init__(settings)
        self.topic = f"work-{self.number}"
        self.consumers: list[GroupConsumer] = []
        self.read: list[Any] = []  # the records of all turns
        self.create(self.topic, partitions)

    def create(self, topic: str, partitions: int = 1) -> str:
        with KafkaAdminClient(bootstrap_servers=self.settings.bootstrap_servers) as admin:
            wanted = {"num_partitions": partitions, "replication_factor": 1}
            admin.create_topics({topic: wanted}, wait_for_metadata=True)
        return topic

    def config(self, **more: Any) -> dict[str, Any]:
        return super().config(**{"auto_offset_reset": "earliest", "enable_auto_commit": False} | more)

    def consumer(self, *topics: str, listener: ConsumerRebalanceListener | None = None, **more: Any) -> GroupConsumer:
        """Add a consumer of the given topics, or of the stage's topic if none is given."""
        topics = topics or (self.topic,)
        consumer = GroupConsumer(*topics, **self.config(**more))
        self._stack.callback(consumer.close)
        if listener is not None:
            consumer.subscribe(topics, listener=listener)
        self.consumers.append(consumer)
        return consumer

    def worker(self, **more: Any) -> Worker:
        return super().worker(**{"topic": self.topic} | more)

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic, number)

    def produce(self, *records: bytes, partition: int = 0) -> None:
        producer = KafkaProducer(bootstrap_servers=self.settings.bootstrap_servers)
        for record in records:
            producer.send(self.topic, record, partition=partition)
        producer.close()

    def turn(self) -> None:
        for consumer in self.consumers:
            for records in consumer.poll(TURN_MS).values():
                self.read += records

    def account(self) -> object:
        return [(c.state, c.assignment()) for c in self.consumers]

    def shares(self) -> list[list[int]]:
        return [numbers(c.assignment()) for c in self.consumers]

    def is_shared_out(self, *shares: list[int]) -> bool:
        return self.are_settled() and sorted(self.shares()) == sorted(shares)

    def are_settled(self) -> bool:
        return all(map(is_settled, self.consumers))


def is_settled(member: GroupConsumer | GroupMember) -> bool:
    """Return whether a member is Stable and its owner has been told the generation's assignment."""
    return member.state is MemberState.STABLE and member._participant.assigned_generation == member.generation


def read(consumer: GroupConsumer, count: int) -> list[bytes]:
    """Poll until this many records have come, and return their values."""
    records: list[bytes] = []
    until_s = time.monotonic() + HANG_S
    while len(records) < count and time.monotonic() < until_s:
        polled = consumer.poll(100, max_records=count - len(records))
        records += [record.value for batch in polled.values() for record in batch]
    return records


MakeStage = Callable[[int], Stage]
"""A function that makes a stage whose topic has the given number of partitions."""


def calls(listener: Listener, kind: str) -> list[list[int]]:
    """Return the partitions of each call of one kind: `assigned`, `revoked` or `lost`."""
    return [partitions for what, partitions in listener.calls if what == kind]


def at(offset: int, metadata: str = "") -> OffsetAndMetadata:
    """Return an offset in the form in which a consumer commits it."""
    return OffsetAndMetadata(offset, metadata, -1)
