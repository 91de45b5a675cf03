"""Stops at a request from outside: `coordinator stop` appends a signed `stop_coordinator` record to the request topic.

    the shard    checks the right to ALTER the cluster, and answers; its figures of the batch have the stop
    the driver   stops after that batch, as after SIGTERM, and then appends a wake record with the request's offset
    the command  waits for that record

A stop is for the drivers that run when it is sent. So it names the end of its partition, and a driver that starts notes
the ends of the topic. A later start reads the request too, as when it repeats the batch, and a client may write a copy
of the record: both stop nothing.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from coordinator.messages.requests import Wake
from streaming.config.settings import Settings
from streaming.kafka.clients import producer
from streaming.kafka.offsets import OffsetAsker
from streaming.moments import unix_ms
from streaming.query.watchers.progress import Tallies
from streaming.wire.records import Tally, encode_request

log = logging.getLogger(__name__)

CLIENT_ID = "coordinator-stops"
CONFIRM_WAIT_S = 5.0
"""The longest wait of a driver until the brokers have taken the record about its end."""


class StopWatch:
    """The stop that the log asks for.

    Args:
        stop: Makes the driver stop after its batch. It must not block.

    `request` is the stop of this driver: the shard, the offset of the request, and its principal; None without one.
    """

    def __init__(self, settings: Settings, tallies: Tallies, stop: Callable[[], None]) -> None:
        self._settings, self._stop = settings, stop
        self._ends: Mapping[int, int] | None = None
        self.request: tuple[int, int, str] | None = None
        tallies.follow(self.handle)

    def begin(self) -> None:
        """Note the ends of the request topic: requests that name an earlier end are not for this driver.

        Raises:
            BrokerUnreachable: The brokers do not return them.
        """
        topic = self._settings.requests_topic
        with closing(OffsetAsker(self._settings, CLIENT_ID)) as asker:
            found = asker.await_all([(topic, shard) for shard in range(self._settings.request_partitions)])
        self.begin_at({shard: end for (_, shard), end in found.items()})

    def begin_at(self, ends: Mapping[int, int]) -> None:
        """Begin with the ends of the partitions of the request topic, by shard."""
        self._ends = ends

    def handle(self, tallies: Sequence[Tally]) -> None:
        """Find a stop in the figures of a batch."""
        for tally in tallies:
            if tally.stop is None or self._ends is None:
                continue
            log_end_offset, offset, principal = tally.stop
            if log_end_offset < self._ends.get(tally.shard, 0):
                log.warning("a request of %s to stop was for an earlier driver, and stops nothing", principal)
                continue
            self.request = tally.shard, offset, principal
            self._stop()

    def confirm(self) -> None:
        """Append the record that the driver has stopped, if it was asked to."""
        if self.request is None:
            return
        shard, offset, _ = self.request
        settings, wake = self._settings, Wake(sent_ms=unix_ms(), stopped=offset)
        signing = settings.signing() if settings.access == "rules" else None
        value = encode_request(wake) if signing is None else signing.signed(wake, unix_ms())
        sender = producer(settings, CLIENT_ID, {"message.timeout.ms": int(CONFIRM_WAIT_S * 1_000)})
        sender.produce(settings.requests_topic, value, partition=shard)
        if sender.flush(CONFIRM_WAIT_S):
            log.warning("the brokers have not taken the record that this driver has stopped")
