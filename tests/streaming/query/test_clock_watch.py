"""A difference of clocks is logged once, and its end too (stroom 5772)."""

import logging

import pytest

from streaming.query.watchers import log_watch as module
from streaming.query.watchers.log_watch import ClockWatch

NOW_MS, HOUR_MS, SLACK_MS = 10**12, 3_600_000, 1_000
WAITED_S = 2.0
BROKER = "the clock of the broker that leads partition 3 of kept.requests"
ADVICE = "this machine's: synchronize the clocks (clock_slack_ms allows 1000 ms)"
AGAIN = f"{BROKER} agrees with this machine's again"


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> ClockWatch:
    monkeypatch.setattr(module, "unix_ms", lambda: NOW_MS)
    caplog.set_level(logging.INFO, module.__name__)
    return ClockWatch("kept.requests", SLACK_MS)


@pytest.mark.parametrize(
    ("ahead_ms", "how"),
    [(HOUR_MS, "ahead of"), (-HOUR_MS, "behind")],
)
def test_a_step_is_logged_once_and_its_end_too(
    watch: ClockWatch, caplog: pytest.LogCaptureFixture, ahead_ms: int, how: str
) -> None:
    for at_ms in (NOW_MS, NOW_MS + ahead_ms, NOW_MS + ahead_ms + 5, NOW_MS - 5, NOW_MS):
        watch.heard(3, at_ms, WAITED_S)
    assert caplog.messages == [f"{BROKER} is 3600 s {how} {ADVICE}", AGAIN]


def test_clocks_may_differ_by_the_slack_and_a_record_may_be_late(
    watch: ClockWatch, caplog: pytest.LogCaptureFixture
) -> None:
    for ahead_ms in (SLACK_MS, -SLACK_MS - module.LATE_MS):
        watch.heard(3, NOW_MS + ahead_ms, WAITED_S)
    assert caplog.messages == []


def test_a_record_that_was_there_before_shows_no_clock_that_is_behind(
    watch: ClockWatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After an outage the wake-up hears old records first, and it may have waited for the first of them."""
    for at_ms, waited_s in ((NOW_MS - HOUR_MS, WAITED_S), (NOW_MS - HOUR_MS, 0.1), (NOW_MS, WAITED_S)):
        watch.heard(3, at_ms, waited_s)
    watch.heard(3, NOW_MS - HOUR_MS, WAITED_S)
    assert caplog.messages == []
    watch.heard(3, NOW_MS + HOUR_MS, 0.1)
    assert caplog.messages == [f"{BROKER} is 3600 s ahead of {ADVICE}"]
