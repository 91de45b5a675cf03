"""`coordinator offsets`: copy the committed offsets of groups from Kafka's own coordinator."""

from typing import Annotated

import typer

from streaming.cli.groups.groups import Form
from streaming.cli.lib.options import BootstrapServers, ObservedPrefix, TopicPrefix
from streaming.cli.lib.output import Output, OutputFormat
from streaming.config.settings import Settings

app = typer.Typer(
    name="offsets",
    help="Copy the committed offsets of groups from Kafka's own coordinator, as it was observed.",
    no_args_is_help=True,
)


@app.callback()
def offsets() -> None:
    """Copy the committed offsets of groups from Kafka's own coordinator, as it was observed."""


@app.command("import")
def import_(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups' ids.")],
    from_observed: Annotated[
        bool, typer.Option("--from-observed", help="Take the offsets that Kafka's coordinator keeps. Required.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Commit the offsets, or only show them.")
    ] = False,
    rewind: Annotated[
        bool,
        typer.Option("--rewind", help="Also replace offsets here that are newer than Kafka's."),
    ] = False,
    observed: ObservedPrefix = "observed",
    output: Form = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Commit the offsets that Kafka's coordinator keeps for some groups. Without --execute, only show them."""
    from streaming.cli.groups.migrate import import_offsets

    if not from_observed:
        raise typer.BadParameter("Give --from-observed: no other source is known.")
    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    import_offsets(settings, observed, groups, Output.to_stdout(output), execute=execute, rewinds=rewind)
