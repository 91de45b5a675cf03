"""The progress of long work on standard error: a bar on a terminal, a line every 10 s elsewhere.

    with shown(Work("Reading the topics", "records")) as work:
        work.report(1_200, 5_000)

    Reading the topics, 10 s: 1200 of 5000 records.

Work that ends sooner prints nothing. The bar appears after a second and disappears at the end. Standard output is never
used, because it contains the results. A thread shows the progress, so a line also comes while the work itself waits.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from streaming.logs import are_json, tell

if TYPE_CHECKING:
    from rich.console import Console  # its import takes longer than many commands

LINE_EVERY_S = 10.0
BAR_AFTER_S = 1.0
BAR_EVERY_S = 0.1


class Work:
    """A piece of work and how much of it is done. One thread changes it, and another one may show it.

    Args:
        name: A phrase such as "Reading the topics".
        unit: The plural of the counted things; without it, nothing is counted.
        total: The number of these things, or 0 as long as it is unknown.
    """

    def __init__(self, name: str, unit: str = "", total: int = 0) -> None:
        self.name, self.unit, self.total = name, unit, total
        self.done = 0
        self.step = ""
        """A phrase for the current step, or an empty string."""

    def advance(self, count: int = 1) -> None:
        """Add things that are done."""
        self.done += count

    def report(self, done: int, total: int) -> None:
        """Replace both counts, as a reader of topics reports them."""
        self.done, self.total = done, total

    @property
    def counts(self) -> str:
        """The counts and the step, for example "2 of 9 jars; downloading one.jar"."""
        of = f" of {self.total}" if self.total else ""
        return "; ".join(part for part in (f"{self.done}{of} {self.unit}" if self.unit else "", self.step) if part)

    def line(self, after_s: float) -> str:
        """Return a sentence for a log, `after_s` seconds after the start of the work."""
        counts = self.counts
        return f"{self.name}, {after_s:.0f} s{': ' if counts else ''}{counts}."


class End(Protocol):
    """The end of the work, which another thread waits for; by default a `threading.Event`."""

    def set(self) -> None:
        """End all waits."""

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds, and return whether the work has ended."""


@contextmanager
def shown(
    work: Work, write_line: Callable[[str], None] = tell, *, console: "Console | None" = None, end: End | None = None
) -> Iterator[Work]:
    """Show the progress of work until the block ends, also by an exception, and yield the work.

    Args:
        write_line: Called with a line every 10 s, unless there is a terminal.
        console: Shows the bar if it is a terminal; by default standard error, unless the log is in JSON.
        end: Waited for between two reports.
    """
    is_over = end or threading.Event()
    is_terminal = console.is_terminal if console else sys.stderr.isatty() and not are_json()
    with _beside(
        partial(_show_bar, work, console) if is_terminal else partial(_write_lines, work, write_line), is_over
    ):
        yield work


@contextmanager
def logged(work: Work, write_line: Callable[[str], None] = tell, *, end: End | None = None) -> Iterator[Work]:
    """Report the progress of work in a service: as `shown`, but in lines on a terminal too."""
    with _beside(partial(_write_lines, work, write_line), end or threading.Event()):
        yield work


@contextmanager
def _beside(show: Callable[[End], None], is_over: End) -> Iterator[None]:
    """Run `show` in a thread until the block ends."""
    thread = threading.Thread(target=show, args=(is_over,), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _write_lines(work: Work, write_line: Callable[[str], None], is_over: End) -> None:
    after_s = LINE_EVERY_S
    while not is_over.wait(LINE_EVERY_S):
        write_line(work.line(after_s))
        after_s += LINE_EVERY_S


def _show_bar(work: Work, console: "Console | None", is_over: End) -> None:
    if is_over.wait(BAR_AFTER_S):
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[counts]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console or Console(stderr=True), transient=True, auto_refresh=False, redirect_stdout=False
    ) as bar:
        task = bar.add_task(work.name, total=None, counts="")
        has_ended = False
        while not has_ended:
            bar.update(task, completed=work.done, total=work.total or None, counts=work.counts, refresh=True)
            has_ended = is_over.wait(BAR_EVERY_S)
        bar.update(task, completed=work.done, total=work.total or None, counts=work.counts, refresh=True)
