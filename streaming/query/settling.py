"""The ends of transactions: a thread reads them from the transactions topic, and reports them to the coordinator.

Gateways write a record to the topic for each commit inside a transaction, as a part of that transaction. The brokers
write there how it ended. A reader of committed records gets a record only when its transaction was committed, and only
when all transactions that began before it have ended. It reaches the end of a partition when no open transaction has a
record before it. So for each partition, the offset of the shard with the same number:

    a record                    its commit is committed
    the reader's position       all transactions with a record before it have ended; those without a record are aborted

Each report is a request to the coordinator, so a replay contains it. Reported records are deleted at the brokers, so
the next start reads only what may not be reported yet. A report that is sent again changes nothing.

An open transaction holds back all that are later in its partition, until it ends or its timeout passes. Until then,
fetches of stable offsets wait.

Source: KIP-98 (last stable offset).
"""

import logging
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from coordinator.guard import COORDINATOR
from coordinator.limits import SETTLED_COMMITS_MAX
from coordinator.requests import SettleTransactions
from streaming.config.settings import Settings
from streaming.errors import UserError
from streaming.kafka import topics
from streaming.kafka.clients import ANSWER_WAIT_S, Options, admin, consumer, producer
from streaming.moments import monotonic_ms, unix_ms
from streaming.wire.signing import Signer

log = logging.getLogger(__name__)

CLIENT_ID = "coordinator-transactions"
RECORDS_AT_ONCE = SETTLED_COMMITS_MAX
POLL_S = 0.5
DELETE_EVERY_MS = 60_000
SEND_WAIT_MS = 600_000
"""How long a report may wait for unavailable brokers. After it, the reader begins again at the oldest record."""

CLOSE_WAIT_S = 2.0

END_WAIT_MS = 500
"""After an aborted transaction, the reader learns that it has reached the end when the brokers have had nothing new for
so long. A committed record comes at once."""

_READING: Options = {
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": END_WAIT_MS,
    "fetch.queue.backoff.ms": 0,
    "queued.max.messages.kbytes": 16_384,
}


class Settling:
    """What is read and not reported yet. This class does not use Kafka.

    Args:
        topic_id: The id of the topic.
    """

    def __init__(self, topic_id: str) -> None:
        self._topic_id = topic_id
        self._committed: defaultdict[int, list[int]] = defaultdict(list)
        self._read_to: dict[int, int] = {}
        self._reported: dict[int, int] = {}

    def take(self, partition: int, offset: int) -> None:
        """Add a committed record."""
        self._committed[partition].append(offset)
        self._read_to[partition] = offset + 1

    def reach(self, partition: int, offset: int) -> None:
        """Note that the reader has reached the end of a partition."""
        self._read_to[partition] = max(offset, self._read_to.get(partition, 0))

    def reports(self) -> Iterator[tuple[int, SettleTransactions]]:
        """Yield the reports that are due, each with its shard."""
        for partition, read_to in self._read_to.items():
            if read_to <= self._reported.get(partition, 0):
                continue
            committed = self._committed.pop(partition, [])
            while len(committed) > SETTLED_COMMITS_MAX:
                some, committed = committed[:SETTLED_COMMITS_MAX], committed[SETTLED_COMMITS_MAX:]
                yield partition, self._report(some[-1] + 1, some)
            yield partition, self._report(read_to, committed)
            self._reported[partition] = read_to

    def _report(self, settled_before: int, committed: list[int]) -> SettleTransactions:
        return SettleTransactions(
            request_id=f"settle-{uuid.uuid4().hex}",
            reply_to=CLIENT_ID,
            client_id="coordinator",
            principal=COORDINATOR,
            topic_id=self._topic_id,
            settled_before=settled_before,
            committed=tuple(committed),
        )

    @property
    def reported(self) -> Mapping[int, int]:
        """By partition, the offset before which all records are reported."""
        return self._reported


class TransactionWatch:
    """A thread that reads the transactions topic and reports how transactions have ended."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._signer = Signer(settings.signing(), COORDINATOR)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="transactions", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._closing.is_set():
            try:
                self._read()
            except (KafkaException, UserError) as error:
                log.warning("the ends of transactions could not be read or reported; it is tried again: %s", error)
                self._closing.wait(POLL_S)

    def _read(self) -> None:
        """Read the topic from its oldest record on, until the thread is to stop.

        Raises:
            KafkaException: The topic cannot be read, or a report was not stored.
            UserError: The topic is missing, or no broker answers.
        """
        topic_id = topics.topic_ids(self._settings)[self._settings.transactions_topic]
        settling, deleting = Settling(topic_id), Deleting(self._settings)
        sender = producer(self._settings, CLIENT_ID, {"linger.ms": 0, "message.timeout.ms": SEND_WAIT_MS})
        reader = self._open()
        try:
            while not self._closing.is_set():
                for message in reader.consume(RECORDS_AT_ONCE, POLL_S):
                    _take(settling, message)
                if self._report(settling, sender):
                    deleting.delete(settling.reported)
        finally:
            reader.close()
            sender.flush(CLOSE_WAIT_S)

    def _open(self) -> Consumer:
        reader = consumer(self._settings, CLIENT_ID, _READING)
        topic = self._settings.transactions_topic
        partitions = range(self._settings.request_partitions)
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        return reader

    def _report(self, settling: Settling, sender: Producer) -> bool:
        """Send the reports that are due. Return whether all reports so far are stored.

        Raises:
            KafkaException: A report was not stored.
        """
        errors: list[KafkaError] = []

        def note(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)

        for shard, report in settling.reports():
            value = self._signer.value_of(report, unix_ms())
            sender.produce(self._settings.requests_topic, value, partition=shard, on_delivery=note)
        unsent = sender.flush(POLL_S)
        if errors:
            raise KafkaException(errors[0])
        return not unsent


class Deleting:
    """The deletion of reported records, once a minute at most."""

    def __init__(self, settings: Settings) -> None:
        self._topic = settings.transactions_topic
        self._admin = admin(settings, CLIENT_ID)
        self._deleted: dict[int, int] = {}
        self._next_ms = monotonic_ms() + DELETE_EVERY_MS

    def delete(self, reported: Mapping[int, int]) -> None:
        """Delete the records before these offsets, if it is time. Those that stay are reported again after a start."""
        wanted = {p: offset for p, offset in reported.items() if offset > self._deleted.get(p, 0)}
        if not wanted or monotonic_ms() < self._next_ms:
            return
        self._next_ms = monotonic_ms() + DELETE_EVERY_MS
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in wanted.items()]
        for place, deleted in self._admin.delete_records(places, request_timeout=ANSWER_WAIT_S).items():
            try:
                deleted.result(2 * ANSWER_WAIT_S)
            except KafkaException as error:
                log.warning("reported records of transactions could not be deleted: %s", error)
            else:
                self._deleted[place.partition] = place.offset


def _take(settling: Settling, message: Message) -> None:
    error, partition, offset = message.error(), message.partition(), message.offset()
    assert partition is not None, "all messages and their errors have a partition"
    if error is None:
        assert offset is not None, "a record has an offset"
        settling.take(partition, offset)
    elif error.code() == KafkaError._PARTITION_EOF:
        assert offset is not None, "the end of a partition has an offset"
        settling.reach(partition, offset)
    elif not error.retriable():
        raise KafkaException(error)
