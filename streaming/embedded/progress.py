"""The progress of a download by Ivy, from the lines of its output."""

import re

from streaming.progress import Work

_FOUND = re.compile(r"found (\S+)")  # Ivy first looks up every module, which may take longer than the jars
_STARTED = re.compile(r"downloading \S*?([^/\s]+\.jar)\b")


class Download(Work):
    """The jars that Ivy has downloaded so far.

    Args:
        jars: The number of jars to download.
    """

    def __init__(self, jars: int) -> None:
        super().__init__("Downloading", "jars", jars)

    def read(self, line: str) -> None:
        """Update the progress from a line of Ivy's output."""
        if found := _FOUND.match(line):
            self.step = f"found {found[1]}"
        elif started := _STARTED.match(line):
            self.step = f"downloading {started[1]}"
        elif line.startswith("[SUCCESSFUL"):
            self.done = min(self.done + 1, self.total)
            if self.done == self.total:
                self.step = ""
