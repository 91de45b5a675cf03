"""The only reader of topics. It reads up to their ends at the time when it was made, or continues as they grow.

    begins at    the beginning of each partition; its newest records (`newest`); an offset (`seek`); its end
                 (`seek_to_ends`)
    ends at      the end of each partition when the reader was made (`backlog`), or never (`poll`, `gather`)
    bounds       records (`newest`), time (`within_s`), silence of the brokers (`silence_s`)

librdkafka reports the end of a partition. So the reader also skips offsets before the end that have no record, because
they belong to a transaction's marker or because compaction has removed the record.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self, TypeVar

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition

from coordinator.base.limits import RECORD_BYTES_MAX
from streaming.config.settings import Settings
from streaming.config.timeouts import ATTEMPT_WAIT_S, LEADERS_WAIT_S, RETRY_WAIT_S
from streaming.errors import BrokerUnreachable, NoCoordinator, UserError
from streaming.kafka.brokers import unreachable
from streaming.kafka.clients import TIMED_OUT, Options, consumer, learn_leaders, metadata, poll_all
from streaming.kafka.offsets import TopicAndPartition

RECORDS_AT_ONCE = 2_000
POLL_S = 0.2
SILENCE_S = 60.0
"""The time without a record from the brokers after which reading fails."""
REPORT_EVERY_S = 10.0

_OPTIONS: Options = {
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",  # as the query reads: no record of the coordinator is in a transaction
    "check.crcs": True,
    "fetch.wait.max.ms": 500,
    "fetch.queue.backoff.ms": 0,
    "fetch.message.max.bytes": 2 * RECORD_BYTES_MAX,
    "queued.max.messages.kbytes": 32_768,
}

_RETRIED = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        *TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._MAX_POLL_EXCEEDED,
    }
)
"""Errors after which librdkafka retries by itself, although it does not call them retriable."""

_LEADER_MOVES = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,  # a new leader does not know yet up to where its records are replicated
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError._NOENT,
        KafkaError._DESTROY_BROKER,  # the leader is no member of the cluster any more
        KafkaError._WAIT_CACHE,
    }
)
"""Errors of a partition that was created a moment ago, or whose leader has died: not every broker knows the leader."""

T = TypeVar("T")


class Record(NamedTuple):
    """A record of a topic.

    Args:
        timestamp: Unix milliseconds.
        headers: Only of a tombstone; the headers of other records are not read.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


class TopicUnread(UserError):
    """A topic could not be read to its end within the allowed time."""


class Progress:
    """A counter of the records of one reader or of several, which reports the progress.

    Args:
        report: Called with the number of records read, and with the approximate total.
        every_s: The least time between two reports, seconds.
    """

    def __init__(self, report: Callable[[int, int], None] = lambda read, of: None, every_s: float = 0.0) -> None:
        self._report, self._every_s, self._reported_s = report, every_s, time.monotonic()
        self.read = self.total = 0
        self._is_expected = False

    @classmethod
    def in_words(cls, report: Callable[[str], None]) -> Self:
        """Return a progress that reports in a sentence, every `REPORT_EVERY_S`."""
        return cls(lambda read, of: report(f"Read {read} of about {of} records."), REPORT_EVERY_S)

    def expect(self, records: int) -> None:
        """Set the total of all backlogs that will be read, so that it does not grow with each of them."""
        self.total, self._is_expected = records, True

    def begin(self, records: int) -> None:
        """Add the records of a backlog to the total, unless `expect` has set the total."""
        if not self._is_expected:
            self.total += records

    def count(self, records: int) -> None:
        """Add records that have been read."""
        self.read += records
        if time.monotonic() - self._reported_s >= self._every_s:
            self._reported_s = time.monotonic()
            self._report(self.read, self.total)


class TopicReader:
    """Reads partitions of one topic or of several. Belongs to one thread.

    Args:
        partitions: Called with a topic's number of partitions; returns the partitions to read. All of them by default.
        newest: The approximate maximum number of records of each topic, the newest ones; None for all.
        when_expired: The behaviour if the next records have expired: `earliest` continues with the first record that is
            left, `error` raises BrokerUnreachable.
        silence_s: The time without a record after which a backlog fails.
        on_error: Called with an error of librdkafka, which then retries. By default, an error that librdkafka does
            not retry is raised.

    Raises:
        BrokerUnreachable: no broker answers.
        NoCoordinator: one of the topics does not exist.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Iterable[str],
        client_id: str,
        *,
        partitions: Callable[[int], Collection[int]] = range,
        newest: int | None = None,
        when_expired: str = "earliest",
        silence_s: float = SILENCE_S,
        on_error: Callable[[KafkaError], None] | None = None,
        options: Options | None = None,
    ) -> None:
        self._settings, self._silence_s, self._on_error = settings, silence_s, on_error or self._refuse
        self._assigned: frozenset[TopicAndPartition] = frozenset()
        self._ahead: list[Record] = []  # read already, after the end of the backlog
        wanted = {**_OPTIONS, "auto.offset.reset": when_expired, **(options or {})}
        self._consumer = consumer(settings, client_id, wanted)
        try:
            bounds = {place: self._bounds(place) for place in self._find(list(topics), partitions)}
        except BaseException:
            self._consumer.close()
            raise
        self.begins = {place: low for place, (low, _) in bounds.items()}
        self.ends = {place: high for place, (_, high) in bounds.items()}
        if newest is not None:
            partitions_of = Counter(topic for topic, _ in bounds)
            share = {topic: newest // count for topic, count in partitions_of.items()}
            self.begins = {place: max(low, high - share[place[0]]) for place, (low, high) in bounds.items()}
        self._positions = dict(self.begins)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()

    # -- start positions -----------------------------------------------------------------------------------------------

    def seek(self, positions: Mapping[TopicAndPartition, int]) -> None:
        """Set the offsets to start from in these partitions. Call it before any record of them is read."""
        self._positions |= positions

    def seek_to_ends(self) -> None:
        """Set the start to the topics' ends when the reader was made."""
        self.seek(self.ends)

    def offsets_at(self, at_ms: int) -> dict[TopicAndPartition, int]:
        """Return the offset of the first record of each partition that was appended at a time or later.

        A partition without such a record is omitted.

        Args:
            at_ms: Unix milliseconds.

        Raises:
            BrokerUnreachable: no broker answers.
        """
        asked = [TopicPartition(topic, partition, at_ms) for topic, partition in self.ends]
        found = self._of_leaders(lambda: self._consumer.offsets_for_times(asked, timeout=ATTEMPT_WAIT_S))
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    # -- reading -------------------------------------------------------------------------------------------------------

    def backlog(
        self,
        places: Collection[TopicAndPartition] | None = None,
        progress: Progress | None = None,
        *,
        within_s: float = math.inf,
    ) -> Iterator[Record]:
        """Yield the records up to the topics' ends when the reader was made.

        Args:
            places: The partitions to read, all of them by default. Only one backlog of a reader is read at a time.

        Raises:
            BrokerUnreachable: the brokers are silent, or do not allow the reader to continue.
            TopicUnread: reading takes longer than `within_s`.
        """
        wanted, progress = self.ends if places is None else places, progress or Progress()
        progress.begin(sum(max(0, self.ends[place] - self._positions[place]) for place in wanted))
        heard_s = time.monotonic()
        until_s = heard_s + within_s
        while behind := self._unread(wanted):
            if time.monotonic() > until_s:
                raise TopicUnread(f"{behind[0][0]} could not be read to its end within {within_s:.0f} s.")
            if records := self.poll_backlog(POLL_S, wanted):
                heard_s = time.monotonic()
                yield from records
                progress.count(len(records))
            elif time.monotonic() - heard_s > self._silence_s:
                raise unreachable(self._settings, "{}-{} cannot be read on".format(*behind[0]), [behind[0][0]])

    def poll_backlog(self, wait_s: float, places: Collection[TopicAndPartition] | None = None) -> list[Record]:
        """Return the next records of the backlog as soon as any have come, or none after a time.

        Raises:
            BrokerUnreachable: the brokers do not allow the reader to continue.
        """
        self._assign(self.ends if places is None else places)
        records: list[Record] = []
        for record in self._at_once(wait_s):
            is_within = record.offset < self.ends[record.topic, record.partition]
            (records if is_within else self._ahead).append(record)
        return records

    def poll(self, wait_s: float) -> list[Record]:
        """Return the next records as soon as any have come, or none after a time.

        Raises:
            BrokerUnreachable: the brokers do not allow the reader to continue.
        """
        return self._read_ahead() or self._at_once(wait_s)

    def gather(self, wait_s: float, records_max: int = RECORDS_AT_ONCE) -> list[Record]:
        """Return the records that come within a time, or `records_max` records before it has passed.

        Raises:
            BrokerUnreachable: the brokers do not allow the reader to continue.
        """
        return self._read_ahead() or self._records(self._consumer.consume(records_max, wait_s))

    @property
    def is_caught_up(self) -> bool:
        """Whether all records are read up to the topics' ends when the reader was made."""
        return not self._unread(self.ends)

    def is_at_the_ends(self) -> bool:
        """Return whether all current records of the topics are read.

        Raises:
            BrokerUnreachable: no broker answers.
        """
        return not self._ahead and all(position >= self._bounds(p)[1] for p, position in self._positions.items())

    # -- Kafka ---------------------------------------------------------------------------------------------------------

    def _find(self, topics: Sequence[str], partitions: Callable[[int], Collection[int]]) -> list[TopicAndPartition]:
        with self._answering():
            known = metadata(self._consumer).topics  # a request for one topic would create it
        for topic in topics:
            if topic not in known or not known[topic].partitions:
                raise NoCoordinator.without(topic, self._settings.bootstrap_servers)
        return [(topic, number) for topic in topics for number in sorted(partitions(len(known[topic].partitions)))]

    def _bounds(self, place: TopicAndPartition) -> tuple[int, int]:
        """Request the begin and the end of a partition."""
        wanted = TopicPartition(*place)
        return self._of_leaders(
            lambda: self._consumer.get_watermark_offsets(wanted, timeout=ATTEMPT_WAIT_S, cached=False)
        )

    def _of_leaders(self, ask: Callable[[], T]) -> T:
        """Send a request to the leaders of partitions, again if one of them does not answer or has moved."""
        until_s = time.monotonic() + LEADERS_WAIT_S
        with self._answering():
            while True:
                try:
                    return ask()
                except KafkaException as error:
                    if not may_pass(error) or time.monotonic() >= until_s:
                        raise
                learn_leaders(self._consumer)
                time.sleep(RETRY_WAIT_S)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise unreachable(self._settings, error.args[0].str()) from error

    def _unread(self, places: Iterable[TopicAndPartition]) -> list[TopicAndPartition]:
        return [place for place in places if self._positions[place] < self.ends[place]]

    def _assign(self, places: Iterable[TopicAndPartition]) -> None:
        if self._assigned == (wanted := frozenset(places)):
            return
        for record in reversed(self._ahead):
            self._positions[record.topic, record.partition] = record.offset
        self._assigned, self._ahead = wanted, []
        starts = {place: self._positions[place] if self.ends[place] else OFFSET_BEGINNING for place in wanted}
        self._consumer.assign([TopicPartition(*place, start) for place, start in sorted(starts.items())])

    def _read_ahead(self) -> list[Record]:
        self._assign(self.ends)
        ahead, self._ahead = self._ahead, []
        return ahead

    def _at_once(self, wait_s: float) -> list[Record]:
        return self._records(poll_all(self._consumer, wait_s, RECORDS_AT_ONCE))

    def _records(self, messages: Iterable[Message]) -> list[Record]:
        """Advance the positions past these messages, and return the records among them."""
        records = []
        for message in messages:
            place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
            if (error := message.error()) is None:
                self._positions[place] = offset + 1
                records.append(_record(message, place, offset))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._positions[place] = max(offset, self._positions[place])
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # the right to the unused group
                self._on_error(error)
        return records

    def _refuse(self, error: KafkaError) -> None:
        if not error.retriable() and error.code() not in _RETRIED:
            raise BrokerUnreachable(f"The coordinator's topics cannot be read: {error.str()}.")


def may_pass(error: KafkaException) -> bool:
    """Return whether the leader of a partition may answer later, or another broker that becomes its leader."""
    return error.args[0].code() in _LEADER_MOVES | _RETRIED


def _record(message: Message, place: TopicAndPartition, offset: int) -> Record:
    value, (_, timestamp_ms) = message.value(), message.timestamp()
    headers: Any = () if value is not None else message.headers() or ()
    return Record(*place, offset, timestamp_ms, message.key() or b"", value, headers)
