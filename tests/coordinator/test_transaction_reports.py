"""Reports of ended transactions: a gap between two of them, one with too much to store, and a topic made anew."""

import pytest

from coordinator.common import transactions
from coordinator.messages.group_records import Published
from coordinator.messages.requests import EndedTransaction, OpenTransaction, SettleTransactions
from tests.coordinator.reports import report
from tests.coordinator.scenario import Scenario
from tests.coordinator.test_transactions import NOTHING, T0, UNSTABLE, codes, pend, settle, stable


def test_a_report_after_a_missing_one_is_not_believed():
    """The missing report may have had the commits that this one takes for aborted."""
    s = Scenario.stable("c1")
    settle(s, 5)
    pend(s, "c1", 10, {T0: 8})
    settle(s, 20, [15], settled_from=11)
    assert (s.said.committed, s.said.aborted, s.said.settled_before) == (0, 0, 5)
    assert stable(s, T0) == [UNSTABLE]
    settle(s, 20, [10, 15], settled_from=5)
    assert (s.said.committed, s.said.aborted, s.said.settled_before) == (1, 0, 20)
    assert stable(s, T0) == [(8, 0)]


def test_a_report_with_too_much_to_store_is_handled_in_part(monkeypatch: pytest.MonkeyPatch):
    """The rest stays pending, and the answer has the place where the next report begins."""
    monkeypatch.setattr(transactions, "SETTLED_BYTES_MAX", 1)
    s = Scenario.stable("c1")
    for place in (10, 12, 14):
        pend(s, "c1", place, {("t", place): place})
    settle(s, 20, [10, 12, 14])
    assert (s.said.committed, s.said.settled_before) == (1, 12)
    assert stable(s, ("t", 10), ("t", 12)) == [(10, 0), UNSTABLE]
    settle(s, 20, [12, 14], settled_from=12)
    settle(s, 20, [14], settled_from=14)
    assert (s.said.committed, s.said.settled_before) == (1, 20)
    assert stable(s, ("t", 12), ("t", 14)) == [(12, 0), (14, 0)]


def test_a_report_may_be_handled_up_to_the_middle_of_a_transaction(monkeypatch: pytest.MonkeyPatch):
    """The rest of the transaction stays open: a commit of it may still come, and the next report names it again."""
    monkeypatch.setattr(transactions, "SETTLED_BYTES_MAX", 1)
    s = Scenario.stable("c1")
    for place in (10, 12):
        pend(s, "c1", place, {("t", place): place}, producer_id=1)
    pend(s, "c1", 11, {("t", 11): 11}, producer_id=2)
    ends = {"ended": (EndedTransaction(1, 10, 15, is_committed=True),), "open": (OpenTransaction(2, 11),)}
    s.ask("driver", SettleTransactions, **{**report(s.shard, 20), **ends})
    assert (s.said.committed, s.said.settled_before) == (1, 15)
    assert stable(s, ("t", 10), ("t", 11), ("t", 12)) == [(10, 0), UNSTABLE, UNSTABLE]
    for place, code in ((10, 47), (14, 0)):
        pend(s, "c1", place, {("t", place): place}, producer_id=1)
        assert s.said.partitions[0].code == code
    for _ in range(2):
        s.ask("driver", SettleTransactions, **{**report(s.shard, 20, settled_from=15), **ends})
    assert (s.said.committed, s.said.settled_before) == (1, 20)
    assert stable(s, ("t", 11), ("t", 12), ("t", 14)) == [UNSTABLE, (12, 0), (14, 0)]


def test_a_report_counts_its_commits():
    s = Scenario.stable("c1")
    for place in range(10, 16):
        pend(s, "c1", place, {("t", place): place}, producer_id=place)
    settle(s, 15, [10, 12, 14])
    assert (s.said.committed, s.said.aborted, s.said.settled_before) == (3, 2, 15)


def test_a_report_may_store_up_to_its_bound(monkeypatch: pytest.MonkeyPatch):
    """The records of all its commits count together."""
    monkeypatch.setattr(transactions, "SETTLED_BYTES_MAX", 100)
    monkeypatch.setattr(transactions, "size_of", lambda output: 100 if isinstance(output, Published) else 0)
    s = Scenario.stable("c1")
    for place in range(10, 13):
        pend(s, "c1", place, {("t", place): place}, producer_id=place)
    settle(s, 13, [10, 11, 12])
    assert (s.said.committed, s.said.settled_before) == (2, 12)


def test_a_new_topic_takes_nothing_of_a_report_that_begins_late():
    s = Scenario.stable("c1")
    settle(s, 30)
    settle(s, 9, settled_from=4, topic_id="another")
    assert s.said.settled_before == 0, "the driver begins again at the oldest record"


def test_a_commit_of_a_new_topic_waits_until_the_shard_has_heard_of_it():
    """It was accepted, and dropped by the report that announced its topic: its client had a response without error."""
    s = Scenario.stable("c1")
    settle(pend(s, "c1", 10, {T0: 1}, topic_id="old"), 3, topic_id="old")
    assert codes(pend(s, "c1", 0, {T0: 2}, topic_id="new")) == [14]
    settle(s, 0, topic_id="new", replaces="old")
    assert (s.said.aborted, codes(pend(s, "c1", 1, {T0: 2}, topic_id="new"))) == (1, [0])
    settle(s, 2, [1], topic_id="new")
    assert stable(s, T0) == [(2, 0)]


@pytest.mark.parametrize("replaces", ["", "old", "older"])
def test_a_late_report_of_a_deleted_topic_changes_nothing(replaces: str):
    """Its driver had stood still. It made the shard drop the commits of the new topic."""
    s = settle(Scenario.stable("c1"), 0, topic_id="old")
    settle(s, 0, topic_id="new", replaces="old")
    pend(s, "c1", 1, {T0: 1}, topic_id="new")
    settle(s, 9, topic_id="old", replaces=replaces)
    assert (s.said.committed, s.said.aborted, s.said.settled_before, s.said.topic_id) == (0, 0, 0, "new")
    settle(s, 2, [1], topic_id="new", replaces="new")
    assert stable(s, T0) == [(1, 0)]


def test_a_late_report_to_a_shard_without_a_topic_is_replaced():
    """The shard knows no better. The driver of the new topic sees it, and replaces it."""
    s = settle(Scenario.stable("c1"), 0, topic_id="old")
    assert codes(pend(s, "c1", 1, {T0: 1}, topic_id="new")) == [14]
    settle(s, 0, topic_id="new", replaces="old")
    assert codes(pend(s, "c1", 2, {T0: 1}, topic_id="new")) == [0]


def test_a_late_commit_of_a_deleted_topic_is_sent_again():
    """COORDINATOR_LOAD_IN_PROGRESS: its producer writes another record, which is one of the new topic."""
    s = settle(Scenario.stable("c1"), 0, topic_id="old")
    settle(s, 0, topic_id="new", replaces="old")
    assert codes(pend(s, "c1", 5, {T0: 1}, topic_id="old")) == [14]
    assert s.said.error_message == "the transactions topic was made anew"


def test_the_first_commit_of_a_shard_names_its_topic():
    """A topic that is deleted before the first report takes its commits with it."""
    s = pend(Scenario.stable("c1"), "c1", 5, {T0: 1}, topic_id="old")
    settle(s, 9, [5], topic_id="new", replaces="old")
    assert (s.said.committed, s.said.aborted, stable(s, T0)) == (0, 1, [NOTHING])
