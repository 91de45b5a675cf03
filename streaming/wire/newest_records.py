"""The newest record of each key of the groups topic, whatever the order of records on the topic.

A writer that was paused in the middle of a batch may repeat its records after later ones. On a compacted topic the last
record of a key stays, so a reader must not treat the last record as the newest one:

- of one key, the record with the later time is the newer one; at one time, the record with the higher version. A group
  that is founded anew counts from 1 again, but at a later time than all records of the group before;
- a group publishes its versions in order. So a record behind a higher version of its group is a repeat. Compaction may
  have removed the newer record of its key: the value of the key is then in doubt.
"""

from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from coordinator.messages.group_records import GroupRecord, OffsetRecord
from streaming.wire.records import Tombstone

Key = bytes | tuple[str, int] | None
"""Distinguishes the keys of a group, in any form that the reader chooses."""


class Order(NamedTuple):
    """The order of a record: its group's time, and its version; 0 if it was written for no group."""

    at_ms: int
    version: int


def order_of(record: GroupRecord | OffsetRecord | Tombstone) -> Order:
    """Return a record's order."""
    match record:
        case GroupRecord():
            return Order(record.since_ms, record.version)
        case OffsetRecord():
            return Order(record.commit_timestamp_ms, record.version)
    return Order(record.at_ms, record.version or 0)


class _Dated(Struct):
    version: int
    since_ms: int | None = None
    commit_timestamp_ms: int | None = None


_decode = msgspec.json.Decoder(_Dated).decode


def order_in(value: bytes | None, version: int | None, at_ms: int | None) -> Order | None:
    """Return the order of a Kafka record without decoding the rest of it; None if it has none.

    Args:
        version, at_ms: The values of a tombstone's headers.
    """
    if value is None:
        return None if at_ms is None else Order(at_ms, version or 0)
    try:
        dated = _decode(value)
    except (ValueError, RecursionError):
        return None
    own_ms = dated.commit_timestamp_ms if dated.since_ms is None else dated.since_ms
    return None if own_ms is None else Order(own_ms, dated.version)


class NewestRecords(Struct):
    """The last and the newest records of one group on the topic.

    Args:
        began_ms: When the latest life of the group began, or earlier, but after the life before.
        latest_ms: The latest time of any record of the group.
        highest: The highest version of the latest life.
        newest: By key, the newest record.
        late: By key, the last record, if it is older than an earlier record of the key or of the group.
        corrected: The number of times that an older record was last for a key until a newer one was written.
    """

    began_ms: int = 0
    latest_ms: int = 0
    highest: int = 0
    newest: dict[Key, Order] = field(default_factory=dict)
    late: dict[Key, Order] = field(default_factory=dict)
    corrected: int = 0

    def add(self, key: Key, order: Order) -> bool:
        """Record the order of the group's next record. Return whether it is newer than all earlier ones of its key."""
        before = self.newest.get(key)
        is_newer = before is None or order > before
        if is_newer:
            self.corrected += self.is_outdated(key)
            self.newest[key] = order
        if self._is_behind(order):
            self.late[key] = order
        else:
            self.late.pop(key, None)
            if before is not None and order < before:
                self.late[key] = order
            self._advance(order)
        return is_newer

    def is_outdated(self, key: Key) -> bool:
        """Return whether the key's last record is older than an earlier record of the key."""
        return key in self.late and self.late[key] < self.newest[key]

    def _is_behind(self, order: Order) -> bool:
        if order.at_ms < self.began_ms:
            return True
        return order.version < self.highest and order.at_ms <= self.latest_ms

    def _advance(self, order: Order) -> None:
        """Store the highest version so far. The earlier records of a repeated batch have been repeated as well."""
        if order.version < self.highest:
            self.began_ms, self.highest = min(order.at_ms, self.latest_ms + 1), 0
        self.highest = max(self.highest, order.version)
        self.latest_ms = max(self.latest_ms, order.at_ms)
        self.late = {key: last for key, last in self.late.items() if last < self.newest[key]}
