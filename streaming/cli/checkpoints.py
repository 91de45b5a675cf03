"""`coordinator checkpoint`: the flags of its commands."""

from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.extras import require
from streaming.cli.options import Format, Master
from streaming.config.settings import Settings

app = typer.Typer(
    name="checkpoint", help="Inspect, verify, repair or export a checkpoint while no coordinator runs on it."
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
    from streaming.cli.checkpoint import inspect

    typer.echo(inspect(Settings.load(checkpoint=folder, master=master), as_json=output is Format.json))


@app.command("verify")
def verify_checkpoint(folder: Folder, output: Output = Format.text, master: Master = None) -> None:
    """Check that all of a checkpoint can be read: identity, plans without a gap, every group. Exits 1 if not."""
    require("coordinator")
    from streaming.cli.checkpoint import verify as verified

    told, is_wrong = verified(Settings.load(checkpoint=folder, master=master), as_json=output is Format.json)
    typer.echo(told)
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
    from streaming.cli.checkpoint import export

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
    from streaming.query.replan import replan

    settings = Settings.load(checkpoint=folder, master=master)
    typer.echo(replan(settings, is_dry_run=dry_run, is_stopped=stopped))
