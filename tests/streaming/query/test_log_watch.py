"""Tests of the comparison of handled records with the log."""

from collections.abc import Mapping

import pytest

from streaming.kafka.lookup import Found
from streaming.query.checkpoint.replaced import Note
from streaming.query.operator.continuity import LastRecord
from streaming.query.watchers.log_watch import KEPT_MAX, Comparison, difference
from streaming.wire.records import Tally


class Log:
    """The logs of some partitions, in place of a `Lookup`: for each record its time and its leader epoch.

    `unavailable` has the partitions whose broker does not answer. `asked` counts the lookups of single records.
    """

    def __init__(self, partitions: int = 1) -> None:
        self._logs: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        self.epoch = self.asked = 0
        self.now_ms = 1_000
        self.unavailable: set[int] = set()

    def append(self, count: int, partition: int = 0) -> Tally:
        """Append records at later and later times. Return the figures of a batch that ends with them."""
        for _ in range(count):
            self.now_ms += 1
            self._logs[partition].append((self.now_ms, self.epoch))
        return tally(len(self._logs[partition]) - 1, self.now_ms, partition)

    def cut(self, length: int, partition: int = 0) -> None:
        """Cut a log to a length, and elect another leader, as an unclean election does."""
        del self._logs[partition][length:]
        self.epoch += 1

    def records(self, offsets: Mapping[int, int], wait_s: float) -> dict[int, Found | None]:
        self.asked += len(offsets)
        return {p: self._at(p, offset) for p, offset in offsets.items() if p not in self.unavailable}

    def _at(self, partition: int, offset: int) -> Found | None:
        log = self._logs[partition]
        return Found(offset, *log[offset]) if offset < len(log) else None


def tally(offset: int, at_ms: int, shard: int = 0) -> Tally:
    figures = dict.fromkeys(("groups", "members", "requests", "heartbeats", "answered", "oldest_ms", "deferred"), 0)
    return Tally(shard=shard, **figures, due_in_ms=None, last=(offset, at_ms))


def compare(comparison: Comparison, log: Log) -> Note | None:
    return comparison.compare(log)  # type: ignore[arg-type]


def test_a_log_that_has_not_moved_is_not_read() -> None:
    log, comparison = Log(), Comparison()
    comparison.handle([log.append(3)])
    assert compare(comparison, log) is None
    asked = log.asked
    assert compare(comparison, log) is None
    comparison.handle([tally(2, log.now_ms)])  # a batch without records
    assert compare(comparison, log) is None
    assert log.asked == asked


def test_a_shard_costs_one_lookup_while_its_leader_stays() -> None:
    log, comparison = Log(), Comparison()
    comparison.handle([log.append(1)])
    assert compare(comparison, log) is None
    log.asked = 0
    comparison.handle([log.append(1)])
    comparison.handle([log.append(1)])
    assert compare(comparison, log) is None
    assert log.asked == 1


def test_the_newest_handled_record_is_compared() -> None:
    log, comparison = Log(), Comparison()
    comparison.handle([handled := log.append(5)])
    log.cut(3)
    log.append(9)
    found = compare(comparison, log)
    assert (found and found.offset, handled.last) == (4, (4, found and found.handled_ms))


@pytest.mark.parametrize("length", range(1, 8))
def test_a_log_that_was_replaced_between_two_batches_is_noticed(length: int) -> None:
    """The later batch ends with a record that is in the log. Only the leader epoch shows that others may not be."""
    log, comparison = Log(), Comparison()
    comparison.handle([log.append(2)])
    assert compare(comparison, log) is None
    comparison.handle([log.append(3)])
    comparison.handle([log.append(3)])
    log.cut(length)
    log.append(20)
    comparison.handle([log.append(1)])
    found = compare(comparison, log)
    assert found is not None
    assert found.offset == 7, "of the last batch before the cut"


def test_a_new_leader_with_all_records_is_no_difference() -> None:
    log, comparison = Log(), Comparison()
    for _ in range(3):
        comparison.handle([log.append(2)])
        comparison.handle([log.append(2)])
        log.cut(1_000)
        comparison.handle([log.append(2)])
        assert compare(comparison, log) is None
        assert not comparison.waiting


def test_the_first_comparison_includes_the_record_of_the_start() -> None:
    log, comparison = Log(), Comparison()
    log.append(5)
    comparison.begin_at({0: Found(4, log.now_ms, log.epoch)})
    log.cut(4)
    log.append(5)
    comparison.handle([log.append(1)])
    found = compare(comparison, log)
    assert found is not None
    assert found.offset == 4


def test_a_broker_that_does_not_answer_is_asked_again() -> None:
    log, comparison = Log(2), Comparison()
    comparison.handle([log.append(5, 0), log.append(5, 1)])
    log.unavailable = {1}
    assert compare(comparison, log) is None
    assert comparison.waiting.keys() == {1}
    log.cut(3, 1)
    log.append(9, 1)
    comparison.handle([log.append(1, 1)])
    assert compare(comparison, log) is None
    log.unavailable = set()
    found = compare(comparison, log)
    assert found is not None
    assert (found.partition, found.offset) == (1, 4)


def test_the_kept_ends_of_batches_are_bounded() -> None:
    """The oldest and the newest stay."""
    log, comparison = Log(), Comparison()
    comparison.handle([log.append(1)])
    assert compare(comparison, log) is None
    for _ in range(10 * KEPT_MAX):
        comparison.handle([log.append(1)])
    log.asked = 0
    log.cut(1_000_000)
    comparison.handle([log.append(1)])
    assert compare(comparison, log) is None
    assert KEPT_MAX // 2 <= log.asked <= KEPT_MAX + 1


@pytest.mark.parametrize("found", [None, Found(5, 1, 0)])
def test_an_offset_without_a_record_is_no_difference(found: Found | None) -> None:
    """The log begins after it or ends before it, or a marker of a transaction is there."""
    assert difference({0: LastRecord(4, 10)}, {0: found}) is None
