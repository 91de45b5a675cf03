"""The results of a command that handles many groups: their table, the progress, and the error of a refused group."""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

from streaming.cli.lib.output import Column, Output, OutputFormat
from streaming.errors import RequestRefused, UserError
from streaming.logs import tell
from streaming.progress import Work, shown
from streaming.views.text import escape


def collected(found: Iterator[Any], what: str, groups: int) -> list[Any]:
    """Return all results, and show the progress.

    Args:
        what: What is done, for the progress: "Importing the groups".
    """
    results: list[Any] = []
    try:
        with shown(Work(what, "groups", groups)) as work:
            for result in found:
                results.append(result)
                work.advance()
    except UserError:
        tell(f"{len(results)} of {groups} groups are done. The same command continues.")
        raise
    return results


def show(results: Sequence[Any], statuses: type[StrEnum], columns: Sequence[Column], output: Output) -> None:
    """Write the results, and raise the error of the first group that is refused.

    Args:
        results: Named tuples with the fields `group_id`, `status` and `why`.
        statuses: All statuses, in the order of the summary. The status of a refusal is "refused".

    Raises:
        RequestRefused: A group is refused.
    """
    write(columns, results, output)
    counts = Counter(result.status for result in results)
    tell(f"{', '.join(f'{counts[status]} {status}' for status in statuses if counts[status]) or 'no groups'}.")
    refused = [result for result in results if result.status == "refused"]
    if refused:
        raise RequestRefused(
            f"{len(refused)} of {len(results)} groups are refused, the first one is"
            f" {escape(refused[0].group_id)}: {escape(refused[0].why)}."
        )


def write(columns: Sequence[Column], rows: Sequence[Any], output: Output) -> None:
    """Write named tuples as a table or as JSON, as the user wants it."""
    if output.form is OutputFormat.json:
        output.answer([row._asdict() for row in rows])
    else:
        output.rows(columns, rows)
