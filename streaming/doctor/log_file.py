"""The last warnings and errors in the log of a process."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from streaming.doctor.case import Case, Finding, ok, warning, wrong

TAIL_BYTES = 2**20
LINES_MAX = 10

_LEVELS = frozenset({"WARNING", "WARN", "ERROR", "CRITICAL", "FATAL"})
_TEXT_LINE = re.compile(rf"\S+ \S+ level=(?:{'|'.join(sorted(_LEVELS))}) .*")
_SENTENCE = "coordinator: "
"""The begin of the sentence with which a process ends, in a log of text."""


def check(case: Case) -> Iterator[Finding]:
    """Yield the last warnings and errors of the log."""
    if case.log is None:
        yield ok("No log was read: --log names one.")
        return
    try:
        lines = last_errors(tail_of(case.log))
    except OSError as error:
        yield wrong(f"{case.log} cannot be read ({error.strerror}).", "Name a file that this user can read.")
        return
    if not lines:
        yield ok(f"{case.log} has no warning and no error in its last {TAIL_BYTES // 2**20} MiB.")
    for line in lines:
        yield warning(line, "")


def tail_of(file: Path) -> list[str]:
    """Return the last lines of a file.

    Raises:
        OSError: The file cannot be read.
    """
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - TAIL_BYTES))
        lines = opened.read(TAIL_BYTES).decode(errors="replace").splitlines()
    return lines[1:] if size > TAIL_BYTES else lines


def last_errors(lines: list[str]) -> list[str]:
    """Return the last warnings and errors, in their order. A traceback is left out."""
    found = [text for line in lines if (text := _error_in(line))]
    return found[-LINES_MAX:]


def _error_in(line: str) -> str | None:
    """Return the text of a line of the log; None if it is neither a warning nor an error."""
    if line.startswith("{"):
        try:
            fields = dict(json.loads(line))
        except (ValueError, TypeError):
            return None
        if fields.get("level") not in _LEVELS:
            return None
        return " ".join(str(fields.get(name, "")) for name in ("time", "level", "logger", "message"))
    return line if _TEXT_LINE.fullmatch(line) or line.startswith(_SENTENCE) else None
