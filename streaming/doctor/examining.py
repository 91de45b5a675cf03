"""The checks, their bounds, and the report of what they have found."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from kafka.errors import KafkaError

from streaming.doctor import cluster, folder, installation, log_file, processes, topics
from streaming.doctor import settings as in_effect
from streaming.doctor.case import Case, Finding, Level, wrong
from streaming.doctor.masking import Mask
from streaming.errors import UserError

Check = Callable[[Case], Iterable[Finding]]

CHECKS: Mapping[str, Check] = {
    "installation": installation.check,
    "settings": in_effect.check,
    "brokers": cluster.check,
    "topics": topics.check,
    "checkpoint": folder.check,
    "health": processes.check,
    "log": log_file.check,
}

CHECK_WAIT_S = 40.0
"""The longest wait for one check. All look with shorter waits, but a file system may hang."""


TEXT_CHARS_MAX = 1_000
"""The longest text of a finding. It is cut after its secrets are removed, since a part of one is not recognized."""

READ_CHARS_MAX = 20_000
"""The part of a text in which secrets are looked for. The rest of a longer one is left out first."""


class Row(NamedTuple):
    """A finding with its subject."""

    subject: str
    level: Level
    text: str
    remedy: str


class Report(NamedTuple):
    """All that was found. It contains no secret."""

    rows: tuple[Row, ...]

    def count(self, level: Level) -> int:
        """Return the number of findings of a level."""
        return sum(row.level is level for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return the report as an object for JSON."""
        return {
            "wrong": self.count(Level.WRONG),
            "warnings": self.count(Level.WARNING),
            "findings": [row._asdict() for row in self.rows],
        }


def examine(case: Case, checks: Mapping[str, Check] = CHECKS, wait_s: float = CHECK_WAIT_S) -> Report:
    """Make all checks, one after the other, and return what they have found.

    Args:
        wait_s: The longest wait for each check, seconds.
    """
    mask = Mask(case.settings.secrets())
    return Report(
        tuple(
            Row(subject, found.level, _fit(found.text, mask), _fit(found.remedy, mask))
            for subject, check in checks.items()
            for found in _bounded(check, case, wait_s)
        )
    )


def _fit(text: str, mask: Mask) -> str:
    """Return a text without secrets, and not too long."""
    if len(text) > READ_CHARS_MAX:
        text = text[:READ_CHARS_MAX].rpartition(" ")[0]  # the last word may be a part of a secret
    text = mask.masked(text)
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}..."


def _bounded(check: Check, case: Case, wait_s: float) -> Iterator[Finding]:
    """Yield what a check finds within a time. It goes on in its thread, which does not hold the process."""
    found: list[Finding] = []
    thread = threading.Thread(target=_collect, args=(check, case, found), daemon=True)
    thread.start()
    thread.join(wait_s)
    is_late = thread.is_alive()
    yield from tuple(found)
    if is_late:
        yield wrong(f"This check has not ended within {wait_s:g} s.", "The lines above show how far it came.")


def _collect(check: Check, case: Case, found: list[Finding]) -> None:
    try:
        for each in check(case):
            found.append(each)
    except UserError as error:
        found.append(wrong(str(error)))
    except (KafkaError, KafkaException) as error:
        found.append(wrong(f"The brokers have not answered a request ({error}).", "Try again; see their logs."))
    except Exception as error:  # a fault of ours must not hide what the other checks find
        found.append(wrong(f"This check has failed ({type(error).__name__}: {error}).", "Report it as a bug."))
