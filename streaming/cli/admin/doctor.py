"""`coordinator doctor`: the examination, as lines or as one JSON object."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.lib.options import BootstrapServers, Checkpoint, Format, TopicPrefix
from streaming.config.settings import Settings
from streaming.errors import Exit
from streaming.logs import fit_for_a_terminal
from streaming.views.text import counted

if TYPE_CHECKING:
    from streaming.doctor import Report

_LEVEL_CHARS, _SUBJECT_CHARS = 7, 12


def doctor(
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
    checkpoint: Checkpoint = None,
    health: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="The health address of a coordinator, gateway or observer; may be repeated. By default the settings"
            " health_host and health_port.",
            show_default=False,
        ),
    ] = None,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A log, whose last warnings and errors are shown.")
    ] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="Lines, or one JSON object.")] = Format.text,
) -> None:
    """Check the installation, settings, brokers, topics, checkpoint, processes and clocks. Exits 1 if one is wrong.

    It writes nothing and shows no secret. Add its output to a bug report.
    """
    from streaming.doctor import Case, Level, examine
    from streaming.doctor.processes import address_of

    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, checkpoint=checkpoint)
    try:
        addresses = tuple(map(address_of, health or _own_address(settings)))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--health") from None
    report = examine(Case(settings, addresses, log))
    typer.echo(json.dumps(report.to_json(), indent=2) if output is Format.json else "\n".join(_lines(report)))
    if report.count(Level.WRONG):
        raise typer.Exit(Exit.FAILED)


def _lines(report: "Report") -> Iterator[str]:
    for row in report.rows:
        said = f"{row.text} {row.remedy}".rstrip().replace("\n", "\\n")
        yield f"{row.level:<{_LEVEL_CHARS}}  {row.subject:<{_SUBJECT_CHARS}}  {fit_for_a_terminal(said)}"
    from streaming.doctor import Level

    yield f"{report.count(Level.WRONG)} wrong, {counted(report.count(Level.WARNING), 'warning')}."


def _own_address(settings: Settings) -> list[str]:
    """Return the health address that the settings name, if they name one."""
    if not settings.health_port:
        return []
    host = f"[{settings.health_host}]" if ":" in settings.health_host else settings.health_host
    return [f"http://{host}:{settings.health_port}"]
