"""Tests of TIME and durations on a command line, as tables."""

import time
from collections.abc import Callable, Iterator

import pytest

from streaming.cli.lib.times import AT_MS_MAX, BadTime, moment, read_duration, read_time
from streaming.errors import Exit

NOW_MS = 1_790_000_000_123  # 2026-09-21T14:13:20.123Z
EAST = "Etc/GMT-2"
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
MIDNIGHT_MS = 1_789_941_600_000  # in the east: 2026-09-21T00:00+02:00

TIMES = [
    ("now", NOW_MS),
    (" now ", NOW_MS),
    ("0", 0),
    ("1790000000123", NOW_MS),
    ("10m ago", NOW_MS - 10 * MINUTE_MS),
    ("-10m", NOW_MS - 10 * MINUTE_MS),
    ("-1h30m", NOW_MS - 90 * MINUTE_MS),
    ("2d  ago", NOW_MS - 2 * DAY_MS),
    ("-1w", NOW_MS - 7 * DAY_MS),
    ("250ms ago", NOW_MS - 250),
    ("-3s", NOW_MS - 3_000),
    ("14:13", MIDNIGHT_MS + 14 * HOUR_MS + 13 * MINUTE_MS),
    ("9:05:07", MIDNIGHT_MS + 9 * HOUR_MS + 5 * MINUTE_MS + 7_000),
    ("09:05:07.5", MIDNIGHT_MS + 9 * HOUR_MS + 5 * MINUTE_MS + 7_500),
    ("23:59:59.999", MIDNIGHT_MS + DAY_MS - 1),
    ("2026-09-21", MIDNIGHT_MS),
    ("2026-09-21T16:13:20.123", NOW_MS),
    ("2026-09-21 16:13:20.123", NOW_MS),
    ("2026-09-21T14:13:20.123Z", NOW_MS),
    ("2026-09-21T09:13:20.123-05:00", NOW_MS),
]


@pytest.fixture
def move_to(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function that sets the local zone."""

    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(autouse=True)
def _in_the_east(move_to: Callable[[str], None]) -> None:
    move_to(EAST)


@pytest.mark.parametrize(("text", "at_ms"), TIMES)
def test_a_time_is_read_in_every_form(text: str, at_ms: int) -> None:
    assert read_time(text, NOW_MS) == at_ms


def test_a_time_without_a_zone_is_local(move_to: Callable[[str], None]) -> None:
    move_to("Asia/Tokyo")
    assert read_time("2026-09-21T23:13:20.123", NOW_MS) == NOW_MS
    assert read_time("23:13:20.123", NOW_MS) == NOW_MS
    assert moment(NOW_MS) == "2026-09-21T23:13:20.123"


@pytest.mark.parametrize(
    "text",
    ["12", "20260921", "1790000000",
     "", "soon", "10m", "m ago", "-", "-10", "24:00", "12:60", "1:2", "2026-13-01", "2026-09-21T25:00", "٣",
     "-99999999999999w", "1" * 19, str(AT_MS_MAX + 1), "9999-12-31T23:59:59-12:00", "1969-12-31"],
)  # fmt: skip
def test_a_text_that_is_not_a_time_is_wrong_usage(text: str) -> None:
    with pytest.raises(BadTime) as error:
        read_time(text, NOW_MS)
    assert error.value.exit_code == Exit.USAGE


@pytest.mark.parametrize("at_ms", [0, 999, NOW_MS, AT_MS_MAX])
def test_a_printed_time_can_be_read_again(at_ms: int) -> None:
    assert read_time(str(moment(at_ms)), NOW_MS) == at_ms


def test_the_second_of_two_equal_hours_has_its_utc_offset(move_to: Callable[[str], None]) -> None:
    move_to("Europe/Berlin")
    second_ms = 1_792_891_800_000  # 2026-10-25T02:30, once more
    assert moment(second_ms - HOUR_MS) == "2026-10-25T02:30:00.000"
    assert moment(second_ms) == "2026-10-25T02:30:00.000+01:00"
    assert read_time(str(moment(second_ms)), NOW_MS) == second_ms


def test_a_missing_time_has_no_text() -> None:
    assert moment(None) is None


DURATIONS = [
    ("PT1H", HOUR_MS), ("P1D", DAY_MS), ("P1DT2H3M4.5S", DAY_MS + 2 * HOUR_MS + 3 * MINUTE_MS + 4_500),
    ("pt90m", 90 * MINUTE_MS), ("PT0.001S", 1), ("90m", 90 * MINUTE_MS), ("1h30m", 90 * MINUTE_MS), ("PT0S", 0),
]  # fmt: skip


@pytest.mark.parametrize(("text", "ms"), DURATIONS)
def test_a_duration_is_read_in_every_form(text: str, ms: int) -> None:
    assert read_duration(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1", "P1M", "PT1", "T1H", "an hour", "-PT1H"])
def test_a_text_that_is_not_a_duration_is_wrong_usage(text: str) -> None:
    with pytest.raises(BadTime):
        read_duration(text)
