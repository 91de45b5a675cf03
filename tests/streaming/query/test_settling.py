"""The reports of ended transactions: from what is read of the transactions topic, and what the shards have settled."""

import pytest

from streaming.query import settling as module
from streaming.query.settling import Settled, Settling

Reported = list[tuple[int, int, int, tuple[int, ...]]]


class Driver:
    """Settling, with shards that handle reports when the test says so."""

    def __init__(self, **settled: Settled) -> None:
        self.settling = Settling("id")
        self.shards: dict[int, Settled] = {int(name[1:]): known for name, known in settled.items()}
        self.handled: dict[int, int] = {}
        self.offset = 100
        self.ids: dict[int, str] = {}

    def reports(self) -> Reported:
        """Return the reports that are due: shard, begin, end, committed places. The brokers take each of them."""
        self.settling.note(self.handled, self.shards)
        reports = []
        for shard, report in self.settling.reports():
            self.ids[shard] = report.request_id
            self.settling.sent(shard, report.request_id, self.offset)
            reports.append((shard, report.settled_from, report.settled_before, report.committed))
        return reports

    def handle(self, shard: int, place: int, topic_id: str = "id") -> None:
        """Note that a batch has handled all reports so far. The shard has then settled all before a place."""
        self.shards[shard] = topic_id, place
        self.handled[shard] = self.offset + 1
        self.offset += 1


def test_committed_records_are_reported_until_they_are_settled():
    driver = Driver(s0=("", 0), s1=("id", 3))
    driver.settling.take(0, 4)
    driver.settling.take(1, 9)
    assert driver.reports() == [(0, 0, 5, (4,)), (1, 3, 10, (9,))]
    assert driver.reports() == [], "both are on their way"
    driver.handle(0, 5)
    driver.handle(1, 10)
    assert driver.reports() == []
    assert driver.settling.settled == {0: 5, 1: 10}


def test_the_end_of_a_partition_ends_all_before_it():
    """The records between are aborted, or marks of the brokers."""
    driver = Driver(s0=("", 0), s1=("", 0))
    driver.settling.take(0, 4)
    driver.settling.reach(0, 8)
    assert driver.reports() == [(0, 0, 8, (4,))]
    driver.handle(0, 8)
    driver.settling.reach(0, 8)
    driver.settling.reach(1, 0)
    assert driver.reports() == [], "nothing is new"
    driver.settling.reach(0, 12)
    assert driver.reports() == [(0, 8, 12, ())]


def test_a_report_waits_for_the_one_before_it():
    """Otherwise a later report would take the places of a lost one for aborted."""
    driver = Driver(s0=("id", 0))
    driver.settling.take(0, 4)
    assert driver.reports() == [(0, 0, 5, (4,))]
    driver.settling.take(0, 6)
    assert driver.reports() == []
    driver.handle(0, 5)
    assert driver.reports() == [(0, 5, 7, (6,))]


def test_a_report_that_was_refused_is_sent_again():
    driver = Driver(s0=("id", 2))
    driver.settling.take(0, 4)
    driver.reports()
    driver.settling.take(0, 6)
    driver.handle(0, 2)
    assert driver.reports() == [(0, 2, 7, (4, 6))]


def test_a_report_that_was_handled_in_part_goes_on_where_it_ended():
    driver = Driver(s0=("id", 0))
    for offset in (4, 6, 8):
        driver.settling.take(0, offset)
    driver.reports()
    driver.handle(0, 6)
    assert driver.reports() == [(0, 6, 9, (6, 8))]


def test_a_report_that_the_brokers_do_not_take_is_made_again():
    driver = Driver(s0=("id", 0))
    driver.settling.take(0, 4)
    driver.reports()
    driver.settling.sent(0, "an older report", None)
    assert driver.reports() == []
    driver.settling.sent(0, driver.ids[0], None)
    assert driver.reports() == [(0, 0, 5, (4,))]


def test_a_shard_that_was_not_called_yet_gets_no_report():
    """At the start nobody knows what it has settled."""
    driver = Driver()
    driver.settling.take(0, 4)
    assert driver.reports() == []


def test_a_shard_that_knows_another_topic_gets_a_report_at_once():
    """The topic was made anew: the ends of the transactions before are lost, and their commits wait for nothing."""
    driver = Driver(s0=("an earlier topic", 70))
    driver.settling.reach(0, 0)
    assert driver.reports() == [(0, 0, 0, ())]
    driver.handle(0, 0)
    assert driver.reports() == []


def test_a_report_names_a_bounded_number_of_commits(monkeypatch: pytest.MonkeyPatch):
    """Each report but the last ends right behind its last commit, so later ones are not taken for aborted."""
    monkeypatch.setattr(module, "SETTLED_COMMITS_MAX", 2)
    driver = Driver(s0=("id", 0))
    for offset in (1, 3, 5, 7, 9):
        driver.settling.take(0, offset)
    driver.settling.reach(0, 20)
    assert driver.settling.unreported == 5
    reports = []
    while some := driver.reports():
        reports += some
        driver.handle(0, some[0][2])
    assert reports == [(0, 0, 4, (1, 3)), (0, 4, 8, (5, 7)), (0, 8, 20, (9,))]
    assert driver.settling.unreported == 0


def test_reports_have_the_id_of_the_topic():
    settling = Settling("id")
    settling.reach(3, 1)
    settling.note({}, {3: ("", 0)})
    ((_, report),) = settling.reports()
    assert (report.topic_id, report.principal, report.group_id) == ("id", module.COORDINATOR, "")
