"""The flags of `coordinator move`, `grow` and `slots`. Each imports its function when it runs, so `--help` is quick."""

from typing import Annotated

import typer

from streaming.cli.lib.options import BootstrapServers, ReplicationFactor, TopicPrefix, Yes, agreement
from streaming.cli.lib.output import OutputFormat
from streaming.config.settings import Settings

IN_TRANSIT, IN_TRANSIT_MAX = 32, 256

Groups = Annotated[
    list[str] | None, typer.Option("--group", "-g", help="A group; may be repeated.", show_default=False)
]
SlotRanges = Annotated[
    str | None,
    typer.Option(
        "--slots",
        metavar="RANGES",
        help="Slots from 0 to 1023, such as 0-511,600: new groups in them begin there too.",
        show_default=False,
    ),
]
TakeBack = Annotated[
    bool,
    typer.Option(
        "--take-back", help="Take groups in transit back, if the other coordinator is down and has not got them."
    ),
]
TargetIsLost = Annotated[
    bool,
    typer.Option(
        "--target-is-lost", help="With --take-back: also groups that it may have adopted. It must not run again."
    ),
]

InTransit = Annotated[
    int,
    typer.Option(
        min=1,
        max=IN_TRANSIT_MAX,
        metavar="GROUPS",
        help="Groups in transit at a time. With more, all have moved sooner, and each one waits longer.",
    ),
]

Results = Annotated[OutputFormat, typer.Option("--output", "-o", help="The format of the results.")]


def move(
    to: Annotated[str, typer.Option(metavar="PREFIX", help="The prefix of the coordinator that gets the groups.")],
    group: Groups = None,
    every: Annotated[bool, typer.Option("--all", help="All groups of the coordinator.")] = False,
    slots: SlotRanges = None,
    take_back: TakeBack = False,
    target_is_lost: TargetIsLost = False,
    in_transit: InTransit = IN_TRANSIT,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only ask whether each group would be moved.")] = False,
    yes: Yes = False,
    output: Results = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Move groups with their members to another coordinator on the same brokers. Their clients notice nothing."""
    from streaming.cli.lib.output import Output
    from streaming.cli.moves.move import Move, move_groups, move_slots, take_groups_back

    if [bool(group), every, slots is not None].count(True) != 1:
        raise typer.BadParameter("name one of --group, --slots and --all")
    if take_back and (not group or dry_run):
        raise typer.BadParameter("--take-back needs --group, and has no --dry-run")
    if target_is_lost and not take_back:
        raise typer.BadParameter("--target-is-lost needs --take-back")
    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    show, agree = Output.to_stdout(output), agreement(is_given=yes)
    moving = Move(settings, to, in_transit, show, agree, is_dry_run=dry_run)
    if take_back:
        take_groups_back(settings, to, group or [], show, agree, is_lost=target_is_lost)
    elif slots is not None:
        move_slots(moving, _slots(slots))
    else:
        move_groups(moving, group)


def grow(
    to: Annotated[str, typer.Option(metavar="PREFIX", help="The prefix of the new coordinator.")],
    shards: Annotated[
        int | None,
        typer.Option(min=1, help="The number of its shards; by default as many as now.", show_default=False),
    ] = None,
    in_transit: InTransit = IN_TRANSIT,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    yes: Yes = False,
    output: Results = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
    replication_factor: ReplicationFactor = None,
) -> None:
    """Move everything to a new coordinator with other shards or settings, while the members work.

    The command creates the new topics, prints how to prepare both coordinators, and moves all groups when both run.
    """
    from streaming.cli.lib.output import Output
    from streaming.cli.moves.grow import grow as grow_to
    from streaming.cli.moves.move import Move

    settings = Settings.load(
        bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, replication_factor=replication_factor
    )
    if to == settings.topic_prefix:
        raise typer.BadParameter("--to is the coordinator itself: choose a new prefix")
    show, agree = Output.to_stdout(output), agreement(is_given=yes)
    grow_to(Move(settings, to, in_transit, show, agree, is_dry_run=dry_run), shards)


def slots(
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="The format of the rows.")
    ] = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Show which coordinator owns which slots, the sets of names that coordinators share."""
    from streaming.cli.lib.output import Output
    from streaming.cli.moves.move import show_slots

    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    show_slots(settings, Output.to_stdout(output))


def _slots(text: str) -> frozenset[int]:
    from streaming.administration.move_slots import slots_from

    try:
        return slots_from(text)
    except ValueError as error:
        raise typer.BadParameter(f"--slots: {error}") from None
