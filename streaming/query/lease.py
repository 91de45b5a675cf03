"""The lease on a checkpoint: of several drivers, the one that holds it runs the query, and the others stand by.

A thread of each driver reads the lease topic. The holder appends a renewal every `RENEW_EVERY_S`. A driver that may
claim does so when it has read no renewal for `PATIENCE_S`, or at once if no driver holds the lease.

    the fence       the order of one partition: a driver that was suspended reads the claim of the next holder, and
                    reports the loss, before it reads its own next renewal
    no broker       silence means nothing while no broker answers, and for `OUTAGE_PATIENCE_S` afterwards
    a lost claim    the driver claims again after `CLAIM_WAIT_S`; a claim that comes twice counts once

The epoch of a transactional id would be a fence as well. It was measured and left out: a claim over a transaction that
the former holder left open takes 1.0 s more, and of several claims the last one wins, after the first has begun to
work. Here the first one wins, and the others do not begin.

The topic has one partition, so all drivers read the same records in the same order, and come to the same holder.

    record  | written by                           | it counts if
    claim   | a driver that has seen no renewal    | its term is the next one, and no record has counted since
            |                                      | the record that it names
    renewal | the holder, all the time             | it is the holder's, or its term is a later one
    release | the holder, after its query stopped  | it is the holder's
    stop    | the holder, in place of a release    | it is the holder's; the drivers that stand by end too

A claim is a compare-and-set that the order of the log decides: of several claims after the same record only the first
one counts, and none counts after a renewal that came in between. A driver that was suspended while another one claimed
the lease writes renewals of an old term, which count for nobody. Only a driver whose claim counted writes a renewal. So
a reader that begins in the middle of the log accepts a renewal of a later term without having read its claim.
"""

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from enum import StrEnum

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streaming.config.settings import Settings
from streaming.errors import UserError
from streaming.kafka.clients import Options, consumer, learn_leaders, poll_all, producer
from streaming.watcher import Watcher

log = logging.getLogger(__name__)

# -- the records of the lease topic ------------------------------------------------------------------------------------


NOTHING = -1
"""The offset that a claim names if no record has counted before."""


class Kind(StrEnum):
    """The kinds of records."""

    CLAIM = "claim"
    RENEWAL = "renewal"
    RELEASE = "release"
    STOP = "stop"


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of the lease topic.

    Args:
        driver: The id of the driver that writes it.
        host: The name of the driver's machine, for people.
        term: The number of the claim, from 1; the same in all records of one holder.
        after: For a claim, the offset of the last record that counted; else `NOTHING`.
    """

    kind: Kind
    driver: str
    host: str
    term: int
    after: int = NOTHING


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LeaseRecord)


def encode(record: LeaseRecord) -> bytes:
    """Return the value of a record."""
    return _encoder.encode(record)


def decode(value: bytes | None) -> LeaseRecord | None:
    """Return the record in a value; None if the value contains none."""
    try:
        return _decoder.decode(value or b"")
    except msgspec.MsgspecError:
        return None


class Claims:
    """The state of the lease after the records that were read. This class does not use Kafka.

    `holder` is the latest record of the driver that holds the lease; None if no driver holds it. `term` is the latest
    term. `last` is the offset of the last record that counted.
    """

    def __init__(self) -> None:
        self.holder: LeaseRecord | None = None
        self.term = 0
        self.last = NOTHING

    def handle(self, offset: int, record: LeaseRecord) -> bool:
        """Add the next record, and return whether it counts."""
        if not self._counts(record):
            return False
        self.holder = None if record.kind in (Kind.RELEASE, Kind.STOP) else record
        self.term, self.last = record.term, offset
        return True

    def is_held_by(self, driver: str) -> bool:
        """Return whether this driver holds the lease."""
        return self.holder is not None and self.holder.driver == driver

    def claim(self, driver: str, host: str) -> LeaseRecord:
        """Return a claim after all records that were read."""
        return LeaseRecord(kind=Kind.CLAIM, driver=driver, host=host, term=self.term + 1, after=self.last)

    def _counts(self, record: LeaseRecord) -> bool:
        match record.kind:
            case Kind.CLAIM:
                return record.term == self.term + 1 and record.after == self.last
            case Kind.RENEWAL:
                return record.term > self.term or self._is_of_holder(record)
            case Kind.RELEASE | Kind.STOP:
                return self._is_of_holder(record)

    def _is_of_holder(self, record: LeaseRecord) -> bool:
        return record.term == self.term and self.is_held_by(record.driver)


CLIENT_ID = "coordinator-lease"

RENEW_EVERY_S = 0.4

PATIENCE_S = 1.2
"""The time without a renewal after which the lease may be claimed: two renewals may be lost, or come late."""

CLAIM_WAIT_S = 1.0
"""The time in which a claim must be read back."""

LOOK_EVERY_S = 0.1
"""How often a driver that stands by checks how long the holder has been silent."""

TAIL_RECORDS = 1_000
"""The number of newest records that a start reads: those of some six minutes."""

OVERDUE_S = 0.6
"""The time without a renewal after which a driver that may claim asks for the end of the topic again and again, to
learn whether the brokers answer."""

ANSWER_WAIT_S = 1.0
"""The longest wait for the end of the topic. A later answer counts as none."""

OUTAGE_PATIENCE_S = 5.0
"""The time after an outage of the brokers in which the holder must renew. It has to find the brokers again first."""

SEND_WAIT_MS = 1_000
"""How long a record may wait for unavailable brokers. A later record follows."""

RECORDS_AT_ONCE = 100
CLOSE_WAIT_S = 3.0

_CONNECTION: Options = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500}
"""After a failure of the brokers, the holder has to renew before another driver's patience is over."""


class LeaseLost(UserError):
    """Another driver holds the lease now. The exit code allows another start, which stands by."""


class Lease(Watcher):
    """A thread that claims the lease, renews it, and notices its loss. It claims nothing before `claim_when_free`.

    Args:
        settings: The settings of the coordinator, whose lease topic exists.
        stop: Called if the holder was stopped together with the drivers that stand by. It must not block.

    `driver` is the id of this driver. `held` is set once this driver has the lease. `refusal` is the reason why the
    driver must end, else None. The driver sets `is_standing_by` while it is ready and waits for the lease.
    """

    def __init__(self, settings: Settings, stop: Callable[[], None] = lambda: None) -> None:
        super().__init__("the lease", end_wait_s=CLOSE_WAIT_S)
        self._stop, self._begin_offset = stop, NOTHING
        self._settings, self._place = settings, TopicPartition(settings.lease_topic, 0)
        self.driver, self._host = uuid.uuid4().hex, socket.gethostname()
        self._claims, self._term = Claims(), 0
        self.held = threading.Event()
        self.refusal: LeaseLost | None = None
        self.is_standing_by = False
        self._may_claim = threading.Event()
        self._position = 0
        self._heard_s, self._outage_s = time.monotonic(), -OUTAGE_PATIENCE_S
        self._sent_s = -CLAIM_WAIT_S
        options = {"linger.ms": 0, "message.timeout.ms": SEND_WAIT_MS, **_CONNECTION}
        self._producer = producer(settings, CLIENT_ID, options)

    @property
    def holder(self) -> LeaseRecord | None:
        """The latest record of the driver that holds the lease, as far as the topic was read; None without one."""
        return self._claims.holder

    @property
    def newest(self) -> int:
        """The offset of the last record of a holder; `NOTHING` without one."""
        return self._claims.last

    def claim_when_free(self) -> None:
        """Allow the thread to claim the lease, because this driver is able to take over."""
        self._may_claim.set()

    def close(self, *, stops_all: bool = False) -> None:
        """Stop the thread, and release the lease if this driver holds it.

        Args:
            stops_all: Whether the drivers that stand by now have to end too.
        """
        super().close()
        if self.held.is_set() and self.refusal is None:
            self._send(self._record(Kind.STOP if stops_all else Kind.RELEASE))
            self._producer.flush(CLOSE_WAIT_S)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        options = {"fetch.wait.max.ms": 500, "fetch.queue.backoff.ms": 0, "error_cb": self._not_answered, **_CONNECTION}
        with closing(consumer(self._settings, CLIENT_ID, options)) as reader:
            self._begin(reader)
            while not self._closing.is_set() and self.refusal is None:
                for message in poll_all(reader, self._wait_s(), RECORDS_AT_ONCE):
                    self._handle(message)
                if self.held.is_set():
                    self._renew_when_due()
                elif self._may_claim.is_set() and self._is_free(reader):
                    self._send(self._claims.claim(self.driver, self._host))

    def _begin(self, reader: Consumer) -> None:
        """Set the start of reading, as soon as the brokers return the bounds of the topic. After an error the thread
        continues where it was."""
        while (bounds := self._bounds(reader)) is None:
            if self._closing.wait(LOOK_EVERY_S):
                return
        low, high = bounds
        if self._begin_offset == NOTHING:
            self._begin_offset, self._position = high, high - TAIL_RECORDS
        self._position = max(low, self._position)
        reader.assign([TopicPartition(self._place.topic, self._place.partition, self._position)])

    def _bounds(self, reader: Consumer) -> tuple[int, int] | None:
        """Request the begin and the end of the topic; return None if the brokers do not answer."""
        try:
            return reader.get_watermark_offsets(self._place, timeout=ANSWER_WAIT_S, cached=False)
        except KafkaException as error:
            log.debug("the brokers do not return the end of the lease topic: %s", error)
            learn_leaders(reader)
            return None

    def _wait_s(self) -> float:
        """Return how long to wait for the next record, seconds."""
        if not self.held.is_set():
            return LOOK_EVERY_S
        return max(self._sent_s + RENEW_EVERY_S - time.monotonic(), 0)

    def _handle(self, message: Message) -> None:
        if (error := message.error()) is not None:
            self._not_answered(error)
            return
        self._position = (message.offset() or 0) + 1
        record = decode(message.value())
        if record is None or not self._claims.handle(self._position - 1, record):
            return
        self._heard_s = time.monotonic()
        if record.kind is Kind.STOP and self._position > self._begin_offset and not self.held.is_set():
            log.warning("The driver on %s was stopped by `coordinator stop`, and this one ends too.", record.host)
            self._may_claim.clear()
            self._stop()
        if self._claims.is_held_by(self.driver):
            self._term = self._claims.term
            self.held.set()
        elif self.held.is_set():
            self.refusal = LeaseLost(
                f"Another driver ({record.host}) has taken over the lease of {self._place.topic}, because this one was"
                " silent for too long: start this one again, and it stands by."
            )

    def _not_answered(self, error: KafkaError) -> None:
        """Note that no broker is connected. One broker of several may be down for long, and changes nothing."""
        log.debug("the lease topic could not be read: %s", error.str())
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._outage_s = time.monotonic()

    def _is_free(self, reader: Consumer) -> bool:
        """Return whether the lease may be claimed now."""
        if time.monotonic() - self._sent_s < CLAIM_WAIT_S:
            return False
        if self.holder is not None and time.monotonic() - self._heard_s < OVERDUE_S:
            return False
        asked_s, bounds = time.monotonic(), self._bounds(reader)
        now_s = time.monotonic()
        if bounds is None or now_s - asked_s >= PATIENCE_S:  # the leader moved meanwhile, and nobody could renew
            self._outage_s = now_s
            return False
        is_silent = now_s - self._heard_s >= PATIENCE_S and now_s - self._outage_s >= OUTAGE_PATIENCE_S
        return (self.holder is None or is_silent) and self._position >= bounds[1]

    def _renew_when_due(self) -> None:
        if self._wait_s() == 0:
            self._send(self._record(Kind.RENEWAL))

    def _record(self, kind: Kind) -> LeaseRecord:
        return LeaseRecord(kind=kind, driver=self.driver, host=self._host, term=self._term)

    def _send(self, record: LeaseRecord) -> None:
        self._sent_s = time.monotonic()
        self._producer.produce(self._place.topic, encode(record), partition=self._place.partition)
        self._producer.poll(0)
