"""`coordinator observe` and `coordinator acls`."""

from typing import Annotated

import typer

from streaming.cli.lib.extras import require
from streaming.cli.lib.options import (
    BootstrapServers,
    Checkpoint,
    HealthPort,
    Master,
    ReadyFile,
    ReplicationFactor,
    TopicPrefix,
)
from streaming.config.settings import Settings
from streaming.kafka.acls import Role, commands
from streaming.logs import tell


def observe(
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: Annotated[
        str | None,
        typer.Option(help="The observer's topics are named PREFIX.groups and so on; by default observed.",
                     show_default=False),
    ] = None,
    replication_factor: ReplicationFactor = None,
    checkpoint: Checkpoint = None,
    master: Master = None,
    every_ms: Annotated[
        int | None,
        typer.Option("--every", min=100, max=60_000, help="Milliseconds between two batches; by default 2000.",
                     show_default=False),
    ] = None,
    dashboard: Annotated[
        bool,
        typer.Option("--dashboard", help="Also show the groups in a browser, at dashboard_host and dashboard_port."),
    ] = False,
    health_port: HealthPort = None,
    ready_file: ReadyFile = None,
) -> None:  # fmt: skip
    """Publish the groups that Kafka's own coordinator keeps, until Ctrl-C or SIGTERM. It changes no group.

    The dashboard has no password: each client that reaches its port sees all data.

    Exits 1 if another start may succeed, 78 if an operator must correct something.
    """
    require("coordinator")
    if dashboard:
        require("page")
    from streaming.cli.services.service import run_observer

    settings = Settings.load(
        bootstrap_servers=bootstrap_servers,
        observe_prefix=topic_prefix,
        replication_factor=replication_factor,
        observe_checkpoint=checkpoint,
        master=master,
        observe_every_ms=every_ms,
        health_port=health_port,
    )
    run_observer(settings.observing(), with_dashboard=dashboard, ready_file=ready_file, tell=tell)


def acls(
    role: Annotated[Role, typer.Argument(help="The process that needs the rights.", show_default=False)],
    principal: Annotated[str, typer.Option(help="Its principal, such as User:coordinator.", show_default=False)],
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
    create: Annotated[bool, typer.Option("--create", help="Also grant the creation of the topics.")] = False,
) -> None:
    """Print the kafka-acls commands that grant a process the minimum of rights. An administrator runs them."""
    if role is Role.OBSERVER:
        settings = Settings.load(bootstrap_servers=bootstrap_servers, observe_prefix=topic_prefix).observing()
    else:
        settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    for command in commands(role, principal, settings, to_create=create):
        typer.echo(command)
