"""A log of `__consumer_offsets` for tests, and the outputs of its translation as text."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import UNSET, structs

from coordinator.messages.fields import Event
from coordinator.messages.group_records import GroupRecord, OffsetRecord, Published
from coordinator.messages.outputs import Output
from streaming.observe.partition import Partition, Span
from streaming.observe.state import Row
from streaming.wire.records import decode_event
from tests.streaming.observe.writing import Written

HELD = 10**9
"""An end of the source that no test reaches: each run waits until its end is known."""


class Log:
    """A partition's log, and the translation of its records batch by batch."""

    def __init__(self, retention_ms: int | None = None, end: int = 0) -> None:
        self.span = Span(end, retention_ms)
        self.rows: list[Row] = []
        self.outputs: list[Output] = []
        self.next_offset = 0
        self.state: bytes | None = None
        self.partition: Partition | None = None

    def append(self, at_ms: int, *records: Written) -> "Log":
        """Append records with one timestamp."""
        for key, value in records:
            self.rows.append((self.next_offset, at_ms, key, value))
            self.next_offset += 1
        return self

    def hole(self, offsets: int = 1) -> "Log":
        """Leave offsets out, as a compaction or the end of a transaction does."""
        self.next_offset += offsets
        return self

    def read(self, *named: tuple[str, str]) -> list[Output]:
        """Translate the records that were appended since the last read, as one batch."""
        partition = self.partition = Partition(7, self.state, self.span)
        partition.read(self.rows, named)
        self.rows, self.state = [], partition.to_bytes()
        self.outputs += partition.outputs
        return partition.outputs


def translated(rows: Sequence[Row], cuts: Iterable[int] = (), end: int = HELD) -> list[Output]:
    """Return the outputs of rows that are cut into batches before the rows with these numbers."""
    outputs: list[Output] = []
    stored: bytes | None = None
    bounds = [0, *sorted(cuts), len(rows)]
    for begin, stop in pairwise(bounds):
        partition = Partition(7, stored, Span(end))
        partition.read(rows[begin:stop])
        stored = partition.to_bytes()
        outputs += partition.outputs
    return outputs


def events(outputs: Iterable[Output], *kinds: type[Event]) -> list[Any]:
    """Return the events of these kinds; all events if none is named. Each can be encoded and decoded."""
    found = [each for each in outputs if isinstance(each, Event) and (not kinds or isinstance(each, kinds))]
    assert [decode_event(msgspec.json.encode(each)) for each in found] == found
    return found


def groups(outputs: Iterable[Output]) -> list[GroupRecord]:
    return [each.record for each in outputs if isinstance(each, Published) and isinstance(each.record, GroupRecord)]


def offsets(outputs: Iterable[Output]) -> list[OffsetRecord]:
    return [each.record for each in outputs if isinstance(each, Published) and isinstance(each.record, OffsetRecord)]


def without_versions(outputs: Iterable[Output]) -> list[Any]:
    """Return the events and the records of groups, without versions, and without the records of offsets."""
    found: list[Any] = []
    for each in outputs:
        if isinstance(each, Event):
            found.append(structs.replace(each, version=None))
        elif isinstance(each, Published) and not isinstance(each.record, OffsetRecord):
            record = None if each.record is None else structs.replace(each.record, version=0)
            found.append((each.key, record, each.ended_ms))
    return found


def told(outputs: Iterable[Output]) -> list[str]:
    """Return outputs as text: the time and the name of each event with what it says, and each record."""
    return [_event(each) if isinstance(each, Event) else _record(each) for each in outputs]  # type: ignore[arg-type]


def _record(output: Published) -> str:
    what = "/".join(map(str, output.key[2:])) or "group"
    record = output.record
    if record is None:
        return f"=> {what} forgotten"
    if isinstance(record, OffsetRecord):
        return f"=> offset {what} {record.offset} x{record.stands_for}"
    members = "; ".join(f" {m.member_id} {_partitions(m.assigned)}" for m in record.members)
    return f"=> {record.type} {record.state.value} {record.generation_id}{members}"


def _partitions(assigned: dict[str, list[int]] | None) -> str:
    found = [f"{topic}-{n}" for topic, numbers in (assigned or {}).items() for n in numbers]
    return ",".join(found).replace("orders-", "") or "nothing"


_LEFT_OUT = ("group_id", "version", "at_ms", "generation_id", "client_id", "client_host", "protocol_name", "leader",
             "members_before", "members_after", "fencing_token", "members", "joins_until_ms",
             "replaced_by_client_id", "replaced_by_client_host", "session_timeout_ms")  # fmt: skip


def _event(event: Event) -> str:
    fields = structs.asdict(event)
    words = [f"{name}={_word(value)}" for name, value in fields.items() if name not in _LEFT_OUT and _is_told(value)]
    return " ".join([f"!! {event.at_ms}", str(event.__struct_config__.tag), *words])


def _is_told(value: Any) -> bool:
    return value is not UNSET and value is not False and value not in (None, "", (), [])


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_word, value))
    if isinstance(value, msgspec.Struct):
        return f"{value.partition}:{value.before or '-'}>{value.after or '-'}"
    return str(value)
