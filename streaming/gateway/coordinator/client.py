"""Requests to the coordinator and its answers: one producer and one reader for all connections of a gateway.

A gateway reads one partition of the reply topic. Each of its connections has its own mailbox. The name of a mailbox
begins with the gateway's name and hashes to that partition. So the coordinator distinguishes two clients of one gateway
as it distinguishes two processes. If the leader of the partition cannot be reached, the gateway reads another one from
its end, and opens mailboxes there. Answers to the earlier mailboxes are lost: their requests are answered with an error
that clients retry.

librdkafka works in its own threads. The reading thread delivers lists of answers to the event loop.
"""

import asyncio
import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.base.limits import RECORD_BYTES_MAX
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.requests import Request
from coordinator.messages.responses import AnyAnswer, ErrorAnswer, RebalanceNotice
from streaming.config.settings import Settings
from streaming.config.timeouts import ATTEMPT_WAIT_S, LEADERS_WAIT_S, RETRY_WAIT_S
from streaming.errors import NoCoordinator
from streaming.gateway.coordinator.batching import HeartbeatBatcher, SendSingle
from streaming.gateway.coordinator.outstanding import LOST_AFTER_S, OutstandingHeartbeats, key_of
from streaming.gateway.coordinator.reach import Leaders
from streaming.kafka.brokers import unreachable
from streaming.kafka.clients import (
    Options,
    consumer,
    metadata,
    poll_all,
    producer,
)
from streaming.wire.inbox import Inbox, OnAnswer, read_answer
from streaming.wire.signing import Signer

log = logging.getLogger(__name__)

READ_WAIT_S = 0.1
RESPONSES_AT_ONCE = 1_000
REPLACE_WAIT_S = 1.0
"""The pause after a producer was replaced. The next one may fail for the same reason."""

DELIVERIES_MAX = 2
"""The maximum number of lists of answers that the event loop has not handled yet. The reading thread then waits until
the loop has handled one. Meanwhile answers wait in librdkafka's queue, which is bounded."""

SEND_WAIT_MS = int(1_000 * LOST_AFTER_S)
"""The time for which brokers may be unreachable before a request fails."""

QUEUED_KBYTES = 65_536
FLUSH_WAIT_S = 5.0

LEARN_WAIT_S = 2.0
"""The longest wait for the leaders of the coordinator's topics."""

MOVE_WAIT_S = 2.0
"""The longest wait for the end of a partition to which the mailbox may move."""

_SENDING: Options = {
    "enable.idempotence": True,
    "delivery.report.only.error": True,
    "message.max.bytes": RECORD_BYTES_MAX,
    "message.timeout.ms": SEND_WAIT_MS,
    "queue.buffering.max.kbytes": QUEUED_KBYTES,
    "partitioner": "murmur2_random",
}
_READING: Options = {
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 500,
    "fetch.queue.backoff.ms": 0,
    "fetch.message.max.bytes": 2 * RECORD_BYTES_MAX,
}

NO_PARTITION = -1
"""Stands for the partition of the record's key."""

TOKEN_BYTES = 16
"""The random bytes in the names of a gateway's mailboxes, and in each request id: nobody can guess 128 bits.

A sender that knew both could send the coordinator a request with that mailbox and that id. A client of the gateway
would then get an answer to a request of another sender."""

TOKENS_AT_ONCE = 256


class CoordinatorClient:
    """A sender of requests to the coordinator, shared by any number of connections.

    The event loop calls all methods except `list_topics` and `close`.

    Attributes:
        batcher: The heartbeats that are sent together.
        leaders: The brokers that lead the partitions.
        lost_shards: The shards to which nothing can be written. Requests for them are answered with an error at once.
        mailbox_partition: The partition of the mailboxes.

    Args:
        settings: The settings of the coordinator.
        loop: The event loop that gets the answers.
        outstanding: The heartbeats of members of the consumer protocol that have no answer, of all coordinators.
        send_single: Sends a heartbeat that cannot be answered in a record of many.

    Raises:
        BrokerUnreachable: No broker answers.
        NoCoordinator: The coordinator's topics do not exist.
    """

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        outstanding: OutstandingHeartbeats,
        send_single: SendSingle,
    ) -> None:
        self._settings, self._loop, self._outstanding = settings, loop, outstanding
        self._topics = settings.requests_topic, settings.replies_topic
        self._signer = Signer(settings.signing())  # each request contains its own principal
        self._name = secrets.token_hex(TOKEN_BYTES)
        self._numbers = itertools.count(1)
        self._request_ids = _tokens()
        self._inbox = Inbox()
        self._last_answer_s = float("-inf")
        self._heard = asyncio.Event()
        self._room = threading.Semaphore(DELIVERIES_MAX - 1)
        self._closing = threading.Event()
        self._client_id = f"coordinator-gateway-{self._name[:8]}"
        self._producer = self._new_producer()
        self.leaders = self._find_topics()
        self.shards, self._replies = map(len, self.leaders)
        self.lost_shards = frozenset[int]()
        self.mailbox_partition = shard_of(self._name, self._replies)
        self._consumer = self._stand_at_the_end()
        self._gathered_mailbox = self.open_inbox()
        self.batcher = HeartbeatBatcher(
            self,
            self.shards,
            self._fields_of_gathered,
            settings.gateway_heartbeat_tick_ms,
            self._outstanding,
            loop.call_later,
            send_single,
        )
        self._reader = threading.Thread(target=self._read, name="gateway replies", daemon=True)
        self._reader.start()
        self._poller = threading.Thread(target=self._poll, name="gateway requests", daemon=True)
        self._poller.start()

    def _new_producer(self) -> Producer:
        return producer(self._settings, self._client_id, {**_SENDING, "linger.ms": self._settings.gateway_linger_ms})

    def _find_topics(self) -> Leaders:
        try:
            known = metadata(self._producer).topics
        except KafkaException as error:
            raise unreachable(self._settings, error.args[0].str()) from error
        missing = [name for name in self._topics if name not in known]
        if missing:
            raise NoCoordinator.without(missing[0], self._settings.bootstrap_servers)
        return Leaders(*(_leaders_of(known[name]) for name in self._topics))

    def _stand_at_the_end(self) -> Consumer:
        """Return a reader of the mailbox's partition, or of the next one whose leader answers."""
        until_s = time.monotonic() + LEADERS_WAIT_S
        while True:  # a new topic gets its leaders a moment later
            try:
                return self._reader_from_end(self.mailbox_partition, ATTEMPT_WAIT_S)
            except KafkaException as error:
                if time.monotonic() > until_s:
                    why = f"{self._settings.replies_topic}-{self.mailbox_partition}: {error.args[0].str()}"
                    raise unreachable(self._settings, why, self._topics) from error
                self.mailbox_partition = (self.mailbox_partition + 1) % self._replies
                self._closing.wait(RETRY_WAIT_S)

    def _reader_from_end(self, partition: int, wait_s: float) -> Consumer:
        """Return a new reader of a partition. librdkafka's `assign` would wait for the leader that a reader had."""
        reader = consumer(self._settings, self._client_id, _READING)
        here = TopicPartition(self._settings.replies_topic, partition)
        _, end = reader.get_watermark_offsets(here, timeout=wait_s, cached=False)
        reader.assign([TopicPartition(here.topic, partition, end)])
        return reader

    def list_topics(self, timeout: float) -> Any:
        """Request all brokers and topics, and wait for the response, as confluent-kafka's `Producer.list_topics`."""
        return metadata(self._producer, within_s=timeout)

    # -- for connections -----------------------------------------------------------------------------------------------

    def open_inbox(self, tell: Callable[[RebalanceNotice], object] = lambda _: None) -> str:
        """Open a mailbox with a new name, and return the name.

        Args:
            tell: Called with each notice that comes to the mailbox.
        """
        names = (f"{self._name}.{number}" for number in self._numbers)
        mailbox = next(name for name in names if shard_of(name, self._replies) == self.mailbox_partition)
        self._inbox.open_mailbox(mailbox, tell)
        return mailbox

    def close_inbox(self, mailbox: str) -> None:
        """Unregister the callback for notices that come to a mailbox."""
        self._inbox.close_mailbox(mailbox)

    def request_id(self) -> str:
        """Return a new request id. Nobody can guess it, not even from all other request ids."""
        return next(self._request_ids)

    def send(self, request: Request, callback: OnAnswer, shard: int | None = None) -> int:
        """Append a request to the log, and return the bytes of its record. Call `callback` with the answer on the event
        loop, if an answer comes.

        If the brokers do not accept the request, `callback` gets an error: INVALID_REQUEST for a request that is too
        large, otherwise COORDINATOR_NOT_AVAILABLE. The size of this error is 0 bytes.
        """
        key = request.reply_to, request.request_id
        shard_number = request.group_id if shard is None else shard
        self._inbox.expect(*key, callback, shard_number)
        if type(request) is ConsumerGroupHeartbeat and request.member_epoch > 0 and not request.again:
            self._outstanding.sent(key_of(request), request.request_id)
        if self.lost_shards and self._is_lost(shard_number):
            self._loop.call_soon(self._refuse, key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return 0
        value = self._signer.value_of(request, time.time_ns() // 1_000_000)
        try:
            self._producer.produce(
                self._settings.requests_topic,
                value,
                request.group_id.encode(),
                NO_PARTITION if shard is None else shard,
                on_delivery=lambda error, _: self._from_thread(self._give_up, key, error),
            )
        except BufferError:
            self._loop.call_soon(self._give_up, key, KafkaError(KafkaError._QUEUE_FULL))
        except KafkaException as error:
            self._loop.call_soon(self._give_up, key, error.args[0])
        return len(value)

    def forget(self, mailbox: str, request_ids: Iterable[str]) -> None:
        """Stop the delivery of answers to these requests of a mailbox."""
        self._inbox.forget(mailbox, request_ids)

    def _fields_of_gathered(self) -> dict[str, str]:
        return {"request_id": self.request_id(), "reply_to": self._gathered_mailbox}

    @property
    def waiting(self) -> int:
        """The number of requests without an answer, those that wait for the next tick included."""
        return self._inbox.waiting + self.batcher.outstanding

    def _give_up(self, key: tuple[str, str], error: Any) -> None:
        too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        if self._refuse(key, ErrorCode.INVALID_REQUEST if too_large else ErrorCode.COORDINATOR_NOT_AVAILABLE):
            log.warning("the brokers did not accept a request: %s", error.str())

    def _refuse(self, key: tuple[str, str], code: ErrorCode) -> bool:
        """Answer a request with an error. Return whether its answer was expected."""
        self._outstanding.answered(key[1])
        if (callback := self._inbox.withdraw(*key)) is None:
            return False
        callback(ErrorAnswer(request_id=key[1], error=code.name, code=code.number), 0)
        return True

    # -- brokers that cannot be reached; see `reach` ----------------------------------------------------------------

    def learn_leaders(self) -> None:
        """Request the leaders, and wait. The old ones remain if no broker answers. Any thread may call this."""
        found = []
        for name in self._topics:
            try:
                found.append(_leaders_of(metadata(self._producer, name, LEARN_WAIT_S).topics[name]))
            except KafkaException as error:
                log.info("the brokers do not return the leaders of %s: %s", name, error)
                return
        if list(map(len, found)) == [self.shards, self._replies]:
            self.leaders = Leaders(*found)

    def lose(self, shards: Iterable[int]) -> None:
        """Set the shards to which nothing can be written.

        Requests without an answer get an error, so that their clients look for another gateway. Those that wait for
        their leaders are withdrawn: a commit that a client has sent again elsewhere must not be written later.
        """
        before, self.lost_shards = self.lost_shards, frozenset(shards)
        if self.lost_shards - before:
            log.warning("nothing can be written to %s shards of %s", len(self.lost_shards), self._topics[0])
            self._producer.purge(in_queue=True, in_flight=False, blocking=False)
            for key, home in self._inbox.expected():
                if self._is_lost(home):
                    self._refuse(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _is_lost(self, home: str | int) -> bool:
        """Return whether nothing can be written to the shard of a group, or to a shard."""
        return (shard_of(home, self.shards) if isinstance(home, str) else home) in self.lost_shards

    async def move_mailbox(self, partitions: Sequence[int]) -> bool:
        """Move the mailbox to the first of these partitions that answers. Return whether it has moved.

        The earlier mailboxes get nothing any more. Requests without an answer are answered with an error.
        """
        for partition in partitions:
            try:
                self._consumer = await asyncio.to_thread(self._reader_from_end, partition, MOVE_WAIT_S)
            except KafkaException as error:
                log.info("the mailbox cannot move to partition %s: %s", partition, error)
                continue
            log.warning("the mailbox moves from partition %s to %s", self.mailbox_partition, partition)
            self.mailbox_partition = partition
            self._gathered_mailbox = self.open_inbox()
            for key, _ in self._inbox.expected():
                self._refuse(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return True
        return False

    # -- availability of the coordinator -------------------------------------------------------------------------------

    def silence_s(self) -> float:
        """Return the seconds since the coordinator's last answer to this gateway; infinite before the first answer."""
        return time.monotonic() - self._last_answer_s

    async def heard(self, within_s: float) -> bool:
        """Wait for any answer of the coordinator. Return whether one has come within that time."""
        heard = self._heard
        try:
            await asyncio.wait_for(heard.wait(), within_s)
        except TimeoutError:
            return False
        return True

    # -- threads -------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        prefix, reader = self._name.encode(), self._consumer
        while not self._closing.is_set():
            if reader is not self._consumer:
                threading.Thread(target=reader.close, name="gateway earlier replies", daemon=True).start()
                reader = self._consumer
            messages = poll_all(reader, READ_WAIT_S, RESPONSES_AT_ONCE)
            answers = [answer for message in messages if (answer := _answer(message, prefix))]
            if answers:
                self._from_thread(self._deliver, answers)
                while not (self._room.acquire(timeout=READ_WAIT_S) or self._closing.is_set()):
                    pass
        reader.close()

    def _poll(self) -> None:
        while not self._closing.is_set():
            try:
                self._producer.poll(READ_WAIT_S)
            except KafkaException as error:  # confluent-kafka raises fatal errors only
                self._replace_producer(error.args[0])

    def _replace_producer(self, error: KafkaError) -> None:
        """Continue with another producer, since one with a fatal error accepts no request any more.

        An idempotent producer has a fatal error if the brokers have lost records that they had acknowledged. Its
        requests without an acknowledgement fail, and the clients send them again.
        """
        log.error("the producer of requests failed for good, and another one takes its place: %s", error.str())
        before, self._producer = self._producer, self._new_producer()
        with suppress(KafkaException):
            before.purge()
            before.flush(FLUSH_WAIT_S)
        self._closing.wait(REPLACE_WAIT_S)

    def _from_thread(self, call: Callable[..., object], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)

    def _deliver(self, answers: list[tuple[str, AnyAnswer, int]]) -> None:
        self._room.release()
        self._last_answer_s = time.monotonic()
        heard, self._heard = self._heard, asyncio.Event()
        heard.set()
        for mailbox, answer, size in answers:
            if self._outstanding:
                self._outstanding.answered(answer.request_id)
            self._inbox.deliver(mailbox, answer, size)

    def close(self) -> None:
        """Send the remaining requests, and stop. Any thread may call this."""
        with suppress(KafkaException):  # a fatal error, which leaves nothing to be sent
            self._producer.flush(FLUSH_WAIT_S)
        self._closing.set()
        self._reader.join(FLUSH_WAIT_S)
        self._poller.join(FLUSH_WAIT_S)
        self._from_thread(self._inbox.close)


def _leaders_of(topic: Any) -> list[int]:
    return [partition.leader for _, partition in sorted(topic.partitions.items())]


def _tokens() -> Iterator[str]:
    """Yield random names. They are drawn many at a time: each call of the operating system lets other threads run."""
    chars = 2 * TOKEN_BYTES
    while True:
        drawn = secrets.token_hex(TOKEN_BYTES * TOKENS_AT_ONCE)
        yield from (drawn[start : start + chars] for start in range(0, len(drawn), chars))


def _answer(message: Any, prefix: bytes) -> tuple[str, AnyAnswer, int] | None:
    """Return the mailbox, the answer and the bytes of a record; None if the record is not for this gateway."""
    if error := message.error():
        if error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # librdkafka looks up the group, which is not used
            log.warning("reading replies failed and is retried: %s", error.str())
        return None
    mailbox = message.key() or b""
    if not mailbox.startswith(prefix):
        return None
    value = message.value() or b""
    if (answer := read_answer(value)) is None:
        return None
    return mailbox.decode(errors="replace"), answer, len(value)
