"""Heartbeats of all connections of a gateway, gathered and sent as one record for each shard.

A heartbeat needs no response at once. The coordinator runs a batch whenever a record arrives. So it works far less if a
thousand members send their heartbeats at common times, multiples of the tick by the wall clock, in a few records. But
a session counts from the time of the heartbeat's record, so the wait delays the end of that of a client that has died:
it is one tick, or three for a long session.

A heartbeat that may not wait is sent in the event loop's next turn, with all others that came in this one. So many of
them cost few records too. No request of another kind overtakes it: they are sent before it.

The coordinator checks and answers each heartbeat like a record of its own. It does not handle a heartbeat to whose
group other requests wait: the gateway then sends it in a record of its own, which waits for its turn. The same holds
for the heartbeats of a record that is refused as a whole, and for each one of the consumer protocol that is refused:
the response to a record of its own says more.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from coordinator.base.errors import ErrorCode, name_of
from coordinator.base.hashing import shard_of
from coordinator.base.limits import HEARTBEATS_MAX
from coordinator.messages.heartbeats import AnyHeartbeat, Heartbeat, Heartbeats
from coordinator.messages.requests import Request
from coordinator.messages.responses import AnyAnswer, HeartbeatAnswer, HeartbeatsAnswer
from streaming.gateway.coordinator.outstanding import OutstandingHeartbeats, key_of
from streaming.gateway.protocol.limits import IN_FLIGHT_ALL_MAX
from streaming.moments import monotonic_ms, unix_ms
from streaming.wire.inbox import OnAnswer

SPARE_MS = 1_000
"""The part of a session that is left when a heartbeat that waited is written: at least the time that its record may
take to reach the broker."""

LONG_WAIT_TICKS = 3
"""The ticks for which a heartbeat of a long session waits: with the defaults, the heartbeat interval of clients."""

LONG_SESSION_TICKS = 45
"""A session of so many ticks is long. The wait delays its end by a fifteenth at most."""


def ticks_to_wait(tick_ms: int, session_ms: int, room_ms: float) -> int:
    """Return the number of ticks for which a heartbeat may wait; 0 if it has to be sent at once.

    Args:
        tick_ms: The time between two ticks; 0 if no heartbeat waits.
        room_ms: The time until the session ends, or until the client gives up.
    """
    if not tick_ms:
        return 0
    room_ticks = (room_ms - SPARE_MS) // tick_ms
    if session_ms >= LONG_SESSION_TICKS * tick_ms and room_ticks >= LONG_WAIT_TICKS:
        return LONG_WAIT_TICKS
    return 1 if room_ticks >= 1 else 0


def until_tick_ms(tick_ms: int, now_ms: int, ticks: int = 1) -> int:
    """Return the time until the next tick whose number is a multiple of `ticks`. Ticks are multiples of `tick_ms`."""
    period_ms = ticks * tick_ms
    return period_ms - now_ms % period_ms


NOT_HANDLED = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.number, ErrorCode.NOT_COORDINATOR.number)
"""The codes of heartbeats that are sent once more, each in a record of its own: the response to that says more."""

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE.number

TOGETHER_MAX = IN_FLIGHT_ALL_MAX
"""The maximum number of heartbeats in records of many that have no answer. Further ones are sent singly: while no
coordinator runs, a single one is forgotten with its connection, and a record of many is not."""


def _ignore(answer: AnyAnswer, size: int) -> None:
    """Drop the answer to a heartbeat whose connection is closed."""


class Sender(Protocol):
    """The part of `CoordinatorClient` that sends records."""

    def send(self, request: Request, callback: OnAnswer, shard: int | None = None) -> int:
        """Append a request to the log, and return the bytes of its record. Call `callback` with the answer."""


SendSingle = Callable[[AnyHeartbeat, OnAnswer], object]
"""Sends a heartbeat in a record of its own, and calls the function with the answer."""


class HeartbeatBatcher:
    """The heartbeats that wait for the next tick, and those that were sent together.

    Args:
        shards: The number of shards.
        fields: Returns the fields of a new record: its request id and the mailbox of its answer.
        tick_ms: The time between two ticks; 0 if no heartbeat waits.
        awaited: The heartbeats of members of the consumer protocol that have no answer.
        later: Calls a function after a number of seconds, as `loop.call_later`.
        send_single: Sends a heartbeat that cannot be answered in a record of many.
        clock: Returns Unix milliseconds. Ticks are multiples of `tick_ms` by this clock.
        passed: Returns the milliseconds of a clock that is never set back, nor forward.
    """

    def __init__(
        self,
        sender: Sender,
        shards: int,
        fields: Callable[[], dict[str, Any]],
        tick_ms: int,
        awaited: OutstandingHeartbeats,
        later: Callable[[float, Callable[[], None]], object],
        send_single: SendSingle,
        clock: Callable[[], int] = unix_ms,
        passed: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._sender, self._shards, self._fields = sender, shards, fields
        self.tick_ms, self._awaited, self._later, self._clock = tick_ms, awaited, later, clock
        self._single, self._passed = send_single, passed
        self._waiting: dict[int, dict[str, AnyHeartbeat]] = {}
        self._due_ms: dict[int, int] = {}
        self._prompt: dict[int, list[AnyHeartbeat]] = {}
        self._together = 0
        self._callbacks: dict[str, OnAnswer] = {}
        self._is_tick_due = False

    @property
    def outstanding(self) -> int:
        """The number of heartbeats without an answer."""
        return len(self._callbacks)

    def until_tick_ms(self, ticks: int = 1) -> int:
        """Return the time until the next tick whose number is a multiple of `ticks`."""
        return until_tick_ms(self.tick_ms, self._clock(), ticks)

    def add(self, heartbeat: AnyHeartbeat, callback: OnAnswer, ticks: int = 1) -> None:
        """Send a heartbeat at a tick, and call `callback` with its answer. A full record is sent at once.

        The answer to a heartbeat that is not sent singly has only a code, also for the consumer protocol.

        Args:
            ticks: The heartbeat waits for the next tick whose number is a multiple of this, or for one before it at
                which others of the same shard are sent.
        """
        shard = shard_of(heartbeat.group_id, self._shards)
        waiting = self._waiting.setdefault(shard, {})
        waiting[heartbeat.request_id] = heartbeat
        self._callbacks[heartbeat.request_id] = callback
        if not isinstance(heartbeat, Heartbeat):
            self._awaited.sent(key_of(heartbeat), heartbeat.request_id)
        due_ms = self._passed() + self.until_tick_ms(ticks)
        self._due_ms[shard] = min(self._due_ms.get(shard, due_ms), due_ms)
        if len(waiting) == HEARTBEATS_MAX:
            self._send(shard)
        elif not self._is_tick_due:
            self._await_tick()

    def add_prompt(self, heartbeat: Heartbeat, callback: OnAnswer) -> None:
        """Send a heartbeat in the event loop's next turn, and call `callback` with its answer."""
        is_first = not self._prompt
        self._callbacks[heartbeat.request_id] = callback
        shard = shard_of(heartbeat.group_id, self._shards)
        prompt = self._prompt.setdefault(shard, [])
        prompt.append(heartbeat)
        if len(prompt) == HEARTBEATS_MAX:
            self._send_together(self._prompt.pop(shard), shard)
        elif is_first:
            self._later(0, self.send_prompt)

    def send_prompt(self) -> None:
        """Send the heartbeats that may not wait."""
        prompt, self._prompt = self._prompt, {}
        for shard, heartbeats in prompt.items():
            self._send_together(heartbeats, shard)

    def send_now(self, heartbeat: AnyHeartbeat) -> None:
        """Send a heartbeat in a record of its own, if it still waits for a tick."""
        waiting = self._waiting.get(shard_of(heartbeat.group_id, self._shards), {})
        if waiting.pop(heartbeat.request_id, None) is not None:
            self._send_single(heartbeat)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Deliver no answers to these heartbeats. Those that wait are sent all the same: their members are alive."""
        for request_id in request_ids:
            self._callbacks.pop(request_id, None)

    def _await_tick(self) -> None:
        self._is_tick_due = True
        self._later(self.until_tick_ms() / 1_000, self._tick)

    def _tick(self) -> None:
        self._is_tick_due = False
        now_ms = self._passed() + self.tick_ms // 2  # a timer is never exact
        for shard in [shard for shard, due_ms in self._due_ms.items() if due_ms <= now_ms]:
            self._send(shard)
        if self._waiting:
            self._await_tick()

    def _send(self, shard: int) -> None:
        del self._due_ms[shard]
        self._send_together(tuple(self._waiting.pop(shard).values()), shard)

    def _send_together(self, heartbeats: Sequence[AnyHeartbeat], shard: int) -> None:
        if len(heartbeats) == 1 or self._together + len(heartbeats) > TOGETHER_MAX:
            for heartbeat in heartbeats:
                self._send_single(heartbeat)
        elif heartbeats:
            self._together += len(heartbeats)
            self._sender.send(Heartbeats.of(heartbeats, **self._fields()), partial(self._answered, heartbeats), shard)

    def _send_single(self, heartbeat: AnyHeartbeat) -> None:
        self._single(heartbeat, self._callbacks.pop(heartbeat.request_id, _ignore))

    def _answered(self, heartbeats: Sequence[AnyHeartbeat], answer: AnyAnswer, _: int) -> None:
        self._together -= len(heartbeats)
        if answer.code == AWAY:
            for heartbeat in heartbeats:
                self._tell(heartbeat.request_id, AWAY)
            return
        codes = dict[str, int]()
        if isinstance(answer, HeartbeatsAnswer) and not answer.code:
            codes = dict(zip(answer.request_ids, answer.codes, strict=True))
        for heartbeat in heartbeats:
            code = codes.get(heartbeat.request_id, NOT_HANDLED[0])
            if code in NOT_HANDLED or (code and not isinstance(heartbeat, Heartbeat)):
                self._send_single(heartbeat)
            else:
                self._tell(heartbeat.request_id, code)

    def _tell(self, request_id: str, code: int) -> None:
        self._awaited.answered(request_id)
        if (callback := self._callbacks.pop(request_id, None)) is not None:
            callback(HeartbeatAnswer(request_id=request_id, error=name_of(code), code=code), 0)
