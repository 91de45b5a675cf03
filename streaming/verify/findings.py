"""The findings of the checks, in words, and the report of all findings."""

from collections import Counter
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct, field

from streaming.views.words import escape

FINDINGS_MAX = 1_000
"""How many findings are listed. One fault can break a promise a million times; further findings are only counted."""


class Kind(StrEnum):
    """The kind of a finding."""

    MISSING = "missing"
    ALTERED = "altered"
    TWO_OWNERS = "two owners"
    PLANNED_TWICE = "planned twice"
    GENERATION_FELL = "generation fell"
    TOKEN_FELL = "token fell"  # noqa: S105  (a fencing token is no secret)
    ANSWERS_NOBODY = "answers nobody"
    ANSWERED_TWICE = "answered twice"
    NEVER_ANSWERED = "never answered"
    COMMIT_LOST = "commit lost"
    STANDS_OLD = "an older record stands last"
    UNREADABLE = "unreadable"


EXPLAINED = {
    # a finding of kind ...  breaks ...
    Kind.MISSING:         "what a group publishes is numbered without a gap",
    Kind.ALTERED:         "what is published again is the same, byte for byte",
    Kind.TWO_OWNERS:      "in one generation a partition has one owner",
    Kind.PLANNED_TWICE:   "in one generation a partition has one owner, and a leader plans so",
    Kind.GENERATION_FELL: "generations only grow",
    Kind.TOKEN_FELL:      "whoever owns something later has a higher fencing token, also after the group was forgotten",
    Kind.ANSWERS_NOBODY:  "a reply answers a request, in its kind",
    Kind.ANSWERED_TWICE:  "a request is answered once; a reply that is written again is the same",
    Kind.NEVER_ANSWERED:  "every request is answered",
    Kind.COMMIT_LOST:     "what was acknowledged is kept",
    Kind.STANDS_OLD:      "the last record of a key is the newest one; a repeat that came late is corrected",
    Kind.UNREADABLE:      "the coordinator alone writes its output topics, as its schemas say",
}  # fmt: skip


class Finding(Struct, frozen=True):
    """A broken promise.

    Args:
        place: The record that shows it, as `topic-partition@offset`.
        text: Safe to print on one line, whatever the ids in it are.
    """

    kind: Kind
    group_id: str | None
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {escape(self.group_id or '-')}: {self.text} ({self.place})"


class Report(Struct):
    """All findings, up to a bound; the number of findings of each kind; and the number of records that were checked.

    Args:
        corrected: Keys of which an older record stood last for a while. This is not a finding.
    """

    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    records: int = 0
    groups: int = 0
    requests: int = 0
    commits: int = 0
    corrected: int = 0

    def add(self, finding: Finding) -> None:
        self.counts[finding.kind] += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)

    def to_json(self) -> dict[str, Any]:
        return dict(msgspec.to_builtins(self))

    def __str__(self) -> str:
        told = [str(finding) for finding in self.findings]
        untold = self.counts.total() - len(told)
        looked = (
            f"{self.records} records of {self.groups} group{'s' * (self.groups != 1)} were read,"
            f" {self.requests} requests and {self.commits} acknowledged commits compared with what followed"
        )
        if self.corrected:
            looked += f"; {self.corrected} keys were repeated late by another writer, and have been written again since"
        if not told:
            return f"Nothing found: {looked}."
        more = [f"... and {untold} more"] if untold else []
        why = [f"{kind}: {count}, where {EXPLAINED[Kind(kind)]}" for kind, count in self.counts.items()]
        return "\n".join([*told, *more, "", *why, f"{looked}."])
