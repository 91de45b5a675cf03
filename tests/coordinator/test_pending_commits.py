"""Pending commits of a group: their index by partition, their number, and places that no report reaches."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import PENDING_OFFSETS_MAX, RECORD_OFFSET_END, RECORD_OFFSET_MAX
from coordinator.common import transactions
from coordinator.messages.group_records import OffsetRecord, Published
from coordinator.messages.requests import OffsetToCommit, TxnOffsetCommit
from coordinator.state import group as group_state
from coordinator.state.classic_group import Group, HotState
from coordinator.state.group import Offset, PendingCommit, PendingIndex
from tests.coordinator.scenario import Scenario
from tests.coordinator.test_transactions import (
    NOTHING,
    T0,
    T1,
    UNSTABLE,
    codes,
    pend,
    pend_from_outside,
    settle,
    stable,
)

PARTITIONS = [("t", 0), ("t", 1), ("u", 0)]
places = st.integers(0, 5) | st.just(RECORD_OFFSET_MAX)
partitions = st.sampled_from(PARTITIONS)
changes = st.lists(
    st.tuples(st.just("keep"), places, st.sets(partitions, min_size=1))
    | st.tuples(st.just("drop"), places, st.none())
    | st.tuples(st.just("replace"), places | st.just(RECORD_OFFSET_END), partitions),
    max_size=20,
)


def commit(named: set[tuple[str, int]]) -> PendingCommit:
    offsets: dict[str, dict[int, Offset | None]] = {}
    for topic, partition in sorted(named):
        offsets.setdefault(topic, {})[partition] = Offset(1, -1, "", 0, None)
    return PendingCommit(7, 0, -1, "", offsets)


@given(changes)
def test_the_index_agrees_with_the_commits(log: list[tuple[str, int, Any]]):
    """It is derived from the commits after the group was decoded, and follows every change of them."""
    group = Group(hot_state=HotState(), group_id="g", since_ms=0)
    expected: dict[int, dict[tuple[str, int], bool]] = {}
    for change, place, named in log:
        if change == "keep" and place not in expected:
            group.store_pending(place, commit(named))
            expected[place] = dict.fromkeys(named, True)
        elif change == "drop":
            assert (group.remove_pending(place) is None) == (expected.pop(place, None) is None)
        elif change == "replace":
            group.replace_pending(*named, before=place)
            for at, offsets in expected.items():
                offsets.update({p: False for p in offsets if p == named and at < place})
        for index in (group.pending_index, PendingIndex(group.pending_commits)):
            assert index.offsets == sum(map(len, expected.values()))
            assert {p for p in PARTITIONS if p in index} == {p for offsets in expected.values() for p in offsets}
        found = {at: {p: o is not None for p, o in each.partitions()} for at, each in group.pending_commits.items()}
        assert found == expected


def test_no_request_looks_through_all_pending_commits(monkeypatch: pytest.MonkeyPatch):
    """Each of 5,000 open transactions with one offset made a fetch of stable offsets slower."""
    s = Scenario()
    for place in range(30):
        pend_from_outside(s, place, {("t", place): 1})
    group = s.shard.group("g")
    assert group is not None
    assert group.is_unstable("t", 3)
    monkeypatch.setattr(PendingCommit, "partitions", None)
    group.pending_commits = NoScan(group.pending_commits)
    assert [group.is_unstable("t", 29), group.is_unstable("t", 30)] == [True, False]
    request = TxnOffsetCommit(
        request_id="r", reply_to="b", place=3, producer_id=1, producer_epoch=0, group_id="g", offsets=()
    )
    assert not transactions.has_room(group, request, s.config).number
    transactions.store_offset(group, "t", 5, Offset(1, -1, "", 0, None))
    assert group.pending_commits[5].offsets == {"t": {5: None}}


class NoScan(dict[int, PendingCommit]):
    """Commits that may only be looked up."""

    def __iter__(self) -> Any:
        raise AssertionError("all pending commits are looked through")

    values = items = keys = __iter__


def test_the_largest_commit_may_be_sent_again():
    """It has the place of a pending commit, so its offsets do not count twice."""
    offsets = {("t", partition): 1 for partition in range(PENDING_OFFSETS_MAX)}
    s = pend_from_outside(Scenario(), 10, offsets)
    assert set(codes(pend_from_outside(s, 10, offsets))) == {0}
    assert codes(pend_from_outside(s, 11, {T0: 1})) == [14]


def test_a_repeated_commit_brings_no_replaced_offset_back():
    """A gateway sends a request again if its response is lost. The other commit came between the two."""
    s = pend(Scenario.stable("c1"), "c1", 10, {T0: 1, T1: 1}).commit("c1", {T0: 5})
    assert codes(pend(s, "c1", 10, {T0: 1, T1: 1})) == [0, 0]
    settle(s, 11, [10])
    assert stable(s, T0, T1) == [(5, 0), (1, 0)]


def test_a_late_commit_creates_no_group():
    """INVALID_PRODUCER_EPOCH: its transaction has ended, and nothing is stored or published."""
    s = settle(Scenario(), 11)
    assert codes(pend_from_outside(s, 10, {T0: 1})) == [47]
    assert s.shard.group("g") is None
    assert not any(isinstance(output, Published) for output in s.latest)


def test_a_place_that_no_report_can_pass_is_no_request():
    place = {"kind": "txn_offset_commit", "request_id": "r", "reply_to": "b", "group_id": "g", "producer_id": 1,
             "producer_epoch": 0, "offsets": []}  # fmt: skip
    msgspec.convert(place | {"place": RECORD_OFFSET_MAX}, TxnOffsetCommit)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(place | {"place": RECORD_OFFSET_MAX + 1}, TxnOffsetCommit)


def test_a_commit_with_the_highest_place_is_dropped_with_its_topic():
    s = settle(Scenario.stable("c1"), 1)
    pend(s, "c1", RECORD_OFFSET_MAX, {T0: 1})
    assert stable(s, T0) == [UNSTABLE]
    s.commit("c1", {T1: 1})
    settle(s, 1, topic_id="a new topic")
    assert (s.said.aborted, stable(s, T0)) == (1, [NOTHING])


def test_an_offset_replaces_a_pending_one_with_the_highest_place():
    s = Scenario.stable("c1")
    pend(s, "c1", RECORD_OFFSET_MAX, {T0: 1})
    s.commit("c1", {T0: 5})
    group = s.shard.group("g")
    assert group is not None
    assert group.pending_commits[RECORD_OFFSET_MAX].offsets == {"t": {0: None}}


def test_the_offsets_of_a_commit_are_bounded_together_with_the_pending_ones():
    s = pend_from_outside(Scenario(), 1, {("t", partition): 1 for partition in range(PENDING_OFFSETS_MAX - 1)})
    offsets = tuple(OffsetToCommit("u", partition, 1) for partition in range(2))
    s.ask("tool", TxnOffsetCommit, member_id="", generation_id=-1, place=2, producer_id=1, producer_epoch=0,
          offsets=offsets)  # fmt: skip
    assert codes(s) == [14, 14]
    assert codes(pend_from_outside(s, 2, {T0: 1})) == [0]


def test_the_records_of_two_transactions_are_in_the_order_of_their_times():
    """I8: the requests may come in another order than their places. A reader ignores a record of an earlier time."""
    s = pend_from_outside(Scenario(), 12, {T0: 12})
    pend_from_outside(s.at(1_000), 10, {T0: 10}, producer_id=8)
    settle(s.at(2_000), 13, [10, 12])
    records = [output.record for output in s.latest if isinstance(output, Published)]
    assert [(r.offset, r.commit_timestamp_ms) for r in records if isinstance(r, OffsetRecord)] == [
        (10, 2_000),
        (12, 2_000),
    ]
    assert stable(s, T0) == [(12, 0)]


def test_the_bound_of_a_group_holds_for_the_offsets_of_transactions(monkeypatch: pytest.MonkeyPatch):
    """A group with more offsets could not move to another coordinator."""
    monkeypatch.setattr(group_state, "OFFSETS_PER_GROUP_MAX", 3)
    full = ErrorCode.INVALID_COMMIT_OFFSET_SIZE.number
    s = Scenario.stable("c1").commit("c1", {T0: 5})
    assert codes(pend(s, "c1", 10, {T0: 1, T1: 1, ("t", 2): 1, ("t", 3): 1})) == [0, 0, 0, full]
    assert codes(pend(s, "c1", 12, {T1: 2, ("t", 4): 2}, producer_id=2)) == [0, 14]
    s.commit("c1", {("t", 5): 1})
    assert codes(s) == [14], "it has room when the transaction has ended"
    settle(s, 13, [10, 12])
    assert stable(s, T0, T1, ("t", 2)) == [(1, 0), (2, 0), (1, 0)]
