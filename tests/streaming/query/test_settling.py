"""The reports of ended transactions: from what is read of the transactions topic, and what the shards have settled."""

import pytest

from coordinator.messages.requests import SettleTransactions
from streaming.kafka.transaction_log import Batch
from streaming.query.watchers import settling as module
from streaming.query.watchers.settling import Settled, Settling

Ended = list[tuple[int, int, int, bool]]
Reported = list[tuple[int, int, int, Ended, list[tuple[int, int]]]]


class Driver:
    """Settling, with shards that handle reports when the test says so."""

    def __init__(self, **settled: Settled) -> None:
        self.settling = Settling("id")
        self.shards: dict[int, Settled] = {int(name[1:]): known for name, known in settled.items()}
        self.handled: dict[int, int] = {}
        self.offset = 100
        self.ids: dict[int, str] = {}

    def write(self, producer_id: int, place: int, shard: int = 0, records: int = 1) -> None:
        """Read records of a producer."""
        self.settling.handle(Batch(shard, producer_id, place, place + records - 1))

    def end(self, producer_id: int, place: int, shard: int = 0, *, commits: bool = True) -> None:
        """Read the end of a producer's transaction."""
        self.settling.handle(Batch(shard, producer_id, place, place, commits))

    def reports(self) -> Reported:
        """Return the reports that are due: shard, begin, end, ended transactions, open ones. The brokers take each."""
        self.settling.record(self.handled, self.shards)
        reports = []
        for shard, report in self.settling.reports():
            self.ids[shard] = report.request_id
            self.settling.sent(shard, report.request_id, self.offset)
            reports.append((shard, *told(report)))
        return reports

    def handle(self, shard: int, place: int, topic_id: str = "id") -> None:
        """Note that a batch has handled all reports so far. The shard has then settled all before a place."""
        self.shards[shard] = topic_id, place
        self.handled[shard] = self.offset + 1
        self.offset += 1


def told(report: SettleTransactions) -> tuple[int, int, Ended, list[tuple[int, int]]]:
    ended = [(each.producer_id, each.first, each.end, each.is_committed) for each in report.ended]
    return report.settled_from, report.settled_before, ended, [(each.producer_id, each.first) for each in report.open]


def test_ended_transactions_are_reported_until_they_are_settled():
    driver = Driver(s0=("", 0), s1=("id", 3))
    driver.write(7, 4)
    driver.end(7, 5)
    driver.write(8, 8, shard=1)
    driver.end(8, 9, shard=1, commits=False)
    assert driver.reports() == [(0, 0, 6, [(7, 4, 5, True)], []), (1, 3, 10, [(8, 8, 9, False)], [])]
    assert driver.reports() == [], "both are on their way"
    driver.handle(0, 6)
    driver.handle(1, 10)
    assert driver.reports() == []
    assert driver.settling.settled == {0: 6, 1: 10}


def test_an_open_transaction_holds_back_no_other():
    """The first report names it as open, and the next one how it has ended."""
    driver = Driver(s0=("id", 0))
    driver.write(1, 3, records=2)
    driver.write(2, 5)
    driver.write(1, 6)
    assert driver.reports() == [], "nothing has ended"
    driver.end(2, 7)
    assert driver.reports() == [(0, 0, 8, [(2, 5, 7, True)], [(1, 3)])]
    driver.handle(0, 8)
    driver.end(1, 8, commits=False)
    assert driver.reports() == [(0, 8, 9, [(1, 3, 8, False)], [])]


def test_a_transaction_that_began_after_the_end_of_its_producers_last_one_is_another():
    driver = Driver(s0=("id", 0))
    for place, commits in ((1, True), (3, False)):
        driver.write(7, place)
        driver.end(7, place + 1, commits=commits)
    driver.write(7, 5)
    assert driver.reports() == [(0, 0, 6, [(7, 1, 2, True), (7, 3, 4, False)], [(7, 5)])]


def test_an_end_without_records_ends_nothing():
    """The records were deleted after they had been settled, or the commit's record was never written."""
    driver = Driver(s0=("id", 0))
    driver.end(7, 5)
    assert driver.reports() == []


def test_a_report_waits_for_the_one_before_it():
    """Otherwise a later report would leave out what a lost one had."""
    driver = Driver(s0=("id", 0))
    driver.write(7, 4)
    driver.end(7, 5)
    assert len(driver.reports()) == 1
    driver.write(7, 6)
    driver.end(7, 7)
    assert driver.reports() == []
    driver.handle(0, 6)
    assert driver.reports() == [(0, 6, 8, [(7, 6, 7, True)], [])]


def test_a_report_that_was_refused_is_sent_again():
    driver = Driver(s0=("id", 2))
    driver.write(7, 4)
    driver.end(7, 5)
    driver.reports()
    driver.write(7, 6)
    driver.end(7, 7)
    driver.handle(0, 2)
    assert driver.reports() == [(0, 2, 8, [(7, 4, 5, True), (7, 6, 7, True)], [])]


def test_a_report_that_was_handled_in_part_goes_on_where_it_ended():
    """The shard has settled all before the end of the transaction that it could not handle as a whole."""
    driver = Driver(s0=("id", 0))
    for place in (4, 6, 8):
        driver.write(place, place)
        driver.end(place, place + 1)
    driver.reports()
    driver.handle(0, 7)
    assert driver.reports() == [(0, 7, 10, [(6, 6, 7, True), (8, 8, 9, True)], [])]


def test_a_report_that_the_brokers_do_not_take_is_made_again():
    driver = Driver(s0=("id", 0))
    driver.write(7, 4)
    driver.end(7, 5)
    first = driver.reports()
    driver.settling.sent(0, "an older report", None)
    assert driver.reports() == []
    driver.settling.sent(0, driver.ids[0], None)
    assert driver.reports() == first


def test_a_shard_that_was_not_called_yet_gets_no_report():
    """At the start nobody knows what it has settled."""
    driver = Driver()
    driver.write(7, 4)
    driver.end(7, 5)
    assert driver.reports() == []


def test_a_shard_that_knows_another_topic_gets_a_report_at_once():
    """The topic was made anew: the ends of the transactions before are lost, and their commits wait for nothing."""
    driver = Driver(s0=("an earlier topic", 70))
    assert driver.reports() == [(0, 0, 0, [], [])]
    driver.handle(0, 0)
    assert driver.reports() == []


def test_a_report_names_a_bounded_number_of_ended_transactions(monkeypatch: pytest.MonkeyPatch):
    """Each report but the last ends before the first transaction that it leaves out."""
    monkeypatch.setattr(module, "ENDED_TRANSACTIONS_MAX", 2)
    driver = Driver(s0=("id", 0))
    for place in (1, 3, 5, 7, 9):
        driver.write(place, place)
    for place in (1, 3, 5, 7, 9):
        driver.end(place, 10 + place)
    assert driver.settling.unreported == 5
    reports = []
    while some := driver.reports():
        reports += some
        driver.handle(0, some[0][2])
    ends = [
        (before, [each[0] for each in ended], [each[0] for each in still]) for _, _, before, ended, still in reports
    ]
    assert ends == [(15, [1, 3], [5, 7, 9]), (19, [5, 7], [9]), (20, [9], [])]
    assert driver.settling.unreported == 0


def test_open_transactions_beyond_the_bound_hold_back_what_comes_after_them(monkeypatch: pytest.MonkeyPatch):
    """The report ends where the first of them begins, until one that is named has ended."""
    monkeypatch.setattr(module, "OPEN_TRANSACTIONS_MAX", 2)
    driver = Driver(s0=("id", 0))
    for place in (1, 2, 3):
        driver.write(place, place)
    driver.write(4, 4)
    driver.end(4, 5)
    assert driver.reports() == [(0, 0, 3, [], [(1, 1), (2, 2)])]
    driver.handle(0, 3)
    assert driver.reports() == []
    driver.end(1, 6)
    assert driver.reports() == [(0, 3, 7, [(4, 4, 5, True), (1, 1, 6, True)], [(2, 2), (3, 3)])]


@pytest.mark.parametrize("short", [1, 2, 3, 7])
def test_too_many_open_transactions_never_stop_the_reports(short: int, monkeypatch: pytest.MonkeyPatch):
    """More have ended than one report may name, while too many were open: some report names more open ones."""
    monkeypatch.setattr(module, "OPEN_TRANSACTIONS_MAX", 2)
    monkeypatch.setattr(module, "ENDED_TRANSACTIONS_MAX", 2)
    driver = Driver(s0=("id", 0))
    for place in (1, 2, 3):
        driver.write(place, place)
    for place in range(4, 4 + 2 * short, 2):
        driver.write(place, place)
        driver.end(place, place + 1)
    last = 4 + 2 * short
    for producer_id in (1, 2, 3):
        driver.end(producer_id, last + producer_id)
    told, settled = [], 0
    for _ in range(2 * short + 5):
        for _, begin, before, ended, _ in driver.reports():
            assert begin == settled < before
            assert len(ended) <= 2
            told += ended
            settled = before
            driver.handle(0, settled)
    assert settled == last + 4
    assert [each[0] for each in told] == [*range(4, last, 2), 1, 2, 3]


def test_a_partition_with_too_many_unreported_ends_is_full(monkeypatch: pytest.MonkeyPatch):
    """The other partitions are read nevertheless."""
    monkeypatch.setattr(module, "UNREPORTED_MAX", 2)
    driver = Driver(s0=("id", 0))
    for place, full in ((0, set[int]()), (2, {0}), (4, {0})):
        driver.write(1, place)
        driver.end(1, place + 1)
        assert driver.settling.full == full
    driver.reports()
    driver.handle(0, 6)
    driver.reports()
    assert driver.settling.full == set()


def test_records_that_a_report_may_still_need_are_kept():
    """A driver that starts must read the first record of each transaction that no shard has settled."""
    driver = Driver(s0=("id", 0))
    assert driver.reports() == []
    assert driver.settling.needed_from() == {0: 0}
    driver.write(1, 3)
    driver.write(2, 5)
    driver.end(2, 6)
    driver.reports()
    driver.handle(0, 7)
    driver.reports()
    assert driver.settling.needed_from() == {0: 3}
    driver.end(1, 7)
    driver.reports()
    driver.handle(0, 8)
    driver.reports()
    assert driver.settling.needed_from() == {0: 8}
    later = Driver(s0=("id", 8))
    later.reports()
    assert later.settling.needed_from() == {0: 0}, "it has read nothing yet"


def test_a_partition_is_unsettled_until_all_of_it_is_read_and_settled():
    driver = Driver(s0=("id", 0))
    driver.write(1, 3)
    assert driver.settling.unsettled({0: 4, 1: 0}) == {0: 0, 1: 0}, (
        "an open transaction waits for nobody but its producer"
    )
    assert driver.settling.unsettled({0: 5}) == {0: 5}, "the next record is not read"
    driver.end(1, 4)
    assert driver.settling.unsettled({0: 5}) == {0: 5}
    driver.reports()
    driver.handle(0, 5)
    driver.reports()
    assert driver.settling.unsettled({0: 5}) == {0: 0}


def test_reports_have_the_id_of_the_topic():
    settling = Settling("id")
    settling.handle(Batch(3, 7, 0, 0))
    settling.handle(Batch(3, 7, 1, 1, is_committed=True))
    settling.record({}, {3: ("", 0)})
    ((_, report),) = settling.reports()
    assert (report.topic_id, report.principal, report.group_id) == ("id", module.COORDINATOR, "")
