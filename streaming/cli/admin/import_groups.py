"""`coordinator checkpoint import`: the groups of an exported file, adopted by a coordinator that runs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from streaming.administration.importing import Choice, Importer, Status, retire
from streaming.cli.lib.output import Column, Output, collected, show
from streaming.cli.lib.times import instant
from streaming.client.transport import COMMAND_WAIT_S, Transport
from streaming.config.settings import Settings
from streaming.errors import BadExport
from streaming.progress import Work, shown
from streaming.views.text import counted, escape
from streaming.wire.export_file import ExportFile, Head

COLUMNS = (
    Column("GROUP", lambda result: result.group_id, is_chosen=True),
    Column("STATUS", lambda result: result.status),
    Column("REASON", lambda result: result.reason or None),
    Column("WHY", lambda result: result.why or None),
)


def import_groups(
    settings: Settings,
    file: Path,
    choice: Choice,
    output: Output,
    agree: Callable[[str], None],
    *,
    is_dry_run: bool,
    retired: str | None = None,
) -> None:
    """Import the groups of a file, and show the result of each. The whole file is checked before the first group.

    Args:
        retired: The prefix of the old coordinator, whose records of the groups get tombstones if all groups are
            imported; None leaves the records.

    Raises:
        BadExport: The file is no complete export, or needs another choice.
        RequestRefused: A group is refused, or the sender may import no groups.
        UserError: The brokers or the coordinator do not answer.
    """
    with ExportFile(file) as opened:
        with shown(Work("Checking the file", "groups")) as work:
            opened.check(work.report)
        head = opened.head
        if (problem := _problem_of(settings, head, choice, retired)) is not None:
            raise BadExport(f"{file} {problem}.")
        if not is_dry_run:
            agree(_question(head))
        with Transport(settings.kafka_client_arguments(), settings.topic_prefix, settings.signer_at) as transport:
            importer = Importer(partial(transport.ask, timeout_s=COMMAND_WAIT_S), head, choice)
            found = importer.check_all(opened.lines()) if is_dry_run else importer.import_all(opened.lines())
            results = collected(found, "Importing the groups", head.groups)
        show(results, Status, COLUMNS, output)
        if retired is not None and not is_dry_run:
            with shown(Work("Writing tombstones", "groups", head.groups)) as work:
                retire(settings.model_copy(update={"topic_prefix": retired}), opened.lines(), work.advance)


def _problem_of(settings: Settings, head: Head, choice: Choice, retired: str | None) -> str | None:
    """Return why a file cannot be imported with these choices; None if it can."""
    if head.unfinished and not choice.is_older:
        return "has the groups as they were before a batch that was planned and not finished: add --older"
    if retired not in (None, head.prefix):
        return f"has groups of {escape(head.prefix)}: name that prefix with --retire"
    if retired == settings.topic_prefix:
        return "is imported under the prefix that --retire names: omit --retire"
    if retired is not None and choice.is_older:
        return "is not the newest state of the groups, so their last versions are unknown: omit --retire"
    return None


def _question(head: Head) -> str:
    what = f"{counted(head.groups, 'group')} of {escape(head.prefix)}, with the commits up to {instant(head.made_ms)}"
    return f"Import {what}? The coordinator that had them must not run again."
