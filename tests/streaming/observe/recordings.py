"""The recordings of real groups, and all that is said of them, as text; see `record`.

    python -m tests.streaming.observe.recordings

writes the texts anew, after a change that you understand. They are in UTC.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from coordinator.messages.outputs import Output
from streaming.cli.groups.history import timeline_lines
from streaming.observe.partition import Partition
from streaming.observe.state import Row
from streaming.views import GroupView, Raw, Views
from streaming.views.api import answers
from streaming.views.sentences.records import to_line
from streaming.views.sentences.why import why
from streaming.views.text import naming
from streaming.wire.records import OutputTopics, to_row

HERE = Path(__file__).parent / "recorded"
NAMES = sorted(path.stem for path in HERE.glob("*.jsonl"))
GROUP = "counting"
TOPICS = OutputTopics("replies", "groups", "events", "requests")


class Said(NamedTuple):
    """What the broker's own tool said of the group at a place of the log: its state and its members' number."""

    state: str
    members: int


Step = Row | Said


def steps(name: str) -> Iterator[Step]:
    """Yield the records of a recording, and what the broker said between them."""
    for line in (HERE / f"{name}.jsonl").read_text().splitlines():
        step = json.loads(line)
        if isinstance(step, dict):
            yield Said(step["said"][0], int(step["said"][1]))
        else:
            offset, at_ms, key, value = step
            yield offset, at_ms, bytes.fromhex(key), None if value is None else bytes.fromhex(value)


class Replay:
    """The observer's translation of a recording, and the views of its outputs."""

    def __init__(self) -> None:
        self.views = Views(is_live=True)
        self._stored: bytes | None = None
        self._offsets = {"groups": 0, "events": 0}
        self.outputs: list[Output] = []

    @property
    def group(self) -> GroupView:
        return self.views.groups[GROUP]

    @classmethod
    def until(cls, name: str, said: int) -> "Replay":
        """Return a replay of a recording up to a place where the broker was asked, the first one being 1."""
        replay, rows = cls(), list[Row]()
        for step in steps(name):
            if not isinstance(step, Said):
                rows.append(step)
            elif (said := said - 1) == 0:
                break
        replay.read(rows)
        return replay

    def read(self, rows: Sequence[Row]) -> None:
        """Translate records as one batch."""
        partition = Partition(0, self._stored)
        partition.read(rows)
        self._stored = partition.to_bytes()
        self.outputs += partition.outputs
        for output in partition.outputs:
            row = to_row(output, TOPICS, 0)
            headers = {name: int(value) for name, value in row.headers or ()}
            at = headers.get("version"), headers.get("at_ms")
            raw = Raw(row.topic, 0, self._offsets[row.topic], 0, row.key, row.value, *at)  # type: ignore[arg-type]
            self.views.fold(raw, now_ms=0)
            self._offsets[row.topic] += 1
        assert not self.views.alarms


def text_of(name: str) -> str:
    """Return all that is said of a group: at each place where the broker was asked, what is new, and the last cause."""
    with _utc():
        return "\n".join(_lines(name)) + "\n"


def _lines(name: str) -> Iterator[str]:
    replay, rows, told = Replay(), list[Row](), 0
    for step in steps(name):
        if not isinstance(step, Said):
            rows.append(step)
            continue
        replay.read(rows)
        rows.clear()
        group = replay.group
        timeline = timeline_lines(answers.timeline(replay.views, group))
        yield f"== {step.state}, {step.members} members"
        yield from (f"{line.generation_id} {line.event}: {line.text}" for line in timeline[told:])
        told = len(timeline)
        assert group.record is not None
        with naming(group.client_ids):
            yield f"-> {to_line(group.record, 0).text}"
        if (explained := why(group)) is not None:
            sentences = (explained.what, explained.who, *explained.details, explained.advice)
            yield from (f"why: {sentence}" for sentence in sentences)


@contextmanager
def _utc() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()


if __name__ == "__main__":
    for each in NAMES:
        (HERE / f"{each}.txt").write_text(text_of(each))
