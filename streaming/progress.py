"""The progress of long work: a bar on a terminal, a line every ten seconds elsewhere.

Work that ends sooner shows nothing. Both go to standard error, since standard output is for results. A thread of its
own draws them, so work that stands still is shown as well.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streaming.logs import are_json, tell

if TYPE_CHECKING:
    from rich.console import Console

LINE_EVERY_S = 10.0
BAR_AFTER_S = 1.0
"""The time after which the bar appears."""

REFRESH_S = 0.1

Report = Callable[[int, int], None]
"""Takes what is done, and the total."""


class Work:
    """Long work, and how far it is.

    Args:
        what: The work in words, such as "Reading the topics".
        unit: What is counted, such as "records"; an empty string if nothing can be counted.
        total: The total; 0 as long as it is unknown.
        is_estimate: The total is approximate.
    """

    def __init__(self, what: str, unit: str = "", total: int = 0, *, is_estimate: bool = False) -> None:
        self.what, self.unit, self.total, self._is_estimate = what, unit, total, is_estimate
        self.done = 0
        self.step = ""
        self._began_s = time.monotonic()

    def report(self, done: int, total: int) -> None:
        """Set what is done, and the total."""
        self.done, self.total = done, total

    def __str__(self) -> str:
        if self.total:
            return f"{self.what}: {self.done} of {'about ' * self._is_estimate}{self.total} {self.unit}."
        return f"{self.what}, for {time.monotonic() - self._began_s:.0f} s."


@contextmanager
def reading(topics: str = "the topics") -> Iterator[Report]:
    """Show how many records of topics are read, until the block ends. Yield the function that takes the numbers."""
    work = Work(f"Reading {topics}", "records", is_estimate=True)
    with shown(work):
        yield work.report


@contextmanager
def shown(
    work: Work,
    say: Callable[[str], None] = tell,
    console: "Console | None" = None,
    *,
    every_s: float = LINE_EVERY_S,
    after_s: float = BAR_AFTER_S,
) -> Iterator[None]:
    """Show work until the block ends.

    Args:
        say: Called with a sentence every `every_s`, unless the console is a terminal.
        console: Shows a bar, if it is a terminal; by default standard error, unless log lines are JSON.
        every_s: Seconds between two sentences.
        after_s: Seconds until the bar appears.
    """
    from rich.console import Console

    console = console or Console(stderr=True)
    is_over = threading.Event()

    def lines() -> None:
        while not is_over.wait(every_s):
            say(str(work))

    def bar() -> None:
        if not is_over.wait(after_s):
            _draw(work, console, is_over)

    is_bar = console.is_terminal and not are_json()
    thread = threading.Thread(target=bar if is_bar else lines, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _draw(work: Work, console: "Console", is_over: threading.Event) -> None:
    """Draw a bar until the work is over. Nothing of it stays on the terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[what]}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None, what=work.what, count="")
        is_last = False
        while not is_last:
            is_last = is_over.wait(REFRESH_S)
            count = f"{work.done}/{work.total} {work.unit}" if work.total else ""
            total = work.total or None
            progress.update(task, completed=work.done, total=total, count=count, description=work.step)
