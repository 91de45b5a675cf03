"""Tests of the rows that the group commands write, and of their errors."""

import csv
import io
import json
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator.messages.requests import RebalanceGroup
from coordinator.messages.responses import RebalanceGroupAnswer, Reply
from streaming.cli.groups import change, show
from streaming.cli.groups.change import Ambiguous
from streaming.cli.groups.show import BadPattern, Wanted
from streaming.cli.lib import output
from streaming.cli.lib.options import GroupOrder, NotConfirmed, confirm
from streaming.cli.lib.output import Column, Output, OutputFormat, in_columns, in_csv, in_json
from streaming.cli.main import app, main
from streaming.config.settings import Settings
from streaming.errors import Exit
from streaming.views import Views
from streaming.views.api import answers
from tests.streaming.cli.test_groups import NOW_MS, printed
from tests.streaming.views.consumers import ConsumerTopics
from tests.streaming.views.golden_views import ANA, CY, ENDS, EVIL, RECORDS, example_views, member

# -- rows --------------------------------------------------------------------------------------------------------------

IDS = (Column("ID", lambda row: row, is_chosen=True), Column("N", lambda row: len(row or ""), is_number=True))


@pytest.mark.parametrize("chosen", ["=1+1", "+1", "-1", "@x", "\tx", "\rx"])
def test_an_id_is_not_a_formula_in_csv(chosen: str) -> None:
    (_, row) = csv.reader(io.StringIO(in_csv(IDS, [chosen])))
    assert row == [f"'{chosen}", str(len(chosen))]


def test_csv_is_read_back_unchanged() -> None:
    ids = ["a,b", 'a"b', "a\nb", "größe", "", "1-2"]
    assert [row[0] for row in csv.reader(io.StringIO(in_csv(IDS, ids), newline=""))] == ["ID", *ids]
    assert in_csv((Column("N", lambda n: n, is_number=True),), [-5, None]) == 'N\r\n-5\r\n""\r\n'


def test_an_unknown_value_is_printed_as_a_dash() -> None:
    assert in_columns((Column("A", lambda _: None), Column("B", lambda _: ""), Column("C", lambda _: 0)), [0]) == [
        "A B C",
        "- - 0",
    ]


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("form", [OutputFormat.table, OutputFormat.wide, OutputFormat.csv, OutputFormat.json])
@pytest.mark.parametrize("command", ["list", "describe-hostile", "members"])
def test_an_id_is_escaped_on_a_terminal(
    command: str, form: OutputFormat, is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """Text that a stranger chose cannot move the cursor, set a title or hide text."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    is_rich = is_terminal and form in (OutputFormat.table, OutputFormat.wide)
    text = printed(command, form, is_terminal=is_rich, capsys=capsys)
    for style in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m"):
        text = text.replace(style, "")
    assert not {c for c in text if not c.isprintable()} - {"\n", "\r"}
    assert form is OutputFormat.csv or "\r" not in text
    assert "[red]" in text


def test_json_keeps_every_id_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(printed("list", OutputFormat.json, is_terminal=False, capsys=capsys))
    assert EVIL in {each["group_id"] for each in listed}
    assert in_json([EVIL, "größe"]).isascii()


# -- errors ------------------------------------------------------------------------------------------------------------


def test_without_a_terminal_a_change_needs_the_option_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    confirm("?", is_agreed=True, ask=lambda _: False)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(NotConfirmed, match="--yes") as error:
        confirm("Delete?", is_agreed=False, ask=lambda _: True)
    assert error.value.exit_code == Exit.USAGE
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    confirm("Delete?", is_agreed=False, ask=lambda _: True)
    with pytest.raises(NotConfirmed, match="Nothing was changed"):
        confirm("Delete?", is_agreed=False, ask=lambda _: False)


NAMES = [(ANA, ANA), ("desk-1", CY), ("cy-2a84", CY), ("ana-2a84", ANA), ("who", "who")]


@pytest.mark.parametrize(("name", "member_id"), NAMES)
def test_a_member_can_be_named_by_a_short_name(views: Views, name: str, member_id: str) -> None:
    assert change.member_id(views.groups["orders"], name) == member_id


def test_a_short_name_of_two_members_is_refused(views: Views) -> None:
    from msgspec import structs

    group = views.groups["orders"]
    assert group.record is not None
    twins = (member("x-2a84c1d0-1111-2222-3333-444455556666"), member("x-2a84c1d0-1111-2222-3333-444455557777"))
    group.record = structs.replace(group.record, members=twins)
    with pytest.raises(Ambiguous):
        change.member_id(group, "x-2a84")


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
def test_wrong_usage_exits_with_status_2(typed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong usage is reported before any connection: no broker listens at the address."""
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


def test_all_example_records_are_read() -> None:
    views = example_views()
    assert len(views.present()) == len({record.group_id for record in RECORDS})
    assert not views.alarms
    assert output.MISSING == "-"


def test_group_commands_import_neither_kafka_python_nor_spark() -> None:
    """Commands that read topics with librdkafka import neither kafka-python nor Spark."""
    modules = "streaming.cli.groups.show, streaming.cli.groups.history"
    code = f"import sys, {modules}; print({{n.partition('.')[0] for n in sys.modules}})"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'confluent_kafka'" in imported
    assert not {"'kafka'", "'pyspark'", "'pandas'", "'pyarrow'"} & set(imported.strip("{}\n").split(", "))


def test_the_table_of_offsets_has_the_commit_times(views: Views, capsys: pytest.CaptureFixture[str]) -> None:
    """S29: the table has the column COMMITTED-AT."""
    show.show_offsets([views.groups["orders"]], ENDS, Output(OutputFormat.table))
    shown = capsys.readouterr().out.splitlines()
    assert "COMMITTED-AT" in shown[0]
    assert "2026-09-21T12:0" in shown[1]


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(" * 10_000 + ")" * 10_000])
def test_a_text_that_is_not_a_pattern_is_wrong_usage(views: Views, pattern: str) -> None:
    with pytest.raises(BadPattern):
        Wanted((pattern,), is_regex=True).of(views)


def test_a_closed_pipe_gives_no_traceback() -> None:
    code = (
        "import sys, streaming.cli.groups.show as showing; showing.list_groups = lambda *_: print('line\\n' * 100_000);"
        "from streaming.cli.main import main; sys.argv = ['coordinator', 'groups', 'list']; main()"
    )
    piped = subprocess.run(
        f'{sys.executable} -c "{code}" | head -1', shell=True, capture_output=True, text=True, check=False
    )
    assert (piped.stdout, piped.stderr) == ("line\n", "")


class Answering:
    """The administration of a coordinator that has raised a group's epoch."""

    def __init__(self, settings: Settings) -> None:
        pass

    def __enter__(self) -> "Answering":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def rebalance(self, group_id: str, reason: str | None) -> RebalanceGroupAnswer:
        world = ConsumerTopics(T=2)
        world.join("ana", "T")
        world.now_ms += 10
        world.ask(RebalanceGroup, "g", reason=reason)
        answers = (each.answer for each in world.batch() if isinstance(each, Reply))
        return next(answer for answer in answers if isinstance(answer, RebalanceGroupAnswer))


def test_a_rebalance_of_a_consumer_group_tells_its_epoch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real shard answers the request: the group epoch has grown, and the plan comes within the second."""
    monkeypatch.setattr(change, "Administration", Answering)
    change.rebalance(Settings(), "g", "a drill", Output(OutputFormat.table))
    assert capsys.readouterr().out == "g is Assigning, group epoch 3.\n"


def test_patterns_match_groups_that_do_not_exist_yet() -> None:
    assert Wanted().has("any")
    assert Wanted().has(None)
    assert Wanted(("a", "b")).has("b")
    assert not Wanted(("a",)).has(None)
    assert Wanted(("pay.*",), is_regex=True).has("payments")
    assert not Wanted(("pay",), is_regex=True).has("payments")


def test_groups_are_sorted_with_the_highest_number_first(views: Views) -> None:
    """S29: groups are sorted by lag, members or rebalances, the highest first."""
    summaries = [answers.summary(group, ENDS, NOW_MS) for group in views.present()]
    ids = {order: [s.group_id for s in show.sorted_by(order, summaries)] for order in GroupOrder}
    assert ids[GroupOrder.group] == sorted(views.groups)
    assert ids[GroupOrder.lag][:2] == ["idle", "orders"]
    assert ids[GroupOrder.members][0] == ids[GroupOrder.rebalances][0] == "orders"
