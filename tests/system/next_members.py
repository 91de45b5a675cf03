"""Members of groups of the consumer protocol (KIP-848) for tests: librdkafka's consumers, each with its own thread."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from coordinator.messages.consumer_requests import ConsumerGroupDescribe
from coordinator.messages.responses import ConsumerGroupDescribeAnswer
from streaming.client.transport import Transport
from tests.system.asking import TOLD_BY_THE_TRANSPORT
from tests.system.waiting import wait_until

POLL_S = 0.05

Partition = tuple[str, int]
Call = tuple[str, set[Partition]]
"""A call of a listener: `assigned`, `revoked` or `lost`, and the partitions."""


class Member:
    """A consumer that a thread polls until it is closed.

    Args:
        topics: Names, or one pattern that begins with ^.
        options: Settings of librdkafka, with underscores in place of dots.

    Attributes:
        calls: The calls of its listener so far.
        owned: Its partitions, according to these calls.
        read: The offsets of the records that it has read.
        errors: The errors that it has reported.
        request_timeouts: The requests for which it gave up waiting, of all its connections.
    """

    def __init__(self, bootstrap: str, group_id: str, *topics: str, **options: Any) -> None:
        self.calls: list[Call] = []
        self.owned: set[Partition] = set()
        self.read: dict[Partition, list[int]] = {}
        self.errors: list[KafkaError] = []
        self.request_timeouts = 0
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "error_cb": self.errors.append,
            "stats_cb": self._count,
            "statistics.interval.ms": 1_000,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        self._consumer = Consumer(config)
        self._consumer.subscribe(
            list(topics),
            on_assign=lambda _, partitions: self._called("assigned", partitions),
            on_revoke=lambda _, partitions: self._called("revoked", partitions),
            on_lost=lambda _, partitions: self._called("lost", partitions),
        )
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<{sorted(self.owned)}, {self.calls}, {self.errors}>"

    @property
    def numbers(self) -> list[int]:
        """The numbers of its partitions."""
        return sorted(number for _, number in self.owned)

    @property
    def fatal(self) -> str:
        """The text of its fatal error; empty without one."""
        return next((str(error.str()) for error in self.errors if error.code() == KafkaError._FATAL), "")

    def close(self) -> None:
        """Close the consumer: it leaves its group."""
        self._closing.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._closing.is_set():
            message = self._consumer.poll(POLL_S)
            if message is not None and message.error() is not None:
                self.errors.append(message.error())
            elif message is not None:
                self.read.setdefault((message.topic(), message.partition()), []).append(message.offset())
        self._consumer.close()

    def _called(self, what: str, partitions: list[TopicPartition]) -> None:
        named = {(each.topic, each.partition) for each in partitions}
        self.owned = self.owned | named if what == "assigned" else self.owned - named
        if named:  # librdkafka also calls with no partitions, when only others have moved
            self.calls.append((what, named))

    def _count(self, statistics: str) -> None:
        self.request_timeouts = sum(each["req_timeouts"] for each in json.loads(statistics)["brokers"].values())


class Group:
    """A group of the consumer protocol."""

    def __init__(self, transport: Transport, bootstrap: str, group_id: str) -> None:
        self.group_id = group_id
        self._transport, self._bootstrap = transport, bootstrap
        self.members: list[Member] = []

    @classmethod
    @contextmanager
    def of(cls, transport: Transport, bootstrap: str, group_id: str) -> Iterator[Self]:
        """Yield a group; at the end of the block, its members leave."""
        with ExitStack() as stack:
            group = cls(transport, bootstrap, group_id)
            stack.callback(lambda: [member.close() for member in group.members])
            yield group

    def join(self, *topics: str, **options: Any) -> Member:
        member = Member(self._bootstrap, self.group_id, *topics, **options)
        self.members.append(member)
        return member

    def close(self, member: Member) -> None:
        self.members.remove(member)
        member.close()

    def describe(self) -> ConsumerGroupDescribeAnswer:
        answer = self._transport.ask(ConsumerGroupDescribe(**TOLD_BY_THE_TRANSPORT, group_id=self.group_id), 600)
        assert isinstance(answer, ConsumerGroupDescribeAnswer), answer
        return answer

    def until_shared(self, *topics: str, partitions: int) -> None:
        """Wait until each partition of the topics has one owner, and every member has the same number, or one more."""
        everything = {(topic, number) for topic in topics for number in range(partitions)}

        def is_shared() -> bool:
            owned = [set(member.owned) for member in self.members]
            sizes = list(map(len, owned))
            return set().union(*owned) == everything and sum(sizes) == len(everything) and max(sizes) - min(sizes) <= 1

        wait_until(is_shared, account=lambda: self.members)
