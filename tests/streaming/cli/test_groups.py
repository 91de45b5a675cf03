"""What `coordinator groups` prints, compared whole with files in `golden`, and what it refuses; without Kafka.

After a change that is meant, `UPDATE_GOLDEN=1 pytest tests/streaming/cli/test_groups.py` writes the files anew.
"""

import csv
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from streaming.cli import changing, kafka_tool, output, showing, telling
from streaming.cli.changing import Ambiguous, NotConfirmed, confirm
from streaming.cli.main import app, main
from streaming.cli.options import GroupOrder
from streaming.cli.output import Column, Output, OutputFormat, in_columns, in_csv, in_json
from streaming.cli.showing import BadPattern, Wanted
from streaming.cli.telling import BadPlace, read_place, timeline_lines
from streaming.config.settings import Settings
from streaming.errors import Exit, NotFound
from streaming.views import Views, answers
from tests.streaming.views.golden_views import ANA, BO, CY, ENDS, EVIL, NOON_MS, RECORDS, member, moved, story

GOLDEN = Path(__file__).parent / "golden"
NOW_MS = NOON_MS + 120_000


@pytest.fixture(autouse=True)
def _somewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local times are those of one place, wherever the tests run."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def views() -> Views:
    return story()


def _list(views: Views, to: Output) -> None:
    showing.show_groups([answers.summary(g, ENDS, NOW_MS) for g in views.present()], to)


def _describe(group_id: str) -> Callable[[Views, Output], None]:
    return lambda views, to: showing.show_group(views.groups[group_id], ENDS, NOW_MS, to)


def _members(views: Views, to: Output) -> None:
    to.rows(showing.MEMBERS, showing.member_lines(views.present()))


def _offsets(views: Views, to: Output) -> None:
    rows = [line for group in views.present() for line in showing.partition_lines(group, ENDS) if line.row]
    to.rows(showing.PARTITIONS, rows)


def _timeline(views: Views, to: Output) -> None:
    telling.show_timeline(answers.timeline(views, views.groups["orders"]), None, to)


def _why(views: Views, to: Output) -> None:
    telling.show_why(views, views.groups["orders"], None, to)


COMMANDS: dict[str, Callable[[Views, Output], None]] = {
    "list": _list,
    "describe": _describe("orders"),
    "describe-hostile": _describe(EVIL),
    "members": _members,
    "offsets": _offsets,
    "timeline": _timeline,
    "why": _why,
}


def printed(command: str, form: OutputFormat, *, is_terminal: bool, capsys: pytest.CaptureFixture[str]) -> str:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=300, color_system="standard", legacy_windows=False,
                      highlight=False, markup=False, emoji=False) if is_terminal else None  # fmt: skip
    to = Output(form, console)
    if is_terminal:
        to.line = lambda text="": written.write(text + "\n")  # type: ignore[method-assign]
    COMMANDS[command](story(), to)
    return written.getvalue() if is_terminal else capsys.readouterr().out


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
]


@pytest.mark.parametrize(("command", "form", "is_terminal"), FORMS)
def test_what_is_printed(
    command: str, form: OutputFormat, is_terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """S01, S09, S10, S11, S28, S29, S30, S31, S32, S34, S35, S129: as a user sees it; S12: how long."""
    file = GOLDEN / f"{command}-{form}{'-terminal' if is_terminal else ''}.txt"
    text = printed(command, form, is_terminal=is_terminal, capsys=capsys)
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_bytes(text.encode())
    assert text == file.read_bytes().decode()


def test_there_is_no_golden_file_that_nobody_compares() -> None:
    names = {f"{command}-{form}{'-terminal' if is_terminal else ''}.txt" for command, form, is_terminal in FORMS}
    assert {file.name for file in GOLDEN.iterdir()} == names


def test_each_subscribed_partition_is_shown_under_one_member(views: Views) -> None:
    """S01, S10."""
    lines = [line for line in showing.partition_lines(views.groups["orders"], ENDS) if line.row]
    assert [(line.row.topic, line.row.partition) for line in lines if line.row] == [("t", p) for p in range(4)]
    assert all(line.row.member_id == ANA for line in lines if line.row)


def test_a_member_that_owns_nothing_is_listed(views: Views) -> None:
    """S11."""
    idle = [line.idle for line in showing.partition_lines(views.groups["orders"], ENDS) if line.row is None]
    assert [member.member_id for member in idle if member] == [CY]


def test_a_timeline_has_a_line_for_each_rebalance(views: Views) -> None:
    """S12, S148, S150: three rebalances, what began each, how long each took."""
    lines = timeline_lines(answers.timeline(views, views.groups["orders"]))
    told = [(line.generation_id, line.text) for line in lines if line.event == "rebalance"]
    assert [generation for generation, _ in told] == [1, 2, 3]
    for (_, text), (cause, took) in zip(
        told, [("member joined", "3.0 s"), ("member joined", "1.2 s"), ("session expired", "1.0 s")], strict=True
    ):
        assert cause in text
        assert f"took {took} (joins {took}, plan 0 ms)" in text
        assert "led by ana" in text
    assert [line.at_ms for line in lines] == sorted(line.at_ms for line in lines)


def test_a_timeline_may_be_cut(views: Views, capsys: pytest.CaptureFixture[str]) -> None:
    since = answers.timeline(views, views.groups["orders"], NOON_MS + 60_000)
    assert [line.event for line in timeline_lines(since)] == ["member_expired", "rebalance", "assignment_changed"]
    amidst = timeline_lines(answers.timeline(views, views.groups["orders"], NOON_MS + 60_001))
    assert [line.event for line in amidst] == ["rebalance", "assignment_changed"], "it had begun by then"
    telling.show_timeline(answers.timeline(views, views.groups["orders"]), 2, Output(OutputFormat.csv))
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2


def test_a_rebalance_whose_beginning_has_expired_is_told_all_the_same(
    views: Views, capsys: pytest.CaptureFixture[str]
) -> None:
    group = views.groups["orders"]
    del group.events[:7]
    group.known_from_ms = NOON_MS + 11_200
    telling.show_timeline(answers.timeline(views, group), None, Output(OutputFormat.table))
    said = capsys.readouterr()
    assert said.out.count(" rebalance ") == 2
    assert "unknown; took 1.2 s" in said.out
    assert "The history of orders begins at 2026-09-21T12:00:11.200" in said.err


def test_why_is_three_sentences_or_one(views: Views, capsys: pytest.CaptureFixture[str]) -> None:
    """S09, S14: which kind it was, who, and the timeout to look at."""
    telling.show_why(views, views.groups["orders"], None, Output(OutputFormat.table))
    what, who, advice = capsys.readouterr().out.splitlines()
    assert "orders rebalanced at 12:01:00.000" in what
    assert "bo-2a84 at /10.0.0.1 was silent for 10.0 s" in who
    assert advice.startswith("Avoidable")
    assert "session.timeout.ms" in advice
    telling.show_why(views, views.groups["orders"], NOON_MS + 59_999, Output(OutputFormat.table))
    what, who, advice = capsys.readouterr().out.splitlines()
    assert "generation 2" in what
    assert advice.startswith("Unavoidable")
    telling.show_why(views, views.groups["orders"], NOON_MS - 1, Output(OutputFormat.table))
    telling.show_why(views, views.groups["idle"], None, Output(OutputFormat.table))
    assert capsys.readouterr().out.splitlines() == [
        "orders has not rebalanced by 2026-09-21T11:59:59.999.",
        "idle has not rebalanced.",
    ]


CAME, MOVED, FELL_SILENT, AGAIN = (f"2026-09-21T12:0{at}" for at in ("0:03.000", "0:11.200", "1:00.000", "1:01.000"))
OWNERS = [
    # when      whose t-2 was
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
    """S10."""
    telling.show_owner(views, views.groups["orders"], "t", 2, NOON_MS + after_ms, NOW_MS, Output(OutputFormat.table))
    (line,) = capsys.readouterr().out.splitlines()
    assert expected.replace("ANA", ANA).replace("BO", BO) in line
    telling.show_owner(views, views.groups["orders"], "t", 2, NOON_MS + after_ms, NOW_MS, Output(OutputFormat.json))
    told = json.loads(capsys.readouterr().out)
    assert told["is_known"] is True
    assert (told["fencing_token"] is None) == (told["owner"] is None)
    assert line.endswith(f", fencing token {told['fencing_token']}") == (told["owner"] is not None)


def test_an_owner_before_the_history_is_not_known(views: Views, capsys: pytest.CaptureFixture[str]) -> None:
    """That a partition was nobody's is known of times since the history begins."""
    group = views.groups["orders"]
    group.events[:] = [moved(9, 11_200, 2, (7, None, BO))]
    group.known_from_ms = NOON_MS + 10_000
    for after_ms in (9_999, 10_000):
        telling.show_owner(views, group, "t", 7, NOON_MS + after_ms, NOW_MS, Output(OutputFormat.table))
    before, since = capsys.readouterr().out.splitlines()
    assert f": not known: the history begins at 2026-09-21T12:00:10.000; after: {BO}, " in before
    assert f": nobody; after: {BO}, " in since


def test_an_owner_to_come_is_not_known(views: Views, capsys: pytest.CaptureFixture[str]) -> None:
    telling.show_owner(views, views.groups["orders"], "t", 2, NOW_MS + 1, NOW_MS, Output(OutputFormat.table))
    assert f": not known: that is to come; before: {ANA}, " in capsys.readouterr().out


def test_a_partition_that_nobody_ever_owned_is_not_found(views: Views) -> None:
    with pytest.raises(NotFound, match="Nobody has ever owned t-9"):
        telling.show_owner(views, views.groups["orders"], "t", 9, NOW_MS, NOW_MS, Output(OutputFormat.table))


@pytest.mark.parametrize(("text", "place"), [("t-0", ("t", 0)), ("a-b-12", ("a-b", 12)), ("--1", ("-", 1))])
def test_a_partition_is_named_as_kafka_names_it(text: str, place: tuple[str, int]) -> None:
    assert read_place(text) == place


@pytest.mark.parametrize("text", ["", "t", "t-", "-1", "t-x", "t-1.5", "t-99999999999"])
def test_what_is_no_partition_is_wrong_usage(text: str) -> None:
    with pytest.raises(BadPlace):
        read_place(text)


# -- which groups ------------------------------------------------------------------------------------------------------

WANTED: list[tuple[tuple[str, ...], bool, list[str]]] = [
    ((), False, [EVIL, "idle", "moving", "orders"]),
    (("orders",), False, ["orders"]),
    (("orders", "idle", "orders"), False, ["orders", "idle"]),
    (("o.*",), True, ["orders"]),
    (("rder|orde",), True, []),
    (("idle|moving",), True, ["idle", "moving"]),
]


@pytest.mark.parametrize(("names", "is_regex", "found"), WANTED)
def test_groups_are_named_or_matched_whole(
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


@pytest.mark.parametrize(("group_id", "said"), STATES)
def test_what_makes_a_description_incomplete_is_said(
    views: Views, group_id: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    showing.say_state(views.groups[group_id])
    assert capsys.readouterr().err.strip() == said


# -- how rows are written ----------------------------------------------------------------------------------------------

IDS = (Column("ID", lambda row: row, is_chosen=True), Column("N", lambda row: len(row or ""), is_number=True))


@pytest.mark.parametrize("chosen", ["=1+1", "+1", "-1", "@x", "\tx", "\rx"])
def test_a_spreadsheet_runs_no_id(chosen: str) -> None:
    (_, row) = csv.reader(io.StringIO(in_csv(IDS, [chosen])))
    assert row == [f"'{chosen}", str(len(chosen))]


def test_csv_is_read_back_as_it_was() -> None:
    ids = ["a,b", 'a"b', "a\nb", "größe", "", "1-2"]
    assert [row[0] for row in csv.reader(io.StringIO(in_csv(IDS, ids), newline=""))] == ["ID", *ids]
    assert in_csv((Column("N", lambda n: n, is_number=True),), [-5, None]) == 'N\r\n-5\r\n""\r\n'


def test_nothing_known_is_a_dash() -> None:
    assert in_columns((Column("A", lambda _: None), Column("B", lambda _: ""), Column("C", lambda _: 0)), [0]) == [
        "A B C",
        "- - 0",
    ]


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("form", [OutputFormat.table, OutputFormat.wide, OutputFormat.csv, OutputFormat.json])
@pytest.mark.parametrize("command", ["list", "describe-hostile", "members"])
def test_no_id_reaches_a_terminal_as_it_is(
    command: str, form: OutputFormat, is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """Nothing that a stranger chose moves the cursor, sets a title or hides text."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    is_rich = is_terminal and form in (OutputFormat.table, OutputFormat.wide)
    text = printed(command, form, is_terminal=is_rich, capsys=capsys)
    for style in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m"):
        text = text.replace(style, "")
    assert not {c for c in text if not c.isprintable()} - {"\n", "\r"}
    assert form is OutputFormat.csv or "\r" not in text
    assert "[red]" in text


def test_json_is_whole_for_programs_whatever_the_ids(capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(printed("list", OutputFormat.json, is_terminal=False, capsys=capsys))
    assert EVIL in {each["group_id"] for each in listed}
    assert in_json([EVIL, "größe"]).isascii()


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_who_cannot_be_asked_has_to_have_said_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    confirm("?", is_agreed=True, ask=lambda _: False)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(NotConfirmed, match="--yes") as error:
        confirm("Delete?", is_agreed=False, ask=lambda _: True)
    assert error.value.exit_code == Exit.USAGE
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    confirm("Delete?", is_agreed=False, ask=lambda _: True)
    with pytest.raises(NotConfirmed, match="Nothing was done"):
        confirm("Delete?", is_agreed=False, ask=lambda _: False)


NAMES = [(ANA, ANA), ("desk-1", CY), ("cy-2a84", CY), ("ana-2a84", ANA), ("who", "who")]


@pytest.mark.parametrize(("name", "member_id"), NAMES)
def test_a_member_may_be_named_in_short(views: Views, name: str, member_id: str) -> None:
    assert changing.member_id(views.groups["orders"], name) == member_id


def test_a_short_name_of_two_members_is_refused(views: Views) -> None:
    from msgspec import structs

    group = views.groups["orders"]
    assert group.record is not None
    twins = (member("x-2a84c1d0-1111-2222-3333-444455556666"), member("x-2a84c1d0-1111-2222-3333-444455557777"))
    group.record = structs.replace(group.record, members=twins)
    with pytest.raises(Ambiguous):
        changing.member_id(group, "x-2a84")


RESET = ["groups", "reset-offsets", "g"]
WRONG = [
    RESET,
    [*RESET, "--all-topics"],
    [*RESET, "--to-earliest"],
    [*RESET, "--to-earliest", "--to-latest", "--all-topics"],
    [*RESET, "--to-earliest", "--all-topics", "--topic", "t"],
    [*RESET, "--to-offset", "-1", "--all-topics"],
    [*RESET, "--from-file", "x", "--all-topics"],
    [*RESET, "--to-earliest", "--all-topics", "--uncertain"],
    [*RESET, "--as-of", "whenever", "--all-topics"],
    [*RESET, "--by-duration", "long", "--all-topics"],
    ["groups", "delete", "g"],
    ["groups", "why", "g", "--at", "whenever"],
    ["groups", "list", "-o", "yaml"],
    ["groups", "watch", "--regex", ".*", "("],
    ["groups", "delete"],
]


@pytest.mark.parametrize("typed", WRONG, ids=[" ".join(typed[1:]) for typed in WRONG])
def test_wrong_usage_ends_with_2(typed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody is asked: there is no broker at that address."""
    monkeypatch.setattr(sys, "argv", ["coordinator", *typed])
    monkeypatch.setenv("COORDINATOR_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == Exit.USAGE


def test_every_command_has_help() -> None:
    shown = CliRunner().invoke(app, ["groups", "--help"], env={"COLUMNS": "200"}).output
    for command in ("list", "describe", "members", "offsets", "timeline", "why", "owner", "watch", "reset-offsets",
                    "delete", "delete-offsets", "rebalance", "expel"):  # fmt: skip
        assert f" {command} " in shown
        assert CliRunner().invoke(app, ["groups", command, "--help"]).exit_code == 0


def test_the_story_is_read_whole() -> None:
    views = story()
    assert len(views.present()) == len({record.group_id for record in RECORDS})
    assert not views.alarms
    assert output.MISSING == "-"


def test_it_begins_without_what_it_does_not_need() -> None:
    """What reads the topics by librdkafka waits for neither kafka-python nor Spark to be imported."""
    code = "import sys, streaming.cli.showing, streaming.cli.telling; print({n.partition('.')[0] for n in sys.modules})"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'confluent_kafka'" in imported
    assert not {"'kafka'", "'pyspark'", "'pandas'", "'pyarrow'"} & set(imported.strip("{}\n").split(", "))


def test_commits_tell_their_time_where_one_looks_for_it(views: Views, capsys: pytest.CaptureFixture[str]) -> None:
    """S29."""
    showing.show_offsets([views.groups["orders"]], ENDS, Output(OutputFormat.table))
    shown = capsys.readouterr().out.splitlines()
    assert "COMMITTED-AT" in shown[0]
    assert "2026-09-21T12:0" in shown[1]


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(" * 10_000 + ")" * 10_000])
def test_what_is_no_pattern_is_wrong_usage(views: Views, pattern: str) -> None:
    with pytest.raises(BadPattern):
        Wanted((pattern,), is_regex=True).of(views)


def test_who_reads_no_further_gets_no_traceback() -> None:
    code = (
        "import streaming.cli.kafka_tool as tool; tool.run = lambda asked: print('line\\n' * 100_000);"
        "from streaming.cli.consumer_groups import main; main(['--bootstrap-server', 'x', '--list'])"
    )
    piped = subprocess.run(
        f'{sys.executable} -c "{code}" | head -1', shell=True, capture_output=True, text=True, check=False
    )
    assert (piped.stdout, piped.stderr) == ("line\n", "")


def test_kafkas_tool_shows_a_commit_beyond_the_end_as_a_negative_lag(
    views: Views, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kafka_tool, "ends_of", lambda settings, groups: dict.fromkeys(ENDS, 1))
    kafka_tool._describe_offsets(Settings(), [views.groups["orders"]], is_verbose=False)
    assert re.search(r"orders +t +0 +\d+ +1 +-\d+ ", capsys.readouterr().out)


def test_groups_may_be_named_by_patterns_before_they_are_there() -> None:
    assert Wanted().has("any")
    assert Wanted().has(None)
    assert Wanted(("a", "b")).has("b")
    assert not Wanted(("a",)).has(None)
    assert Wanted(("pay.*",), is_regex=True).has("payments")
    assert not Wanted(("pay",), is_regex=True).has("payments")


def test_most_comes_first(views: Views) -> None:
    """S29."""
    summaries = [answers.summary(group, ENDS, NOW_MS) for group in views.present()]
    ids = {order: [s.group_id for s in showing.sorted_by(order, summaries)] for order in GroupOrder}
    assert ids[GroupOrder.group] == sorted(views.groups)
    assert ids[GroupOrder.lag][:2] == ["idle", "orders"]
    assert ids[GroupOrder.members][0] == ids[GroupOrder.rebalances][0] == "orders"
