"""Plays scenarios with clients, several at a time, and makes a table of the results.

A scenario mostly waits, so some scenarios together take little longer than one.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from tests.clients.kinds import KINDS, Kind
from tests.clients.play import Venue, playing
from tests.clients.scenarios import LACKS, SCENARIOS

AT_ONCE = 4

Cell = tuple[str, Kind]

CELLS: list[Cell] = [(name, kind) for name in SCENARIOS for kind in KINDS if (name, kind) not in LACKS]

REASONS = "-: " + "; ".join(dict.fromkeys(LACKS.values())) + "."
"""The line below the table: why plays are missing."""


class Matrix:
    """The plays of a run and their results."""

    def __init__(self, venue: Venue, pool: ThreadPoolExecutor) -> None:
        self._venue, self._pool = venue, pool
        self._outcomes: dict[Cell, Future[None]] = {}

    def begin(self, cells: Iterable[Cell]) -> None:
        """Start these plays in this order. A play that was started before is not started again."""
        for cell in cells:
            if cell not in self._outcomes:
                self._outcomes[cell] = self._pool.submit(self._play, *cell)

    def outcome(self, cell: Cell) -> None:
        """Wait for the end of a play. Raise its error if it failed."""
        self.begin([cell])
        self._outcomes[cell].result()

    def _play(self, scenario: str, kind: Kind) -> None:
        name = f"{scenario}-{kind}".replace(" ", "-").replace(",", "")
        with playing(self._venue, name) as play:
            SCENARIOS[scenario](play, kind)

    def table(self) -> str:
        """Return the table of all plays as Markdown, with the reasons for missing plays."""
        self.begin(CELLS)
        lines = [
            f"| | {' | '.join(f'{kind} {kind.version()}' for kind in KINDS)} |",
            "| --- |" + " :---: |" * len(KINDS),
        ]
        for scenario in SCENARIOS:
            lines.append(f"| {scenario} | {' | '.join(self._mark((scenario, kind)) for kind in KINDS)} |")
        return "\n".join([*lines, "", REASONS])

    def _mark(self, cell: Cell) -> str:
        if cell in LACKS:
            return "-"
        return "no" if self._outcomes[cell].exception() else "yes"


@contextmanager
def playing_at(venue: Venue) -> Iterator[Matrix]:
    """Yield the matrix of a run. At the end of the block, plays that have not begun are cancelled."""
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="play")
    try:
        yield Matrix(venue, pool)
    finally:
        pool.shutdown(cancel_futures=True)
