"""Tests of the progress of long work: lines in a log, a bar on a terminal, and nothing for short work."""

import io
import threading

import pytest
from rich.console import Console

from streaming.progress import LINE_EVERY_S, Work, shown

HANG_S = 60.0


class Screen(io.StringIO):
    """A terminal that wakes the test when it shows a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text, self.is_shown = text, threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._text in self.getvalue():
            self.is_shown.set()
        return written


def no_thread_is_left() -> bool:
    return not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_work_in_words() -> None:
    work = Work("Reading the topics", "records", is_estimate=True)
    assert str(work) == "Reading the topics, for 0 s."
    work.report(1_000, 4_000)
    assert str(work) == "Reading the topics: 1000 of about 4000 records."


def test_a_log_gets_a_line_at_intervals_also_while_the_work_stands_still() -> None:
    lines: list[str] = []
    twice = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        if lines.count(line) == 2:
            twice.set()

    work = Work("Reading", "records")
    work.report(1, 9)
    with shown(work, say, Console(file=io.StringIO()), every_s=0.01):
        assert twice.wait(HANG_S)
    assert lines[-1] == "Reading: 1 of 9 records."
    assert no_thread_is_left()


def test_a_terminal_gets_a_bar_which_disappears() -> None:
    screen, lines = Screen("7/9 records"), list[str]()
    work = Work("Reading", "records")
    work.step = "partition 3"
    console = Console(file=screen, force_terminal=True, width=100)
    with shown(work, lines.append, console, every_s=0.01, after_s=0):
        work.report(7, 9)
        assert screen.is_shown.wait(HANG_S)
    assert "partition 3" in screen.getvalue()
    assert screen.getvalue().endswith(("\x1b[2K", "\x1b[?25h")), "the line is erased and the cursor is back"
    assert lines == []
    assert no_thread_is_left()


@pytest.mark.parametrize("is_terminal", [False, True])
def test_short_work_shows_nothing(is_terminal: bool) -> None:
    screen, lines = io.StringIO(), list[str]()
    with shown(Work("Reading"), lines.append, Console(file=screen, force_terminal=is_terminal)):
        pass
    assert (screen.getvalue(), lines) == ("", [])
    assert LINE_EVERY_S == 10


def test_an_error_in_the_work_ends_the_bar() -> None:
    screen = Screen("Reading")
    console = Console(file=screen, force_terminal=True, width=100)

    def fail() -> None:
        with shown(Work("Reading"), console=console, after_s=0):
            assert screen.is_shown.wait(HANG_S)
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert screen.getvalue().endswith(("\x1b[2K", "\x1b[?25h"))
    assert no_thread_is_left()
