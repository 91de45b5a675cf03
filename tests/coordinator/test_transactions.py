"""Offsets inside transactions: pending, committed and aborted commits; late ones; bounds."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import UNSET

from coordinator.base import limits
from coordinator.base.errors import ErrorCode
from coordinator.common import transactions
from coordinator.messages.group_records import OffsetRecord, Published
from coordinator.messages.requests import OffsetToCommit, SettleTransactions, TxnOffsetCommit
from coordinator.messages.responses import SettleTransactionsAnswer
from coordinator.state import codec
from coordinator.state.group import Offset
from tests.coordinator.reports import report
from tests.coordinator.scenario import Scenario

DAY_MS = 24 * 3_600_000

Offsets = dict[tuple[str, int], int]


def pend(s: Scenario, name: str, place: int, offsets: Offsets, *, producer_id: int = 7, **fields: Any) -> Scenario:
    """Commit inside a transaction, with the member id and the generation of `name`."""
    asked = tuple(OffsetToCommit(topic, partition, offset) for (topic, partition), offset in offsets.items())
    return s.ask(name, TxnOffsetCommit, place=place, producer_id=producer_id, producer_epoch=0, offsets=asked, **fields)


def pend_from_outside(s: Scenario, place: int, offsets: Offsets, **fields: Any) -> Scenario:
    return pend(s, "tool", place, offsets, member_id="", generation_id=-1, **fields)


def settle(s: Scenario, before: int, committed: Iterable[int] = (), **more: Any) -> Scenario:
    """Report how transactions have ended; `more` as for `report`."""
    return s.ask("driver", SettleTransactions, **report(s.shard, before, committed, **more))


def stable(s: Scenario, *places: tuple[str, int]) -> list[tuple[int, int]]:
    """Return offset and error of each place, by a fetch that requires stable offsets."""
    s.fetch("reader", {topic: [partition for t, partition in places if t == topic] for topic, _ in places},
            require_stable=True)  # fmt: skip
    return [(f.offset, f.code) for f in s.said.partitions]


def codes(s: Scenario) -> list[int]:
    return [p.code for p in s.said.partitions]


T0, T1 = ("t", 0), ("t", 1)
UNSTABLE, NOTHING = (-1, 88), (-1, 0)


def test_an_offset_is_pending_until_its_transaction_is_committed():
    """KIP-98: nobody reads it before, and a fetch of stable offsets is answered with an error that is retried."""
    s = Scenario.stable("c1").commit("c1", {T0: 5})
    pend(s, "c1", 10, {T0: 8})
    assert codes(s) == [0]
    assert not any(isinstance(output, Published) for output in s.latest), "a pending offset is not published"
    assert stable(s, T0, T1) == [UNSTABLE, NOTHING]
    s.fetch("reader", {"t": [0]})
    assert s.said.partitions[0].offset == 5, "a fetch of any offsets does not wait"
    settle(s, 11, [10])
    assert (s.said.committed, s.said.aborted) == (1, 0)
    (record,) = [output.record for output in s.latest if isinstance(output, Published)]
    assert isinstance(record, OffsetRecord)
    assert (record.offset, record.generation_id, record.member_id) == (8, 1, s.ids["c1"])
    assert stable(s, T0, T1) == [(8, 0), NOTHING]


def test_a_committed_offset_has_all_fields_of_its_request():
    """Its time is that of the report: see `_store`."""
    s = Scenario.stable("c1")
    topic_id = "A" * 22
    asked = OffsetToCommit("t", 0, 5, leader_epoch=3, metadata="mine", topic_id=topic_id)
    s.ask("c1", TxnOffsetCommit, place=1, producer_id=7, producer_epoch=0, offsets=(asked,))
    settle(s, 2, [1])
    assert s.group.offsets == {"t": {0: Offset(5, 3, "mine", s.now_ms, None, topic_id)}}


def test_an_aborted_offset_is_dropped():
    s = Scenario.stable("c1").commit("c1", {T0: 5})
    pend(s, "c1", 10, {T0: 8})
    settle(s, 11)
    assert (s.said.committed, s.said.aborted) == (0, 1)
    assert stable(s, T0) == [(5, 0)]


def test_only_transactions_that_have_ended_are_settled():
    """A place that is not before the reported one belongs to an open transaction."""
    s = Scenario.stable("c1")
    pend(s, "c1", 10, {T0: 1}, producer_id=1)
    pend(s, "c1", 12, {T1: 2}, producer_id=2)
    settle(s, 12, [10])
    assert stable(s, T0, T1) == [(1, 0), UNSTABLE]
    settle(s, 13, [10, 12])
    assert stable(s, T0, T1) == [(1, 0), (2, 0)]


def test_a_report_that_comes_again_changes_nothing():
    s = Scenario.stable("c1")
    pend(s, "c1", 10, {T0: 1})
    settle(s, 11, [10])
    s.commit("c1", {T0: 9})
    settle(s, 11, [10])
    assert isinstance(s.said, SettleTransactionsAnswer)
    assert (s.said.committed, s.said.aborted, stable(s, T0)) == (0, 0, [(9, 0)])
    settle(s, 5)
    late = pend(s, "c1", 8, {T0: 2})
    assert codes(late) == [ErrorCode.INVALID_PRODUCER_EPOCH.number], "an older report takes nothing back"


@pytest.mark.parametrize(("place", "code"), [(9, 47), (10, 47), (11, 0)])
def test_a_commit_is_refused_after_its_transaction_has_ended(place: int, code: int):
    """The sender stood still between its record and its request: nobody would ever settle the commit."""
    s = Scenario.stable("c1")
    settle(s, 11)
    pend(s, "c1", place, {T0: 1, T1: 2})
    assert codes(s) == [code, code]
    assert s.said.error_message == ("the transaction has ended already" if code else UNSET)
    assert stable(s, T0) == [NOTHING if code else UNSTABLE]


def test_a_later_commit_outlives_an_earlier_transaction():
    """protocol.md 3.8: the marker of the transaction changes only what no later commit has replaced."""
    s = Scenario.stable("c1")
    pend(s, "c1", 10, {T0: 1, T1: 1})
    s.commit("c1", {T0: 5})
    assert stable(s, T0) == [UNSTABLE], "the transaction may still be aborted or committed"
    settle(s, 11, [10])
    assert stable(s, T0, T1) == [(5, 0), (1, 0)]


@pytest.mark.parametrize("order", [(10, 12), (12, 10)])
def test_the_later_of_two_transactions_counts(order: tuple[int, int]):
    """The transactions end in any order; the one that has committed later in the log counts."""
    s = Scenario.stable("c1")
    for place in order:
        pend(s, "c1", place, {T0: place}, producer_id=place)
    settle(s, 13, [10, 12])
    assert stable(s, T0) == [(12, 0)]


def test_a_late_commit_of_an_ended_transaction_outlives_no_plain_commit():
    """Its request comes before the report, but the client has given it up, repeated it and ended the transaction."""
    s = Scenario.stable("c1")
    pend(s, "c1", 11, {T0: 100})
    s.commit("c1", {T0: 200})
    pend(s, "c1", 10, {T0: 100, T1: 5})
    assert codes(s) == [0, 0]
    settle(s, 13, [10, 11])
    assert stable(s, T0, T1) == [(200, 0), (5, 0)]


def test_a_late_commit_of_another_producer_counts():
    s = Scenario.stable("c1")
    pend(s, "c1", 11, {T0: 100}, producer_id=8)
    s.commit("c1", {T0: 200})
    pend(s, "c1", 10, {T0: 100})
    settle(s, 13, [10, 11])
    assert stable(s, T0) == [(100, 0)]


def test_a_later_transaction_that_ends_first_counts():
    s = Scenario.stable("c1")
    pend(s, "c1", 10, {T0: 1}, producer_id=1)
    pend(s, "c1", 12, {T0: 2}, producer_id=2)
    settle(s, 15, [12], still=[10])
    assert stable(s, T0) == [UNSTABLE]
    s.fetch("reader", {"t": [0]})
    assert s.said.partitions[0].offset == 2
    settle(s, 20, [10])
    assert stable(s, T0) == [(2, 0)]


def test_pending_offsets_of_a_deleted_topic_are_dropped():
    """A topic that was made anew begins at offset 0 again; the ends of the transactions before are lost."""
    s = Scenario.stable("c1")
    settle(s, 100)
    pend(s, "c1", 110, {T0: 1})
    settle(s, 3, [2], topic_id="a new topic")
    assert (s.said.committed, s.said.aborted, stable(s, T0)) == (0, 1, [NOTHING])
    pend(s, "c1", 3, {T0: 2})
    settle(s, 4, [3], topic_id="a new topic")
    assert stable(s, T0) == [(2, 0)]


def test_pending_offsets_of_all_groups_are_dropped_with_a_deleted_topic():
    s = Scenario()
    settle(s, 1)
    for number in range(2):
        pend_from_outside(s, 10 + number, {T0: number}, group_id=f"g{number}")
    settle(s, 3, topic_id="a new topic")
    assert (s.said.committed, s.said.aborted) == (0, 2)


# -- who may commit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"generation_id": 0}, 22),
        ({"generation_id": 2}, 22),
        ({"member_id": "made-up"}, 25),
        ({"member_id": "", "generation_id": -1}, 0),
        ({"member_id": "", "generation_id": -1, "group_instance_id": "i"}, 25),
        ({"member_id": "", "generation_id": 1}, 25),
        ({"group_id": ""}, 24),
    ],
)
@pytest.mark.parametrize("phase", ["Stable", "CompletingRebalance", "PreparingRebalance"])
def test_a_classic_member_is_fenced_by_its_generation(phase: str, fields: dict[str, Any], code: int):
    """protocol.md 3.8: as a plain commit, but for one without ids, and for one while the assignments are awaited."""
    s = Scenario.joined("c1", "c2") if phase == "CompletingRebalance" else Scenario.stable("c1", "c2")
    generation = s.generations["c1"]
    if phase == "PreparingRebalance":
        s.join("c3")
    s.is_(phase)
    fields = dict(fields)
    if fields.get("generation_id", -1) >= 0:
        fields["generation_id"] += generation - 1
    pend(s, "c1", 10, {T0: 1}, **fields)
    assert codes(s) == [code]
    settle(s, 11, [10])
    assert s.said.committed == (code == 0)


def test_an_empty_group_takes_commits_without_a_generation():
    """Whatever ids they name. Generation 0 is none of the group's either."""
    s = Scenario().commit_from_outside("tool", {T0: 1})
    for generation_id, code in ((-1, 0), (0, 25), (1, 25)):
        pend(s, "tool", 10, {T0: 1}, member_id="made-up", generation_id=generation_id)
        assert codes(s) == [code]


@pytest.mark.parametrize(("generation_id", "code"), [(-1, 0), (0, 69), (3, 69)])
def test_a_missing_group_takes_commits_without_a_generation(generation_id: int, code: int):
    """KIP-1319."""
    s = pend(Scenario(), "tool", 10, {T0: 1}, member_id="", generation_id=generation_id)
    assert codes(s) == [code]
    assert (s.shard.group("g") is None) == bool(code)


def test_a_commit_in_a_transaction_renews_no_session():
    """protocol.md 3.8."""
    s = Scenario.stable("c1", session_timeout_ms=10_000).at(9_000)
    pend(s, "c1", 10, {T0: 1})
    s.until(10_001)
    s.is_("Empty")


def test_each_partition_has_its_own_error():
    s = Scenario.stable("c1", offset_metadata_max_bytes=3)
    offsets = OffsetToCommit("t", 0, 5, metadata="four"), OffsetToCommit("t", 1, 6, metadata="abc")
    s.ask("c1", TxnOffsetCommit, place=1, producer_id=7, producer_epoch=0, offsets=offsets)
    assert codes(s) == [12, 0]
    settle(s, 2, [1])
    assert stable(s, T0, T1) == [NOTHING, (6, 0)]


def test_pending_offsets_are_bounded(monkeypatch: pytest.MonkeyPatch):
    """A producer that commits for ever inside one transaction is told to retry; others of its group too."""
    monkeypatch.setattr(transactions, "PENDING_OFFSETS_MAX", 3)
    s = Scenario.stable("c1")
    pend(s, "c1", 10, {T0: 1, T1: 1})
    pend(s, "c1", 11, {T0: 2, T1: 2})
    assert codes(s) == [14, 14]
    pend(s, "c1", 12, {T0: 3})
    assert codes(s) == [0]
    settle(s, 13, [10, 12])
    pend(s, "c1", 14, {T0: 4, T1: 4})
    assert codes(s) == [0, 0]


def test_the_bounds_hold_the_largest_request():
    assert limits.PARTITIONS_PER_REQUEST_MAX <= limits.PENDING_OFFSETS_MAX


# -- groups with pending offsets ---------------------------------------------------------------------------------------


def test_a_pending_offset_keeps_its_group_and_the_committed_offset():
    """protocol.md 6: neither expires while a transaction may commit another offset."""
    s = pend_from_outside(Scenario().commit_from_outside("tool", {T0: 1, T1: 1}), 10, {T0: 2})
    s.until(40 * DAY_MS)
    assert {p for _, p, _ in s.shard.group("g").all_offsets()} == {0}  # type: ignore[union-attr]
    s.at(40 * DAY_MS)
    settle(s, 11)
    s.until(41 * DAY_MS)
    assert s.shard.group("g") is None


def test_a_group_with_pending_offsets_alone_is_kept():
    s = pend_from_outside(Scenario(), 10, {T0: 2}).until(DAY_MS)
    assert s.shard.group("g") is not None
    s.at(DAY_MS)
    settle(s, 11, [10])
    assert stable(s, T0) == [(2, 0)]


def test_pending_offsets_of_a_deleted_group_are_dropped():
    s = pend_from_outside(Scenario(), 10, {T0: 2}).delete()
    s.commit_from_outside("tool", {T1: 1})
    settle(s, 11, [10])
    assert (s.said.committed, stable(s, T0, T1)) == (0, [NOTHING, (1, 0)])


def test_a_deleted_offset_is_not_committed_later():
    s = pend_from_outside(Scenario().commit_from_outside("tool", {T1: 1}), 10, {T0: 2})
    s.delete_offsets("tool", {"t": [0]})
    settle(s, 11, [10])
    assert stable(s, T0) == [NOTHING]


def test_a_fetch_of_all_lists_only_partitions_with_a_committed_offset():
    """protocol.md 3.7: such a partition has the error if a transaction may commit another offset."""
    s = pend_from_outside(Scenario().commit_from_outside("tool", {T0: 1}), 10, {T0: 2, T1: 2})
    s.fetch("reader", require_stable=True)
    assert [(f.partition, f.offset, f.code) for f in s.said.partitions] == [(0, -1, 88)]


def test_pending_offsets_survive_the_codec_and_are_found_in_it():
    """A report opens only the groups with commits of ended transactions."""
    s = Scenario()
    for number, place in enumerate([10, 20, 30]):
        pend_from_outside(s, place, {T0: number}, group_id=f"g{number}")
    kept = codec.decode_shard(s.shard.to_bytes())
    assert kept.pending == {"g0": 10, "g1": 20, "g2": 30}
    settle(s, 21, [20])
    kept = codec.decode_shard(s.shard.to_bytes())
    assert (kept.pending, kept.settled.before) == ({"g2": 30}, 21)


def test_a_shard_that_has_settled_is_not_blank():
    """Without its place, a commit of an ended transaction would be pending for ever."""
    s = settle(Scenario(), 11)
    assert not s.shard.is_blank
