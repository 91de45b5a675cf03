"""Tests of numbers outside every calendar, in every field that is a time or an offset: each output shows them."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs
from prometheus_client import CollectorRegistry, generate_latest

import streaming.dashboard
from streaming.cli.admin import checkpoint
from streaming.cli.groups import history, show
from streaming.cli.lib.lines import MEMBERS, PARTITIONS, member_lines, partition_lines
from streaming.cli.lib.output import Output, OutputFormat
from streaming.cli.lib.times import instant, moment
from streaming.history.tables import TABLES, table_of, to_row
from streaming.moments import AT_MS_MAX, AT_MS_MIN
from streaming.query.checkpoint.inspection import Contents, KeptGroup, KeptShard
from streaming.views import Raw, Views
from streaming.views.api import answers
from streaming.views.metrics.metrics import GroupFigures
from streaming.views.sentences.records import to_line
from streaming.views.text import clock
from streaming.wire.records import to_row as to_record
from tests.streaming.views.golden_views import ENDS, HISTORY, NOON_MS, RECORDS, TOPICS, _raw
from tests.system.waiting import HANG_S
from tests.tools import needs

HOSTILE = [2**61, 2**63 - 1, -(2**63), -1, AT_MS_MAX + 1, AT_MS_MIN - 1]
EVERY = [*HISTORY, *RECORDS]


def numbers_of(record: Any) -> list[str]:
    """Return the names of the fields of a record that are times, durations or offsets."""
    names = type(record).__struct_fields__
    return [name for name in names if name.endswith("_ms") or name == "offset"]


@pytest.fixture(params=HOSTILE, ids=str)
def number(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=sorted({name for record in EVERY for name in numbers_of(record)}))
def views(request: pytest.FixtureRequest, number: int) -> Views:
    """Return the example views with one field of all records replaced."""
    views = Views()
    for place, event in enumerate(_replaced(HISTORY, request.param, number)):
        row = to_record(event, TOPICS, 0)
        views.fold(Raw("events", 0, place, NOON_MS, row.key, row.value), 0)
    for place, record in enumerate(_replaced(RECORDS, request.param, number)):
        views.fold(_raw(place, record), 0)
    return views


def _replaced(records: list[Any], name: str, number: int) -> Iterator[Any]:
    for record in records:
        yield structs.replace(record, **{name: number}) if name in numbers_of(record) else record


def test_every_command_prints_hostile_numbers_in_every_format(views: Views, capsys: pytest.CaptureFixture[str]) -> None:
    for form in OutputFormat:
        to, group = Output(form), views.groups["orders"]
        show.show_groups([answers.summary(g, ENDS, NOON_MS) for g in views.present()], to)
        for each in views.present():
            show.show_group(each, ENDS, NOON_MS, to)
        to.rows(MEMBERS, member_lines(views.present()))
        show.show_offsets(views.present(), ENDS, to)
        history.show_timeline(answers.timeline(views, group), None, to)
        history.show_why(views, group, None, to)
        assert capsys.readouterr().out


def test_a_number_outside_every_calendar_is_printed_as_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    """The example is a commit with a retention of 2**61 ms."""
    views = Views()
    for place, record in enumerate(_replaced(RECORDS, "expire_timestamp_ms", 2**61)):
        views.fold(_raw(place, record), 0)
    for form in (OutputFormat.wide, OutputFormat.csv):
        Output(form).rows(PARTITIONS, partition_lines(views.groups["idle"], ENDS))
        assert str(2**61) in capsys.readouterr().out


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=23, minutes=59)), timezone(-timedelta(hours=23)), None])
def test_a_time_is_written_in_every_zone(number: int, zone: Any) -> None:
    has_year = AT_MS_MIN <= number <= AT_MS_MAX
    for written in (moment(number, zone), instant(number, zone)):
        assert (written != str(number)) == has_year
    for edge in (AT_MS_MIN, AT_MS_MAX):
        assert "T" in str(moment(edge, zone))
    assert (clock(number) != str(number)) == has_year


def test_watch_prints_hostile_numbers(number: int) -> None:
    for record in EVERY:
        for name in numbers_of(record):
            line = to_line(structs.replace(record, **{name: number}), number)
            assert line.text is not None
            assert clock(line.at_ms)


def test_metrics_are_written_with_hostile_numbers(views: Views) -> None:
    views.is_live = True
    registry = CollectorRegistry()
    registry.register(GroupFigures(lambda: nullcontext((views, ENDS)), groups_max=10, of_partitions=True))
    assert b"groupcoord_" in generate_latest(registry)


def test_tables_keep_every_number(number: int, tmp_path: Path) -> None:
    """A Parquet file keeps the number; some readers cannot show it as a time, and none of them fails."""
    for record in EVERY:
        for name in numbers_of(record):
            row = to_row(structs.replace(record, **{name: number}), "p")
            table = pa.Table.from_pylist([row], schema=TABLES[table_of(record)])
            pq.write_table(table, file := tmp_path / "t.parquet")
            assert pq.read_table(file, columns=[name]).to_pylist() == [{name: number}]


def test_hostile_deadlines_of_a_checkpoint_are_printed(number: int) -> None:
    group = KeptGroup("g", "Empty", 1, 1, 0, 1, number, "offsets")
    shard = KeptShard(shard=0, codec_version=4, size_bytes=1, forgotten=0, alarm_ms=number, groups=[group])
    contents = Contents("c", {}, 1, 1, "hdfs", 1, planned=1, finished=1, planned_at_ms=number, shards=[shard])
    assert list(checkpoint._lines_of(contents))
    assert json.loads(checkpoint._json(contents))["planned_at_ms"] == number
    assert msgspec.json.encode(contents)


@needs("node")
def test_the_page_shows_hostile_times(number: int) -> None:
    words = Path(streaming.dashboard.__file__).parent / "static" / "words.js"
    program = f"""
        import {{iso, clock, dayAndClock}} from {json.dumps(words.as_uri())};
        const ms = Number("{number}");
        console.log(JSON.stringify([iso(ms), clock(ms), dayAndClock(ms, true)]));
    """
    command = ["node", "--input-type=module", "-e", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=True)
    for written in json.loads(done.stdout):
        assert "NaN" not in written
        assert "Invalid" not in written
