"""`coordinator groups`: commands that show groups and their history, and commands that change them.

This module has only the flags. A command imports its function when it runs, so `--help` does not wait for the import.
"""

from enum import StrEnum
from typing import Annotated, Any

import typer

from streaming.cli.lib.options import BootstrapServers, GroupOrder, ObservedPrefix, TopicPrefix, Yes, agreement
from streaming.cli.lib.output import Output, OutputFormat
from streaming.cli.lib.times import FORMS, read_ago, read_time
from streaming.config.settings import Settings
from streaming.errors import UserError
from streaming.moments import unix_ms

COMPLETION_WAIT_S = 2.0

app = typer.Typer(
    name="groups",
    help="Show groups and their history, reset offsets, remove members. Reading works while the coordinator is"
    " unavailable. Exits 3 if a group, member or partition does not exist.",
    no_args_is_help=True,
)


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the group ids that begin with this text; none if reading the topic takes too long."""
    from threading import Thread

    found: list[str] = []

    def read() -> None:
        from streaming.cli.groups.complete import complete

        try:
            flags = {name: ctx.params.get(name) for name in ("bootstrap_servers", "topic_prefix")}
            found.extend(complete(Settings.load(**flags), incomplete))
        except UserError:
            return

    reading = Thread(target=read, daemon=True)
    reading.start()
    reading.join(COMPLETION_WAIT_S)
    return found


class Words(StrEnum):
    """The formats of sentences."""

    text = "text"
    json = "json"


GroupId = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.", autocompletion=complete_group)]
GroupIds = Annotated[list[str], typer.Argument(metavar="GROUP...", help="Ids.", autocompletion=complete_group)]
SomeGroupIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="[GROUP...]", help="The groups' ids; by default all groups.", autocompletion=complete_group),
]
Regex = Annotated[bool, typer.Option("--regex", "-r", help="Arguments are regular expressions that match whole ids.")]
Form = Annotated[OutputFormat, typer.Option("--output", "-o", help="A table, a table with all columns, JSON, or CSV.")]
Sentences = Annotated[Words, typer.Option("--output", "-o", help="Sentences, or one JSON object.")]
Reason = Annotated[str | None, typer.Option(help="The reason, which is written to the history.", show_default=False)]
At = Annotated[str, typer.Option(metavar="TIME", help=f"When: {FORMS}.")]


def _settings(bootstrap_servers: str | None, topic_prefix: str | None) -> Settings:
    return Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)


def _wanted(names: list[str] | None, is_regex: bool) -> Any:
    from streaming.cli.groups.show import Wanted

    wanted = Wanted(tuple(names or ()), is_regex)
    wanted.patterns()  # reports an invalid pattern before any topic is read
    return wanted


def _sentences(form: Words) -> Output:
    return Output.to_stdout(OutputFormat.json if form is Words.json else OutputFormat.table)


def _at(text: str | None) -> int | None:
    return None if text is None else read_time(text, unix_ms())


# -- state -------------------------------------------------------------------------------------------------------------


@app.command("list")
def list_(
    groups: SomeGroupIds = None,
    regex: Regex = False,
    sort: Annotated[GroupOrder, typer.Option(help="The sort order; the largest value comes first.")] = GroupOrder.group,
    output: Form = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """List groups: type, state, generation, members, lag. All formats but `table` add rebalances, and take longer."""
    from streaming.cli.groups.show import list_groups

    settings = _settings(bootstrap_servers, topic_prefix)
    list_groups(settings, _wanted(groups, regex), sort, Output.to_stdout(output))


@app.command()
def describe(
    groups: GroupIds,
    regex: Regex = False,
    output: Form = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Show groups in detail: state, partition owners, offsets and lag."""
    from streaming.cli.groups import show

    show.describe(_settings(bootstrap_servers, topic_prefix), _wanted(groups, regex), Output.to_stdout(output))


@app.command()
def members(
    groups: GroupIds,
    regex: Regex = False,
    output: Form = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Show the members of groups, and the assignment of each."""
    from streaming.cli.groups import show

    show.members(_settings(bootstrap_servers, topic_prefix), _wanted(groups, regex), Output.to_stdout(output))


@app.command()
def offsets(
    groups: GroupIds,
    regex: Regex = False,
    output: Form = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Show the committed offset and the lag of each partition."""
    from streaming.cli.groups import show

    show.offsets(_settings(bootstrap_servers, topic_prefix), _wanted(groups, regex), Output.to_stdout(output))


@app.command()
def watch(
    groups: SomeGroupIds = None,
    regex: Regex = False,
    from_beginning: Annotated[bool, typer.Option(help="Start with the oldest records of the topics.")] = False,
    output: Annotated[Words, typer.Option("--output", "-o", help="Text or JSON, one line per change.")] = Words.text,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Print each change of groups on a line: states, generations, owners, offsets and causes. Runs until Ctrl-C."""
    from streaming.views.api.watching import follow

    settings, wanted = _settings(bootstrap_servers, topic_prefix), _wanted(groups, regex)
    for line in follow(settings, groups=wanted.ids, from_beginning=from_beginning):
        if wanted.has(line.group_id):
            typer.echo(line.in_json() if output is Words.json else str(line))


@app.command()
def compare(
    group: GroupId,
    observed: ObservedPrefix = "observed",
    output: Form = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Show a group here and at Kafka's own coordinator side by side: offsets, members, rebalances an hour."""
    from streaming.cli.groups.migrate import compare_groups

    compare_groups(_settings(bootstrap_servers, topic_prefix), observed, group, Output.to_stdout(output))


# -- history -----------------------------------------------------------------------------------------------------------


@app.command()
def timeline(
    group: GroupId,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Begin at this time.", show_default=False)] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="End at this time.", show_default=False)] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Show only the last N lines.", show_default=False)] = None,
    output: Form = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Show the history of a group in order: each rebalance with its cause and duration, and all other events."""
    from streaming.cli.groups import history

    settings = _settings(bootstrap_servers, topic_prefix)
    history.timeline(settings, group, _at(since), _at(until), limit, Output.to_stdout(output))


@app.command()
def why(
    group: GroupId,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Explain the last rebalance up to this time.", show_default=False)
    ] = None,
    output: Sentences = Words.text,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Explain a group's last rebalance: the cause, the member that caused it, waits for partitions, and advice."""
    from streaming.cli.groups import history

    history.why(_settings(bootstrap_servers, topic_prefix), group, _at(at), _sentences(output))


@app.command()
def owner(
    group: GroupId,
    partition: Annotated[str, typer.Argument(metavar="TOPIC-PARTITION", help="The partition, such as orders-3.")],
    at: At = "now",
    output: Sentences = Words.text,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Show the owner of a partition at a time, with the begin and end of its ownership; or that it had no owner."""
    from streaming.cli.groups import history

    at_ms = None if at == "now" else _at(at)
    history.owner(_settings(bootstrap_servers, topic_prefix), group, partition, at_ms, _sentences(output))


# -- changes -----------------------------------------------------------------------------------------------------------


@app.command()
def delete(
    groups: GroupIds,
    regex: Regex = False,
    yes: Yes = False,
    output: Form = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Delete groups without members, and their offsets."""
    from streaming.cli.groups import change

    settings, agree = _settings(bootstrap_servers, topic_prefix), agreement(is_given=yes)
    change.delete(settings, _wanted(groups, regex), Output.to_stdout(output), agree)


@app.command()
def delete_offsets(
    group: GroupId,
    topic: Annotated[
        list[str], typer.Option(metavar="TOPIC[:0,1]", help="A topic, or some of its partitions; may be repeated.")
    ],
    yes: Yes = False,
    output: Form = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Delete committed offsets of topics that no member subscribes to."""
    from streaming.cli.groups import change

    settings, agree = _settings(bootstrap_servers, topic_prefix), agreement(is_given=yes)
    change.delete_offsets(settings, group, topic, Output.to_stdout(output), agree)


@app.command()
def rebalance(
    group: GroupId,
    reason: Reason = None,
    output: Sentences = Words.text,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Make all members of a group join again now; in a consumer group, make a new plan."""
    from streaming.cli.groups import change

    change.rebalance(_settings(bootstrap_servers, topic_prefix), group, reason, _sentences(output))


@app.command()
def expel(
    group: GroupId,
    member: Annotated[str, typer.Argument(help="The member's id, instance id, or short name as in `timeline`.")],
    reason: Reason = None,
    yes: Yes = False,
    output: Sentences = Words.text,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Remove a member from its group. A running member joins again."""
    from streaming.cli.groups import change

    settings, agree = _settings(bootstrap_servers, topic_prefix), agreement(is_given=yes)
    change.expel(settings, group, member, reason, _sentences(output), agree)


@app.command()
def reset_offsets(
    group: GroupId,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC[:0,1]", help="A topic, or some of its partitions; may be repeated.", show_default=False
        ),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All committed partitions of the group.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Reset to the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the end, after the last record.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="Reset to the committed offsets.")] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="Reset to this offset.", show_default=False)] = None,
    shift_by: Annotated[int | None, typer.Option(help="Reset by this number of records.", show_default=False)] = None,
    to_datetime: Annotated[
        str | None, typer.Option(metavar="TIME", help="Reset to the first record since this time.", show_default=False)
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(metavar="PT1H30M", help="Reset to the first record since that long ago.", show_default=False),
    ] = None,
    from_file: Annotated[
        str | None, typer.Option(metavar="CSV", help="Reset to the offsets that --export wrote.", show_default=False)
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Reset to the offsets that were committed at this time.", show_default=False),
    ] = None,
    uncertain: Annotated[
        bool, typer.Option("--uncertain", help="With --as-of: also use offsets that compaction has made uncertain.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Commit the offsets, or only show them.")
    ] = False,
    export: Annotated[bool, typer.Option("--export", help="Print the offsets as CSV for --from-file.")] = False,
    output: Form = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Reset committed offsets of a group without members. Without --execute, only show the new offsets."""
    from streaming.cli.groups import resets

    given: dict[str, Any] = {
        "to-earliest": to_earliest or None,
        "to-latest": to_latest or None,
        "to-current": to_current or None,
        "to-offset": to_offset,
        "shift-by": shift_by,
        "to-datetime": _at(to_datetime),
        "by-duration": read_ago(by_duration, unix_ms()) if by_duration is not None else None,
        "from-file": from_file,
        "as-of": _at(as_of),
    }
    chosen = {scenario: value for scenario, value in given.items() if value is not None}
    if len(chosen) != 1:
        raise typer.BadParameter(f"Give one of {', '.join(f'--{scenario}' for scenario in given)}.")
    ((scenario, value),) = chosen.items()
    if scenario != "from-file" and bool(topic) == all_topics:
        raise typer.BadParameter("Give either --topic or --all-topics.")
    if scenario == "from-file" and (topic or all_topics):
        raise typer.BadParameter("The file of --from-file contains the partitions: omit --topic and --all-topics.")
    if uncertain and scenario != "as-of":
        raise typer.BadParameter("--uncertain requires --as-of.")
    asked = resets.ResetOptions(scenario, value, tuple(topic) if topic else None, uncertain)
    settings = _settings(bootstrap_servers, topic_prefix)
    resets.reset_offsets(settings, group, asked, Output.to_stdout(output), execute=execute, export=export)
