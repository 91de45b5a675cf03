"""What copiers leave in the topic that they copy to: the judge of exactly-once processing."""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as Place

from tests.clients.play import Play
from tests.clients.worker import Partition, Worker
from tests.system.waiting import wait_until

OPTIONS = {"socket_ms": 60_000, "transaction_ms": 60_000}
"""A copier's configuration beyond a worker's: how long it waits for a response, and the brokers for the end of its
transaction."""

POLL_S = 0.2
RECORDS_MAX = 10_000


class Committed:
    """The committed records of a topic.

    Attributes:
        records: The records that were read so far.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.records: list[Message] = []
        self._at: dict[Place, int] = {}  # the ends that the reader has reached, behind the last markers
        self._places = [Place(topic, number) for number in range(partitions)]
        options = {"bootstrap_servers": bootstrap, "group_id": None, "enable_auto_commit": False}
        self._of_all = KafkaConsumer(**options)
        self._of_committed = KafkaConsumer(**options, isolation_level="read_committed")
        wanted = {"auto.offset.reset": "error", "isolation.level": "read_committed", "enable.partition.eof": True}
        self._reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", **wanted})
        self._reader.assign([TopicPartition(place.topic, place.partition, 0) for place in self._places])

    @classmethod
    @contextmanager
    def of(cls, bootstrap: str, topic: str, partitions: int) -> "Iterator[Committed]":
        """Yield the committed records of a topic; at the end of the block, close all connections."""
        committed = cls(bootstrap, topic, partitions)
        with closing(committed._of_all), closing(committed._of_committed), closing(committed._reader):
            yield committed

    def read(self) -> int:
        """Read more records, and return how many were read so far."""
        for message in self._reader.consume(RECORDS_MAX, POLL_S):
            error = message.error()
            if error is None:
                self.records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._at[Place(message.topic(), message.partition())] = message.offset() or 0
            else:
                raise KafkaException(error)
        return len(self.records)

    @property
    def has_open_transaction(self) -> bool:
        """Whether a transaction with records in the topic is open: its records are hidden, and all behind them."""
        return bool(self._of_all.end_offsets(self._places) != self._of_committed.end_offsets(self._places))

    def read_all(self) -> None:
        """Wait until no transaction is open, and read to the end."""
        wait_until(lambda: not self.has_open_transaction)
        ends = self._of_all.end_offsets(self._places)

        def is_at_end() -> bool:
            self.read()
            return all(self._at.get(place, 0) >= end for place, end in ends.items())

        wait_until(is_at_end, account=lambda: (ends, len(self.records)))

    def values(self, partition: int) -> list[str]:
        """Return the values of a partition's records, in their order."""
        return [(m.value() or b"").decode() for m in self.records if m.partition() == partition]


def latest_offsets(copiers: Iterable[Worker]) -> dict[Partition, int]:
    """Return the offset of each partition that these copiers have committed last."""
    latest: dict[Partition, int] = {}
    for copier in copiers:
        for partition, offset in copier.committed.items():
            latest[partition] = max(offset, latest.get(partition, 0))
    return latest


def assert_copied_once(play: Play, bootstrap: str, sink: str) -> None:
    """Check that each record of the play's topic is in the sink once, and in the order of its partition."""
    produced = {number: [f"{play.name} {number} {offset}" for offset in range(end)] for number, end in play.ends()}
    with Committed.of(bootstrap, sink, len(produced)) as committed:
        committed.read_all()
        for number, values in produced.items():
            found = committed.values(number)
            missing = [value for value in values if value not in found]
            twice = sorted({value for value in found if found.count(value) > 1})
            assert (missing, twice) == ([], []), f"partition {number}: records not copied, and records copied twice"
            assert found == values, f"partition {number}: the copies are not in order"
