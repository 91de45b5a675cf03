"""Plays scenarios with clients, several at once, and makes a table of the results.

Most of a scenario is waiting, so a few of them together take hardly longer than one.
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


class Matrix:
    """The results of a run, each as soon as its play has ended."""

    def __init__(self, venue: Venue, pool: ThreadPoolExecutor) -> None:
        self._venue, self._pool = venue, pool
        self._outcomes: dict[Cell, Future[None]] = {}

    def begin(self, cells: Iterable[Cell]) -> None:
        """Start these plays, in this order, each once in a run."""
        for cell in cells:
            if cell not in self._outcomes:
                self._outcomes[cell] = self._pool.submit(self._play, *cell)

    def outcome(self, cell: Cell) -> None:
        """Wait for the end of a play, and fail if it failed."""
        self.begin([cell])
        self._outcomes[cell].result()

    def _play(self, scenario: str, kind: Kind) -> None:
        name = f"{scenario}-{kind}".replace(" ", "-").replace(",", "")
        with playing(self._venue, name) as play:
            SCENARIOS[scenario](play, kind)

    def table(self) -> str:
        """Return the table of all plays, as Markdown, with the reasons for its gaps."""
        self.begin(CELLS)
        lines = [
            f"| | {' | '.join(f'{kind} {kind.version()}' for kind in KINDS)} |",
            "| --- |" + " :---: |" * len(KINDS),
        ]
        for scenario in SCENARIOS:
            lines.append(f"| {scenario} | {' | '.join(self._mark((scenario, kind)) for kind in KINDS)} |")
        return "\n".join([*lines, "", "-: " + "; ".join(dict.fromkeys(LACKS.values())) + "."])

    def _mark(self, cell: Cell) -> str:
        if cell in LACKS:
            return "-"
        return "no" if self._outcomes[cell].exception() else "yes"


@contextmanager
def playing_at(venue: Venue) -> Iterator[Matrix]:
    """Open a run; a play that has not begun when the run is closed is not played."""
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="play")
    try:
        yield Matrix(venue, pool)
    finally:
        pool.shutdown(cancel_futures=True)
