"""Tests of how long a heartbeat waits before it is sent."""

import pytest

from streaming.gateway.coordinator.batching import (
    LONG_SESSION_TICKS,
    LONG_WAIT_TICKS,
    SPARE_MS,
    ticks_to_wait,
    until_tick_ms,
)

LONG_MS = LONG_SESSION_TICKS * 1_000


@pytest.mark.parametrize(
    ("tick_ms", "session_ms", "room_ms", "ticks"),
    [
        (1_000, LONG_MS, LONG_MS, LONG_WAIT_TICKS),
        (1_000, LONG_MS - 1, LONG_MS - 1, 1),
        (1_000, LONG_MS, LONG_WAIT_TICKS * 1_000 + SPARE_MS, LONG_WAIT_TICKS),
        (1_000, LONG_MS, LONG_WAIT_TICKS * 1_000 + SPARE_MS - 1, 1),
        (1_000, 10_000, 1_000 + SPARE_MS, 1),
        (1_000, 10_000, 1_000 + SPARE_MS - 1, 0),
        (1_000, 10_000, -60_000, 0),
        (500, LONG_MS // 2, LONG_MS // 2, LONG_WAIT_TICKS),
        (2_000, LONG_MS, LONG_MS, 1),
        (0, LONG_MS, LONG_MS, 0),
    ],
)
def test_a_heartbeat_of_a_long_session_waits_for_three_ticks(tick_ms, session_ms, room_ms, ticks):
    assert ticks_to_wait(tick_ms, session_ms, room_ms) == ticks


def test_a_wait_delays_the_end_of_a_session_by_a_fifteenth_at_most():
    assert LONG_WAIT_TICKS * 15 <= LONG_SESSION_TICKS


def test_ticks_are_multiples_of_their_time_by_the_wall_clock():
    assert until_tick_ms(1_000, 7_250) == 750
    assert until_tick_ms(1_000, 7_250, ticks=3) == 1_750
    assert until_tick_ms(1_000, 9_000, ticks=3) == 3_000, "a tick that is now has passed"
