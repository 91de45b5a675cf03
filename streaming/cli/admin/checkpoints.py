"""`coordinator checkpoint`: the flags of its commands."""

from pathlib import Path
from typing import Annotated

import typer

from coordinator.base.limits import FENCING_TOKEN_FLOOR_MAX
from streaming.cli.lib.extras import require
from streaming.cli.lib.options import BootstrapServers, Format, Master, TopicPrefix, agreement
from streaming.cli.lib.output import OutputFormat
from streaming.config.settings import Settings

app = typer.Typer(
    name="checkpoint",
    help="Inspect, verify, repair or export a checkpoint that no coordinator uses, and import an export.",
)

Folder = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint folder of `coordinator run`.")]
Stopped = Annotated[
    bool,
    typer.Option("--stopped", help="Confirm that no coordinator runs on it, for a checkpoint on another machine."),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="Sentences, or one JSON object.")]


@app.command("inspect")
def inspect_checkpoint(folder: Folder, output: Output = Format.text, master: Master = None) -> None:
    """Show the groups, members, offsets, deadlines and versions of each shard. JSON contains every group."""
    require("coordinator")
    from streaming.cli.admin.checkpoint import inspect

    typer.echo(inspect(Settings.load(checkpoint=folder, master=master), as_json=output is Format.json))


@app.command("verify")
def verify_checkpoint(folder: Folder, output: Output = Format.text, master: Master = None) -> None:
    """Check that all of a checkpoint can be read: identity, plans without a gap, every group. Exits 1 if not."""
    require("coordinator")
    from streaming.cli.admin.checkpoint import verify as verified

    text, is_wrong = verified(Settings.load(checkpoint=folder, master=master), as_json=output is Format.json)
    typer.echo(text)
    if is_wrong:
        raise typer.Exit(1)


@app.command("export")
def export_checkpoint(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file. It holds member ids: protect it.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read everything, and write nothing.")] = False,
    unfinished: Annotated[
        bool,
        typer.Option("--unfinished", help="Export the state before a batch that was planned and is not finished."),
    ] = False,
    stopped: Stopped = False,
    output: Output = Format.text,
    master: Master = None,
) -> None:
    """Write every group of a checkpoint to a file of JSON lines, for `coordinator checkpoint import`."""
    require("coordinator")
    from streaming.cli.admin.checkpoint import export

    typer.echo(
        export(
            Settings.load(checkpoint=folder, master=master),
            file,
            is_dry_run=dry_run,
            is_stopped=stopped,
            takes_unfinished=unfinished,
            as_json=output is Format.json,
        )
    )


@app.command("replan")
def replan_checkpoint(
    folder: Folder,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")] = False,
    stopped: Stopped = False,
    master: Master = None,
) -> None:
    """Set aside the plan of a batch that cannot run, so that the next start makes a new plan."""
    require("coordinator")
    from streaming.query.checkpoint.replan import replan

    settings = Settings.load(checkpoint=folder, master=master)
    typer.echo(replan(settings, is_dry_run=dry_run, is_stopped=stopped))


@app.command("import")
def import_checkpoint(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `coordinator checkpoint export`.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show for each group whether it would be imported, and import none.")
    ] = False,
    older: Annotated[
        bool,
        typer.Option(
            "--older",
            help="The file is not the newest state of the groups: their members join anew, 1000 generations later.",
        ),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete a group of the same name first, if it has no members.")
    ] = False,
    drop_open_transactions: Annotated[
        bool,
        typer.Option(
            "--drop-open-transactions", help="Import groups with open transactions, without the offsets of these."
        ),
    ] = False,
    token_floor: Annotated[
        int,
        typer.Option(
            min=0,
            max=FENCING_TOKEN_FLOOR_MAX,
            help="No later fencing token is below it; needed if clocks have gone back.",
        ),
    ] = 0,
    retire: Annotated[
        str | None,
        typer.Option(
            metavar="PREFIX",
            help="Then write tombstones for the groups to the topics of the old coordinator, which has this prefix.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Confirm that the old coordinator will not run again.")
    ] = False,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="The format of the results.")
    ] = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Import every group of a file into a coordinator that runs. The old coordinator must not run again."""
    from streaming.administration.importing import Choice
    from streaming.cli.admin.import_groups import import_groups
    from streaming.cli.lib.output import Output as Results

    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    import_groups(
        settings,
        file,
        Choice(older, replace, drop_open_transactions, token_floor),
        Results.to_stdout(output),
        agreement(is_given=yes),
        is_dry_run=dry_run,
        retired=retire,
    )
