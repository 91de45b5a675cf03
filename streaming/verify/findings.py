"""The findings of the checks, in words, and the report of all findings."""

from collections import Counter
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, field, structs

from streaming.views.text import escape

FINDINGS_MAX = 1_000
"""The number of findings that are listed. One fault can break a promise a million times; the rest are only counted."""


class Kind(StrEnum):
    """The kind of a finding."""

    MISSING = "missing"
    ALTERED = "altered"
    TWO_OWNERS = "two owners"
    PLANNED_TWICE = "planned twice"
    GENERATION_FELL = "generation fell"
    EPOCH_AHEAD = "epoch ahead"
    NOT_FREE = "not free"
    NOT_COVERED = "not covered"
    TARGET_MISSED = "target missed"
    TOKEN_FELL = "token fell"  # noqa: S105  (a fencing token is no secret)
    ANSWERS_NOBODY = "answers nobody"
    ANSWERED_TWICE = "answered twice"
    NEVER_ANSWERED = "never answered"
    COMMIT_LOST = "commit lost"
    ABORTED_KEPT = "aborted commit kept"
    STANDS_OLD = "an older record stands last"
    NOT_ARRIVED = "not arrived"
    NOT_RELEASED = "not released"
    TWO_SERVE = "two coordinators"
    MOVE_CHANGED = "changed by a move"
    UNREADABLE = "unreadable"


EXPLAINED = {
    # a finding of kind ...  breaks ...
    Kind.MISSING:         "the versions of a group's records and events have no gap",
    Kind.ALTERED:         "a record that is published again is the same, byte for byte",
    Kind.TWO_OWNERS:      "a partition has one owner at a moment; in one generation, another one only when it has left",
    Kind.PLANNED_TWICE:   "in one generation a partition has one owner, in the leader's assignments too",
    Kind.GENERATION_FELL: "generations only grow, and so do the epochs of groups and of members",
    Kind.EPOCH_AHEAD:     "a member's epoch is not above the assignment epoch, nor that above the group epoch",
    Kind.NOT_FREE:        "a partition is assigned to a member only after its last owner gave it up",
    Kind.NOT_COVERED:     "a plan gives each partition of the subscribed topics to exactly one subscriber",
    Kind.TARGET_MISSED:   "a member that has reached the latest plan has exactly its target",
    Kind.TOKEN_FELL:      "a later owner has a higher fencing token, also after the group was removed",
    Kind.ANSWERS_NOBODY:  "a reply answers a request, and has its kind",
    Kind.ANSWERED_TWICE:  "a request has one response; a reply that is written again is the same",
    Kind.NEVER_ANSWERED:  "every request has a response",
    Kind.COMMIT_LOST:     "an acknowledged commit is kept, and so is that of a committed transaction",
    Kind.ABORTED_KEPT:    "the offsets of an aborted transaction are never committed",
    Kind.STANDS_OLD:      "the last record of a key is the newest one; a late repeat is corrected",
    Kind.NOT_ARRIVED:     "a group that has moved is at the coordinator that it has moved to",
    Kind.NOT_RELEASED:    "a group arrives only when its coordinator has released it, with the number of the release",
    Kind.TWO_SERVE:       "one coordinator serves a group at a time",
    Kind.MOVE_CHANGED:    "a move changes no generation, no member and no assignment",
    Kind.UNREADABLE:      "only the coordinator writes its output topics, and its records follow its schemas",
}  # fmt: skip


class Finding(Struct, frozen=True):
    """A broken promise.

    Args:
        place: The record that shows it, as `topic-partition@offset`.
        text: Safe to print on one line, whatever the ids in it are.
        prefix: The coordinator, if several are checked.
    """

    kind: Kind
    group_id: str | None
    place: str
    text: str
    prefix: str | UnsetType = UNSET

    def __str__(self) -> str:
        where = "" if self.prefix is UNSET else f"{escape(self.prefix)}: "
        return f"{self.kind}: {where}{escape(self.group_id or '-')}: {self.text} ({self.place})"


class Report(Struct):
    """All findings, up to a bound; the number of findings of each kind; and the number of records that were checked.

    Args:
        corrected: The number of keys whose last record was an older one for a while. They are no findings.
        is_observed: Whether Kafka's own coordinator keeps the groups, so that there are no requests to compare.
        moves: The number of moves of which both ends were compared, if several coordinators are checked.
        followed_one_in: The moves of one in this number of groups were compared.
    """

    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    records: int = 0
    groups: int = 0
    requests: int = 0
    commits: int = 0
    corrected: int = 0
    is_observed: bool = False
    moves: int | UnsetType = UNSET
    followed_one_in: int | UnsetType = UNSET

    def add(self, finding: Finding) -> None:
        self.counts[finding.kind] += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)

    def add_all(self, other: "Report", prefix: str) -> None:
        """Add the report about one of several coordinators."""
        listed = [structs.replace(finding, prefix=prefix) for finding in other.findings]
        self.findings += listed[: FINDINGS_MAX - len(self.findings)]
        self.counts += other.counts
        self.records += other.records
        self.groups += other.groups
        self.requests += other.requests
        self.commits += other.commits
        self.corrected += other.corrected
        self.is_observed = self.is_observed and other.is_observed

    def to_json(self) -> dict[str, Any]:
        return dict(msgspec.to_builtins(self))

    def __str__(self) -> str:
        listed = [str(finding) for finding in self.findings]
        unlisted = self.counts.total() - len(listed)
        summary = f"{self.records} records of {self.groups} group{'s' * (self.groups != 1)} were read"
        if not self.is_observed:
            compared = f"{self.requests} requests and {self.commits} acknowledged commits"
            summary += f", {compared} were compared with later records"
        if self.moves is not UNSET:
            summary += f", both ends of {self.moves} move{'s' * (self.moves != 1)} were compared"
        if self.followed_one_in is not UNSET and self.followed_one_in > 1:
            summary += f" (of one in {self.followed_one_in} groups; name groups to compare theirs)"
        if self.corrected:
            summary += f"; another writer repeated {self.corrected} keys late, and they have been written again since"
        if not listed:
            return f"Nothing found: {summary}."
        more = [f"... and {unlisted} more"] if unlisted else []
        why = [f"{kind}: {count}. Promise: {EXPLAINED[Kind(kind)]}." for kind, count in self.counts.items()]
        return "\n".join([*listed, *more, "", *why, f"{summary}."])
