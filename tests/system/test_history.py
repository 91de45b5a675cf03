"""The history as tables: the product's queries agree with the views, both on the topics and on exported files."""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from coordinator.base.consumer_protocol import Subscription, write_assignment, write_subscription
from coordinator.messages.requests import ExpelMember, LeaveGroup, Leaving, Protocol
from streaming.cli.main import app
from streaming.history.export import export
from streaming.history.sql import query, register, register_files
from streaming.history.tables import TABLES, to_row
from streaming.query.coordinator import Coordinator
from streaming.views import GroupView
from streaming.views.api.view_reader import ViewReader
from streaming.views.history.instability import unstable_clients
from streaming.views.history.owners import Span, spans_of_owners
from streaming.views.history.rebalances import rebalances
from tests.streaming.views.consumers import GIVES_UP_AFTER_MS, ConsumerTopics, converse_consumers, life
from tests.streaming.views.deploy import RECORD, deploy_views
from tests.streaming.views.test_views import folded, raws
from tests.streaming.views.test_waits import expired
from tests.streaming.views.written import WrittenTopics, converse
from tests.system.asking import Asker

pytestmark = pytest.mark.long

CONSUMER: dict[str, Any] = {
    "protocol_type": "consumer",
    "protocols": (Protocol("range", write_subscription(Subscription(("work",)))),),
}


def without_owner_ms(spans: list[Span]) -> int:
    """Return the total time in ms that a partition was without an owner between two owners."""
    return sum(
        max(0, (after.from_ms or 0) - before.to_ms) for before, after in pairwise(spans) if before.to_ms is not None
    )


@pytest.fixture
def lived(asker: Asker, coordinator: Coordinator) -> GroupView:
    """Return the view of a group whose only member was expelled and that another member joined later."""
    for client_id in ("ana", "bo"):
        fields = {**CONSUMER, "client_id": client_id}
        member_id = asker.new_id(**fields)
        joined = asker.ask(asker.joining(member_id, **fields))
        plan = {member_id: write_assignment({"work": [0, 1]})}
        assert asker.ask(asker.syncing(joined.generation_id, member_id, plan)).error == "NONE"
        asker.commit(joined.generation_id, member_id, 7, "work")
        if client_id == "ana":
            assert asker.administer(ExpelMember, member_id=member_id).error == "NONE"
    with ViewReader(coordinator.settings, groups=[asker.group_id]) as reading:
        return reading.catch_up().groups[asker.group_id]


def rows(spark: SparkSession, name: str, group_id: str) -> list[dict[str, Any]]:
    """Run a query of the product without its limit, and return the rows of one group."""
    asked = spark.sql(query(name).replace("LIMIT 20", ""))
    return [row.asDict() for row in asked.collect() if row["group_id"] == group_id]


def test_an_export_reports_its_progress_up_to_the_total(
    lived: GroupView, coordinator: Coordinator, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    export(coordinator.settings, tmp_path, [lived.group_id], lambda read, of: told.append((read, of)))
    read, of = told[-1]
    assert read == of > len(lived.events)
    assert {of for _, of in told} == {of}


@pytest.mark.nightly
def test_queries_agree_with_the_views(lived: GroupView, coordinator: Coordinator, tmp_path: Path) -> None:
    """S12, S14: rebalances by cause, time without an owner and flapping members agree, on the topics and on files."""
    spark = SparkSession.builder.getOrCreate()
    settings = coordinator.settings
    told = CliRunner().invoke(app, ["export", "-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix,
                                    "--output", str(tmp_path / "out")])  # fmt: skip
    assert told.exit_code == 0, told.output
    waits = {place: without_owner_ms(spans) for place, spans in spans_of_owners(lived).items()}
    assert all(wait_ms > 0 for wait_ms in waits.values())
    causes = [rebalance.cause for rebalance in rebalances(lived.events)]
    flappers = [(f.client_id, f.rebalances, f.dropped) for f in unstable_clients(lived, 0)]
    for make in (lambda: register(spark, settings), lambda: register_files(spark, tmp_path / "out")):
        make()
        by_cause = rows(spark, "rebalances_by_cause", lived.group_id)
        assert sum(row["rebalances"] for row in by_cause) == len(causes)
        assert {row["cause"] for row in by_cause} == set(causes)
        told_waits = rows(spark, "time_without_owner", lived.group_id)
        assert {(r["topic"], r["partition"]): r["without_owner_ms"] for r in told_waits} == waits
        told_flappers = rows(spark, "flapping_members", lived.group_id)
        assert [(r["client_id"], r["rebalances"], r["dropped"]) for r in told_flappers] == flappers
        (offset,) = spark.sql("SELECT * FROM offsets WHERE topic = 'work' ORDER BY at DESC LIMIT 1").collect()
        assert (offset["group_id"], offset["partition"], offset["offset"]) == (lived.group_id, 0, 7)
        states = spark.sql("SELECT state, members FROM groups").where(f"group_id = '{lived.group_id}'").collect()
        assert {row["state"] for row in states} >= {"Stable", "Empty"}
        (member,) = next(row["members"] for row in states if row["state"] == "Stable")
        assert member["assigned"] == {"work": [0, 1]}


def restarted_and_dropped(world: WrittenTopics, group_id: str) -> None:
    """Restart a static member twice, let its session expire, and start it again."""
    for wait_ms in (1_000, 1_000, 9_000, 0):
        world.join(group_id, group_instance_id="desk")
        answer = next(o.answer for o in world.batch() if hasattr(getattr(o, "answer", None), "leader"))
        world.sync(group_id, answer.generation_id, answer.member_id, {answer.member_id: [0, 1]})
        world.batch()
        world.now_ms += wait_ms


def left_before_the_plan(world: WrittenTopics, group_id: str) -> None:
    """Add three members, and remove one before the leader's assignments: the rebalance gets a second reason."""
    for client_id in ("ana", "bo", "cy"):
        world.join(group_id, client_id=client_id)
    answers = [o.answer for o in world.batch() if hasattr(getattr(o, "answer", None), "leader")]
    world.ask(LeaveGroup, group_id, members=(Leaving(answers[-1].member_id),))
    world.batch()


@pytest.mark.nightly
def test_queries_agree_with_the_views_of_consumer_groups(tmp_path: Path) -> None:
    """A life with a revocation, a mixed member and an expiry; a static member that is back; a random group; and a
    member that expires while another one waits for its partitions.
    """
    world, static, chance = life(), ConsumerTopics("static", T=2), random.Random(7)
    for name in ("one", "two"):
        static.join(name, "T", group_instance_id="desk")
        static.leave(name, -2, group_instance_id="desk")
        static.now_ms += 2_000
    crowd = ConsumerTopics("crowd", T=4, U=2)
    converse_consumers(crowd, chance, 60)
    worlds = [world, static, crowd, expired("dead")]
    groups = [group for each in worlds for group in folded(raws(each)).groups.values()]
    events = [to_row(event, "p") for group in groups for event in group.events]
    rows = {
        "events": events,
        "groups": [to_row(record, "p") for each in worlds for record in each.records],
        "offsets": [],
    }
    for name, schema in TABLES.items():
        pq.write_table(pa.Table.from_pylist(rows[name], schema=schema), tmp_path / f"{name}.parquet")
    spark = SparkSession.builder.getOrCreate()
    register_files(spark, tmp_path)

    asked = spark.sql(query("time_without_owner")).collect()
    waits = {(r["group_id"], r["topic"], r["partition"]): r["without_owner_ms"] for r in asked}
    told = {
        (g.group_id, *place): without_owner_ms(spans) for g in groups for place, spans in spans_of_owners(g).items()
    }
    assert {place: wait_ms for place, wait_ms in told.items() if wait_ms} == {p: ms for p, ms in waits.items() if ms}
    assert waits["g", "T", 2] == 100 + 3_200

    by_member = [
        (row["group_id"], row["member_id"], row["partitions"], row["longest_wait_ms"])
        for row in spark.sql(query("waits_for_members")).collect()
        if row["group_id"] in ("g", "dead")
    ]
    assert by_member == [("dead", "ana", 2, 43_000), ("g", "ana", 2, GIVES_UP_AFTER_MS), ("g", "bo", 1, 600)]


def test_queries_agree_with_the_views_of_a_group_under_policies(tmp_path: Path) -> None:
    """policies.md 3.4: a seat that passes on changes the owner; departures and their costs are counted by day."""
    group = deploy_views().groups["deploy"]
    rows: dict[str, list[Any]] = {
        "events": [to_row(event, "p") for event in group.events],
        "groups": [to_row(RECORD, "p")],
        "offsets": [],
    }
    for name, schema in TABLES.items():
        pq.write_table(pa.Table.from_pylist(rows[name], schema=schema), tmp_path / f"{name}.parquet")
    spark = SparkSession.builder.getOrCreate()
    register_files(spark, tmp_path)

    asked = spark.sql(query("time_without_owner")).collect()
    waits = {(row["topic"], row["partition"]): row["without_owner_ms"] for row in asked}
    assert waits == {place: without_owner_ms(spans) for place, spans in spans_of_owners(group).items()}
    assert waits == {("t", 0): 300, ("t", 1): 4_000, ("t", 2): 60_100}

    (cost,) = spark.sql(query("restarts_and_what_they_cost")).collect()
    assert {name: value for name, value in cost.asDict().items() if name != "day"} == {
        "group_id": "deploy", "coordinator": "p", "departures": 4, "rebalances": 1, "seats_vacated": 4,
        "seats_passed_on": 2, "seats_adopted": 1, "longest_without_owner_ms": 60_100,
        "partition_seconds_without_owner": 64.4,
    }  # fmt: skip
    flappers = {
        (row["client_id"], row["seats"], row["quarantines"]) for row in spark.sql(query("flapping_members")).collect()
    }
    assert flappers == {("c", 1, 0), ("d", 1, 0), ("f", 0, 1)}
    assert [row["held"] for row in spark.sql(query("rebalances_by_cause")).collect()] == [0]


@pytest.mark.nightly
def test_queries_agree_with_the_views_on_any_history(coordinator: Coordinator, tmp_path: Path) -> None:
    """S12, S14: the history has a replaced, expired static member, a rebalance with two reasons and random groups."""
    world = WrittenTopics(["a", "b"])
    restarted_and_dropped(world, "desk")
    left_before_the_plan(world, "crowd")
    converse(world, random.Random(5), 60)
    groups = folded(raws(world)).groups.values()
    events = [to_row(event, "p") for group in groups for event in group.events]
    for name, schema in TABLES.items():
        table = pa.Table.from_pylist(events if name == "events" else [], schema=schema)
        pq.write_table(table, tmp_path / f"{name}.parquet")
    spark = SparkSession.builder.getOrCreate()
    register_files(spark, tmp_path)

    causes: Counter[tuple[str, str]] = Counter()
    for row in spark.sql(query("rebalances_by_cause")).collect():
        causes[row["group_id"], row["cause"]] += row["rebalances"]
    assert causes == Counter((group.group_id, each.cause) for group in groups for each in rebalances(group.events))
    assert sum(causes[key] for key in causes if key[0] == "crowd") == 1

    asked = spark.sql(query("time_without_owner")).collect()
    waits = {(row["group_id"], row["topic"], row["partition"]): row["without_owner_ms"] for row in asked}
    told = {
        (group.group_id, *place): without_owner_ms(spans)
        for group in groups
        for place, spans in spans_of_owners(group).items()
    }
    assert {place: wait_ms for place, wait_ms in told.items() if wait_ms} == {p: ms for p, ms in waits.items() if ms}
    assert waits["desk", "t", 0] > 0
