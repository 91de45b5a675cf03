"""The history as tables follows a group that moves between two coordinators: the product's queries agree with the views
of both.
"""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from coordinator.messages.fields import Event
from coordinator.messages.group_records import Published
from coordinator.messages.move_events import GroupArrived
from coordinator.messages.outputs import Output
from streaming.cli.main import app
from streaming.config.settings import Settings
from streaming.errors import NoCoordinator
from streaming.history.sql import query, register, register_files
from streaming.history.tables import TABLES, table_of, to_row
from streaming.kafka import topics
from streaming.query.coordinator import Coordinator
from streaming.views.api.lives import Life, joined
from streaming.views.history.instability import unstable_clients
from streaming.views.history.owners import spans_of_owners
from streaming.views.history.rebalances import rebalances
from tests.coordinator.moving.pair import Pair
from tests.coordinator.moving.test_kinds_of_groups import Consumers, moved
from tests.streaming.verify.test_verify_moves import Writing

pytestmark = pytest.mark.long

Rows = dict[str, list[dict[str, Any]]]
"""The rows of each table."""

JOINING = {"session_timeout_ms": 45_000, "rebalance_timeout_ms": 40_000}

WAITED_MS = 400
"""The time from the plan until the owner gave its partitions up, or left."""


@pytest.fixture
def spark(coordinator: Coordinator) -> SparkSession:
    """A session of its own, beside the query, which has Spark's Kafka connector. One partition is enough here."""
    session = SparkSession.builder.getOrCreate().newSession()
    session.conf.set("spark.sql.shuffle.partitions", 1)
    return session


def rows_of(prefix: str, outputs: Iterable[Output]) -> Rows:
    """Return the rows of all that a coordinator has published."""
    rows: Rows = {name: [] for name in TABLES}
    for output in outputs:
        record: Any = output.record if isinstance(output, Published) else output
        if isinstance(output, Published | Event) and record is not None:
            rows[table_of(record)].append(to_row(record, prefix))
    return rows


def write(folder: Path, *several: Rows, without: Iterable[str] = ()) -> None:
    """Write the rows of several coordinators to files, as `coordinator export` does."""
    for name, schema in TABLES.items():
        table = pa.Table.from_pylist([row for rows in several for row in rows[name]], schema=schema)
        pq.write_table(table.drop_columns(list(without)), folder / f"{name}.parquet")


def counted_anew(rows: Rows, before: int) -> Rows:
    """Return rows with other versions, as those of a group that was imported: they begin at 1 (moving.md 7)."""
    return {name: [{**row, "version": row["version"] - before} for row in each] for name, each in rows.items()}


def renamed(rows: Rows) -> Rows:
    """Return rows with other prefixes. The one of the target is the first in the alphabet."""
    names = {"A": "old", "B": "new"}

    def other(row: dict[str, Any]) -> dict[str, Any]:
        return row | {key: names.get(row[key], row[key]) for key in ("topic_prefix", "from", "to") if key in row}

    return {name: list(map(other, each)) for name, each in rows.items()}


def rows_in(spark: SparkSession, name: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.sql(query(name)).collect()]


def there_and_back(completed_ms: int = 2_300) -> Pair:
    """Return coordinators of which B has had a group between two times at A. The clock of B is 500 ms behind.

    Until 2,000 ms, the time of the release, all events at B have that time.

    A rebalance begins at A, gets a second cause at B, and ends there. Another one begins at B and ends at A; meanwhile
    partition 0 has no owner.
    """
    pair = Pair(Writing("A", "B"), Writing("B", "A", slots="none"))
    pair.a.at(1_000)
    for name in ("c1", "c2", "c1"):
        pair.a.join(name, **JOINING)
    pair.a.sync("c1", plan={"c1": {"t": [0]}, "c2": {"t": [1]}}).sync("c2").is_("Stable")
    pair.a.at(2_000).join("c3", **JOINING).release()
    pair.b.at(1_500)
    pair.carry()
    pair.b.at(1_600).leave("c2").join("c1", **JOINING).join("c4", **JOINING).is_("PreparingRebalance")
    pair.b.at(completed_ms)
    for name in ("c1", "c3"):
        pair.know().b.join(name, **JOINING)
    pair.b.is_("CompletingRebalance").sync("c1", plan={"c1": {"t": [0]}, "c3": {"t": [1]}}).is_("Stable")
    pair.b.at(4_000).leave("c1", "c4").at(5_000).release().at(5_500)
    pair.a.at(5_500)
    pair.carry()
    pair.a.at(6_000).join("c3", **JOINING).sync("c3", plan={"c3": {"t": [0, 1]}}).is_("Stable")
    return pair


def check_that_queries_agree_with_the_views(spark: SparkSession, pair: Pair, coordinator: str) -> None:
    sides: list[Any] = [pair.a, pair.b]
    group = joined([Life(views := side.views(), views.groups["g"]) for side in sides]).group
    causes = [rebalance.cause for rebalance in rebalances(group.events)]
    assert causes == ["member_joined", "member_joined", "member_left"]
    told = rows_in(spark, "rebalances_by_cause")
    assert {(row["coordinator"], row["cause"]): row["rebalances"] for row in told} == {
        (coordinator, cause): causes.count(cause) for cause in causes
    }
    waits = {
        place: sum(max(0, after.from_ms - before.to_ms) for before, after in pairwise(spans))
        for place, spans in spans_of_owners(group).items()
    }
    assert waits["t", 0] == 2_000
    told = rows_in(spark, "time_without_owner")
    assert {(row["topic"], row["partition"]): row["without_owner_ms"] for row in told} == waits
    assert {row["coordinator"] for row in told} == {coordinator}
    flappers = {(each.client_id, each.rebalances) for each in unstable_clients(group, 0)}
    assert {(row["client_id"], row["rebalances"]) for row in rows_in(spark, "flapping_members")} == flappers
    (costs,) = rows_in(spark, "restarts_and_what_they_cost")
    assert (costs["coordinator"], costs["departures"], costs["rebalances"]) == (coordinator, 3, len(causes))


def test_queries_follow_a_group_there_and_back(spark: SparkSession, tmp_path: Path) -> None:
    """moving.md 6, MovesAreQuiet: a move is no rebalance, and ends no owner's time."""
    pair = there_and_back()
    write(tmp_path, rows_of("A", pair.a.outputs), rows_of("B", pair.b.outputs))
    register_files(spark, tmp_path)
    check_that_queries_agree_with_the_views(spark, pair, "A")


@pytest.mark.nightly
def test_queries_follow_a_group_whose_versions_begin_anew(spark: SparkSession, tmp_path: Path) -> None:
    pair = there_and_back(completed_ms=1_900)
    (arrived,) = pair.b.events(GroupArrived)
    at_b = counted_anew(rows_of("B", pair.b.outputs), arrived.version_before)
    write(tmp_path, rows_of("A", pair.a.outputs), at_b)
    register_files(spark, tmp_path)
    check_that_queries_agree_with_the_views(spark, pair, "A")


@pytest.mark.nightly
def test_groups_of_one_name_that_never_moved_are_two_groups(spark: SparkSession, tmp_path: Path) -> None:
    alone = Pair.stable("c1", "c2").a
    both = Pair.stable("c1", "c2", "c3").a
    for side in (alone, both):
        side.at(3_000).leave("c1")
    write(tmp_path, rows_of("A", alone.outputs), rows_of("B", both.outputs))
    register_files(spark, tmp_path)
    begun = {(row["coordinator"], row["cause"]): row["rebalances"] for row in rows_in(spark, "rebalances_by_cause")}
    assert begun == {(prefix, cause): 1 for prefix in "AB" for cause in ("member_joined", "member_left")}
    left = {row["coordinator"]: row["departures"] for row in rows_in(spark, "restarts_and_what_they_cost")}
    assert left == {"A": 1, "B": 1}


def given_up(b: Consumers) -> None:
    b.passes(WAITED_MS)
    b.says("A 2 own 0 1")


def left(b: Consumers) -> None:
    b.passes(WAITED_MS)
    b.says("A -1")


@pytest.mark.parametrize("end", [given_up, left])
@pytest.mark.parametrize("imported", [False, True])
def test_a_wait_for_a_member_goes_on_while_the_group_moves(
    spark: SparkSession, tmp_path: Path, end: Any, imported: bool
) -> None:
    """moving.md 2.4: versions continue over a move. Compaction has removed the records of the old coordinator."""
    a, b = moved("""
        T:4
        A 0               -> 2 {0 1 2 3}
        -- 1000
        B 0               -> 3 {}
        A 2               -> 2 {0 1}
    """)
    end(b)
    old, new = renamed(rows_of("A", a.outputs)), renamed(rows_of("B", b.outputs))
    (before,) = [row["version_before"] for row in new["events"] if row["event"] == "group_arrived"]
    write(tmp_path, {**old, "groups": []}, counted_anew(new, before if imported else 0))
    register_files(spark, tmp_path)
    told = [(row["coordinator"], row["member_id"], row["partitions"], row["longest_wait_ms"])
            for row in rows_in(spark, "waits_for_members")]  # fmt: skip
    assert told == [("new", "A", 2, 500 + WAITED_MS)]


@pytest.mark.nightly
def test_files_of_an_earlier_version_have_null_in_the_new_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Of such files the tables contain one coordinator, so that the queries need no prefix."""
    alone = Pair.stable("c1", "c2").a
    alone.at(3_000).leave("c1").at(3_500).join("c2", **JOINING).sync("c2", plan={"c2": {"t": [0, 1]}})
    write(tmp_path, rows_of("A", alone.outputs), without=["topic_prefix"])
    register_files(spark, tmp_path)
    for name, schema in TABLES.items():
        assert set(spark.table(name).columns) == set(schema.names)
        assert [row.topic_prefix for row in spark.table(name).select("topic_prefix").distinct().collect()] in (
            [None],
            [],
        )
    (wait,) = rows_in(spark, "time_without_owner")
    assert (wait["coordinator"], wait["partition"], wait["without_owner_ms"]) == ("", 0, 500)
    assert sum(row["rebalances"] for row in rows_in(spark, "rebalances_by_cause")) == 2


def published(broker: str, pair: Pair, names: tuple[str, str]) -> list[Settings]:
    """Write what both coordinators have published to the topics of two prefixes, and return their settings."""
    both = []
    producer = Producer({"bootstrap.servers": broker})
    sides: list[Any] = [pair.a, pair.b]
    for side, name in zip(sides, names, strict=True):
        settings = Settings(bootstrap_servers=broker, topic_prefix=name, replication_factor=1, request_partitions=1)
        topics.ensure(settings)
        for topic, written in (("groups", settings.groups_topic), ("events", settings.events_topic)):
            for record in side.topics[topic]:
                value = record.value and record.value.replace(b'"A"', b'"%s"' % names[0].encode())
                value = value and value.replace(b'"B"', b'"%s"' % names[1].encode())
                producer.produce(written, value, record.key, headers=record.headers)
        both.append(settings)
    producer.flush()
    return both


@pytest.mark.nightly
def test_the_tables_contain_the_records_of_the_peers(
    coordinator: Coordinator, spark: SparkSession, tmp_path: Path
) -> None:
    """`register` and `coordinator export` read the topics of a real broker."""
    pair = there_and_back()
    a, b = published(coordinator.settings.bootstrap_servers, pair, ("tables-from", "tables-to"))
    where = ("-b", a.bootstrap_servers, "--topic-prefix", a.topic_prefix)
    out = tmp_path / "out"
    refused = CliRunner().invoke(app, ["export", *where, "--peer", "tables-to", "--peer", "nowhere", "-o", str(out)])
    assert isinstance(refused.exception, NoCoordinator)
    assert str(refused.exception).startswith("There is no topic nowhere.groups at ")
    assert not out.exists()
    done = CliRunner().invoke(app, ["export", *where, "--peer", "tables-to", "-o", str(out)])
    assert done.exit_code == 0, done.output
    register_files(spark, out)
    exported = {name: spark.table(name).orderBy("topic_prefix", "version").collect() for name in ("events", "offsets")}
    with pytest.raises(NoCoordinator, match=r"There is no topic nowhere\.events at "):
        register(spark, a, peers=[b.topic_prefix, "nowhere"])
    register(spark, a, peers=[b.topic_prefix])
    for name, rows in exported.items():
        assert spark.table(name).orderBy("topic_prefix", "version").collect() == rows
    assert {row.topic_prefix for row in exported["events"]} == {a.topic_prefix, b.topic_prefix}
    check_that_queries_agree_with_the_views(spark, pair, a.topic_prefix)
    register(spark, a)
    assert {row.topic_prefix for row in spark.table("events").collect()} == {a.topic_prefix}
    told = rows_in(spark, "rebalances_by_cause")
    assert (sum(row["rebalances"] for row in told), {row["coordinator"] for row in told}) == (2, {a.topic_prefix})
