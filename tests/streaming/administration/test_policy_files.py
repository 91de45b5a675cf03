"""Tests of the TOML file of policies: what it says is set, and an error names the line and the key."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.base.access import Pattern
from coordinator.base.limits import FREEZE_MS_MAX, POLICIES_BYTES_MAX, POLICIES_MAX
from coordinator.base.policies import Freeze, Policies, Policy, Quarantine, Settle, Succession, Window, problems
from streaming.administration.policy_files import FILE_BYTES_MAX, BadPolicies, policies_in, written
from streaming.administration.toml_lines import line_of, lines_of
from streaming.moments import EPOCH

NOW_MS = (datetime(2026, 11, 27, 16, tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)
HOUR_MS = 3_600_000

EXAMPLE = """\
# the billing services surge
[[policies]]
name = "billing-"
pattern = "PREFIXED"
succession = { vacant_ms = 20000 }
settle = {}
freeze = { until = 2026-11-30T08:00:00+02:00 }

[[policies]]
name = "orders"
assignors = ["range", "ours"]
[policies.freeze]
windows = ["fri 16:00 - mon 06:00", "WED 22:00-thu 02:30"]
unowned_max_ms = 5000
[policies.quarantine]
flaps = 4
"""


def read(folder: Path, text: str | bytes) -> tuple[Policy, ...]:
    (file := folder / "policies.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return policies_in(file, NOW_MS)


def error_of(folder: Path, text: str | bytes) -> str:
    with pytest.raises(BadPolicies) as raised:
        read(folder, text)
    return str(raised.value).removeprefix(f"{folder / 'policies.toml'}").lstrip(", ")


def test_a_file_has_entries_with_policies(tmp_path: Path) -> None:
    windows = (
        Window(from_minute=(4 * 24 + 16) * 60, until_minute=6 * 60),
        Window(from_minute=(2 * 24 + 22) * 60, until_minute=(3 * 24 + 2) * 60 + 30),
    )
    assert read(tmp_path, EXAMPLE) == (
        Policy(
            name="billing-",
            pattern=Pattern.PREFIXED,
            succession=Succession(vacant_ms=20_000),
            settle=Settle(),
            freeze=Freeze(until_ms=NOW_MS + 62 * HOUR_MS),
        ),
        Policy(
            name="orders",
            freeze=Freeze(windows=windows, unowned_max_ms=5_000),
            quarantine=Quarantine(flaps=4),
            assignors=("range", "ours"),
        ),
    )
    assert read(tmp_path, "") == ()


ENTRY = '[[policies]]\nname = "orders"\n'

BAD = {
    ENTRY + "sucession = {}": "line 3: unknown key sucession; succession is the nearest known key.",
    ENTRY + "[policies.settle]\nmax = 1": "line 4: unknown key max; max_ms is the nearest known key.",
    ENTRY + "zz = 1": "line 3: unknown key zz; the known keys are name, pattern, succession, settle, freeze,"
    " quarantine, assignors.",
    "[[policy]]\n": "line 1: unknown key policy; policies is the nearest known key.",
    "[[policies]]\nsettle = {}": "line 1: name is missing.",
    '\n[[policies]]\nname = ""': "line 3: name is \"\", and has to be a text of 1 to 249 characters.",
    f'[[policies]]\nname = "{"x" * 250}"':
        f'line 2: name is "{"x" * 59}..., and has to be a text of 1 to 249 characters.',
    ENTRY + 'pattern = "prefix"': 'line 3: pattern is "prefix", and has to be LITERAL or PREFIXED.',
    ENTRY + "succession = { vacant_ms = -1 }":
        "line 3: vacant_ms is -1, and has to be a whole number from 0 to 600000.",
    ENTRY + "[policies.settle]\n\nmax_ms = 300001":
        "line 5: max_ms is 300001, and has to be a whole number from 0 to 300000.",
    ENTRY + "settle = { max_ms = true }": "line 3: max_ms is true, and has to be a whole number from 0 to 300000.",
    ENTRY + 'settle = "on"': 'line 3: settle is "on", and has to be a table.',
    ENTRY + "settle = { join_quiet_ms = 5000, max_ms = 4000 }": "line 3: max_ms is below join_quiet_ms, 5000.",
    ENTRY + "quarantine = { for_ms = 9000, for_max_ms = 8000 }": "line 3: for_max_ms is below for_ms, 9000.",
    ENTRY + "freeze = {}": "line 3: freeze needs either until or windows.",
    ENTRY + 'freeze = { until = 2026-11-28T00:00:00Z, windows = ["fri 16:00 - mon 06:00"] }':
        "line 3: freeze needs either until or windows.",
    ENTRY + "freeze = { until = 2026-11-30T06:00:00 }": "line 3: until is 2026-11-30T06:00:00, and has to be a date and"
    " a time with a zone, such as 2026-11-30T06:00:00Z.",
    ENTRY + "freeze = { until = 2026-11-30 }": 'line 3: until is "2026-11-30", and has to be a date and'
    " a time with a zone, such as 2026-11-30T06:00:00Z.",
    ENTRY + "freeze = { until = 2026-11-27T16:00:00Z }":
        "line 3: until is 2026-11-27T16:00:00+00:00, which is in the past.",
    ENTRY + "freeze = { until = 2026-11-30T16:00:01Z }":
        "line 3: until is 2026-11-30T16:00:01+00:00, which is more than 72 hours ahead.",
    ENTRY + 'freeze = { windows = [\n"fri 16:00 - mon 06:00",\n"sun 23:00 - mon 07:00"] }':
        'line 4: "fri 16:00 - mon 06:00" overlaps "sun 23:00 - mon 07:00", or ends where that begins.',
    ENTRY + 'freeze = { windows = ["fri 16:00 - mon 25:00"] }': 'line 3: entry 1 of windows is "fri 16:00 - mon 25:00",'
    ' and has to be like "fri 16:00 - mon 06:00", in UTC.',
    ENTRY + 'freeze = { windows = ["fri 16:00 - fri 16:00"] }':
        'line 3: "fri 16:00 - fri 16:00" is empty, or longer than 72 hours.',
    ENTRY + "freeze = { windows = 3 }": "line 3: windows is 3, and has to be a list of 0 to 21 values.",
    ENTRY + "assignors = []": "line 3: assignors is [], and has to be a list of 1 to 16 values.",
    ENTRY + "\n" + ENTRY: "line 5: name is that of entry 1: one entry has all policies of a name.",
    ENTRY * (POLICIES_MAX + 1): f"line {2 * POLICIES_MAX + 1}: policies has 201 entries, and at most 200 are allowed.",
    "policies = 3": "line 1: policies is 3, and has to be a list of 0 to 200 values.",
    "[[policies]\n": "is not TOML: Expected ']]' at the end of an array declaration (at line 1, column 11).",
    b"\xff": "is not TOML: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte.",
    "x = " + "[" * 100_000: "is nested too deeply.",
}  # fmt: skip


@pytest.mark.parametrize(("text", "error"), BAD.items(), ids=range(len(BAD)))
def test_an_error_names_the_line_and_the_key(text: str | bytes, error: str, tmp_path: Path) -> None:
    """Issue 22, "Bad input": a wrong file sets nothing."""
    assert error_of(tmp_path, text) == error


def test_a_file_is_bounded(tmp_path: Path) -> None:
    assert error_of(tmp_path, "#" * (FILE_BYTES_MAX + 1)).startswith(f"has more than {FILE_BYTES_MAX} bytes.")
    names = [f'"{number:0249}"' for number in range(16)]
    many = "".join(f'[[policies]]\nname = "{n}"\nassignors = [{", ".join(names)}]\n' for n in range(20))
    assert f"bytes, and {POLICIES_BYTES_MAX} are allowed" in error_of(tmp_path, many)
    with pytest.raises(BadPolicies, match="cannot be read"):
        policies_in(tmp_path / "nothing", NOW_MS)


def test_a_name_of_a_group_may_be_as_long_as_a_group_id(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, f'[[policies]]\nname = "{"ü" * 249}"\npattern = "PREFIXED"')
    assert entry.name == "ü" * 249


freezes = st.one_of(
    st.builds(Freeze, until_ms=st.integers(NOW_MS + 1, NOW_MS + FREEZE_MS_MAX)),
    st.builds(Freeze, windows=st.lists(
        st.builds(Window, from_minute=st.integers(0, 10_079), until_minute=st.integers(0, 10_079)), min_size=1
    ).map(tuple), unowned_max_ms=st.integers(5_000, 600_000)),
)  # fmt: skip
entries = st.builds(
    Policy, name=st.text(min_size=1, max_size=20), pattern=st.sampled_from(Pattern),
    succession=st.none() | st.builds(Succession, vacant_ms=st.integers(0, 600_000)),
    settle=st.none() | st.builds(Settle, max_ms=st.integers(3_000, 300_000)),
    freeze=st.none() | freezes,
    quarantine=st.none() | st.builds(Quarantine, flaps=st.integers(2, 20)),
    assignors=st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=4).map(tuple),
)  # fmt: skip


@given(st.lists(entries, max_size=4).map(tuple).filter(lambda each: not list(problems(Policies(NOW_MS, each)))))
def test_written_policies_are_read_back(tmp_path_factory: pytest.TempPathFactory, policies: tuple[Policy, ...]) -> None:
    assert read(tmp_path_factory.mktemp("written"), written(policies)) == policies


def test_lines_are_found_in_each_form_of_a_table() -> None:
    text = '# a = 1\na.b = [ 1, "x]", [\n"y" ] ]\n[c]\n"d" = { e = """\nf = 1\n""",\tg = \'#\' }\n'
    text += "[[h]]\n[h.i]\nj = 1\n[[h]]\n"
    found = lines_of(text)
    places = ("a", "b"), ("a", "b", 2, 0), ("c",), ("c", "d", "e"), ("c", "d", "g"), ("h", 0, "i", "j"), ("h", 1)
    assert [found[place] for place in places] == [2, 3, 4, 5, 7, 10, 11]
    assert ("f",) not in found
    assert line_of(found, ("h", 0, "i", "k", 3)) == 9
    assert line_of(found, ("nothing",)) == 1
