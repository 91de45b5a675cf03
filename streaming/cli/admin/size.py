"""`coordinator size`: what a load needs, computed from a table of measured costs. It needs no broker."""

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from streaming.cli.lib.output import Column, Output, OutputFormat
from streaming.cli.lib.times import read_duration
from streaming.sizing.batches import (
    COMMITS_PER_S_MAX,
    GROUPS_MAX,
    HEARTBEAT_INTERVAL_MS_MAX,
    HEARTBEAT_INTERVAL_MS_MIN,
    MEMBERS_MAX,
    MEMBERS_TOTAL_MAX,
    REBALANCES_PER_HOUR_MAX,
    Load,
)
from streaming.sizing.costs import COSTS, Figure, read_costs, shipped_costs
from streaming.sizing.lines import Sizes, sizes

Groups = Annotated[int, typer.Option(min=1, max=GROUPS_MAX, help="The number of groups.")]
Members = Annotated[int, typer.Option(min=1, max=MEMBERS_MAX, help="The members of each group.")]
Interval = Annotated[str, typer.Option(metavar="DURATION", help="How often each member sends a heartbeat.")]
Commits = Annotated[int, typer.Option(min=0, max=COMMITS_PER_S_MAX, help="Commits of all groups a second.")]
Rebalances = Annotated[int, typer.Option(min=0, max=REBALANCES_PER_HOUR_MAX, help="Rebalances of all groups an hour.")]
CostsFile = Annotated[
    Path | None,
    typer.Option("--costs", metavar="FILE", help="Your own table of costs; by default ours.", show_default=False),
]


class Used(NamedTuple):
    """A cost that a line follows from."""

    name: str
    figure: Figure


def columns(form: OutputFormat) -> tuple[Column, ...]:
    """Return the columns of the lines. CSV has plain numbers."""
    written = _plain if form is OutputFormat.csv else number
    return (
        Column("WHAT", lambda size: size.line.replace("_", " ")),
        Column("EACH", lambda size: written(size.each), is_number=True),
        Column("TOTAL", lambda size: written(size.total), is_number=True),
        Column("UNIT", lambda size: size.unit or None),
        Column("NOTE", lambda size: size.note or None, is_optional=True),
        Column("COSTS", lambda size: " ".join(size.costs) or None, is_wide=True),
        Column("FORMULA", lambda size: size.formula, is_wide=True),
    )


USED = (
    Column("COST", lambda used: used.name),
    Column("VALUE", lambda used: f"{used.figure.value:g}", is_number=True),
    Column("UNIT", lambda used: COSTS[used.name].unit),
    Column("FIGURE", lambda used: used.figure.figure),
)


def size(
    groups: Groups,
    members: Members,
    heartbeat_interval: Interval = "3s",
    commits_per_second: Commits = 0,
    rebalances_per_hour: Rebalances = 0,
    costs: CostsFile = None,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="`wide` adds the costs and the formula of each line.")
    ] = OutputFormat.table,
) -> None:
    """Compute shards, coordinators, cores, memory, files and response times for a load, from measured costs.

    Each number names the costs behind it, and each cost the figure that was measured. A cost that was not measured
    is named instead of a number.

    coordinator size --groups 3000 --members 10 --heartbeat-interval 3s --rebalances-per-hour 50
    """
    if groups * members > MEMBERS_TOTAL_MAX:
        raise typer.BadParameter(f"--groups times --members is more than {MEMBERS_TOTAL_MAX:,} members")
    load = Load(groups, members, _interval_ms(heartbeat_interval), commits_per_second, rebalances_per_hour)
    show_sizes(load, sizes(load, read_costs(costs) if costs else shipped_costs()), Output.to_stdout(output))


def _interval_ms(text: str) -> int:
    """Return a heartbeat interval in milliseconds.

    Raises:
        BadTime: The text is not a duration.
        BadParameter: The duration is no heartbeat interval.
    """
    ms = read_duration(text)
    if not HEARTBEAT_INTERVAL_MS_MIN <= ms <= HEARTBEAT_INTERVAL_MS_MAX:
        bounds = f"{HEARTBEAT_INTERVAL_MS_MIN}ms to {HEARTBEAT_INTERVAL_MS_MAX // 60_000}m"
        raise typer.BadParameter(f"--heartbeat-interval is {text!r}, and its values are from {bounds}")
    return ms


def show_sizes(load: Load, found: Sizes, output: Output) -> None:
    """Write the lines of a load, and the costs that they follow from."""
    if output.form is OutputFormat.json:
        output.answer(_in_json(load, found))
        return
    output.rows(columns(output.form), found.lines)
    if output.form is not OutputFormat.csv:
        output.line()
        output.rows(USED, [Used(name, figure) for name, figure in found.costs.items()])


def _in_json(load: Load, found: Sizes) -> dict[str, Any]:
    return {"load": msgspec.to_builtins(load), **msgspec.to_builtins(found)}


def number(value: float | None) -> str | None:
    """Return a value with three digits or more and separators, for people."""
    if value is None:
        return None
    return f"{value:,.0f}" if value >= 100 or float(value).is_integer() else f"{value:.3g}"


def _plain(value: float | None) -> str | None:
    """Return a value without separators, for programs."""
    return None if value is None else f"{value:.15g}"
