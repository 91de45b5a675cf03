"""Policies as data: their bounds, the values that do not fit each other, windows of the week, and precedence."""

import json
from itertools import permutations
from typing import Any

import msgspec
import pytest

from coordinator.base import limits
from coordinator.base.access import Pattern
from coordinator.base.policies import (
    DAY_MINUTES,
    MINUTE_MS,
    MONDAY_MS,
    WEEK_MINUTES,
    WEEK_MS,
    Freeze,
    Policies,
    Policy,
    PolicyTable,
    Quarantine,
    Settle,
    Succession,
    Window,
    problems,
)
from coordinator.messages.requests import SetPolicies

HOUR_MS = 3_600_000


def parse(**policy: Any) -> Policy:
    """Parse a request with one entry."""
    asked = {"request_id": "1", "reply_to": "inbox", "made_ms": 1, "policies": [{"name": "g", **policy}]}
    return msgspec.json.decode(json.dumps(asked).encode(), type=SetPolicies).policies[0]


# -- settings ----------------------------------------------------------------------------------------------------------


def test_a_policy_that_is_switched_on_has_the_suggested_values():
    """policies.md 3.1: the values of each policy without settings."""
    policy = parse(succession={}, settle={}, freeze={"until_ms": 5}, quarantine={})
    assert policy.succession == Succession(vacant_ms=30_000, standby_ms=60_000, vacant_percent_max=50)
    assert policy.settle == Settle(join_quiet_ms=3_000, leave_quiet_ms=0, max_ms=30_000)
    assert policy.freeze == Freeze(until_ms=5, unowned_max_ms=60_000)
    assert policy.quarantine == Quarantine(
        flaps=3, within_ms=900_000, for_ms=30_000, for_max_ms=600_000, percent_max=10
    )
    assert policy.assignors == ("range", "roundrobin", "sticky", "cooperative-sticky")


def test_an_entry_without_policies_has_none():
    """policies.md 3.2: such an entry keeps the entry of a prefix away from its group."""
    policy = parse()
    assert (policy.succession, policy.settle, policy.freeze, policy.quarantine) == (None, None, None, None)


BOUNDS = {
    ("succession", "vacant_ms"): (0, 600_000),
    ("succession", "standby_ms"): (0, 600_000),
    ("succession", "vacant_percent_max"): (1, 100),
    ("settle", "join_quiet_ms"): (0, 60_000),
    ("settle", "leave_quiet_ms"): (0, 30_000),
    ("settle", "max_ms"): (0, 300_000),
    ("freeze", "until_ms"): (0, limits.TIME_MS_MAX),
    ("freeze", "unowned_max_ms"): (5_000, 600_000),
    ("quarantine", "flaps"): (2, limits.SHORT_MEMBERSHIPS_MAX),
    ("quarantine", "within_ms"): (60_000, 3_600_000),
    ("quarantine", "for_ms"): (5_000, 3_600_000),
    ("quarantine", "for_max_ms"): (5_000, 3_600_000),
    ("quarantine", "percent_max"): (1, 50),
}


@pytest.mark.parametrize(("policy", "setting"), BOUNDS, ids=".".join)
def test_a_value_is_accepted_at_its_bounds_and_refused_beyond(policy: str, setting: str):
    """policies.md 3.1: the bounds of each setting. The error has the place of the value."""
    least, most = BOUNDS[policy, setting]
    for value in (least, most):
        assert getattr(getattr(parse(**{policy: {setting: value}}), policy), setting) == value
    for value in (least - 1, most + 1, "5", 0.5, None if setting != "until_ms" else True):
        with pytest.raises(msgspec.ValidationError, match=rf"\$\.policies\[0\]\.{policy}\.{setting}"):
            parse(**{policy: {setting: value}})


@pytest.mark.parametrize(("field", "values"), [
    ("name", ["", "x" * 250, None]),
    ("pattern", ["ANY", ""]),
    ("assignors", [[], [""], ["x" * 250], ["range"] * 17]),
    ("succession", [{"vacent_ms": 1}, [], 5]),
    ("sucession", [{}]),
    ("freeze", [{"windows": [{"from_minute": 1}]}, {"windows": [{"from_minute": 0, "until_minute": WEEK_MINUTES}]}]),
])  # fmt: skip
def test_wrong_fields_are_refused_by_name(field: str, values: list[Any]):
    """policies.md 3.3: unknown names and wrong values are refused; the error has the place of each."""
    for value in values:
        with pytest.raises(msgspec.ValidationError, match=r"policies\[0\]"):
            parse(**{field: value})


def test_lengths_are_accepted_at_their_bounds():
    """I22: a name of 249 characters, 16 assignors, 21 windows."""
    parse(name="x" * limits.NAME_CHARS_MAX, pattern="PREFIXED")
    parse(assignors=["x" * limits.NAME_CHARS_MAX] * limits.POLICY_ASSIGNORS_MAX)
    window = {"from_minute": 0, "until_minute": 1}
    parse(freeze={"windows": [window] * limits.FREEZE_WINDOWS_MAX})
    with pytest.raises(msgspec.ValidationError, match=r"freeze\.windows"):
        parse(freeze={"windows": [window] * (limits.FREEZE_WINDOWS_MAX + 1)})


# -- values that do not fit each other ---------------------------------------------------------------------------------

MADE_MS = 1_000_000


def why_not(*policies: Policy) -> list[str]:
    """Return the problems of entries as text."""
    return [str(problem) for problem in problems(Policies(MADE_MS, policies))]


def frozen(**freeze: Any) -> list[str]:
    """Return the problems of a freeze."""
    return why_not(Policy(name="g", freeze=Freeze(**freeze)))


def window(from_hour: float, until_hour: float) -> Window:
    """Return a window by hours of the week."""
    return Window(from_minute=int(from_hour * 60), until_minute=int(until_hour * 60))


@pytest.mark.parametrize(("settle", "problem"), [
    (Settle(join_quiet_ms=5_000, max_ms=5_000), None),
    (Settle(join_quiet_ms=5_001, max_ms=5_000), "policies[0].settle.max_ms is below join_quiet_ms, 5001"),
    (Settle(leave_quiet_ms=5_001, max_ms=5_000), "policies[0].settle.max_ms is below leave_quiet_ms, 5001"),
])  # fmt: skip
def test_the_longest_wait_is_not_below_the_quiet_time(settle: Settle, problem: str | None):
    """policies.md 3.1: `max_ms` is at least each quiet time."""
    assert why_not(Policy(name="g", settle=settle)) == ([problem] if problem else [])


def test_the_longest_quarantine_is_not_below_the_first():
    """policies.md 3.1: `for_max_ms` is at least `for_ms`."""
    assert why_not(Policy(name="g", quarantine=Quarantine(for_ms=6_000, for_max_ms=6_000))) == []
    assert why_not(Policy(name="g", quarantine=Quarantine(for_ms=6_000, for_max_ms=5_999))) == [
        "policies[0].quarantine.for_max_ms is below for_ms, 6000"
    ]


@pytest.mark.parametrize(("until_ms", "is_fine"), [
    (MADE_MS, False), (MADE_MS + 1, True), (MADE_MS + 72 * HOUR_MS, True), (MADE_MS + 72 * HOUR_MS + 1, False),
])  # fmt: skip
def test_a_freeze_ends_within_72_hours(until_ms: int, is_fine: bool):
    """policies.md 3.1: a freeze until a time, which is later than its entry and not too late."""
    expected = f"policies[0].freeze.until_ms is not within 72 hours after {MADE_MS}, when the policies were made"
    assert frozen(until_ms=until_ms) == ([] if is_fine else [expected])


def test_a_freeze_has_a_time_or_windows():
    """policies.md 3.1: one of both is required, and only one."""
    assert frozen() == ["policies[0].freeze needs either until_ms or windows"]
    assert frozen(until_ms=MADE_MS + 1, windows=(window(0, 1),)) == [
        "policies[0].freeze needs either until_ms or windows"
    ]


@pytest.mark.parametrize(("windows", "wrong"), [
    ([(112, 6)], None),                    # Friday 16:00 to Monday 06:00
    ([(0, 72)], None),
    ([(0, 72 + 1 / 60)], "windows[0] is empty, or longer than 72 hours"),
    ([(5, 5)], "windows[0] is empty, or longer than 72 hours"),
    ([(8, 10), (10 + 1 / 60, 12)], None),
    ([(8, 10), (10, 12)], "windows[0] overlaps windows[1], or ends where that begins"),
    ([(10, 12), (8, 11)], "windows[1] overlaps windows[0], or ends where that begins"),
    ([(160, 8), (2, 3)], "windows[0] overlaps windows[1], or ends where that begins"),
    ([(1, 2), (160, 1)], "windows[1] overlaps windows[0], or ends where that begins"),
    ([(1, 2), (160, 0.5)], None),
    ([(1, 2), (1, 2)], "windows[0] overlaps windows[1], or ends where that begins"),
])  # fmt: skip
def test_windows_do_not_overlap(windows: list[tuple[float, float]], wrong: str | None):
    """Issue 22: windows that overlap are refused, and so are windows that together freeze a group for too long."""
    found = frozen(windows=tuple(window(*each) for each in windows))
    assert found[:1] == ([] if wrong is None else [f"policies[0].freeze.{wrong}"])


def test_a_name_has_one_entry():
    """policies.md 3.2: an entry is in force as a whole, so a second one of the same name would never be."""
    assert why_not(Policy(name="g"), Policy(name="g", pattern=Pattern.PREFIXED)) == []
    assert why_not(Policy(name="g"), Policy(name="h"), Policy(name="g")) == [
        "policies[2].name is that of policies[0]: one entry has all policies of a name"
    ]


# -- windows -----------------------------------------------------------------------------------------------------------

MONDAY_NOON_MS = MONDAY_MS + 12 * HOUR_MS + 2_000 * WEEK_MS


@pytest.mark.parametrize(("windows", "hours_left"), [
    ([(12, 13)], 1),
    ([(11, 12)], None),
    ([(12.5, 13)], None),
    ([(1, 2), (11, 14.5)], 2.5),
    ([(112, 6)], None),
    ([(112, 18)], 6),
    ([(13, 12)], None),                    # all of the week but the hour from 12 on
    ([(12, 11)], 167),
])  # fmt: skip
def test_a_window_is_in_force_from_its_first_to_its_last_minute(
    windows: list[tuple[float, float]], hours_left: float | None
):
    """policies.md 3.1: windows of the week in UTC. The times are those of a Monday at noon."""
    freeze = Freeze(windows=tuple(window(*each) for each in windows))
    end_ms = freeze.end_ms(MONDAY_NOON_MS)
    assert end_ms == (None if hours_left is None else MONDAY_NOON_MS + int(hours_left * HOUR_MS))


def test_a_window_has_exact_ends():
    """The first millisecond of a window is in it, and the first one after it is not."""
    freeze = Freeze(windows=(window(12, 13),))
    ends = [freeze.end_ms(MONDAY_NOON_MS + ms) for ms in (-1, 0, HOUR_MS - 1, HOUR_MS)]
    assert ends == [None, MONDAY_NOON_MS + HOUR_MS, MONDAY_NOON_MS + HOUR_MS, None]


def test_windows_count_from_a_monday():
    """1 January 2024 was a Monday."""
    assert (1_704_067_200_000 - MONDAY_MS) % WEEK_MS == 0
    friday = Freeze(windows=(Window(from_minute=4 * DAY_MINUTES, until_minute=5 * DAY_MINUTES),))
    assert friday.end_ms(1_704_067_200_000 + 4 * DAY_MINUTES * MINUTE_MS) == 1_704_067_200_000 + 5 * 24 * HOUR_MS
    assert friday.end_ms(1_704_067_200_000) is None


def test_a_freeze_until_a_time_ends_then():
    freeze = Freeze(until_ms=10)
    assert [freeze.end_ms(ms) for ms in (0, 9, 10)] == [10, 10, None]


# -- precedence --------------------------------------------------------------------------------------------------------

ENTRIES = (
    Policy(name="*"),
    Policy(name="bill", pattern=Pattern.PREFIXED),
    Policy(name="billing-", pattern=Pattern.PREFIXED),
    Policy(name="billing-eu"),
    Policy(name="*", pattern=Pattern.PREFIXED),
)


@pytest.mark.parametrize(("group_id", "entry"), [
    ("billing-eu", 3), ("billing-eu-2", 2), ("billing-", 2), ("billing", 1), ("bil", 0), ("", 0), ("*", 0), ("*x", 4),
])  # fmt: skip
def test_the_most_specific_entry_is_in_force(group_id: str, entry: int):
    """policies.md 3.2: the group's own entry, else the longest prefix, else that of all groups, in any order."""
    for entries in permutations(ENTRIES):
        assert PolicyTable(entries).of(group_id) is ENTRIES[entry]


def test_a_group_may_have_no_entry():
    table = PolicyTable(ENTRIES[1:4])
    assert table.of("other") is None
    assert table.of("other") is None, "the second lookup is cached"


def test_cached_lookups_are_bounded(monkeypatch: pytest.MonkeyPatch):
    """I22: the cache is cleared when it is full."""
    monkeypatch.setattr(limits, "POLICY_LOOKUPS_MAX", 3)
    table = PolicyTable(ENTRIES)
    for n in range(10):
        assert table.of(f"billing-{n}") is ENTRIES[2]
        assert len(table._found) <= 3
