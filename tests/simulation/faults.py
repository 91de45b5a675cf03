"""What may go wrong, as a table: of what, which fault, and its highest rate. Each world draws some at rates of its own.

A swarm: most worlds lack most faults, so that what one of them hides another one shows, and rare ones meet.
"""

from random import Random

HIGHEST: dict[str, dict[str, float]] = {
    "request": {
        "lost": 0.1,
        "late": 0.1,
        "repeated": 0.2,  # up to a minute later, and more than once
        "replayed": 0.02,  # up to ten minutes later, when its member may be gone
    },
    "reply": {
        "lost": 0.1,
        "late": 0.1,
        "repeated": 0.1,
    },
    "batch": {
        "is killed": 0.3,
        "begins with a damaged state": 0.1,
        "begins with a state of an older version": 0.2,
        "is left short": 0.4,  # records wait for the next one
        "is written again late": 0.1,  # by a writer that was paused, behind later batches
    },
    "turn of the coordinator": {
        "goes away": 0.06,
        "reads slowly": 0.02,  # a few requests at a time, for minutes, while others wait in the log
        "clock jumps": 0.01,
        "log's clock goes back": 0.02,
        "log's clock goes ahead": 0.02,
        "log's clock jumps for good": 0.005,
        "a record is dated otherwise": 0.02,
    },
    "turn of the members": {  # each befalls one of them
        "sleeps": 0.05,
        "does not poll": 0.05,
        "is killed": 0.05,
        "leaves": 0.05,
        "subscribes anew": 0.05,
        "is started twice": 0.03,
        "moves to another inbox": 0.03,
    },
    "plan": {
        "fails": 0.1,
        "never comes": 0.1,
        "is for others": 0.2,
        "leaves one out": 0.2,
    },
    "turn of others": {
        "a stranger asks": 0.5,
        "an operator asks": 0.1,
        "a tool commits": 0.1,
        "a record is no request": 0.1,
    },
}

SHOW_CUTS = (
    "is left short",
    "reads slowly",
    "clock jumps",
    "log's clock goes back",
    "log's clock goes ahead",
    "log's clock jumps for good",
    "a record is dated otherwise",
)
"""Where one of these happens, deadlines may fire that the log alone would not have made due."""


class Swarm:
    """The faults of one world.

    Args:
        is_exact: None of those that show how the log was cut.
    """

    def __init__(self, chance: Random, *, is_exact: bool) -> None:
        self._random = chance.random
        share = chance.choice((0.1, 0.3, 0.6))
        self._rates = {
            what: [
                (fault, rate * chance.random() ** 2)
                for fault, rate in highest.items()
                if chance.random() < share and not (is_exact and fault in SHOW_CUTS)
            ]
            for what, highest in HIGHEST.items()
        }

    def faults(self, what: str) -> list[str]:
        """Return the faults of this time, in the order of the table."""
        return [fault for fault, rate in self._rates[what] if self._random() < rate]

    def calm(self) -> None:
        """Stop all faults."""
        self._rates = {what: [] for what in HIGHEST}

    def __str__(self) -> str:
        return "; ".join(f"{what} {fault} {rate:.3f}" for what, rates in self._rates.items() for fault, rate in rates)
