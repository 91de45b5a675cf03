"""`coordinator access`: set and show the access rules of groups, or copy the brokers' own rules."""

from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.lib.options import BootstrapServers, TopicPrefix
from streaming.config.settings import Settings
from streaming.logs import fit_for_a_terminal, tell

app = typer.Typer(
    name="access",
    help="Set or show access rules, for access = rules. Sign with access_key_file, as one of the super_users.",
    no_args_is_help=True,
)


@app.command("set")
def set_(
    file: Annotated[Path, typer.Argument(help="A TOML file with one table [[rules]] for each rule.")],
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Replace the coordinator's rules by the rules of a file.

    A rule: principal = "User:ana", operation = "READ", resource = "GROUP", name = "orders". Optional:
    pattern = "PREFIXED", permission = "DENY", host = "10.0.0.1".
    """
    from streaming.administration.rules import rules_in, set_rules

    rules = rules_in(file)
    shards = set_rules(Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix), rules)
    tell(f"{len(rules)} rules are set in {shards} shards.")


@app.command()
def show(bootstrap_servers: BootstrapServers = None, topic_prefix: TopicPrefix = None) -> None:
    """Print the coordinator's rules in the format of `set`. Exits 1 if the shards have different rules."""
    from streaming.administration.rules import shown_rules, written

    shown = shown_rules(Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix))
    latest = max(shown, key=lambda access: access.made_ms)
    typer.echo(fit_for_a_terminal(written(latest.rules)), nl=False)
    behind = sum(access != latest for access in shown)
    if behind:
        tell(f"{behind} of {len(shown)} shards have other rules. Set the rules again.")
        raise typer.Exit(1)


@app.command()
def from_brokers(
    watch: Annotated[
        float | None,
        typer.Option(min=1, help="Copy the rules again after this many seconds, until Ctrl-C.", show_default=False),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Replace the coordinator's rules by the brokers' own rules for groups, topics and the cluster."""
    from streaming.administration.rules import keep_in_step, rules_of_brokers, set_rules

    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    if watch is not None:
        keep_in_step(settings, watch, tell)
        return
    rules = rules_of_brokers(settings)
    tell(f"{len(rules)} rules of the brokers are set in {set_rules(settings, rules)} shards.")
