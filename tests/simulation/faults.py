"""The table of possible faults with their highest rates. Each simulation draws some of them, at rates of its own.

This is swarm testing: most simulations lack most faults. A fault that hides a bug in one simulation is absent from
another, and rare faults occur together.
"""

from random import Random

HIGHEST: dict[str, dict[str, float]] = {
    "request": {
        "lost": 0.1,
        "late": 0.1,
        "repeated": 0.2,  # up to a minute later, and more than once
        "replayed": 0.02,  # up to ten minutes later, when its member may have left
    },
    "reply": {
        "lost": 0.1,
        "late": 0.1,
        "repeated": 0.1,
    },
    "batch": {
        "is killed": 0.3,
        "begins with a damaged state": 0.1,
        "is left short": 0.4,  # some records wait for the next batch
        "is written again late": 0.1,  # by a writer that was paused, behind later batches
    },
    "turn of the coordinator": {
        "is unavailable": 0.06,
        "reads slowly": 0.02,  # a few requests at a time, for minutes, while others wait in the log
        "clock jumps": 0.01,
        "log's clock goes back": 0.02,
        "log's clock goes ahead": 0.02,
        "log's clock jumps for good": 0.005,
        "a record is dated otherwise": 0.02,
    },
    "turn of the members": {  # each fault affects one member
        "sleeps": 0.05,
        "does not poll": 0.05,
        "is killed": 0.05,
        "leaves": 0.05,
        "subscribes anew": 0.05,
        "is started twice": 0.03,
        "moves to another mailbox": 0.03,
    },
    "assignments": {
        "fail": 0.1,
        "never come": 0.1,
        "are for others": 0.2,
        "leave one out": 0.2,
    },
    "turn of others": {
        "a stranger asks": 0.5,
        "an operator asks": 0.1,
        "a tool commits": 0.1,
        "a record is no request": 0.1,
        "a stranger follows": 0.3,  # a heartbeat of the consumer protocol
        "a topic changes": 0.1,
    },
}

OF_TRANSACTIONS: dict[str, dict[str, float]] = {
    "turn of a producer": {
        "its gateway stands still": 0.5,  # between the record of a commit and its request, until after the timeout
        "aborts": 0.3,
        "hangs": 0.2,  # until after the timeout of its transaction
        "another process starts": 0.1,  # with the same transactional id, so this one is fenced
    },
    "turn of the driver": {
        "is killed": 0.2,  # before it reports, or between a report and the deletion of its records
        "cuts its report": 0.5,
        "repeats its report": 0.9,  # up to a minute later
        "loses its report": 0.4,
        "deletes records": 0.5,
        "its topic is made anew": 0.05,
    },
}
"""The faults of transactions, which are drawn on their own."""

SHOW_CUTS = (
    "is left short",
    "reads slowly",
    "clock jumps",
    "log's clock goes back",
    "log's clock goes ahead",
    "log's clock jumps for good",
    "a record is dated otherwise",
)
"""Faults that make deadlines fire which are not due by the times of the records alone."""


class Swarm:
    """The faults of one simulation.

    Args:
        is_exact: Leave out the faults of `SHOW_CUTS`, so that the outputs do not depend on the cuts between batches.
        table: The possible faults.
    """

    def __init__(self, chance: Random, *, is_exact: bool, table: dict[str, dict[str, float]] = HIGHEST) -> None:
        self._random = chance.random
        share = chance.choice((0.1, 0.3, 0.6))
        self._rates = {
            what: [
                (fault, rate * chance.random() ** 2)
                for fault, rate in highest.items()
                if chance.random() < share and not (is_exact and fault in SHOW_CUTS)
            ]
            for what, highest in table.items()
        }

    def faults(self, what: str) -> list[str]:
        """Return the faults that happen this time, in the order of the table."""
        return [fault for fault, rate in self._rates[what] if self._random() < rate]

    def calm(self) -> None:
        """Stop all faults."""
        self._rates = {what: [] for what in self._rates}

    def __str__(self) -> str:
        return "; ".join(f"{what} {fault} {rate:.3f}" for what, rates in self._rates.items() for fault, rate in rates)
