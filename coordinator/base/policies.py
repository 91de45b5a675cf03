"""Group policies: what an operator allows the coordinator to do about rebalances of some groups.

    succession   a newcomer takes over the assignment of a member that is gone, in the running generation
    settle       the causes of a rebalance gather for a while, and then there is one rebalance
    freeze       no rebalance until a time, or in windows of the week
    quarantine   a member that comes and goes again and again has no partitions for a while

A policy entry names one group, or all groups whose ids begin with its name. The most specific entry that names a group
is in force there, as a whole: no setting of another entry counts. A group without an entry has Kafka's behaviour.

The types below are what a `set_policies` request has. Their bounds are checked when a request is decoded; `problems`
checks what depends on several values. Times and windows are data here. Another layer translates the texts of a file.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from coordinator.base import limits
from coordinator.base.access import ANY, Pattern, Time

MINUTE_MS = 60_000
DAY_MINUTES = 24 * 60
WEEK_MINUTES = 7 * DAY_MINUTES
WEEK_MS = WEEK_MINUTES * MINUTE_MS

MONDAY_MS = 4 * DAY_MINUTES * MINUTE_MS
"""The start of the first Monday after 1 January 1970, which was a Thursday."""

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""The assignors whose assignments contain nothing but partitions, so that another member can take one over."""

Minute = Annotated[int, Meta(ge=0, le=WEEK_MINUTES - 1)]
"""A minute of the week in UTC, from Monday 00:00 on."""

AssignorName = Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]


class Setting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings of one policy."""


class Succession(Setting, frozen=True, kw_only=True):
    """A newcomer takes over the assignment of a member that is gone.

    Args:
        vacant_ms: How long the assignment of a member that is gone is kept for a newcomer. 0: only a member that waits
            already can take it.
        standby_ms: How long a newcomer waits for an assignment. 0: newcomers rebalance.
        vacant_percent_max: If more of the members than this are gone, the group rebalances at once. One may always be.
    """

    vacant_ms: Annotated[int, Meta(ge=0, le=600_000)] = 30_000
    standby_ms: Annotated[int, Meta(ge=0, le=600_000)] = 60_000
    vacant_percent_max: Annotated[int, Meta(ge=1, le=100)] = 50


class Settle(Setting, frozen=True, kw_only=True):
    """A rebalance begins when no further cause has come for a while.

    Args:
        join_quiet_ms: How long a rebalance waits after each newcomer. 0: newcomers rebalance.
        leave_quiet_ms: How long it waits after each member that leaves. 0: it does not wait.
        max_ms: How long it waits after the first cause at most.
    """

    join_quiet_ms: Annotated[int, Meta(ge=0, le=60_000)] = 3_000
    leave_quiet_ms: Annotated[int, Meta(ge=0, le=30_000)] = 0
    max_ms: Annotated[int, Meta(ge=0, le=300_000)] = 30_000


NO_SUCCESSION, NO_SETTLE = Succession(vacant_ms=0, standby_ms=0), Settle(join_quiet_ms=0, leave_quiet_ms=0, max_ms=0)
"""The settings of a policy that a group does not have: nothing waits."""


class Window(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of each week, from one minute of the week to another. It may go on over the end of the week."""

    from_minute: Minute
    until_minute: Minute

    @property
    def minutes(self) -> int:
        """The length of the window."""
        return (self.until_minute - self.from_minute) % WEEK_MINUTES


class Freeze(Setting, frozen=True, kw_only=True):
    """No rebalance begins until a time, or in some windows of each week.

    Args:
        until_ms: Unix milliseconds. Either it or `windows` is set.
        unowned_max_ms: A partition without an owner for this time is given to a member that is there.
    """

    until_ms: Annotated[int, Meta(ge=0, le=limits.TIME_MS_MAX)] | None = None
    windows: Annotated[tuple[Window, ...], Meta(max_length=limits.FREEZE_WINDOWS_MAX)] = ()
    unowned_max_ms: Annotated[int, Meta(ge=5_000, le=600_000)] = 60_000

    def end_ms(self, now_ms: int) -> int | None:
        """Return the end of the freeze that is in force at a time; None if none is."""
        if self.until_ms is not None:
            return self.until_ms if now_ms < self.until_ms else None
        in_week_ms = (now_ms - MONDAY_MS) % WEEK_MS
        for window in self.windows:
            begun_ms = (in_week_ms - window.from_minute * MINUTE_MS) % WEEK_MS
            if begun_ms < window.minutes * MINUTE_MS:
                return now_ms - begun_ms + window.minutes * MINUTE_MS
        return None


class Quarantine(Setting, frozen=True, kw_only=True):
    """A member that comes and goes again and again has no partitions for a while.

    Args:
        flaps, within_ms: How many ends of its memberships in which time are too many.
        for_ms: How long it has no partitions, the first time. The time is doubled each time.
        for_max_ms: How long that is at most.
        percent_max: How many of the members may be in quarantine at once. One may always be.
    """

    flaps: Annotated[int, Meta(ge=2, le=limits.SHORT_MEMBERSHIPS_MAX)] = 3
    within_ms: Annotated[int, Meta(ge=60_000, le=3_600_000)] = 900_000
    for_ms: Annotated[int, Meta(ge=5_000, le=3_600_000)] = 30_000
    for_max_ms: Annotated[int, Meta(ge=5_000, le=3_600_000)] = 600_000
    percent_max: Annotated[int, Meta(ge=1, le=50)] = 10


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry: the policies of a group, or of all groups whose ids begin with a name.

    Args:
        name: A group id, the beginning of group ids, or `*` for every group.
        assignors: The assignors whose assignments another member may take over.
    """

    name: Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]
    pattern: Pattern = Pattern.LITERAL
    succession: Succession | None = None
    settle: Settle | None = None
    freeze: Freeze | None = None
    quarantine: Quarantine | None = None
    assignors: Annotated[tuple[AssignorName, ...], Meta(min_length=1, max_length=limits.POLICY_ASSIGNORS_MAX)] = (
        ASSIGNORS
    )

    def frozen_until_ms(self, now_ms: int) -> int | None:
        """Return the end of the freeze that is in force at a time; None if none is."""
        return self.freeze.end_ms(now_ms) if self.freeze is not None else None


Entries = Annotated[tuple[Policy, ...], Meta(max_length=limits.POLICIES_MAX)]


class Policies(Struct, frozen=True, omit_defaults=True):
    """All entries.

    Args:
        made_ms: When they were made, Unix milliseconds. The later one of two sets of entries applies.
    """

    made_ms: Time = 0
    policies: Entries = ()


# -- checks ------------------------------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """A value that is refused: its place as in `policies[2].freeze.until_ms`, and the reason."""

    field: str
    why: str

    def __str__(self) -> str:
        return f"{self.field} {self.why}"


def problems(policies: Policies) -> Iterator[Problem]:
    """Yield the values that are refused, although each is within the bounds of its type."""
    first: dict[tuple[str, Pattern], int] = {}
    for number, policy in enumerate(policies.policies):
        here = f"policies[{number}]"
        if (before := first.setdefault((policy.name, policy.pattern), number)) != number:
            yield Problem(f"{here}.name", f"is that of policies[{before}]: one entry has all policies of a name")
        if policy.settle is not None:
            yield from _problems_of_settle(policy.settle, f"{here}.settle")
        if policy.freeze is not None:
            yield from _problems_of_freeze(policy.freeze, policies.made_ms, f"{here}.freeze")
        if policy.quarantine is not None and policy.quarantine.for_max_ms < policy.quarantine.for_ms:
            yield Problem(f"{here}.quarantine.for_max_ms", f"is below for_ms, {policy.quarantine.for_ms}")


def _problems_of_settle(settle: Settle, here: str) -> Iterator[Problem]:
    for name, quiet_ms in (("join_quiet_ms", settle.join_quiet_ms), ("leave_quiet_ms", settle.leave_quiet_ms)):
        if settle.max_ms < quiet_ms:
            yield Problem(f"{here}.max_ms", f"is below {name}, {quiet_ms}")


def _problems_of_freeze(freeze: Freeze, made_ms: int, here: str) -> Iterator[Problem]:
    if (freeze.until_ms is None) == (not freeze.windows):
        yield Problem(here, "needs either until_ms or windows")
    if freeze.until_ms is not None and not 0 < freeze.until_ms - made_ms <= limits.FREEZE_MS_MAX:
        hours = limits.FREEZE_MS_MAX // 3_600_000
        yield Problem(f"{here}.until_ms", f"is not within {hours} hours after {made_ms}, when the policies were made")
    in_order = sorted(enumerate(freeze.windows), key=lambda each: each[1].from_minute)
    for place, (number, window) in enumerate(in_order):
        if not 0 < window.minutes * MINUTE_MS <= limits.FREEZE_MS_MAX:
            hours = limits.FREEZE_MS_MAX // 3_600_000
            yield Problem(f"{here}.windows[{number}]", f"is empty, or longer than {hours} hours")
        following, other = in_order[(place + 1) % len(in_order)]
        room = (other.from_minute - window.from_minute) % WEEK_MINUTES
        if following != number and window.minutes >= room:
            yield Problem(f"{here}.windows[{number}]", f"overlaps windows[{following}], or ends where that begins")


def size_of(policies: Policies) -> int:
    """Return the size of policies in bytes, as it counts towards `POLICIES_BYTES_MAX`."""
    return len(msgspec.msgpack.encode(policies))


# -- lookups -----------------------------------------------------------------------------------------------------------


class PolicyTable:
    """Entries, indexed for lookups. Results are cached; the cache is valid because the entries never change."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        self._named = {(policy.pattern, policy.name): policy for policy in policies}
        lengths = {len(name) for pattern, name in self._named if pattern is Pattern.PREFIXED}
        self._prefix_lengths = sorted(lengths, reverse=True)
        self._found: dict[str, Policy | None] = {}

    def of(self, group_id: str) -> Policy | None:
        """Return the entry in force for a group: its own one, else the longest prefix, else that of all groups."""
        if group_id not in self._found:
            found = self._find(group_id)
            if len(self._found) >= limits.POLICY_LOOKUPS_MAX:
                self._found.clear()
            self._found[group_id] = found
        return self._found[group_id]

    def _find(self, group_id: str) -> Policy | None:
        keys = [(Pattern.LITERAL, group_id)]
        keys += [(Pattern.PREFIXED, group_id[:n]) for n in self._prefix_lengths if n <= len(group_id)]
        keys += [(Pattern.LITERAL, ANY)]
        return next((self._named[key] for key in keys if key in self._named), None)
