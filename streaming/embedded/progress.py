"""The progress of a download by Ivy: a bar on a terminal, a line every few seconds elsewhere."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

REPORT_EVERY_S = 5.0

_FOUND = re.compile(r"found (\S+)")  # Ivy first looks up every module, which may take longer than the jars
_STARTED = re.compile(r"downloading \S*?([^/\s]+\.jar)\b")


class Download:
    """The jars that Ivy has downloaded so far.

    Args:
        jars: The number of jars to download.
    """

    def __init__(self, jars: int) -> None:
        self.jars = jars
        self.done = 0
        self.step = ""

    def read(self, line: str) -> None:
        """Update the progress from a line of Ivy's output."""
        if found := _FOUND.match(line):
            self.step = f"found {found[1]}"
        elif started := _STARTED.match(line):
            self.step = f"downloading {started[1]}"
        elif line.startswith("[SUCCESSFUL"):
            self.done = min(self.done + 1, self.jars)

    def __str__(self) -> str:
        now = f"; {self.step}" if self.step and self.done < self.jars else ""
        return f"{self.done} of {self.jars} jars have been downloaded{now}."


@contextmanager
def shown(
    download: Download, say: Callable[[str], None], console: Console | None, every_s: float = REPORT_EVERY_S
) -> Iterator[Callable[[str], None]]:
    """Show a download until the block ends, and yield the function that takes the lines of Ivy's output.

    Args:
        say: Called with a sentence every `every_s` seconds, unless the console is a terminal.
        console: Shows a bar, if it is a terminal.
    """
    if console and console.is_terminal:
        with _bar(download, console) as read:
            yield read
        return
    is_over = threading.Event()

    def report() -> None:
        while not is_over.wait(every_s):
            say(str(download))

    thread = threading.Thread(target=report, name="download progress", daemon=True)
    thread.start()
    try:
        yield download.read
    finally:
        is_over.set()
        thread.join()


@contextmanager
def _bar(download: Download, console: Console) -> Iterator[Callable[[str], None]]:
    columns = (TextColumn("jars"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=download.jars)

        def read(line: str) -> None:
            download.read(line)
            progress.update(task, completed=download.done, description=download.step)

        yield read
