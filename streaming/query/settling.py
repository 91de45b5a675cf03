"""The ends of transactions: a thread reads them from the transactions topic, and reports them to the coordinator.

Gateways write a record to the topic for each commit inside a transaction, as a part of that transaction. The brokers
write there how it ended. A reader of committed records gets a record only when its transaction was committed, and only
when all transactions that began before it have ended. It reaches the end of a partition when no open transaction has a
record before it. So for each partition, the offset of the shard with the same number:

    a record                    its commit is committed
    the reader's position       all transactions with a record before it have ended; those without a record are aborted

Each report is a request to the coordinator, so a replay contains it. A report begins where the shard has settled all,
as the figures of the shard's latest batch show it. A shard has one report at a time: the next one follows when a batch
has handled it. A report that was lost, refused or handled in part is so sent again, and one that comes twice changes
nothing. Records that the shard has settled are deleted at the brokers.

An open transaction holds back all that are later in its partition, until it ends or its timeout passes. Until then,
fetches of stable offsets wait.

Source: KIP-98 (last stable offset).
"""

import logging
import threading
import uuid
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from coordinator.guard import COORDINATOR
from coordinator.limits import SETTLED_COMMITS_MAX
from coordinator.requests import SettleTransactions
from streaming.config.settings import Settings
from streaming.kafka import topics
from streaming.kafka.clients import ANSWER_WAIT_S, Options, admin, consumer, producer
from streaming.moments import monotonic_ms, unix_ms
from streaming.query.progress import Tallies
from streaming.query.threads import keep_at
from streaming.query.unsettled import Unsettled
from streaming.wire.signing import Signer

log = logging.getLogger(__name__)

CLIENT_ID = "coordinator-transactions"
RECORDS_AT_ONCE = SETTLED_COMMITS_MAX
UNREPORTED_MAX = 100 * SETTLED_COMMITS_MAX
"""Committed records that may wait for their reports. Beyond it nothing is read; the other records stay in the topic."""

IDLE_WAIT_S = 0.5
REPORT_WAIT_S = 0.05
"""The wait for new records while a report is on its way."""

DELETE_EVERY_MS = 60_000
SEND_WAIT_MS = 60_000
"""How long a report may wait for unavailable brokers; a signature may be older than this. Then a new report is made."""

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

Settled = tuple[str, int]
"""The id of the transactions topic that a shard knows, and the place before which it has settled all."""


class OnItsWay(NamedTuple):
    """A report that no batch has handled yet.

    Args:
        request_id: The id of the report.
        offset: Its offset in the shard's partition of the request topic; None before the brokers have it.
    """

    request_id: str
    offset: int | None = None


class Settling:
    """What is read, and what the shards have settled of it. This class does not use Kafka.

    Args:
        topic_id: The id of the topic.
    """

    def __init__(self, topic_id: str) -> None:
        self._topic_id = topic_id
        self._committed: defaultdict[int, list[int]] = defaultdict(list)
        self._read_to: dict[int, int] = {}
        self._on_their_way: dict[int, OnItsWay] = {}
        self._known: dict[int, str] = {}
        self.settled: dict[int, int] = {}
        """By partition, the offset before which its shard has settled all."""

    def take(self, partition: int, offset: int) -> None:
        """Add a committed record."""
        self._committed[partition].append(offset)
        self._read_to[partition] = offset + 1

    def reach(self, partition: int, offset: int) -> None:
        """Note that the reader has reached the end of a partition."""
        self._read_to[partition] = max(offset, self._read_to.get(partition, 0))

    def note(self, handled: Mapping[int, int], settled: Mapping[int, Settled]) -> None:
        """Note what the batches have done so far.

        Args:
            handled: By shard, the offset of the request topic before which all requests are handled.
            settled: What each shard has settled, not older than `handled`.
        """
        for shard, (topic_id, place) in settled.items():
            self._known[shard] = topic_id
            self.settled[shard] = place if topic_id == self._topic_id else 0
            committed = self._committed[shard]
            del committed[: bisect_left(committed, self.settled[shard])]
        for shard, sent in list(self._on_their_way.items()):
            if sent.offset is not None and sent.offset < handled.get(shard, 0):
                del self._on_their_way[shard]

    def reports(self) -> Iterator[tuple[int, SettleTransactions]]:
        """Yield the reports that are due, each with its shard. A shard that knows another topic gets one at once."""
        for partition, read_to in self._read_to.items():
            if partition in self._on_their_way or partition not in self._known:
                continue
            begin = self.settled[partition]
            if read_to > begin or self._known[partition] not in ("", self._topic_id):
                report = self._report(begin, read_to, self._committed[partition])
                self._on_their_way[partition] = OnItsWay(report.request_id)
                yield partition, report

    def sent(self, shard: int, request_id: str, offset: int | None) -> None:
        """Note that the brokers have a report at this offset; None if they do not take it."""
        if self._on_their_way.get(shard, OnItsWay("")).request_id != request_id:
            return
        if offset is None:
            del self._on_their_way[shard]
        else:
            self._on_their_way[shard] = OnItsWay(request_id, offset)

    def _report(self, begin: int, read_to: int, committed: list[int]) -> SettleTransactions:
        some = committed[:SETTLED_COMMITS_MAX]
        return SettleTransactions(
            request_id=f"settle-{uuid.uuid4().hex}",
            reply_to=CLIENT_ID,
            client_id="coordinator",
            principal=COORDINATOR,
            topic_id=self._topic_id,
            settled_from=begin,
            settled_before=read_to if len(some) == len(committed) else some[-1] + 1,
            committed=tuple(some),
        )

    @property
    def is_waiting(self) -> bool:
        """True if a report is on its way."""
        return bool(self._on_their_way)

    @property
    def unreported(self) -> int:
        """The number of committed records that no shard has settled."""
        return sum(map(len, self._committed.values()))


class TransactionWatch:
    """A thread that reads the transactions topic and reports how transactions have ended.

    Attributes:
        unsettled: The figures of the transactions that no shard has settled.

    Args:
        tallies: The figures of the batches, with the places that the shards have settled.
    """

    def __init__(self, settings: Settings, tallies: Tallies) -> None:
        self._settings, self._tallies = settings, tallies
        self.unsettled = Unsettled()
        self._signer = Signer(settings.signing(), COORDINATOR)
        self._closing = threading.Event()
        # while this thread stands still, all offsets inside transactions stay pending
        self._thread = threading.Thread(
            target=keep_at,
            args=(self._read, "the reading of how transactions have ended", self._closing),
            name="transactions",
            daemon=True,
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _read(self) -> None:
        """Read the topic from its oldest record on, until the thread is to stop.

        Raises:
            KafkaException: The topic cannot be read.
            UserError: The topic is missing, or no broker answers.
        """
        topic_id = topics.topic_ids(self._settings)[self._settings.transactions_topic]
        settling, deleting = Settling(topic_id), Deleting(self._settings)
        sender = producer(self._settings, CLIENT_ID, {"linger.ms": 0, "message.timeout.ms": SEND_WAIT_MS})
        reader = self._open()
        try:
            while not self._closing.is_set():
                wait_s = REPORT_WAIT_S if settling.is_waiting else IDLE_WAIT_S
                if settling.unreported < UNREPORTED_MAX:
                    for message in reader.consume(RECORDS_AT_ONCE, wait_s):
                        _take(settling, message)
                else:
                    self._closing.wait(wait_s)
                self._report(settling, sender)
                self.unsettled.note(self._ends(reader), settling.settled, monotonic_ms())
                deleting.delete(settling.settled)
        finally:
            reader.close()
            sender.flush(CLOSE_WAIT_S)

    def _open(self) -> Consumer:
        reader = consumer(self._settings, CLIENT_ID, _READING)
        topic = self._settings.transactions_topic
        partitions = range(self._settings.request_partitions)
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        return reader

    def _ends(self, reader: Consumer) -> dict[int, int]:
        """Return the ends of the partitions as the last responses had them, open transactions included."""
        ends = {}
        for place in reader.assignment():
            marks = reader.get_watermark_offsets(place, cached=True)
            if marks is not None and marks[1] >= 0:
                ends[place.partition] = marks[1]
        return ends

    def _report(self, settling: Settling, sender: Producer) -> None:
        """Send the reports that are due."""
        sender.poll(0)
        handled = self._tallies.read_to
        settling.note(handled, self._tallies.settled)  # read last, so it is not older
        for shard, report in settling.reports():
            value = self._signer.value_of(report, unix_ms())
            told = partial(_delivered, settling, shard, report.request_id)
            sender.produce(self._settings.requests_topic, value, partition=shard, on_delivery=told)


def _delivered(settling: Settling, shard: int, request_id: str, error: KafkaError | None, message: Message) -> None:
    if error is not None:
        log.warning("the brokers do not take a report of ended transactions; another one is made: %s", error)
    settling.sent(shard, request_id, None if error is not None else message.offset())


class Deleting:
    """The deletion of settled records, once a minute at most."""

    def __init__(self, settings: Settings) -> None:
        self._topic = settings.transactions_topic
        self._admin = admin(settings, CLIENT_ID)
        self._deleted: dict[int, int] = {}
        self._next_ms = monotonic_ms() + DELETE_EVERY_MS

    def delete(self, settled: Mapping[int, int]) -> None:
        """Delete the records before these offsets, if it is time. Those that stay are read again after a start."""
        wanted = {p: offset for p, offset in settled.items() if offset > self._deleted.get(p, 0)}
        if not wanted or monotonic_ms() < self._next_ms:
            return
        self._next_ms = monotonic_ms() + DELETE_EVERY_MS
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in wanted.items()]
        for place, deleted in self._admin.delete_records(places, request_timeout=ANSWER_WAIT_S).items():
            try:
                deleted.result(2 * ANSWER_WAIT_S)
            except (KafkaException, TimeoutError) as error:
                log.warning("settled records of transactions could not be deleted: %s", error)
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
