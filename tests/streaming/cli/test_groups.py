"""Tests of the output of `coordinator groups`, compared whole with files in `golden`, and of its errors; without Kafka.

After an intended change, `UPDATE_GOLDEN=1 pytest tests/streaming/cli/test_groups.py` writes the files again.
"""

import io
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from coordinator.base.access import Pattern
from coordinator.messages.responses import DescribeGroupAnswer, PolicyName
from streaming.cli.groups import history
from streaming.cli.groups import show as showing
from streaming.cli.groups.history import BadPlace, read_place, timeline_lines
from streaming.cli.groups.show import BadPattern, Wanted
from streaming.cli.lib.lines import MEMBERS, PARTITIONS, member_lines, partition_lines
from streaming.cli.lib.output import Output, OutputFormat
from streaming.errors import Exit, NotFound
from streaming.views import GroupView, Views
from streaming.views.api import answers
from streaming.views.history.rebalances import rebalances
from tests.streaming.views.consumers import ENDED_MS, JOINED_AND_FREE_MS, REVOKING_MS, life_at
from tests.streaming.views.deploy import NOW_MS as DEPLOYED_MS
from tests.streaming.views.deploy import deploy_views
from tests.streaming.views.golden_views import ANA, BO, CY, ENDS, EVIL, NOON_MS, example_views, moved
from tests.streaming.views.test_views import folded, raws
from tests.streaming.views.test_waits import away

GOLDEN = Path(__file__).parent / "golden"
NOW_MS = NOON_MS + 120_000
AWAY_MS = 1_003_000


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the local time zone to UTC, so that the output does not depend on the machine."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _list(views: Views, to: Output) -> None:
    showing.show_groups([answers.summary(g, ENDS, NOW_MS) for g in views.present()], to)


def _describe(group_id: str, now_ms: int = NOW_MS) -> Callable[[Views, Output], None]:
    return lambda views, to: showing.show_group(views.groups[group_id], ENDS, now_ms, to)


def _members(views: Views, to: Output) -> None:
    to.rows(MEMBERS, member_lines(views.present()))


def _offsets(views: Views, to: Output) -> None:
    rows = [line for group in views.present() for line in partition_lines(group, ENDS) if line.row]
    to.rows(PARTITIONS, rows)


def _timeline(views: Views, to: Output) -> None:
    history.show_timeline(answers.timeline(views, views.groups["orders"]), None, to)


def _why(views: Views, to: Output) -> None:
    history.show_why(views, views.groups["orders"], None, to)


def _of_consumers(at_ms: int, show: Callable[[Views, Output], None]) -> Callable[[Views, Output], None]:
    """Return a command that shows the consumer group of `life` as it was at a time."""
    return lambda _, to: show(life_at(at_ms), to)


def _show_history(group: GroupView, views: Views, to: Output) -> None:
    history.show_timeline(answers.timeline(views, group), None, to)


def _show_life(views: Views, to: Output) -> None:
    _show_history(views.groups["g"], views, to)


def _explain_life(views: Views, to: Output) -> None:
    for rebalance in rebalances(views.groups["g"].events):
        history.show_why(views, views.groups["g"], rebalance.started_ms, to)


def _explain_now(views: Views, to: Output) -> None:
    history.show_why(views, views.groups["g"], None, to, REVOKING_MS + 12_300)


def _owners(views: Views, to: Output) -> None:
    """Show the owner of a partition before, while and after it changes hands."""
    for at_ms in (REVOKING_MS, JOINED_AND_FREE_MS, JOINED_AND_FREE_MS + 100, ENDED_MS):
        history.show_owner(views, views.groups["g"], "T", 2, at_ms, ENDED_MS, to)


def _of_a_deploy(show: Callable[[Views, Output], None]) -> Callable[[Views, Output], None]:
    """Return a command that shows the group that lives through a deploy under policies."""
    return lambda _, to: show(deploy_views(), to)


def _show_owners_of_seats(views: Views, to: Output) -> None:
    """Show the owner of a partition before, while and after its seat is vacant, twice."""
    for at_s in (9, 12, 14, 120):
        history.show_owner(views, views.groups["deploy"], "t", 1, NOON_MS + at_s * 1_000, DEPLOYED_MS, to)


COMMANDS: dict[str, Callable[[Views, Output], None]] = {
    "list": _list,
    "describe": _describe("orders"),
    "describe-hostile": _describe(EVIL),
    "members": _members,
    "offsets": _offsets,
    "timeline": _timeline,
    "why": _why,
    "consumer-list": _of_consumers(REVOKING_MS, _list),
    "consumer-describe": _of_consumers(REVOKING_MS, _describe("g", REVOKING_MS)),
    "consumer-members": _of_consumers(REVOKING_MS, _members),
    "consumer-members-stable": _of_consumers(ENDED_MS, _members),
    "consumer-timeline": _of_consumers(ENDED_MS, _show_life),
    "consumer-why": _of_consumers(ENDED_MS, _explain_life),
    "consumer-owner": _of_consumers(ENDED_MS, _owners),
    "consumer-why-revoking": _of_consumers(REVOKING_MS, _explain_now),
    "consumer-offsets": _of_consumers(JOINED_AND_FREE_MS, _offsets),
    "policy-describe": _of_a_deploy(
        lambda views, to: showing.show_group(views.groups["deploy"], ENDS, DEPLOYED_MS, to)
    ),
    "policy-members": _of_a_deploy(_members),
    "policy-timeline": _of_a_deploy(
        lambda v, to: history.show_timeline(answers.timeline(v, v.groups["deploy"]), None, to)
    ),
    "policy-why": _of_a_deploy(lambda v, to: history.show_why(v, v.groups["deploy"], None, to, DEPLOYED_MS)),
    "policy-owner": _of_a_deploy(_show_owners_of_seats),
    "consumer-describe-away": lambda _, to: _describe("g", AWAY_MS)(folded(raws(away())), to),
}


def printed(command: str, form: OutputFormat, *, is_terminal: bool, capsys: pytest.CaptureFixture[str]) -> str:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=320, color_system="standard", legacy_windows=False,
                      highlight=False, markup=False, emoji=False) if is_terminal else None  # fmt: skip
    to = Output(form, console)
    if is_terminal:
        to.line = lambda text="": written.write(text + "\n")  # type: ignore[method-assign]
    COMMANDS[command](example_views(), to)
    return written.getvalue() if is_terminal else capsys.readouterr().out


NOT_TABLES = (OutputFormat.wide, OutputFormat.csv, OutputFormat.json)
FORMS = [
    *((command, OutputFormat.table, True) for command in COMMANDS),
    *((command, OutputFormat.table, False) for command in COMMANDS),
    ("list", OutputFormat.wide, False),
    ("describe", OutputFormat.wide, False),
    ("members", OutputFormat.wide, False),
    ("offsets", OutputFormat.wide, False),
    ("list", OutputFormat.csv, False),
    ("members", OutputFormat.csv, False),
    ("list", OutputFormat.json, False),
    ("timeline", OutputFormat.json, False),
    ("why", OutputFormat.json, False),
    ("consumer-members", OutputFormat.wide, False),
    ("consumer-why-revoking", OutputFormat.json, False),
    ("policy-why", OutputFormat.json, False),
    ("policy-owner", OutputFormat.json, False),
    *((f"consumer-{what}", form, False) for what in ("list", "timeline") for form in NOT_TABLES),
]


@pytest.mark.parametrize(("command", "form", "is_terminal"), FORMS)
def test_the_output_equals_the_golden_file(
    command: str, form: OutputFormat, is_terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """S01, S09, S10, S11, S28, S29, S30, S31, S32, S34, S35, S129: users see this output; S12: it has durations."""
    file = GOLDEN / f"{command}-{form}{'-terminal' if is_terminal else ''}.txt"
    text = printed(command, form, is_terminal=is_terminal, capsys=capsys)
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_bytes(text.encode())
    assert text == file.read_bytes().decode()


def test_every_golden_file_is_compared() -> None:
    names = {f"{command}-{form}{'-terminal' if is_terminal else ''}.txt" for command, form, is_terminal in FORMS}
    assert {file.name for file in GOLDEN.iterdir()} == names


def test_each_subscribed_partition_is_shown_under_one_member(views: Views) -> None:
    """S01, S10: the table has one line for each partition, with its member."""
    lines = [line for line in partition_lines(views.groups["orders"], ENDS) if line.row]
    assert [(line.row.topic, line.row.partition) for line in lines if line.row] == [("t", p) for p in range(4)]
    assert all(line.row.member_id == ANA for line in lines if line.row)


def test_a_member_that_owns_nothing_is_listed(views: Views) -> None:
    """S11: the member's line has no partition."""
    idle = [line.idle for line in partition_lines(views.groups["orders"], ENDS) if line.row is None]
    assert [member.member_id for member in idle if member] == [CY]


def test_the_policy_in_force_comes_from_the_coordinator() -> None:
    """policies.md 3.4: no topic contains the name of the entry."""
    asked = {"request_id": "r", "group_id": "g"}
    named = DescribeGroupAnswer(**asked, policy=PolicyName("billing-", Pattern.PREFIXED))
    assert [*showing._facts_of_an_answer(named)] == [("POLICY", "billing-*")]
    assert [*showing._facts_of_an_answer(DescribeGroupAnswer(**asked, deadline_ms=9))] == []
    assert [*showing._facts_of_an_answer(None)] == []


def test_a_timeline_has_a_line_for_each_rebalance(views: Views) -> None:
    """S12, S148, S150: the timeline has three rebalances, each with its cause and its duration."""
    lines = timeline_lines(answers.timeline(views, views.groups["orders"]))
    printed_lines = [(line.generation_id, line.text) for line in lines if line.event == "rebalance"]
    assert [generation for generation, _ in printed_lines] == [1, 2, 3]
    for (_, text), (cause, took) in zip(
        printed_lines,
        [("member joined", "3.0 s"), ("member joined", "1.2 s"), ("session expired", "1.0 s")],
        strict=True,
    ):
        assert cause in text
        assert f"took {took} (joins {took}, plan 0 ms)" in text
        assert "led by ana" in text
    assert [line.at_ms for line in lines] == sorted(line.at_ms for line in lines)


def test_a_timeline_can_be_limited_by_time_and_by_lines(views: Views, capsys: pytest.CaptureFixture[str]) -> None:
    since = answers.timeline(views, views.groups["orders"], NOON_MS + 60_000)
    assert [line.event for line in timeline_lines(since)] == ["member_expired", "rebalance", "assignment_changed"]
    amidst = timeline_lines(answers.timeline(views, views.groups["orders"], NOON_MS + 60_001))
    assert [line.event for line in amidst] == ["rebalance", "assignment_changed"], "the rebalance had begun before"
    history.show_timeline(answers.timeline(views, views.groups["orders"]), 2, Output(OutputFormat.csv))
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2


def test_a_rebalance_without_its_expired_beginning_is_printed(views: Views, capsys: pytest.CaptureFixture[str]) -> None:
    group = views.groups["orders"]
    del group.events[:7]
    group.known_from_ms = NOON_MS + 11_200
    history.show_timeline(answers.timeline(views, group), None, Output(OutputFormat.table))
    captured = capsys.readouterr()
    assert captured.out.count(" rebalance ") == 2
    assert "unknown; took 1.2 s" in captured.out
    assert "The history of orders begins at 2026-09-21T12:00:11.200" in captured.err


def test_why_prints_three_sentences_or_one(views: Views, capsys: pytest.CaptureFixture[str]) -> None:
    """S09, S14: the sentences name the cause, the member, and the timeout to check."""
    history.show_why(views, views.groups["orders"], None, Output(OutputFormat.table))
    what, who, advice = capsys.readouterr().out.splitlines()
    assert "orders rebalanced at 12:01:00.000" in what
    assert "bo-2a84 at /10.0.0.1 was silent for 10.0 s" in who
    assert advice.startswith("Avoidable")
    assert "session.timeout.ms" in advice
    history.show_why(views, views.groups["orders"], NOON_MS + 59_999, Output(OutputFormat.table))
    what, who, advice = capsys.readouterr().out.splitlines()
    assert "generation 2" in what
    assert advice.startswith("Unavoidable")
    history.show_why(views, views.groups["orders"], NOON_MS - 1, Output(OutputFormat.table))
    history.show_why(views, views.groups["idle"], None, Output(OutputFormat.table))
    assert capsys.readouterr().out.splitlines() == [
        "orders has not rebalanced by 2026-09-21T11:59:59.999.",
        "idle has not rebalanced.",
    ]


CAME, MOVED, FELL_SILENT, AGAIN = (f"2026-09-21T12:0{at}" for at in ("0:03.000", "0:11.200", "1:00.000", "1:01.000"))
OWNERS = [
    # ms        owner of t-2
    (-1,       "nobody; after: ANA"),
    (3_000,    f"ANA, client ana at /10.0.0.1, from {CAME} to {MOVED} (assigned elsewhere)"),
    (11_199,   "ANA, client ana"),
    (11_200,   f"BO, client bo at /10.0.0.1, from {MOVED} to {FELL_SILENT} (expired)"),
    (60_000,   "nobody; before: BO"),
    (61_000,   f"ANA, client ana at /10.0.0.1, from {AGAIN} to now"),
    (120_000,  f"ANA, client ana at /10.0.0.1, from {AGAIN} to now"),
]  # fmt: skip


@pytest.mark.parametrize(("after_ms", "expected"), OWNERS)
def test_a_partition_has_one_owner_at_a_time_or_none(
    views: Views, after_ms: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """S10: the output and the JSON name the owner at that time, and its fencing token."""
    history.show_owner(views, views.groups["orders"], "t", 2, NOON_MS + after_ms, NOW_MS, Output(OutputFormat.table))
    (line,) = capsys.readouterr().out.splitlines()
    assert expected.replace("ANA", ANA).replace("BO", BO) in line
    history.show_owner(views, views.groups["orders"], "t", 2, NOON_MS + after_ms, NOW_MS, Output(OutputFormat.json))
    answer = json.loads(capsys.readouterr().out)
    assert answer["is_known"] is True
    assert (answer["fencing_token"] is None) == (answer["owner"] is None)
    assert line.endswith(f", fencing token {answer['fencing_token']}") == (answer["owner"] is not None)


def test_an_owner_before_the_history_is_unknown(views: Views, capsys: pytest.CaptureFixture[str]) -> None:
    """The history shows that a partition had no owner only for times after its beginning."""
    group = views.groups["orders"]
    group.events[:] = [moved(9, 11_200, 2, (7, None, BO))]
    group.known_from_ms = NOON_MS + 10_000
    for after_ms in (9_999, 10_000):
        history.show_owner(views, group, "t", 7, NOON_MS + after_ms, NOW_MS, Output(OutputFormat.table))
    before, since = capsys.readouterr().out.splitlines()
    assert f": not known: the history begins at 2026-09-21T12:00:10.000; after: {BO}, " in before
    assert f": nobody; after: {BO}, " in since


def test_a_future_owner_is_unknown(views: Views, capsys: pytest.CaptureFixture[str]) -> None:
    history.show_owner(views, views.groups["orders"], "t", 2, NOW_MS + 1, NOW_MS, Output(OutputFormat.table))
    assert f": not known: this time is in the future; before: {ANA}, " in capsys.readouterr().out


def test_a_partition_that_never_had_an_owner_is_not_found(views: Views) -> None:
    with pytest.raises(NotFound, match="The history of orders contains no owner of t-9"):
        history.show_owner(views, views.groups["orders"], "t", 9, NOW_MS, NOW_MS, Output(OutputFormat.table))


@pytest.mark.parametrize(("text", "place"), [("t-0", ("t", 0)), ("a-b-12", ("a-b", 12)), ("--1", ("-", 1))])
def test_a_partition_is_named_as_kafka_names_it(text: str, place: tuple[str, int]) -> None:
    assert read_place(text) == place


@pytest.mark.parametrize("text", ["", "t", "t-", "-1", "t-x", "t-1.5", "t-99999999999"])
def test_a_text_that_is_not_a_partition_is_wrong_usage(text: str) -> None:
    with pytest.raises(BadPlace):
        read_place(text)


# -- selected groups ---------------------------------------------------------------------------------------------------

WANTED: list[tuple[tuple[str, ...], bool, list[str]]] = [
    ((), False, [EVIL, "idle", "moving", "orders"]),
    (("orders",), False, ["orders"]),
    (("orders", "idle", "orders"), False, ["orders", "idle"]),
    (("o.*",), True, ["orders"]),
    (("rder|orde",), True, []),
    (("idle|moving",), True, ["idle", "moving"]),
]


@pytest.mark.parametrize(("names", "is_regex", "found"), WANTED)
def test_groups_are_selected_by_name_or_by_a_full_match(
    views: Views, names: tuple[str, ...], is_regex: bool, found: list[str]
) -> None:
    if not found:
        with pytest.raises(NotFound):
            Wanted(names, is_regex).of(views)
    else:
        assert [group.group_id for group in Wanted(names, is_regex).of(views)] == found


def test_an_unknown_group_is_not_found(views: Views) -> None:
    with pytest.raises(NotFound, match="'nobody' does not exist") as error:
        Wanted(("orders", "nobody")).of(views)
    assert error.value.exit_code == Exit.NOT_FOUND
    with pytest.raises(NotFound):
        showing.remembered(views, "nobody")


def test_a_broken_pattern_is_wrong_usage(views: Views) -> None:
    with pytest.raises(BadPattern):
        Wanted(("(",), True).of(views)


STATES = [("idle", "Consumer group 'idle' has no active members."), ("orders", ""),
          ("moving", "Warning: Consumer group 'moving' is rebalancing.")]  # fmt: skip


@pytest.mark.parametrize(("group_id", "expected_error"), STATES)
def test_an_incomplete_description_has_a_note_on_stderr(
    views: Views, group_id: str, expected_error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    showing.say_state(views.groups[group_id])
    assert capsys.readouterr().err.strip() == expected_error
