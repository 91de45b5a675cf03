"""Tests of the notice of brokers that accept no request, without brokers."""

import logging

import pytest

from streaming.client.sending import Outage

SESSION_MS = 10_000


class Clock:
    """An outage whose times are written down by hand."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.outage = Outage("a:1,b:2")
        self._caplog = caplog

    def logged(self, now_ms: int) -> list[tuple[str, str]]:
        """Return the new lines at a time."""
        self._caplog.clear()
        self.outage.log_changes(SESSION_MS, now_ms)
        return [(record.levelname, record.getMessage()) for record in self._caplog.records]


@pytest.fixture
def clock(caplog: pytest.LogCaptureFixture) -> Clock:
    caplog.set_level(logging.INFO, "streaming.client.sending")
    return Clock(caplog)


def test_an_outage_is_logged_once_after_a_session_and_once_at_its_end(clock: Clock) -> None:
    """Each request of the outage is refused in the end; only the first one counts."""
    clock.outage.sent(1_000)
    assert clock.logged(1_000 + SESSION_MS - 1) == []
    clock.outage.sent(8_000)
    clock.outage.refused(TimeoutError("Expiring 1 record(s)"))
    ((level, text),) = clock.logged(1_000 + SESSION_MS)
    assert level == "ERROR"
    assert text == (
        "The brokers at a:1,b:2 have accepted no request of this process for 10000 ms (Expiring 1 record(s)), so its"
        " members lose their partitions. Check that the brokers run and can be reached from here; the members then"
        " continue."
    )
    assert clock.logged(50_000) == []
    clock.outage.sent(60_000)
    clock.outage.accepted(61_000)
    clock.outage.sent(62_000)
    assert clock.logged(62_001) == [("WARNING", "the brokers at a:1,b:2 accept requests again, after 60000 ms")]
    assert clock.logged(62_000 + SESSION_MS - 1) == []
    assert [level for level, _ in clock.logged(62_000 + SESSION_MS)] == ["ERROR"], "the next outage"


def test_a_process_without_requests_has_no_outage(clock: Clock) -> None:
    assert clock.logged(10 * SESSION_MS) == []
    clock.outage.sent(10 * SESSION_MS)
    clock.outage.accepted(10 * SESSION_MS + 1)
    assert clock.logged(30 * SESSION_MS) == []


def test_a_refused_request_among_accepted_ones_is_no_outage(clock: Clock) -> None:
    """One record that is too large does not mean that the brokers are down."""
    for at_ms in range(0, 5 * SESSION_MS, 3_000):
        clock.outage.sent(at_ms)
        clock.outage.sent(at_ms)
        clock.outage.refused(ValueError("too large"))
        clock.outage.accepted(at_ms + 5)
        assert clock.logged(at_ms + 6) == []
