"""Tests of the history's tables: they have every field of the records, and every row fits its table."""

import json
import random
from types import UnionType
from typing import Any, get_args

import msgspec
import pyarrow as pa
import pytest

from coordinator.messages.events import AnyEvent
from coordinator.messages.group_records import GroupRecord, OffsetRecord, Published
from coordinator.messages.responses import Reply
from streaming.history.sql import queries, query
from streaming.history.tables import AT_MS, NOT_PUBLISHED, TABLES, table_of, to_row
from streaming.views import Views
from streaming.wire.records import Tombstone
from tests.streaming.observe.recordings import Replay as Recorded
from tests.streaming.views.consumers import life
from tests.streaming.views.deploy import DEPLOY, RECORD
from tests.streaming.views.recordings import Replay
from tests.streaming.views.test_views import raws
from tests.streaming.views.written import WrittenTopics, converse

ESTIMATES = {"estimate"}
"""Fields with figures that are not recorded. No query must count with them."""


def events_by_kind() -> tuple[type[Any], ...]:
    assert isinstance(AnyEvent, UnionType)
    return get_args(AnyEvent)


@pytest.mark.parametrize("kind", events_by_kind(), ids=lambda kind: kind.__name__)
def test_the_table_of_events_has_every_field_of_every_event(kind: type[Any]) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(kind)}
    assert fields - ESTIMATES <= set(TABLES["events"].names)


@pytest.mark.parametrize(("kind", "table"), [(GroupRecord, "groups"), (OffsetRecord, "offsets")])
def test_the_other_tables_have_every_field_of_their_records(kind: type[Any], table: str) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(kind)}
    assert fields | NOT_PUBLISHED == set(TABLES[table].names)


ONLY_OF_CONSUMERS = ("rack_id", "member_epoch", "state", "subscribed_topics", "regex", "revoking", "target", "protocol")
"""The columns of a member that only members of the consumer protocol have."""


def test_rows_fit_the_schemas_of_their_tables() -> None:
    """Every record that a shard publishes keeps each value and its type."""
    world, views = WrittenTopics(["a", "b"]), Views()
    converse(world, random.Random(3), 60)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for record in raws(world):
        taken = views.fold(record, 0)
        if taken is not None and not isinstance(taken, Tombstone):
            rows[table_of(taken)].append(to_row(taken, "p"))
    for name, each in rows.items():
        assert each
        read = pa.Table.from_pylist(each, schema=TABLES[name]).to_pylist()
        for row, back in zip(each, read, strict=True):
            assert round(back.pop("at").timestamp() * 1_000) == row[AT_MS[name]]
            for member in back["members"] if name == "groups" else ():
                for column in (*ONLY_OF_CONSUMERS, "standing", "work", "server_assignor", "streams"):
                    assert member.pop(column) is None
            assert _present(back) == _present({column: value for column, value in row.items() if column != "at"})


def test_the_work_of_a_worker_of_kafka_connect_has_a_column() -> None:
    record = Replay("connect").until(72_000).record
    assert record is not None
    (back,) = pa.Table.from_pylist([to_row(record, "p")], schema=TABLES["groups"]).to_pylist()
    first, second = (member["work"] for member in back["members"])
    assert (first["connectors"], dict(first["tasks"])) == (["orders-source"], {"orders-source": [0, 1]})
    assert dict(second["tasks"]) == {"orders-source": [2], "refunds-source": [0]}


def test_rows_of_a_consumer_group_fit_the_schemas() -> None:
    """The tables have its epochs, and the assignment, the target and the subscription of each member."""
    views, rows = Views(), list[dict[str, Any]]()
    for record in raws(life()):
        taken = views.fold(record, 0)
        if isinstance(taken, GroupRecord):
            rows.append(to_row(taken, "p"))
    read = pa.Table.from_pylist(rows, schema=TABLES["groups"]).to_pylist(maps_as_pydicts="strict")
    revoking = next(row for row in read if any(member["revoking"] for member in row["members"]))
    assert (revoking["type"], revoking["generation_id"], revoking["assignment_epoch"]) == ("consumer", 3, 3)
    ana, bo = revoking["members"]
    assert (ana["assigned"], ana["revoking"], ana["target"]) == ({"T": [0, 1]}, {"T": [2, 3]}, {"T": [0, 1]})
    assert (ana["member_epoch"], ana["state"], bo["member_epoch"], bo["state"]) == (2, "unrevoked", 3, "unreleased")
    assert {tuple(member["subscribed_topics"]) for member in revoking["members"]} == {("T",)}


def test_rows_of_a_group_under_policies_fit_the_schemas() -> None:
    """The tables have vacant seats, their takers and the standing of members."""
    (row,) = pa.Table.from_pylist([to_row(RECORD, "p")], schema=TABLES["groups"]).to_pylist()
    assert (row["hold"]["vacant"], [member["standing"] for member in row["members"]]) == (
        1, [None, "quarantined", "standing_by"],
    )  # fmt: skip
    rows = pa.Table.from_pylist([to_row(event, "p") for event in DEPLOY], schema=TABLES["events"]).to_pylist()
    seats = [(r["policy"], r["how"], json.loads(r["partitions"])) for r in rows if r["event"].startswith("seat_")]
    assert seats[:2] == [("succession", None, {"t": [1]}), (None, "took", {"t": [1]})]


def _present(row: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a row that are not null, with lists for tuples."""
    return {column: value for column, value in json.loads(json.dumps(row)).items() if value is not None}


def test_the_queries_of_the_product_exist() -> None:
    assert queries() == [
        "flapping_members", "rebalances_by_cause", "restarts_and_what_they_cost", "time_without_owner",
        "waits_for_members",
    ]  # fmt: skip
    assert all(query(name).startswith("--") for name in queries())


@pytest.mark.parametrize("recording", ["streams", "share"])
def test_rows_of_recorded_groups_of_kafka_fit_their_tables(recording: str) -> None:
    """Tasks, a topology, settings that changed, and the partitions whose share state is being made."""
    replay, rows = Recorded.until(recording, 6), dict[str, list[dict[str, Any]]]()
    assert isinstance(replay.group.record, GroupRecord)
    for output in replay.outputs:
        record = output.record if isinstance(output, Published) else output
        if record is not None and not isinstance(record, Reply):
            rows.setdefault(table_of(record), []).append(to_row(record, "p"))
    for name, each in rows.items():
        read = pa.Table.from_pylist(each, schema=TABLES[name]).to_pylist(maps_as_pydicts="strict")
        for row, back in zip(each, read, strict=True):
            assert {name for name, value in back.items() if value is not None} <= row.keys() | {"at"}
        if name == "groups" and recording == "streams":
            last = read[-1]
            assert last["topology"]["subtopologies"]["0"]["sources"] == ["lines"]
            assert last["members"][0]["streams"]["assigned"]["active"] == {"0": [0, 1, 2], "1": [0, 1, 2]}
        if name == "events" and recording == "streams":
            assert {"num.standby.replicas": ["0", "1"]} in [row["configs"] for row in read]
