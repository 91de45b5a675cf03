"""Tests of the progress of long work: a bar on a terminal, lines elsewhere, nothing for short work."""

import io
import subprocess
import sys
import threading

import pytest
from rich.console import Console

from streaming.progress import BAR_AFTER_S, BAR_EVERY_S, LINE_EVERY_S, Work, logged, shown
from tests.system.waiting import HANG_S


class Clock:
    """A clock that the test moves, for the thread that shows the progress."""

    def __init__(self) -> None:
        self._now_s = self._until_s = 0.0
        self._is_waiting = self._is_over = False
        self._changed = threading.Condition()

    def set(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait(self, timeout: float) -> bool:
        with self._changed:
            self._until_s, self._is_waiting = self._now_s + timeout, True
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._is_over or self._now_s >= self._until_s, HANG_S)
            self._is_waiting = False
            return self._is_over

    def move(self, seconds: float) -> None:
        """Move the time, and return when the thread waits again."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_waiting, HANG_S)
            self._now_s += seconds
            if self._now_s >= self._until_s:
                self._is_waiting = False
                self._changed.notify_all()
                assert self._changed.wait_for(lambda: self._is_waiting, HANG_S)


def terminal() -> tuple[Console, io.StringIO]:
    screen = io.StringIO()
    return Console(file=screen, force_terminal=True, width=100, _environ={"TERM": "xterm"}), screen


def test_a_log_gets_a_line_every_ten_seconds_and_none_before() -> None:
    lines, clock = list[str](), Clock()
    log = Console(file=io.StringIO())
    with shown(Work("Reading", "records"), lines.append, console=log, end=clock) as work:
        clock.move(LINE_EVERY_S - 0.1)
        assert lines == []
        work.report(3, 9)
        clock.move(0.1)
        assert lines == ["Reading, 10 s: 3 of 9 records."]
        work.report(9, 9)
        clock.move(LINE_EVERY_S)
    assert lines == ["Reading, 10 s: 3 of 9 records.", "Reading, 20 s: 9 of 9 records."]


def test_a_service_writes_lines_on_a_terminal_too() -> None:
    lines, clock = list[str](), Clock()
    with logged(Work("Reading"), lines.append, end=clock):
        clock.move(LINE_EVERY_S)
    assert lines == ["Reading, 10 s."]


def test_a_bar_appears_after_a_second_and_disappears() -> None:
    (console, screen), lines, clock = terminal(), list[str](), Clock()
    with shown(Work("Reading", "records", 9), lines.append, console=console, end=clock) as work:
        clock.move(BAR_AFTER_S - 0.1)
        assert screen.getvalue() == ""
        work.advance(4)
        clock.move(0.1)
        assert "4 of 9 records" in screen.getvalue()
        work.advance(5)
        clock.move(BAR_EVERY_S)
        assert "9 of 9 records" in screen.getvalue()
    assert lines == []
    assert_clean(screen)


def test_an_error_leaves_a_clean_terminal() -> None:
    (console, screen), clock = terminal(), Clock()

    def fail() -> None:
        with shown(Work("Reading"), console=console, end=clock):
            clock.move(BAR_AFTER_S)
            assert "Reading" in screen.getvalue()
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert_clean(screen)
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_short_work_prints_nothing() -> None:
    console, screen = terminal()
    with shown(Work("Reading", "records", 9), console=console, end=Clock()) as work:
        work.advance(9)
    assert screen.getvalue() == ""


def assert_clean(screen: io.StringIO) -> None:
    """Assert that the last output shows the cursor and erases the line of the bar."""
    show_cursor, erase_line = "\x1b[?25h", "\x1b[2K"
    end = screen.getvalue().rpartition("records")[2] if "records" in screen.getvalue() else screen.getvalue()
    assert show_cursor in end
    assert end.endswith(erase_line)


@pytest.mark.parametrize(
    ("work", "counts"),
    [
        (Work("Reading"), ""),
        (Work("Reading", "records"), "0 records"),
        (Work("Reading", "jars", 2), "0 of 2 jars"),
    ],
)
def test_counts(work: Work, counts: str) -> None:
    assert work.counts == counts
    work.step = "found one"
    assert work.counts.endswith("found one")


def test_the_import_is_light() -> None:
    """The module is imported by every reading command, and most of them show no bar."""
    code = "import sys, streaming.progress; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
