"""Flags of several commands, each with one help text."""

import sys
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from streaming.config.peers import other_prefixes
from streaming.config.settings import Settings
from streaming.errors import Exit, UserError

BootstrapServers = Annotated[
    str | None,
    typer.Option("--bootstrap-servers", "-b", help="Kafka brokers, host:port, comma-separated.", show_default=False),
]
TopicPrefix = Annotated[
    str | None, typer.Option(help="Topics are named PREFIX.requests and so on.", show_default=False)
]
Peers = Annotated[
    list[str] | None,
    typer.Option(
        "--peer",
        metavar="PREFIX",
        help="The topic prefix of another coordinator that may have a group; may be repeated. By default the setting"
        " peers.",
        show_default=False,
    ),
]
ObservedPrefix = Annotated[
    str, typer.Option("--observed", metavar="PREFIX", help="The prefix of the groups that Kafka's coordinator keeps.")
]
ReplicationFactor = Annotated[int | None, typer.Option(help="Copies of each created topic.", show_default=False)]
Checkpoint = Annotated[str | None, typer.Option(help="The folder of the query's state.", show_default=False)]
Master = Annotated[str | None, typer.Option(help="Spark master, such as local[2].", show_default=False)]
StandBy = Annotated[
    bool | None,
    typer.Option("--stand-by", help="Wait while another driver of this checkpoint serves.", show_default=False),
]
HealthPort = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="The port of the health checks; by default none.", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for a confirmation.")]
Data = Annotated[Path | None, typer.Option(help="Folder for the broker and the state; by default a temporary one.")]
Port = Annotated[
    int | None,
    typer.Option(
        min=1, max=65535, help="The port of the first broker; the others have the next ones. By default free ones."
    ),
]
ReadyFile = Annotated[
    Path | None, typer.Option(help="A JSON file, written when all is ready: addresses, topics, process id.")
]


class NotConfirmed(UserError):
    """The change was not confirmed."""

    exit_code = Exit.USAGE


def confirm(question: str, *, is_agreed: bool, ask: Callable[[str], bool]) -> None:
    """Request a confirmation before a change that cannot be undone.

    Args:
        is_agreed: The command line contains the confirmation.

    Raises:
        NotConfirmed: The command line does not contain it, and standard input is no terminal or the answer was no.
    """
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise NotConfirmed(f"{question} Standard input is no terminal. Confirm with --yes.")
    if not ask(question):
        raise NotConfirmed("Nothing was changed.")


def agreement(*, is_given: bool) -> Callable[[str], None]:
    """Return a function that asks the user a question, unless the command line contains the confirmation.

    Raises:
        NotConfirmed: By the function, if the user does not confirm.
    """
    return partial(confirm, is_agreed=is_given, ask=lambda text: typer.confirm(text, err=True))


class GroupOrder(StrEnum):
    """The sort orders of a list of groups."""

    group = "group"
    lag = "lag"
    members = "members"
    rebalances = "rebalances"


class Format(StrEnum):
    """The formats of results."""

    text = "text"
    json = "json"


def with_peers(settings: Settings, peers: list[str] | None) -> Settings:
    """Return settings with other peers, for a process that only reads where groups are; unchanged without any."""
    if not peers:
        return settings
    try:
        return settings.model_copy(update={"peers": other_prefixes(settings.topic_prefix, peers)})
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--peer") from error
