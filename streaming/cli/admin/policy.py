"""`coordinator policy`: set, show and try the policies of groups, freeze a group, and end a freeze."""

from pathlib import Path
from typing import Annotated

import typer

from coordinator.base.limits import FREEZE_MS_MAX
from streaming.cli.groups.groups import Form, GroupId, Sentences, Words
from streaming.cli.lib.options import BootstrapServers, TopicPrefix
from streaming.cli.lib.output import Output, OutputFormat
from streaming.cli.lib.times import moment, read_duration, read_time
from streaming.config.settings import Settings
from streaming.logs import fit_for_a_terminal, tell
from streaming.moments import unix_ms
from streaming.progress import Work, shown

app = typer.Typer(
    name="policy",
    help="Set or show policies: which rebalances are put off, who takes over whose partitions, who gets none for a"
    " while. With access = rules, sign with access_key_file, as one of the super_users.",
    no_args_is_help=True,
)


@app.command("set")
def set_(
    file: Annotated[Path, typer.Argument(help="A TOML file with one table [[policies]] for each entry.")],
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Replace the coordinator's policies by the policies of a file.

    An entry: name = "orders", succession = {}, settle = { join_quiet_ms = 5000 }. Optional: pattern = "PREFIXED",
    freeze = { until = 2026-11-30T06:00:00Z }, quarantine = {}, assignors = ["range"].
    """
    from streaming.administration.policies import set_policies
    from streaming.administration.policy_files import policies_in

    now_ms = unix_ms()
    policies = policies_in(file, now_ms)
    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    shards = set_policies(settings, policies, now_ms)
    tell(f"{len(policies)} policies are set in {shards} shards.")


@app.command()
def show(
    output: Sentences = Words.text, bootstrap_servers: BootstrapServers = None, topic_prefix: TopicPrefix = None
) -> None:
    """Print the coordinator's policies in the format of `set`. Exits 1 if the shards have different policies."""
    from streaming.administration.policies import shown_policies
    from streaming.administration.policy_files import written
    from streaming.cli.lib.output import in_json

    shown = shown_policies(Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix))
    text = in_json(shown.latest) + "\n" if output is Words.json else written(shown.latest.policies)
    typer.echo(fit_for_a_terminal(text), nl=False)
    if shown.shards_behind:
        tell(f"{shown.shards_behind} of {len(shown.of_shards)} shards have other policies. Set the policies again.")
        raise typer.Exit(1)


@app.command()
def of(
    group: GroupId,
    output: Sentences = Words.text,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Print the entry that is in force for a group, in the format of `set`."""
    from streaming.administration.policies import shown_policies
    from streaming.administration.policy_files import written
    from streaming.cli.lib.output import in_json

    policy = shown_policies(Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)).of(group)
    if output is Words.json:
        typer.echo(in_json(policy))
        return
    if policy is None:
        tell(f"{group} has no policy. It rebalances as with Kafka's own coordinator.")
        return
    typer.echo(fit_for_a_terminal(written([policy])), nl=False)
    if (until_ms := policy.frozen_until_ms(unix_ms())) is not None:
        tell(f"{group} is frozen until {moment(until_ms)}.")


@app.command("try")
def try_(
    group: GroupId,
    file: Annotated[
        Path | None,
        typer.Argument(help="A file as of `set`; by default, each policy as suggested is tried.", show_default=False),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Begin here; by default with the log.", show_default=False),
    ] = None,
    until: Annotated[str, typer.Option(metavar="TIME", help="End at this time.")] = "now",
    output: Form = OutputFormat.table,
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Show what a group's recorded life would have cost under other policies. It changes nothing.

    Exits 3 if there is no such group, 1 if the recorded requests do not give the recorded rebalances once more.
    """
    from streaming.administration.policy_files import policies_in
    from streaming.cli.admin.try_policy import show_trial
    from streaming.trial.recording import read
    from streaming.trial.trials import run_trial

    now_ms = unix_ms()
    since_ms = 0 if since is None else read_time(since, now_ms)
    policies = None if file is None else {file.name: policies_in(file, now_ms)}
    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    with shown(Work("Reading the topics", "records")) as work:
        recording = read(settings, group, since_ms, read_time(until, now_ms), work.report)
    with shown(Work("Trying the policies")):
        trial = run_trial(recording, since_ms, policies)
    show_trial(trial, Output.to_stdout(output))


@app.command()
def freeze(
    group: GroupId,
    for_: Annotated[str, typer.Option("--for", metavar="2h", help="How long: 90m, 2h, PT1H30M. At most 72 hours.")],
    bootstrap_servers: BootstrapServers = None,
    topic_prefix: TopicPrefix = None,
) -> None:
    """Freeze a group: no rebalance begins for this time. Its other policies stay as they are."""
    from streaming.administration.policies import set_freeze

    for_ms = read_duration(for_)
    if not 0 < for_ms <= FREEZE_MS_MAX:
        raise typer.BadParameter(f"A freeze lasts at most {FREEZE_MS_MAX // 3_600_000} hours.", param_hint="--for")
    settings = Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix)
    tell(f"{group} is frozen until {moment(set_freeze(settings, group, for_ms))}.")


@app.command()
def thaw(group: GroupId, bootstrap_servers: BootstrapServers = None, topic_prefix: TopicPrefix = None) -> None:
    """End the freeze of a group, windows of the week included. Its other policies stay as they are."""
    from streaming.administration.policies import set_freeze

    set_freeze(Settings.load(bootstrap_servers=bootstrap_servers, topic_prefix=topic_prefix), group, None)
    tell(f"{group} is not frozen.")
