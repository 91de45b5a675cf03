"""The reports of ended transactions, from what is read of the transactions topic."""

import pytest

from streaming.query import settling as module
from streaming.query.settling import Settling


def told(settling: Settling) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return the reports that are due: shard, place, committed places."""
    return [(shard, report.settled_before, report.committed) for shard, report in settling.reports()]


def test_committed_records_are_reported_once():
    settling = Settling("id")
    settling.take(0, 4)
    settling.take(1, 9)
    assert told(settling) == [(0, 5, (4,)), (1, 10, (9,))]
    assert told(settling) == []
    assert dict(settling.reported) == {0: 5, 1: 10}


def test_the_end_of_a_partition_ends_all_before_it():
    """The records between are aborted, or marks of the brokers."""
    settling = Settling("id")
    settling.take(0, 4)
    settling.reach(0, 8)
    assert told(settling) == [(0, 8, (4,))]
    settling.reach(0, 8)
    settling.reach(1, 0)
    assert told(settling) == [], "nothing is new"
    settling.reach(0, 12)
    assert told(settling) == [(0, 12, ())]


def test_a_report_names_a_bounded_number_of_commits(monkeypatch: pytest.MonkeyPatch):
    """Each report but the last ends right behind its last commit, so later ones are not taken for aborted."""
    monkeypatch.setattr(module, "SETTLED_COMMITS_MAX", 2)
    settling = Settling("id")
    for offset in (1, 3, 5, 7, 9):
        settling.take(0, offset)
    settling.reach(0, 20)
    assert told(settling) == [(0, 4, (1, 3)), (0, 8, (5, 7)), (0, 20, (9,))]


def test_reports_have_the_id_of_the_topic():
    settling = Settling("id")
    settling.reach(3, 1)
    ((_, report),) = settling.reports()
    assert (report.topic_id, report.principal, report.group_id) == ("id", module.COORDINATOR, "")
