"""How long a heartbeat waits before it is sent: until the next tick, or the next of every third tick.

The more heartbeats come at one moment, the fewer batches the coordinator runs. But the session counts from the time of
the heartbeat's record, so the wait delays the end of the session of a client that has died.
"""

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
