"""`coordinator COMMAND`: every command's flags, and the function that each command calls.

The exit code is a `streaming.errors.Exit`. A failure prints its cause in one sentence to standard error.
"""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from streaming import __version__
from streaming.cli.admin.access import app as access
from streaming.cli.admin.checkpoints import app as checkpoints
from streaming.cli.admin.doctor import doctor
from streaming.cli.admin.export import export
from streaming.cli.admin.policy import app as policy
from streaming.cli.admin.size import size
from streaming.cli.groups.groups import app as groups
from streaming.cli.groups.groups import watch
from streaming.cli.groups.offsets import app as offsets
from streaming.cli.lib.extras import require
from streaming.cli.lib.options import (
    BootstrapServers,
    Checkpoint,
    Data,
    Format,
    HealthPort,
    Master,
    Peers,
    Port,
    ReadyFile,
    ReplicationFactor,
    StandBy,
    TopicPrefix,
    with_peers,
)
from streaming.cli.moves.moves import grow, move, slots
from streaming.cli.services.observe import acls, observe
from streaming.config.settings import Settings
from streaming.errors import Exit, UserError
from streaming.logs import FORMAT_VARIABLE, LogFormat, fit_for_a_terminal, set_up, tell, tell_failure
from streaming.progress import Work, shown

app = typer.Typer(
    name="coordinator",
    help="A Kafka group coordinator that runs as one Spark Structured Streaming query.",
    epilog="Each setting can also be set by COORDINATOR_NAME in the environment, or in the TOML file that "
    "COORDINATOR_CONFIG names. Flags override the environment, which overrides the file.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


app.add_typer(access)
app.add_typer(checkpoints)
app.add_typer(groups)
app.add_typer(offsets)
app.add_typer(policy)
app.command()(doctor)
app.command()(export)
app.command()(move)
app.command()(grow)
app.command()(slots)
app.command()(size)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except UserError as error:
        tell_failure(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)


def _show_version(is_asked: bool) -> None:
    """Print the version and exit, if it is asked for."""
    if is_asked:
        typer.echo(f"groupcoord {__version__}")
        raise typer.Exit


@app.callback()
def common(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log each batch, and errors with their tracebacks.")
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option(envvar=FORMAT_VARIABLE, help="Log lines as text, or as one JSON object per line.")
    ] = LogFormat.text,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Set up logging for every command."""
    set_up(log_format, is_verbose=verbose)


@app.command()
def up(
    data: Data = None,
    port: Port = None,
    gateway_port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="The gateway's port; broker N is at this plus 1 plus N. With 0, a free one."
        ),
    ] = 0,
    dashboard_port: Annotated[
        int, typer.Option(min=0, max=65535, help="The dashboard's port. With 0, a free port.")
    ] = 0,
    brokers: Annotated[
        int, typer.Option(min=1, max=9, help="The number of brokers. With 3, topics survive the loss of one.")
    ] = 1,
    demo: Annotated[bool, typer.Option(help="Run a demo: members join, leave and fail.")] = True,
    observe: Annotated[
        bool, typer.Option("--observe", help="Also show the groups of the broker's own coordinator.")
    ] = False,
    ready_file: ReadyFile = None,
) -> None:
    """Run a broker or several, the topics, the query, a gateway, a dashboard and a demo here, until Ctrl-C."""
    require("all")
    from streaming.cli.services.service import run_embedded

    run_embedded(
        data,
        port,
        gateway_port,
        dashboard_port,
        brokers=brokers,
        demo=demo,
        observe=observe,
        ready_file=ready_file,
        tell=tell,
    )


@app.command()
def run(
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
    replication_factor: ReplicationFactor = None,
    checkpoint: Checkpoint = None,
    master: Master = None,
    stand_by: StandBy = None,
    health_port: HealthPort = None,
    ready_file: ReadyFile = None,
) -> None:
    """Run the query with any Kafka brokers, until Ctrl-C or SIGTERM.

    A failed query prints the reason. Exits 1 if another start may succeed, 78 if an operator must correct something.
    """
    require("coordinator")
    from streaming.cli.services.service import run_query

    settings = Settings.load(
        bootstrap_servers=bootstrap_servers,
        topic_prefix=topic_prefix,
        replication_factor=replication_factor,
        checkpoint=checkpoint,
        master=master,
        stand_by=stand_by,
        health_port=health_port,
    )
    run_query(settings, ready_file=ready_file, tell=tell)


@app.command()
def stop(
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds to wait until the coordinator has stopped.")
    ] = 60.0,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Stop the coordinator after its batch, wherever it runs, with all drivers that stand by. Waits until it has.

    Exits 1 if none runs, or if it has not stopped in time. A coordinator that starts later is not stopped. With
    access = rules, sign with access_key_file, as one of the super_users.
    """
    from streaming.administration.stopping import stop as stopped

    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    with shown(Work("Stopping the coordinator")) as work:
        stopped(settings, timeout_s, work)
    tell(f"The coordinator of {settings.requests_topic} has stopped. The next start repeats no batch.")


app.command()(observe)


@app.command()
def gateway(
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on; by default 127.0.0.1.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Clients' bootstrap port, by default 9192. Broker N is at this plus 1 plus N.",
            show_default=False,
        ),
    ] = None,
    advertised_host: Annotated[
        str | None, typer.Option(help="The host name for clients; by default --host.", show_default=False)
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port of the Prometheus metrics; by default none.", show_default=False),
    ] = None,
    health_port: HealthPort = None,
    peer: Peers = None,
    ready_file: ReadyFile = None,
) -> None:
    """Serve unmodified Kafka clients, until Ctrl-C or SIGTERM. The query runs in another process.

    Use its address as bootstrap.servers. This coordinator serves the group requests, the brokers all others.
    """
    require("gateway")
    from streaming.cli.services.service import run_gateway

    settings = Settings.load(
        bootstrap_servers=bootstrap_servers,
        topic_prefix=topic_prefix,
        gateway_host=host,
        gateway_port=port,
        gateway_advertised_host=advertised_host,
        gateway_metrics_port=metrics_port,
        health_port=health_port,
    )
    run_gateway(with_peers(settings, peer), ready_file=ready_file, tell=tell)


@app.command()
def dashboard(
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on; by default 127.0.0.1.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port, by default 9494. With 0, a free port.", show_default=False),
    ] = None,
    observe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PREFIX",
            help="Show the groups of this prefix of `observe` as well; may be repeated.",
            show_default=False,
        ),
    ] = None,
    peer: Peers = None,
    ready_file: ReadyFile = None,
) -> None:
    """Show groups in a browser: members, lag, partition owners over time, causes. Until Ctrl-C or SIGTERM.

    It reads the output topics and writes nothing. It has no password: each client that reaches the port sees all data.
    """
    require("page")
    from streaming.cli.services.service import run_dashboard

    settings = Settings.load(
        bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, dashboard_host=host, dashboard_port=port
    )
    run_dashboard(with_peers(settings, peer), observe=observe or (), ready_file=ready_file, tell=tell)


@app.command()
def broker(data: Data = None, port: Port = None, ready_file: ReadyFile = None) -> None:
    """Run the embedded broker alone, until Ctrl-C."""
    require("coordinator")
    from streaming.cli.services.service import run_broker

    run_broker(data, port, ready_file=ready_file, tell=tell)


@app.command()
def prepare(
    s3: Annotated[bool, typer.Option("--s3", help="Download the jars for checkpoints on s3a: too.")] = False,
) -> None:
    """Download all jars, and make the class archive that halves the time of Spark's start. It takes a minute, once."""
    require("coordinator")
    from streaming.cli.services.prepare import prepare as made

    typer.echo(made(tell, with_s3=s3))


@app.command()
def topics(
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
    replication_factor: ReplicationFactor = None,
) -> None:
    """Create missing topics of the coordinator, check existing ones, and list all."""
    from streaming.kafka.topics import ensure

    settings = Settings.load(
        bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix, replication_factor=replication_factor
    )
    for topic in ensure(settings, tell):
        config = " ".join(f"{name}={value}" for name, value in sorted(topic.config.items()))
        typer.echo(f"{topic.name}  partitions={topic.partitions}  {config}")


app.command()(acls)


@app.command()
def request(
    what: Annotated[str, typer.Argument(help="A kind such as heartbeat, a JSON object, or - to read one from stdin.")],
    fields: Annotated[
        list[str] | None,
        typer.Argument(help="Fields of the request: NAME=VALUE, values as JSON or plain text.", show_default=False),
    ] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="The group's id.", show_default=False)] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait for the response.")] = 330.0,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Append one request and print the response. Exits 1 if the response contains an error.

    coordinator request describe_group -g demo

    coordinator request join_group -g demo client_id=ana session_timeout_ms=10000
    """
    from streaming.cli.admin.request import ask

    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    answer = ask(settings, what, fields or [], group, timeout_s)
    written = json.dumps(answer, indent=2, ensure_ascii=not sys.stdout.isatty())
    typer.echo(fit_for_a_terminal(written))
    if answer["code"]:
        raise typer.Exit(1)


app.command()(watch)


@app.command()
def verify(
    groups: Annotated[list[str] | None, typer.Argument(help="Only these groups.", show_default=False)] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="Sentences, or one JSON object.")] = Format.text,
    peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PREFIX",
            help="Check this coordinator too, and the moves of groups between all; may be repeated.",
            show_default=False,
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Check with the records of the topics that the coordinator has kept its guarantees. Exits 1 if it has not.

    Versions without a gap, equal repeats, growing generations, one owner for each partition, one response to each
    request, no lost acknowledged commit: as far back as the topics go. It reads the topics and writes nothing.
    """
    from streaming.verify import verify as judged

    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    with shown(Work("Verifying", "records")) as work:
        report = judged(settings, groups or None, work.report, peers=with_peers(settings, peer).peers if peer else ())
    typer.echo(json.dumps(report.to_json(), indent=2) if output is Format.json else str(report))
    if report.findings:
        raise typer.Exit(1)


class Schema(StrEnum):
    """The topics whose values have a schema."""

    requests = "requests"
    replies = "replies"
    groups = "groups"
    events = "events"


@app.command()
def schema(
    topic: Annotated[Schema | None, typer.Argument(help="The topic; by default all of them.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of standard output.")] = None,
) -> None:
    """Print the JSON Schema of the values on a topic."""
    from streaming.wire.records import json_schema

    schemas: dict[str, Any] = {each.value: json_schema(each.value) for each in Schema}
    text = json.dumps(schemas[topic.value] if topic else schemas, indent=2)
    if output:
        output.write_text(text + "\n")
    else:
        typer.echo(text)


class Table(StrEnum):
    """The tables of the protocol core."""

    diagram = "diagram"
    moves = "moves"
    checks = "checks"
    answers = "answers"


@app.command()
def tables(
    table: Annotated[Table | None, typer.Argument(help="The table; by default all of them.")] = None,
) -> None:
    """Print the tables that the coordinator executes, and the state diagram, as Markdown."""
    from streaming.cli.admin.tables import tables as written

    typer.echo(written(table.value if table else None))


if __name__ == "__main__":
    main()
