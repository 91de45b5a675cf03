"""Requests to the coordinator and its answers: one producer and one reader for all connections of a gateway.

A gateway reads one partition of the reply topic. Each of its connections has an inbox of its own there: a name that
begins with the gateway's and hashes to that partition, so that the coordinator tells two clients of one gateway apart
as it tells two processes apart.

librdkafka does the work in threads of its own; answers are carried to the event loop by the handful.
"""

import asyncio
import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coordinator.errors import ErrorCode
from coordinator.hashing import shard_of
from coordinator.limits import RECORD_BYTES_MAX
from coordinator.outputs import AnyAnswer, ErrorAnswer, RebalanceNotice
from coordinator.requests import Request
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, NoCoordinator
from streaming.kafka.clients import ANSWER_WAIT_S, Options, consumer, producer
from streaming.wire.inbox import Inbox, OnAnswer, read_answer
from streaming.wire.signing import Signer

log = logging.getLogger(__name__)

READ_WAIT_S = 0.1
ANSWERS_AT_ONCE = 1_000
RETRY_WAIT_S = 0.2

DELIVERIES_MAX = 2
"""How many handfuls of answers may be on their way from the reading thread to the event loop. The thread reads no
further until one of them has been taken, so that answers wait in librdkafka's queue, which is bounded."""

SEND_WAIT_MS = 30_000
"""How long brokers may be unreachable before a request is given up."""

QUEUED_KBYTES = 65_536
FLUSH_WAIT_S = 5.0

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
"""The one of the record's key."""

TOKEN_BYTES = 16
"""How much chance is in the name of a gateway's inboxes, and in each request id: nobody guesses 128 bits.

Whoever knew both could ask the coordinator something, to be answered to that inbox under that id, and so have a client
of the gateway hear an answer to what it never asked."""


class Asking:
    """A way to the coordinator that any number of connections share. All methods belong to the event loop.

    Args:
        settings: Of the coordinator whose topics these are.
        loop: Where answers are told.

    Raises:
        BrokerUnreachable: no broker answers.
        NoCoordinator: the topics are not there.
    """

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings, self._loop = settings, loop
        self._signer = Signer(settings.signing())  # each request says itself who asks
        self._name = secrets.token_hex(TOKEN_BYTES)
        self._numbers = itertools.count(1)
        self._inbox = Inbox()
        self._last_answer_s = float("-inf")
        self._heard = asyncio.Event()
        self._room = threading.Semaphore(DELIVERIES_MAX - 1)
        self._closing = threading.Event()
        client_id = f"coordinator-gateway-{self._name[:8]}"
        self._producer = producer(settings, client_id, {**_SENDING, "linger.ms": settings.gateway_linger_ms})
        self._consumer = consumer(settings, client_id, _READING)
        self.shards, replies = self._find_topics()
        self._mine = shard_of(self._name, replies)
        self._replies = replies
        self._stand_at_the_end()
        self._reader = threading.Thread(target=self._read, name="gateway replies", daemon=True)
        self._reader.start()
        self._poller = threading.Thread(target=self._poll, name="gateway requests", daemon=True)
        self._poller.start()

    def _find_topics(self) -> tuple[int, int]:
        try:
            known = self._producer.list_topics(timeout=ANSWER_WAIT_S).topics
        except KafkaException as error:
            raise BrokerUnreachable.at(self._settings.bootstrap_servers, error.args[0].str()) from error
        missing = [name for name in (self._settings.requests_topic, self._settings.replies_topic) if name not in known]
        if missing:
            raise NoCoordinator.without(missing[0], self._settings.bootstrap_servers)
        return len(known[self._settings.requests_topic].partitions), len(known[self._settings.replies_topic].partitions)

    def _stand_at_the_end(self) -> None:
        here = TopicPartition(self._settings.replies_topic, self._mine)
        until_s = time.monotonic() + ANSWER_WAIT_S
        while True:  # a topic that has just been made has its leaders a moment later
            try:
                _, end = self._consumer.get_watermark_offsets(here, timeout=ANSWER_WAIT_S, cached=False)
                break
            except KafkaException as error:
                if time.monotonic() > until_s:
                    raise BrokerUnreachable(
                        f"{here.topic} has no leader for partition {here.partition} ({error.args[0].str()}):"
                        f" see the brokers' logs."
                    ) from error
                self._closing.wait(RETRY_WAIT_S)
        self._consumer.assign([TopicPartition(here.topic, here.partition, end)])

    def list_topics(self, timeout: float) -> Any:
        """Ask the brokers for all brokers and topics, blocking, as confluent-kafka's `Producer.list_topics`."""
        return self._producer.list_topics(timeout=timeout)

    # -- for connections -----------------------------------------------------------------------------------------------

    def open_inbox(self, tell: Callable[[RebalanceNotice], object] = lambda _: None) -> str:
        """Make an inbox that nobody else has.

        Args:
            tell: Called with what comes there unasked.
        """
        names = (f"{self._name}.{number}" for number in self._numbers)
        inbox = next(name for name in names if shard_of(name, self._replies) == self._mine)
        self._inbox.open_mailbox(inbox, tell)
        return inbox

    def close_inbox(self, inbox: str) -> None:
        """Unregister the callback for notices that come there."""
        self._inbox.close_mailbox(inbox)

    def request_id(self) -> str:
        """Make a request id that nobody can guess, not even whoever has seen all others."""
        return secrets.token_hex(TOKEN_BYTES)

    def send(self, request: Request, told: OnAnswer, shard: int | None = None) -> None:
        """Append a request to the log and have its answer told on the event loop, where one ever comes.

        That the brokers would not take it is an answer as well: COORDINATOR_NOT_AVAILABLE, or INVALID_REQUEST for one
        that is too large. An answer of the gateway's own has no bytes.
        """
        asked = request.reply_to, request.request_id
        self._inbox.expect(*asked, told)
        try:
            self._producer.produce(
                self._settings.requests_topic,
                self._signer.value_of(request, time.time_ns() // 1_000_000),
                request.group_id.encode(),
                NO_PARTITION if shard is None else shard,
                on_delivery=lambda error, _: self._from_thread(self._give_up, asked, error),
            )
        except BufferError:
            self._loop.call_soon(self._give_up, asked, KafkaError(KafkaError._QUEUE_FULL))
        except KafkaException as error:
            self._loop.call_soon(self._give_up, asked, error.args[0])

    def forget(self, inbox: str, request_ids: Iterable[str]) -> None:
        """Stop reporting answers to these requests of an inbox."""
        self._inbox.forget(inbox, request_ids)

    @property
    def waiting(self) -> int:
        """How many requests have no answer yet."""
        return self._inbox.waiting

    def _give_up(self, asked: tuple[str, str], error: Any) -> None:
        if told := self._inbox.withdraw(*asked):
            log.warning("the brokers did not take a request: %s", error.str())
            too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
            code = ErrorCode.INVALID_REQUEST if too_large else ErrorCode.COORDINATOR_NOT_AVAILABLE
            told(ErrorAnswer(request_id=asked[1], error=code.name, code=code.number), 0)

    # -- is anybody there? ---------------------------------------------------------------------------------------------

    def silence_s(self) -> float:
        """How long ago the coordinator last answered this gateway; infinite where it never has."""
        return time.monotonic() - self._last_answer_s

    async def heard(self, within_s: float) -> bool:
        """Wait for the coordinator to answer anything; tell whether it has."""
        heard = self._heard
        try:
            await asyncio.wait_for(heard.wait(), within_s)
        except TimeoutError:
            return False
        return True

    # -- threads -------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        prefix = self._name.encode()
        while not self._closing.is_set():
            messages = self._consumer.consume(ANSWERS_AT_ONCE, READ_WAIT_S)
            answers = [answer for message in messages if (answer := _answer(message, prefix))]
            if answers:
                self._from_thread(self._deliver, answers)
                while not (self._room.acquire(timeout=READ_WAIT_S) or self._closing.is_set()):
                    pass
        self._consumer.close()

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(READ_WAIT_S)

    def _from_thread(self, call: Callable[..., object], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)

    def _deliver(self, answers: list[tuple[str, AnyAnswer, int]]) -> None:
        self._room.release()
        self._last_answer_s = time.monotonic()
        heard, self._heard = self._heard, asyncio.Event()
        heard.set()
        for inbox, answer, size in answers:
            self._inbox.deliver(inbox, answer, size)

    def close(self) -> None:
        """Send what is still to be sent, and stop. May be called from any thread."""
        self._producer.flush(FLUSH_WAIT_S)
        self._closing.set()
        self._reader.join(FLUSH_WAIT_S)
        self._poller.join(FLUSH_WAIT_S)
        self._from_thread(self._inbox.close)


def _answer(message: Any, prefix: bytes) -> tuple[str, AnyAnswer, int] | None:
    """Read one record of the reply topic, if it is for this gateway: its inbox, the answer, and its bytes."""
    if error := message.error():
        if error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # of the group that is not used, and looked for
            log.warning("reading replies is in trouble and goes on: %s", error.str())
        return None
    inbox = message.key() or b""
    if not inbox.startswith(prefix):
        return None
    value = message.value() or b""
    if (answer := read_answer(value)) is None:
        return None
    return inbox.decode(errors="replace"), answer, len(value)
