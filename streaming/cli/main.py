"""`coordinator COMMAND`: every command's flags and what it calls.

Exit codes: 0 done; 1 it failed, with one sentence on standard error; 2 wrong usage; 130 interrupted.
"""

import json
import logging
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from streaming.cli.options import (
    BootstrapServers,
    Checkpoint,
    Data,
    Master,
    Port,
    ReadyFile,
    ReplicationFactor,
    TopicPrefix,
)
from streaming.errors import UserError
from streaming.settings import Settings

app = typer.Typer(
    name="coordinator",
    help="A Kafka group coordinator that runs as one Spark Structured Streaming query.",
    epilog="Every setting can also be given as COORDINATOR_NAME in the environment, or in the TOML file that "
    "COORDINATOR_CONFIG names; flags win over the environment, the environment over the file.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except UserError as error:
        typer.echo(f"coordinator: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


@app.callback()
def common(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log each batch, and failures in full.")] = False,
) -> None:
    """Set logging up for every command."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s level=%(levelname)s logger=%(name)s %(message)s",
    )
    logging.getLogger("streaming").setLevel(logging.DEBUG if verbose else logging.WARNING)
    logging.getLogger("kafka").setLevel(logging.WARNING if verbose else logging.CRITICAL)


def fit_for_a_terminal(text: str) -> str:
    """Escape in JSON what a terminal would act on, or not show at all: ids in it are chosen by strangers."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def tell(sentence: str) -> None:
    """Report progress to whoever watches the terminal; results go to standard output."""
    typer.echo(sentence, err=True)


@app.command()
def up(
    data: Data = None,
    port: Port = None,
    gateway_port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="The gateway's port; broker 1 is at 2 more. With 0 they are free ones."),
    ] = 0,
    demo: Annotated[bool, typer.Option(help="Show members joining, leaving and dying.")] = True,
    ready_file: ReadyFile = None,
) -> None:
    """Run everything on this machine: a broker, the topics, the query, a gateway and a demo, until Ctrl-C."""
    from streaming.cli.service import run_embedded

    run_embedded(data, port, gateway_port, demo=demo, ready_file=ready_file, tell=tell)


@app.command()
def run(
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
    replication_factor: ReplicationFactor = None,
    checkpoint: Checkpoint = None,
    master: Master = None,
    ready_file: ReadyFile = None,
) -> None:
    """Run the query against any Kafka, until Ctrl-C or SIGTERM. Exits 1 when the query fails, with its cause."""
    from streaming.cli.service import run_query

    settings = Settings.load(
        bootstrap_servers=bootstrap_servers,
        topic_prefix=topic_prefix,
        replication_factor=replication_factor,
        checkpoint=checkpoint,
        master=master,
    )
    run_query(settings, ready_file=ready_file, tell=tell)


@app.command()
def gateway(
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on; 127.0.0.1 when not given.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Clients' bootstrap port, 9192 when not given. Broker N is served at this plus 1 plus N.",
            show_default=False,
        ),
    ] = None,
    advertised_host: Annotated[
        str | None, typer.Option(help="The name that clients are told; the address when not given.", show_default=False)
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Where Prometheus finds metrics; nowhere when not given.", show_default=False
        ),
    ] = None,
    ready_file: ReadyFile = None,
) -> None:
    """Serve unmodified Kafka clients, until Ctrl-C or SIGTERM; the query runs elsewhere.

    Point their bootstrap.servers here: groups are this coordinator's, all else is passed on to the brokers.
    """
    from streaming.cli.service import run_gateway

    settings = Settings.load(
        bootstrap_servers=bootstrap_servers,
        topic_prefix=topic_prefix,
        gateway_host=host,
        gateway_port=port,
        gateway_advertised_host=advertised_host,
        gateway_metrics_port=metrics_port,
    )
    run_gateway(settings, ready_file=ready_file, tell=tell)


@app.command()
def broker(data: Data = None, port: Port = None, ready_file: ReadyFile = None) -> None:
    """Run the embedded broker alone, until Ctrl-C."""
    from streaming.cli.service import run_broker

    run_broker(data, port, ready_file=ready_file, tell=tell)


@app.command()
def prepare() -> None:
    """Fetch all jars, and make the class archive that has Spark start in half the time; a minute, once."""
    from streaming.prepare import prepare as made

    typer.echo(made(tell))


@app.command()
def topics(
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
    replication_factor: ReplicationFactor = None,
) -> None:
    """Create the coordinator's topics where they are missing, check those that exist, and list them."""
    from streaming.topics import ensure

    settings = Settings.load(
        bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, replication_factor=replication_factor
    )
    for topic in ensure(settings, tell):
        config = " ".join(f"{name}={value}" for name, value in sorted(topic.config.items()))
        typer.echo(f"{topic.name}  partitions={topic.partitions}  {config}")


@app.command()
def request(
    what: Annotated[str, typer.Argument(help="A kind such as heartbeat, a JSON object, or - to read one from stdin.")],
    fields: Annotated[
        list[str] | None,
        typer.Argument(help="Fields of the request: NAME=VALUE, values as JSON or plain text.", show_default=False),
    ] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="The group's id.", show_default=False)] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait for the reply.")] = 330.0,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Append one request and print the reply. Exits 1 when the reply carries an error.

    coordinator request describe_group -g demo

    coordinator request join_group -g demo client_id=ana session_timeout_ms=10000
    """
    from streaming.cli.request import ask

    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    answer = ask(settings, what, fields or [], group, timeout_s)
    written = json.dumps(answer, indent=2, ensure_ascii=not sys.stdout.isatty())
    typer.echo(fit_for_a_terminal(written))
    if answer["code"]:
        raise typer.Exit(1)


@app.command()
def watch(
    groups: Annotated[list[str] | None, typer.Argument(help="Only these groups.", show_default=False)] = None,
    from_beginning: Annotated[bool, typer.Option(help="Start with all that the topics hold.")] = False,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Follow the output topics: states, generations, owners, offsets and causes, a line each, until Ctrl-C."""
    from streaming.watch import follow

    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    for line in follow(settings, groups=groups or None, from_beginning=from_beginning, stop=lambda: False):
        typer.echo(str(line))


class Format(StrEnum):
    """How results are written."""

    text = "text"
    json = "json"


@app.command()
def verify(
    groups: Annotated[list[str] | None, typer.Argument(help="Only these groups.", show_default=False)] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="Sentences, or one JSON object.")] = Format.text,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Check by what the topics hold that the coordinator has kept its promises. Exits 1 when it has not.

    Versions without a gap, repeats that are the same, generations that grow, one owner for each partition, one answer
    to each request, acknowledged commits kept: as far back as the topics go. It reads, and writes nothing.
    """
    from streaming.verify import verify as judged

    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    report = judged(settings, groups or None, tell)
    typer.echo(json.dumps(report.to_json(), indent=2) if output is Format.json else str(report))
    if report.findings:
        raise typer.Exit(1)


class Schema(StrEnum):
    """What has a schema."""

    requests = "requests"
    replies = "replies"
    groups = "groups"
    events = "events"


@app.command()
def schema(
    topic: Annotated[Schema | None, typer.Argument(help="One topic's; all four when not given.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of standard output.")] = None,
) -> None:
    """Print the JSON Schema of the values on a topic."""
    from streaming.records import json_schema

    schemas: dict[str, Any] = {each.value: json_schema(each.value) for each in Schema}
    text = json.dumps(schemas[topic.value] if topic else schemas, indent=2)
    if output:
        output.write_text(text + "\n")
    else:
        typer.echo(text)


class Table(StrEnum):
    """What the protocol core runs by."""

    diagram = "diagram"
    moves = "moves"
    checks = "checks"
    answers = "answers"


@app.command()
def tables(
    table: Annotated[Table | None, typer.Argument(help="One of them; all four when not given.")] = None,
) -> None:
    """Print the tables that the coordinator runs by, and the state diagram, as Markdown."""
    from streaming.cli.tables import tables as written

    typer.echo(written(table.value if table else None))


if __name__ == "__main__":
    main()
