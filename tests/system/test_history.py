"""The history as tables: the product's queries, over the topics and over exported files, agree with the views."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from coordinator.consumer_protocol import Subscription, write_assignment, write_subscription
from coordinator.outputs import RebalanceStarted
from coordinator.requests import ExpelMember, Protocol
from streaming.cli.main import app
from streaming.history.sql import query, register, register_files
from streaming.query import Coordinator
from streaming.views import GroupView
from streaming.views.owners import spans_of_owners, without_owner_ms
from streaming.views.reading import Reading
from streaming.views.why import flapping
from tests.system.asking import Asker

CONSUMER: dict[str, Any] = {
    "protocol_type": "consumer",
    "protocols": (Protocol("range", write_subscription(Subscription(("work",)))),),
}


@pytest.fixture
def lived(asker: Asker, coordinator: Coordinator) -> GroupView:
    """A group whose only member was sent away, and which another one joined later."""
    for client_id in ("ana", "bo"):
        fields = {**CONSUMER, "client_id": client_id}
        member_id = asker.new_id(**fields)
        joined = asker.ask(asker.joining(member_id, **fields))
        plan = {member_id: write_assignment({"work": [0, 1]})}
        assert asker.ask(asker.syncing(joined.generation_id, member_id, plan)).error == "NONE"
        asker.commit(joined.generation_id, member_id, 7, "work")
        if client_id == "ana":
            assert asker.administer(ExpelMember, member_id=member_id).error == "NONE"
    with Reading(coordinator.settings, groups=[asker.group_id]) as reading:
        return reading.catch_up().groups[asker.group_id]


def rows(spark: SparkSession, name: str, group_id: str) -> list[dict[str, Any]]:
    """Ask a query of the product about one group; others' rows, which may be more than it shows, are left out."""
    asked = spark.sql(query(name).replace("LIMIT 20", ""))
    return [row.asDict() for row in asked.collect() if row["group_id"] == group_id]


def test_the_queries_agree_with_the_views(lived: GroupView, coordinator: Coordinator, tmp_path: Path) -> None:
    """S12, S14: rebalances by cause, time without an owner, who flaps; over the topics as over files."""
    spark = SparkSession.builder.getOrCreate()
    settings = coordinator.settings
    told = CliRunner().invoke(app, ["export", "-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix,
                                    "--output", str(tmp_path / "out")])  # fmt: skip
    assert told.exit_code == 0, told.output
    waits = {place: without_owner_ms(spans) for place, spans in spans_of_owners(lived).items()}
    assert all(wait_ms > 0 for wait_ms in waits.values())
    causes = [event.cause for event in lived.events if isinstance(event, RebalanceStarted)]
    flappers = [(f.client_id, f.rebalances, f.dropped) for f in flapping(lived, 0)]
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
