"""Flags of several commands, each with one help text."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

BootstrapServers = Annotated[
    str | None,
    typer.Option("--bootstrap-servers", "-b", help="Kafka brokers, host:port, comma-separated.", show_default=False),
]
TopicPrefix = Annotated[
    str | None, typer.Option(help="Topics are named PREFIX.requests and so on.", show_default=False)
]
ReplicationFactor = Annotated[
    int | None, typer.Option(help="Copies of each topic that is created.", show_default=False)
]
Checkpoint = Annotated[str | None, typer.Option(help="Folder of the query's state.", show_default=False)]
Master = Annotated[str | None, typer.Option(help="Spark master, such as local[2].", show_default=False)]
HealthPort = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Where it says how it is; nowhere when not given.", show_default=False),
]
Data = Annotated[Path | None, typer.Option(help="Folder for the broker and the state; a temporary one when not given.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="The broker's port; a free one when not given.")]
ReadyFile = Annotated[
    Path | None, typer.Option(help="Written as JSON when everything is ready: addresses, topics, process id.")
]


class GroupOrder(StrEnum):
    """The sort orders of a list of groups."""

    group = "group"
    lag = "lag"
    members = "members"
    rebalances = "rebalances"
