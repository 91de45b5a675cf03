"""`coordinator export`: the history as files."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.lib.extras import require
from streaming.cli.lib.options import BootstrapServers, Peers, TopicPrefix, with_peers
from streaming.config.settings import Settings
from streaming.progress import Work, shown


class Kind(StrEnum):
    """The formats of the files."""

    parquet = "parquet"


def export(
    groups: Annotated[list[str] | None, typer.Argument(help="Only these groups.", show_default=False)] = None,
    to: Annotated[Kind, typer.Option(help="The format of the files.")] = Kind.parquet,
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder; created if missing.")] = Path(),
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
    peer: Peers = None,
) -> None:
    """Write the history to events.parquet, groups.parquet and offsets.parquet, as far back as the topics go."""
    require("coordinator")
    from streaming.history.export import export as exported

    settings = with_peers(Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix), peer)
    with shown(Work("Exporting", "records")) as work:
        written = exported(settings, output, groups or None, work.report)
    for file, rows in written.items():
        typer.echo(f"{file}  rows={rows}")
