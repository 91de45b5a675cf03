"""The output of `coordinator policy try`: a line for each figure, a column for each life."""

from collections.abc import Callable
from typing import NamedTuple

from streaming.cli.lib.output import Column, Output, OutputFormat
from streaming.cli.lib.times import moment
from streaming.logs import tell
from streaming.trial.figures import Figures
from streaming.trial.trials import Trial
from streaming.views.text import duration, escape


class Line(NamedTuple):
    """A figure, and its text for each life."""

    name: str
    cells: list[str]


def _waited(wait_ms: int | None) -> str:
    return "-" if wait_ms is None else duration(wait_ms)


FIGURES: dict[str, Callable[[Figures], str]] = {
    "rebalances": lambda f: str(f.total),
    "seats passed on": lambda f: str(f.seats_passed_on),
    "seats adopted": lambda f: str(f.seats_adopted),
    "longest wait of a seat": lambda f: _waited(f.seat_wait_max_ms),
    "longest wait of a newcomer": lambda f: _waited(f.standby_wait_max_ms),
    "newcomers delayed": lambda f: str(f.delayed),
    "partition-seconds unowned": lambda f: f"{f.unowned_s:.1f}",
    "unowned, p50": lambda f: _waited(f.unowned_p50_ms),
    "unowned, p99": lambda f: _waited(f.unowned_p99_ms),
    "unowned, longest": lambda f: _waited(f.unowned_max_ms),
    "partitions moved": lambda f: str(f.moved),
    "quarantines": lambda f: str(f.quarantines),
    "freezes broken": lambda f: str(f.freezes_broken),
}


def lines(trial: Trial) -> list[Line]:
    """Return a line for each figure, the rebalances of each cause behind all of them."""
    lives = [trial.recorded, trial.model, *trial.under.values()]
    causes = sorted({cause for each in lives for cause in each.rebalances})
    lines = [Line(name, [text(each) for each in lives]) for name, text in FIGURES.items()]
    of_causes = [
        Line(f"  {escape(cause).replace('_', ' ')}", [str(each.rebalances.get(cause, 0)) for each in lives])
        for cause in causes
    ]
    return [lines[0], *of_causes, *lines[1:]]


def _column(name: str, number: int) -> Column:
    return Column(name, lambda line: line.cells[number], is_number=True)


def show_trial(trial: Trial, output: Output) -> None:
    """Write the figures of a trial."""
    if output.form is OutputFormat.json:
        output.answer(trial)
    else:
        names = ["RECORDED", "MODEL", *(name.upper() for name in trial.under)]
        columns = [Column("", lambda line: line.name), *(_column(name, n) for n, name in enumerate(names))]
        output.rows(columns, lines(trial))
    tell(
        f"From {moment(trial.from_ms)} to {moment(trial.until_ms)}: {trial.requests} requests of {trial.processes}"
        " processes. Recorded is what happened. The recorded requests give the same rebalances once more. All other"
        " columns are a model."
    )
    if not trial.fits:
        tell("The model does not fit: its number of rebalances differs from the recorded one by more than a tenth.")
