"""What the commands show of groups whose members are no plain consumers: Kafka Connect and Kafka Streams."""

import io
from argparse import Namespace
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest

from streaming.cli import kafka_tool
from streaming.cli.lines import MEMBERS, PARTITIONS, member_lines, partition_lines
from streaming.cli.output import Output, OutputFormat
from streaming.cli.showing import show_group
from streaming.errors import Exit
from streaming.views import Views
from tests.streaming.views.recordings import Replay

NOT_OF_CONSUMERS = "java.lang.IllegalArgumentException: GroupId connectors is not a consumer group (connect)."
FAILED = "Executing consumer group command failed due to"
ASKED = {
    "bootstrap_server": "h:1", "command_config": None, "topic_prefix": None, "group": ["connectors"],
    "all_groups": False, "members": False, "state": None, "type": None, "verbose": False, "offsets": False,
}  # fmt: skip


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Views:
    """The views of two workers, each with some connectors and tasks."""
    replay = Replay("connect")
    replay.until(72_000)
    monkeypatch.setattr(kafka_tool, "folded", lambda *_, **__: replay.views)
    return replay.views


def table(write: Callable[[Output], object]) -> list[str]:
    with redirect_stdout(io.StringIO()) as to:
        write(Output(OutputFormat.table))
    return to.getvalue().splitlines()


@pytest.mark.parametrize("what", [{}, {"members": True}, {"state": ""}, {"offsets": True}])
def test_a_group_of_workers_is_no_consumer_group(
    connect: Views, capsys: pytest.CaptureFixture[str], what: dict[str, object]
) -> None:
    """Kafka's tool of 4.3.1 and 4.4.0 prints this error, and exits with 0."""
    code = kafka_tool.run(Namespace(**{**ASKED, **what, "action": "describe"}))
    assert (capsys.readouterr().out, code) == (f"\nError: {FAILED} {NOT_OF_CONSUMERS}\n", Exit.DONE)


def test_offsets_of_workers_are_not_reset(connect: Views, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {**ASKED, "action": "reset_offsets", "dry_run": True, "execute": False, "export": False}
    code = kafka_tool.run(Namespace(**asked, topic=["t"], scenario="to_earliest", to_earliest=True))
    said = f"\nError: {FAILED} java.util.concurrent.ExecutionException: {NOT_OF_CONSUMERS}\n"
    assert (capsys.readouterr().out, code) == (said, Exit.DONE)


def test_all_groups_are_those_of_consumers(connect: Views, capsys: pytest.CaptureFixture[str]) -> None:
    for action in "describe", "list":
        assert kafka_tool.run(Namespace(**{**ASKED, "action": action, "group": None, "all_groups": True})) == Exit.DONE
    assert capsys.readouterr().out == ""


def test_members_show_connectors_and_tasks(connect: Views) -> None:
    lines = table(lambda to: to.rows(MEMBERS, member_lines([connect.groups["connectors"]])))
    begin = lines[0].index("CONNECTORS")
    assert [" ".join(line[begin:].split()) for line in lines] == [
        "CONNECTORS TASKS",
        "orders-source orders-source 0-1",
        "refunds-source orders-source 2, refunds-source 0",
    ]


def test_a_description_shows_connectors_and_tasks(connect: Views) -> None:
    lines = table(lambda to: to.rows(PARTITIONS, partition_lines(connect.groups["connectors"], {})))
    assert ["orders-source" in line for line in lines] == [False, True, True]
    assert "CONNECTORS" in lines[0]
    facts = table(lambda to: show_group(connect.groups["connectors"], {}, 0, to))
    assert not any("FLAPPING" in line for line in facts)


def test_members_show_the_tasks_of_kafka_streams() -> None:
    replay = Replay("streams")
    lines = table(lambda to: to.rows(MEMBERS, member_lines([replay.until(90_000)])))
    assert "TASKS" in lines[0]
    assert "STANDBY-TASKS" in lines[0]
    assert "CONNECTORS" not in lines[0]
    assert "0_1, 0_3, 1_1, 1_3" in lines[1]
    assert "1_0, 1_2" in lines[1]
