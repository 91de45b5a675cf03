"""The ends of transactions: a thread reads them from the transactions topic, and reports them to the coordinator.

Gateways write a record to the topic for each commit inside a transaction, as a part of that transaction. The brokers
write there how it ended, in a control record with the id of its producer. It ends all records of that producer since
the end of its last transaction: a producer has one transaction at a time. So the order of ends is that of the log, and
no transaction waits for another.

A report is due when a transaction has ended. It names the transactions that ended, and those that are open at the
offset up to which it goes. Each report is a request to the coordinator, so a replay contains it. A report begins where
the shard has settled all, as the figures of the shard's latest batch show it. A shard has one report at a time: the
next one follows when a batch has handled it. A report that was lost, refused or handled in part is so sent again, and
one that comes twice changes nothing. Records that no later report can need are deleted at the brokers.

Source: KIP-98 (control records).
"""

import logging
import threading
import time
import uuid
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from coordinator.base.limits import ENDED_TRANSACTIONS_MAX, OPEN_TRANSACTIONS_MAX, OPEN_TRANSACTIONS_NAMED_MAX
from coordinator.common.authorizer import COORDINATOR
from coordinator.messages.requests import EndedTransaction, OpenTransaction, SettleTransactions
from streaming.config.settings import Settings
from streaming.errors import UserError
from streaming.kafka import topics
from streaming.kafka.clients import producer
from streaming.kafka.deleting import delete_records
from streaming.kafka.transaction_log import Batch, TransactionLog
from streaming.moments import monotonic_ms, unix_ms
from streaming.query.watchers.progress import Tallies
from streaming.watcher import Watcher
from streaming.wire.signing import Signer

log = logging.getLogger(__name__)

# -- figures -----------------------------------------------------------------------------------------------------------


class _Wait(NamedTuple):
    """The place that a shard has to settle next, the records from there on, and since when it is that place."""

    place: int
    records: int
    since_ms: int


class Unsettled:
    """The records of the transactions topic that are not settled, by shard. Any thread may read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: dict[int, _Wait] = {}

    def record(self, ends: Mapping[int, int], settled: Mapping[int, int], now_ms: int) -> None:
        """Note the ends of the topic's partitions, and the places before which the shards have settled all.

        Args:
            now_ms: The time of this machine's monotonic clock.
        """
        with self._lock:
            for shard, end in ends.items():
                place = settled.get(shard)
                if place is None or place >= end:
                    self._waits.pop(shard, None)
                    continue
                before = self._waits.get(shard)
                since_ms = before.since_ms if before is not None and before.place == place else now_ms
                self._waits[shard] = _Wait(place, end - place, since_ms)

    def records(self) -> dict[int, int]:
        """Return the number of unsettled records of each shard that has any, with the marks of the brokers."""
        with self._lock:
            return {shard: wait.records for shard, wait in self._waits.items()}

    def waited_ms(self, now_ms: int) -> dict[int, int]:
        """Return for how long each of these shards has settled nothing.

        Args:
            now_ms: As for `record`.
        """
        with self._lock:
            return {shard: max(0, now_ms - wait.since_ms) for shard, wait in self._waits.items()}


CLIENT_ID = "coordinator-transactions"
UNREPORTED_MAX = 5 * ENDED_TRANSACTIONS_MAX
"""Ended transactions of one shard that may wait for their reports. Beyond it its partition is not read further."""

IDLE_WAIT_S = 0.5
REPORT_WAIT_S = 0.05
"""The wait for new records while a report is on its way."""

LINGER_S = 0.01
"""The wait for further ends before a report: those of clients that end their transactions together share one."""

DELETE_EVERY_MS = 60_000
SEND_WAIT_MS = 60_000
"""How long a report may wait for unavailable brokers; a signature may be older than this. Then a new report is made."""

CLOSE_WAIT_S = 2.0

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
        self._ended: defaultdict[int, list[EndedTransaction]] = defaultdict(list)
        self._open: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._read_to: defaultdict[int, int] = defaultdict(int)
        self._on_their_way: dict[int, OnItsWay] = {}
        self._known: dict[int, str] = {}
        self.settled: dict[int, int] = {}
        """By partition, the offset before which its shard has settled all transactions that have ended."""

    def handle(self, batch: Batch) -> None:
        """Add the next batch of a partition. An end without records is that of records that were deleted."""
        partition, producer_id = batch.partition, batch.producer_id
        if batch.is_committed is None:
            self._open[partition].setdefault(producer_id, batch.first)
        elif (first := self._open[partition].pop(producer_id, None)) is not None:
            self._ended[partition].append(EndedTransaction(producer_id, first, batch.first, batch.is_committed))
        self._read_to[partition] = batch.offset + 1

    def record(self, handled: Mapping[int, int], settled: Mapping[int, Settled]) -> None:
        """Note what the batches have done so far.

        Args:
            handled: By shard, the offset of the request topic before which all requests are handled.
            settled: What each shard has settled, not older than `handled`.
        """
        for shard, (topic_id, place) in settled.items():
            self._known[shard] = topic_id
            self.settled[shard] = place if topic_id == self._topic_id else 0
            ended = self._ended[shard]
            del ended[: bisect_left(ended, self.settled[shard], key=attrgetter("end"))]
        for shard, sent in list(self._on_their_way.items()):
            if sent.offset is not None and sent.offset < handled.get(shard, 0):
                del self._on_their_way[shard]

    def reports(self) -> Iterator[tuple[int, SettleTransactions]]:
        """Yield the reports that are due, each with its shard. A shard that knows another topic gets one at once."""
        for partition, known in self._known.items():
            if partition in self._on_their_way:
                continue
            begin = self.settled[partition]
            before = self._end_of_report(partition, begin)
            if before > begin or known not in ("", self._topic_id):
                report = self._report(partition, begin, before)
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

    def _end_of_report(self, partition: int, begin: int) -> int:
        """Return the highest offset up to which a report stays within its bounds; `begin` if nothing has ended.

        If more have ended than one report may name, while too many were open all the time, no later offset is within
        both bounds. Then it is the one at which the fewest are open.
        """
        ended, still = self._ended[partition], self._open[partition]
        if not ended:
            return begin
        changes = [(each.end, -1) for each in ended]
        changes += [(first, 1) for first in (*(each.first for each in ended), *still.values())]
        end, ends, opened = begin, 0, 0
        fewest = OPEN_TRANSACTIONS_NAMED_MAX, -begin
        for place, change in (*sorted(changes), (self._read_to[partition], 0)):
            if place >= begin and ends <= ENDED_TRANSACTIONS_MAX:
                if opened <= OPEN_TRANSACTIONS_MAX:
                    end = place
                elif ends:
                    fewest = min(fewest, (opened, -place))
            ends, opened = ends + (change < 0), opened + change
        return -fewest[1] if end == begin and ends > ENDED_TRANSACTIONS_MAX else end

    def _report(self, partition: int, begin: int, before: int) -> SettleTransactions:
        ended, still = self._ended[partition], self._open[partition]
        later = [(each.producer_id, each.first) for each in ended if each.end >= before]
        return SettleTransactions(
            request_id=f"settle-{uuid.uuid4().hex}",
            reply_to=CLIENT_ID,
            client_id="coordinator",
            principal=COORDINATOR,
            topic_id=self._topic_id,
            replaces=self._known[partition],
            settled_from=begin,
            settled_before=before,
            ended=tuple(each for each in ended if each.end < before),
            open=tuple(OpenTransaction(*each) for each in (*later, *still.items()) if each[1] < before),
        )

    def needed_from(self) -> dict[int, int]:
        """Return, by partition, the lowest offset that this or a later driver may have to read."""
        needed = {}
        for partition, settled in self.settled.items():
            firsts = (each.first for each in self._ended[partition])
            needed[partition] = min(settled, self._read_to[partition], *firsts, *self._open[partition].values())
        return needed

    @property
    def is_waiting(self) -> bool:
        """True if a report is on its way."""
        return bool(self._on_their_way)

    @property
    def unreported(self) -> int:
        """The number of ended transactions that no shard has settled."""
        return sum(map(len, self._ended.values()))

    @property
    def full(self) -> set[int]:
        """The partitions with so many unreported ends that no more are read."""
        return {partition for partition, ended in self._ended.items() if len(ended) >= UNREPORTED_MAX}

    def unsettled(self, ends: Mapping[int, int]) -> dict[int, int]:
        """Return the ends of the partitions; 0 for one in which all is read, and every ended transaction is settled.

        Args:
            ends: The ends of the partitions at the brokers.
        """
        return {each: end if self._ended[each] or end > self._read_to[each] else 0 for each, end in ends.items()}


class TransactionWatch(Watcher):
    """A thread that reads the transactions topic and reports how transactions have ended.

    While it does not run, all offsets inside transactions stay pending.

    Attributes:
        unsettled: The figures of the transactions that no shard has settled.

    Args:
        tallies: The figures of the batches, with the places that the shards have settled.
    """

    def __init__(self, settings: Settings, tallies: Tallies) -> None:
        super().__init__("the reading of how transactions have ended")
        self._settings, self._tallies = settings, tallies
        self.unsettled = Unsettled()
        self._signer = Signer(settings.signing(), COORDINATOR)

    def _watch(self) -> None:
        """Read the topic from its oldest record on, until the thread is to stop.

        Raises:
            kafka.errors.KafkaError: The topic cannot be read, or was made anew.
            UserError: The topic is missing, or no broker answers.
        """
        topic_id = topics.topic_ids(self._settings)[self._settings.transactions_topic]
        settling, deleting = Settling(topic_id), Deleting(self._settings)
        sender = producer(self._settings, CLIENT_ID, {"linger.ms": 0, "message.timeout.ms": SEND_WAIT_MS})
        topic, partitions = self._settings.transactions_topic, range(self._settings.request_partitions)
        try:
            with TransactionLog(self._settings, topic, topic_id, partitions, CLIENT_ID) as transactions:
                while not self._closing.is_set():
                    wait_s = REPORT_WAIT_S if settling.is_waiting else IDLE_WAIT_S
                    transactions.pause(settling.full)
                    _read_ends(settling, transactions, wait_s)
                    self._report(settling, sender)
                    ends = settling.unsettled(transactions.ends())
                    self.unsettled.record(ends, settling.settled, monotonic_ms())
                    deleting.delete(settling.needed_from())
        finally:
            sender.flush(CLOSE_WAIT_S)

    def _report(self, settling: Settling, sender: Producer) -> None:
        """Send the reports that are due."""
        sender.poll(0)
        handled = self._tallies.read_to
        settling.record(handled, self._tallies.settled)  # read last, so it is not older
        for shard, report in settling.reports():
            value = self._signer.value_of(report, unix_ms())
            told = partial(_delivered, settling, shard, report.request_id)
            sender.produce(self._settings.requests_topic, value, partition=shard, on_delivery=told)


def _read_ends(settling: Settling, transactions: TransactionLog, wait_s: float) -> None:
    """Wait for batches, and for those that come soon after an end: one report has room for all of them."""
    before = settling.unreported
    for batch in transactions.read(wait_s):
        settling.handle(batch)
    until_s = time.monotonic() + LINGER_S
    while settling.unreported > before and (left_s := until_s - time.monotonic()) > 0:
        for batch in transactions.read(left_s):
            settling.handle(batch)


def _delivered(settling: Settling, shard: int, request_id: str, error: KafkaError | None, message: Message) -> None:
    if error is not None:
        log.warning("the brokers do not take a report of ended transactions; another one is made: %s", error)
    settling.sent(shard, request_id, None if error is not None else message.offset())


class Deleting:
    """The deletion of settled records, once a minute at most."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._deleted: dict[int, int] = {}
        self._next_ms = monotonic_ms() + DELETE_EVERY_MS

    def delete(self, settled: Mapping[int, int]) -> None:
        """Delete the records before these offsets, if it is time. Those that stay are read again after a start."""
        wanted = {p: offset for p, offset in settled.items() if offset > self._deleted.get(p, 0)}
        if not wanted or monotonic_ms() < self._next_ms:
            return
        self._next_ms = monotonic_ms() + DELETE_EVERY_MS
        try:
            failed = delete_records(self._settings, self._settings.transactions_topic, wanted)
        except UserError as error:
            failed = dict.fromkeys(wanted, str(error))
        for partition, offset in wanted.items():
            if partition not in failed:
                self._deleted[partition] = offset
        if failed:
            partition, why = min(failed.items())
            log.warning("settled records of transactions could not be deleted, as in partition %d: %s", partition, why)
