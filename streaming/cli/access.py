"""`coordinator access`: it sets and shows the access rules of groups, and copies the brokers' own rules."""

from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.options import BootstrapServers, TopicPrefix
from streaming.config.settings import Settings
from streaming.logs import fit_for_a_terminal, tell

app = typer.Typer(
    name="access",
    help="Say who may do what to groups, where access = rules. Sign with access_key_file, as one of the super_users.",
    no_args_is_help=True,
)


@app.command("set")
def set_(
    file: Annotated[Path, typer.Argument(help="A TOML file with a table [[rules]] for each rule.")],
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Have the coordinator go by the rules of a file, and by no others.

    A rule: principal = "User:ana", operation = "READ", resource = "GROUP", name = "orders"; if it is to be otherwise,
    pattern = "PREFIXED", permission = "DENY", host = "10.0.0.1".
    """
    from streaming.administration.rules import rules_in, set_rules

    rules = rules_in(file)
    shards = set_rules(Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix), rules)
    tell(f"{len(rules)} rules are set in {shards} shards.")


@app.command()
def show(bootstrap_servers: BootstrapServers = None, topic_prefix: TopicPrefix = None) -> None:
    """Print the rules that the coordinator has, as `set` takes them. Exits 1 where not all shards have the same."""
    from streaming.administration.rules import shown_rules, written

    shown = shown_rules(Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix))
    latest = max(shown, key=lambda access: access.made_ms)
    typer.echo(fit_for_a_terminal(written(latest.rules)), nl=False)
    behind = sum(access != latest for access in shown)
    if behind:
        tell(f"{behind} of {len(shown)} shards have other rules: set them once more.")
        raise typer.Exit(1)


@app.command()
def from_brokers(
    watch: Annotated[
        float | None,
        typer.Option(min=1, help="Look again every so many seconds, until Ctrl-C.", show_default=False),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Have the coordinator go by the brokers' own rules about groups, topics and the cluster."""
    from streaming.administration.rules import keep_in_step, rules_of_brokers, set_rules

    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    if watch is not None:
        keep_in_step(settings, watch, tell)
        return
    rules = rules_of_brokers(settings)
    tell(f"{len(rules)} rules of the brokers are set in {set_rules(settings, rules)} shards.")
