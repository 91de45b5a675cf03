"""What the commands show of groups whose members are no plain consumers: Kafka Connect and Kafka Streams."""

import io
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest

from streaming.cli.groups.show import show_group
from streaming.cli.lib.lines import MEMBERS, PARTITIONS, member_lines, partition_lines
from streaming.cli.lib.output import Output, OutputFormat
from streaming.views import Views
from tests.streaming.views.recordings import Replay


@pytest.fixture
def connect() -> Views:
    """The views of two workers, each with some connectors and tasks."""
    replay = Replay("connect")
    replay.until(72_000)
    return replay.views


def table(write: Callable[[Output], object]) -> list[str]:
    with redirect_stdout(io.StringIO()) as to:
        write(Output(OutputFormat.table))
    return to.getvalue().splitlines()


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
