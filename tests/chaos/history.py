"""The notes of members: a JSON line for each event, written at once, so that kill -9 loses none."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Note(NamedTuple):
    """One line.

    Args:
        at_s: The time of the machine's monotonic clock, which all processes share, in seconds.
        what: `assigned`, `revoked` or `lost`, with partitions; `read`, with a partition, its first and its last offset;
            `acknowledged`, with offsets by partition; `refused`, with the reason.
        generation: The member's generation at that time.
    """

    at_s: float
    what: str
    value: Any
    generation: int
    member_id: str


class History:
    """The notes of one process, open for writing."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("ab", buffering=0)

    def note(self, what: str, value: object, generation: int, member_id: str) -> None:
        line = Note(time.monotonic(), what, value, generation, member_id)
        self._file.write(json.dumps(line).encode() + b"\n")


def read(file: Path) -> Iterator[Note]:
    """Yield the whole lines; a kill may have cut off the last one."""
    lines, _, _ = file.read_bytes().rpartition(b"\n")
    return (Note(*json.loads(line)) for line in lines.split(b"\n") if line)
