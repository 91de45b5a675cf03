"""The watch on late repeats: keys of the groups topic whose last record is an older one are published again.

A driver or an executor that was paused in the middle of a batch may continue after another one has taken over. Spark's
sink cannot prevent it from writing its records once more, after newer records. Compaction keeps the last record of a
key. So a thread reads the topic, all of it once after the start and then as it grows. For every key with a late repeat,
the thread sends a `republish_group` request to the coordinator. The request is stored like any other, so a replay
contains it.

    a batch that a new driver repeats   repeats all of its records, up to the highest version: no request is sent
    `SETTLING_MS` after a late repeat   keys that still are late are requested, at most `KEYS_AT_ONCE` a second
    beyond `KEYS_MAX` keys              the groups without a record for longest are dropped, and not watched until they
                                        publish again
"""

import logging
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Producer
from msgspec import Struct, field

from coordinator.base.limits import REPUBLISHED_OFFSETS_MAX
from coordinator.common.authorizer import COORDINATOR
from coordinator.messages.requests import RepublishGroup, TopicPartition
from streaming.config.settings import Settings
from streaming.kafka.clients import producer
from streaming.kafka.reader import Record, TopicReader
from streaming.moments import monotonic_ms, unix_ms
from streaming.watcher import Watcher
from streaming.wire.newest_records import NewestRecords, Order, order_in
from streaming.wire.records import AT_MS, VERSION, decode_group_key
from streaming.wire.signing import Signer

log = logging.getLogger(__name__)

SETTLING_MS = 2_000
"""The time after which a repeated batch is complete, counted from its first repeated record. It is far longer than the
time between its records."""

KEYS_MAX = 100_000
"""The maximum number of watched keys, of some 300 bytes each."""

KEYS_AT_ONCE = REPUBLISHED_OFFSETS_MAX
"""The maximum number of keys that are requested in a second. The other keys wait."""

CLIENT_ID = "coordinator-repeats"
RECORDS_AT_ONCE = 2_000
BACKLOG_PAUSE_S = 0.05
"""The pause between two reads of the existing records, so that the query has priority: 40,000 records a second at
most."""

POLL_S = 1.0
ASK_EVERY_MS = 1_000
SEND_WAIT_MS = 600_000
"""How long a request may wait for unavailable brokers. Only the next start would request these keys again."""

CLOSE_WAIT_S = 2.0


class _Group(Struct):
    """A group, and the last records of its keys.

    Args:
        late_ms: When the oldest late repeat that is not requested yet was read; None if no such repeat exists.
    """

    shard: int
    newest: NewestRecords = field(default_factory=NewestRecords)
    late_ms: int | None = None


class Repeats:
    """The keys whose last record is a late repeat. This class does not use Kafka."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._late: dict[str, None] = {}
        self._keys = 0
        self._next_ms = 0

    def handle(self, shard: int, key: bytes, order: Order | None, now_ms: int) -> None:
        """Add the next record of a partition.

        Args:
            order: The record's place in the order of its key; None if the record does not contain it.
            now_ms: The reader's time, from any clock that never goes back.
        """
        try:
            group_id = str(decode_group_key(key)[1])
        except ValueError:
            return
        if order is None:
            return
        group = self._groups.pop(group_id, None) or _Group(shard)
        self._groups[group_id] = group
        before = len(group.newest.newest)
        group.newest.add(key, order)
        self._keys += len(group.newest.newest) - before
        if not group.newest.late:
            group.late_ms = None
            self._late.pop(group_id, None)
        elif group.late_ms is None:
            group.late_ms = now_ms
            self._late[group_id] = None
        self._make_room()

    def overdue(self, now_ms: int) -> Iterator[tuple[int, RepublishGroup]]:
        """Yield requests for late keys that no later record has corrected, each with its shard.

        A requested key is not requested again unless it is repeated late again.
        """
        room = KEYS_AT_ONCE if now_ms >= self._next_ms else 0
        for group_id in list(self._late):
            group = self._groups[group_id]
            if group.late_ms is None or group.late_ms > now_ms - SETTLING_MS or not room:
                continue
            self._next_ms = now_ms + ASK_EVERY_MS
            keys = list(group.newest.late)[:room]
            room -= len(keys)
            for key in keys:
                del group.newest.late[key]
            if not group.newest.late:
                group.late_ms = None
                del self._late[group_id]
            yield group.shard, _request(group_id, [decode_group_key(key) for key in keys if isinstance(key, bytes)])

    def _make_room(self) -> None:
        while self._keys > KEYS_MAX:
            group_id = next(iter(self._groups))
            self._keys -= len(self._groups.pop(group_id).newest.newest)
            self._late.pop(group_id, None)


def _request(group_id: str, keys: list[Any]) -> RepublishGroup:
    return RepublishGroup(
        request_id=f"republish-{uuid.uuid4().hex}",
        reply_to="coordinator-repeats",
        group_id=group_id,
        client_id="coordinator",
        principal=COORDINATOR,
        group=any(kind == "group" for kind, *_ in keys),
        offsets=tuple(TopicPartition(key[2], key[3]) for key in keys if key[0] == "offset"),
    )


class RepeatWatch(Watcher):
    """A thread that reads the groups topic, first all existing records, and requests the keys that were repeated late.

    Args:
        follow: Called with each record of the topic as well, since the whole of it is read here.
    """

    def __init__(self, settings: Settings, follow: Callable[[Record], None] = lambda record: None) -> None:
        super().__init__("the correction of late repeats")
        self._settings, self._repeats, self._follow = settings, Repeats(), follow
        self._signer = Signer(settings.signing(), COORDINATOR)

    def _watch(self) -> None:
        self._repeats = Repeats()  # all records are read anew
        sender = producer(self._settings, CLIENT_ID, {"linger.ms": 0, "message.timeout.ms": SEND_WAIT_MS})
        try:
            with self._open() as topic:
                while not self._closing.is_set():
                    records = topic.gather(POLL_S, RECORDS_AT_ONCE)
                    for record in records:
                        self._handle(record)
                        self._follow(record)
                    if topic.is_caught_up:  # a later record may correct a late repeat, so all records are read first
                        self._request_overdue(sender)
                    if len(records) == RECORDS_AT_ONCE:
                        self._closing.wait(BACKLOG_PAUSE_S)
        finally:
            sender.flush(CLOSE_WAIT_S)

    def _open(self) -> TopicReader:
        return TopicReader(
            self._settings,
            [self._settings.groups_topic],
            CLIENT_ID,
            partitions=lambda _: range(self._settings.request_partitions),
            on_error=lambda error: log.warning(
                "the groups topic could not be read for late repeats; the read is retried: %s", error.str()
            ),
            options={"fetch.wait.max.ms": 1_000, "queued.max.messages.kbytes": 16_384},
        )

    def _handle(self, record: Record) -> None:
        numbers = {name: number for name, number in record.headers if name in (VERSION, AT_MS) and number.isdigit()}
        version, at_ms = (int(numbers[name]) if name in numbers else None for name in (VERSION, AT_MS))
        order = order_in(record.value, version, at_ms)
        self._repeats.handle(record.partition, record.key, order, monotonic_ms())

    def _request_overdue(self, sender: Producer) -> None:
        for shard, request in self._repeats.overdue(monotonic_ms()):
            log.warning(
                "another writer has repeated records of a group late, and they are written again: %r, %d keys",
                request.group_id, len(request.offsets) + request.group,
            )  # fmt: skip
            value = self._signer.value_of(request, unix_ms())
            sender.produce(self._settings.requests_topic, value, request.group_id.encode(), partition=shard)
        sender.poll(0)
