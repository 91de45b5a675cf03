"""The transactions topic of a simulation, the brokers that end transactions, and the driver that reports their ends.

The partition of the one shard has records, each with an offset (the place of a commit), and a marker behind the records
of each transaction that has ended (KIP-98). Transactions of several producers are open at a time, and end in any order.
The driver's own class `Settling` makes the reports; the simulation only reads for it, and loses what a killed driver
loses.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random

from msgspec.structs import replace

from coordinator.messages.requests import EndedTransaction, SettleTransactions
from streaming.kafka.transaction_log import Batch
from streaming.query.watchers.settling import Settled, Settling
from tests.simulation.faults import Swarm

READS_EVERY_MS = 500
READS_A_FEW = 3
"""The records that a driver reads at once if its report is cut."""

AWAY_MS_MAX = 60_000
"""The longest time until another driver starts."""

REPEATED_MS_MAX = 60_000

Sent = tuple[SettleTransactions, SettleTransactions | None]
"""A report as it is appended to the log, and as the driver has made it; None for a repeat."""


@dataclass
class Ongoing:
    """A transaction that has not ended.

    Args:
        until_ms: When the brokers abort it.
        places: Its records in the present topic.
        numbers: The numbers of its commits; each commit has one, which is its offset.
    """

    until_ms: int
    places: list[int] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)


class Brokers:
    """The brokers' view of producers and their transactions, and one partition of the transactions topic."""

    def __init__(self) -> None:
        self._lives = count()
        self._epochs: dict[int, int] = {}
        self.ongoing: dict[int, Ongoing] = {}
        self.ended: dict[int, bool] = {}
        """The numbers of all commits in transactions that have ended, and whether the transaction was committed."""

        self.remake()

    def remake(self) -> None:
        """Delete the topic, and create it anew. Records and markers are lost, and open transactions are aborted."""
        for producer_id in list(self.ongoing):
            self.start(producer_id)
        self.topic_id = f"transactions.{next(self._lives)}"
        self.oldest = 0
        self.log: list[Batch] = []
        self._spans: list[EndedTransaction] = []

    # -- producers -----------------------------------------------------------------------------------------------------

    def start(self, producer_id: int) -> int:
        """Return the epoch of a new process. The open transaction of the one before is aborted."""
        self._end(producer_id, is_committed=False)
        self._epochs[producer_id] = self._epochs.get(producer_id, -1) + 1
        return self._epochs[producer_id]

    def begin(self, producer_id: int, epoch: int, until_ms: int) -> bool:
        """Begin a transaction with the shard's partition; return False if the producer is fenced."""
        if self._epochs[producer_id] != epoch:
            return False
        self.ongoing.setdefault(producer_id, Ongoing(until_ms))
        return True

    def write(self, producer_id: int, epoch: int, number: int) -> int | None:
        """Append the record of a commit, and return its place; None if the producer is fenced or has no transaction."""
        transaction = self.ongoing.get(producer_id)
        if self._epochs[producer_id] != epoch or transaction is None:
            return None
        place = len(self.log)
        self.log.append(Batch(0, producer_id, place, place))
        transaction.places.append(place)
        transaction.numbers.add(number)
        return place

    def finish(self, producer_id: int, epoch: int, *, is_committed: bool) -> bool:
        """End a transaction; return False if the producer is fenced."""
        if self._epochs[producer_id] != epoch:
            return False
        self._end(producer_id, is_committed=is_committed)
        return True

    def time_out(self, now_ms: int) -> None:
        """Abort the transactions whose time is over, and fence their producers."""
        for producer_id in [p for p, transaction in self.ongoing.items() if transaction.until_ms <= now_ms]:
            self.start(producer_id)

    def _end(self, producer_id: int, *, is_committed: bool) -> None:
        transaction = self.ongoing.pop(producer_id, None)
        if transaction is not None:
            end = len(self.log)
            self.log.append(Batch(0, producer_id, end, end, is_committed))
            self.ended.update(dict.fromkeys(transaction.numbers, is_committed))
            if transaction.places:
                self._spans.append(EndedTransaction(producer_id, transaction.places[0], end, is_committed))

    # -- readers -------------------------------------------------------------------------------------------------------

    def why_wrong(self, report: SettleTransactions) -> str | None:
        """Return why a report of the present topic is wrong; None if it is right."""
        if report.topic_id != self.topic_id:
            return None
        begin, before = report.settled_from, report.settled_before
        ended = {each for each in self._spans if begin <= each.end < before}
        begun = [(each.producer_id, each.first) for each in self._spans if each.end >= before]
        begun += [(producer_id, each.places[0]) for producer_id, each in self.ongoing.items() if each.places]
        still = {each for each in begun if each[1] < before}
        if before > len(self.log):
            return f"the report goes beyond {len(self.log)}: {report}"
        if set(report.ended) != ended:
            return f"{ended} have ended: {report}"
        told = {(each.producer_id, each.first) for each in report.open}
        return None if told == still else f"{still} are open: {report}"


class Driver:
    """A driver of the coordinator that reads the topic and reports."""

    def __init__(self, brokers: Brokers, starts_ms: int) -> None:
        self._brokers, self.due_ms = brokers, starts_ms
        self.topic_id = brokers.topic_id
        self._settling, self._position = Settling(self.topic_id), brokers.oldest
        self._numbers = count(1)

    def read(self, records_max: int | None) -> None:
        """Read the next records and markers, all or a few."""
        log = self._brokers.log[self._position :][:records_max]
        for batch in log:
            self._settling.handle(batch)
        self._position += len(log)

    def reports(self, handled: int, settled: Settled) -> Iterator[SettleTransactions]:
        """Yield the report that is due."""
        self._settling.record({0: handled}, {0: settled})
        for _, report in self._settling.reports():
            yield report

    def sent(self, report: SettleTransactions, offset: int | None) -> None:
        """Note the offset of a report in the log of requests; None if it was lost."""
        self._settling.sent(0, report.request_id, offset)

    def delete(self) -> None:
        """Delete the settled records."""
        self._brokers.oldest = max(self._brokers.oldest, self._settling.needed_from().get(0, 0))


class Reporting:
    """One driver after another, with the faults that befall them."""

    def __init__(self, chance: Random, swarm: Swarm, brokers: Brokers, now_ms: int) -> None:
        self.chance, self.swarm, self.brokers = chance, swarm, brokers
        self.driver = Driver(brokers, now_ms)
        self._numbers = count(1)
        self._again: list[tuple[int, SettleTransactions]] = []

    @property
    def due_ms(self) -> int:
        return min([self.driver.due_ms, *(at_ms for at_ms, *_ in self._again)])

    @property
    def is_idle(self) -> bool:
        return not self._again

    def turn(self, now_ms: int, handled: int, settled: Settled) -> Iterator[Sent]:
        """Yield the requests to append to the log, each with the driver's report if the driver waits for it."""
        for due in [again for again in self._again if again[0] <= now_ms]:
            self._again.remove(due)
            yield due[1], None
        if self.driver.due_ms > now_ms:
            return
        faults = self.swarm.faults("turn of the driver")
        if "its topic is made anew" in faults:
            self.brokers.remake()
        if "is killed" in faults or self.driver.topic_id != self.brokers.topic_id:
            self.driver = Driver(self.brokers, now_ms + int(AWAY_MS_MAX * self.chance.random() ** 3))
            return
        self.driver.due_ms = now_ms + READS_EVERY_MS
        self.driver.read(READS_A_FEW if "cuts its report" in faults else None)
        for report in self.driver.reports(handled, settled):
            if "loses its report" in faults:
                self.driver.sent(report, None)
                continue
            request = replace(report, request_id=f"settle-{next(self._numbers)}")
            if "repeats its report" in faults:
                later_ms = now_ms + int(REPEATED_MS_MAX * self.chance.random() ** 3)
                self._again.append((later_ms, request))
            yield request, report
        if "deletes records" in faults:
            self.driver.delete()

    def calm(self) -> None:
        """Start the next driver now, if there is none."""
        self.driver.due_ms = 0
        self._again = [(0, *rest) for _, *rest in self._again]  # type: ignore[misc]
