"""Tests of the operator without Spark, called as Spark calls it."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pandas as pd
import pytest

from coordinator.base.errors import CorruptState
from coordinator.base.hashing import shard_of
from coordinator.messages.observed_events import TopicChange
from streaming.observe.operator import INPUT_COLUMNS, Name, ObserveOperator, Start, TopicsOfEpoch, unpacked
from streaming.observe.schemas import Kind
from streaming.query.operator.durable import BATCH
from streaming.query.operator.operator import OUTPUT_COLUMNS
from streaming.wire.records import OutputTopics
from tests.streaming.observe.log import HELD
from tests.streaming.observe.test_consumers import founding
from tests.streaming.observe.writing import ORDERS_TEXT, Written, classic, commit, epoch, founded, gone, member

TOPICS = OutputTopics("", "observed.groups", "observed.events", "")
PARTITIONS = 4
NUMBER = 7
KEY = 4_711


class State:
    """The part of Spark's GroupState that the operator uses."""

    def __init__(self) -> None:
        self.getOption: tuple[str] | None = None

    def update(self, value: tuple[str]) -> None:
        self.getOption = value


class Spark:
    """Calls of the operator, with the state that it keeps."""

    def __init__(self, *starts: Start) -> None:
        self.operator = ObserveOperator(TOPICS, PARTITIONS, starts or [Start(0, {})])
        self.state: Any = State()
        self.next_offset = 0

    def batch(self, at_ms: int, *records: Written, names: Iterable[Name | TopicsOfEpoch] = ()) -> pd.DataFrame:
        """Call the operator with records in reverse order, in two frames."""
        rows: list[tuple[Any, ...]] = []
        for key, value in records:
            rows.append((NUMBER, False, self.next_offset, at_ms, key, value))
            self.next_offset += 1
        rows += [(NUMBER, True, n, at_ms, b"", msgspec.json.encode(name)) for n, name in enumerate(names)]
        rows.reverse()
        (output,) = self.operator((KEY,), _frames(rows), self.state)
        assert list(output.columns) == OUTPUT_COLUMNS
        return output


def _frames(rows: list[tuple[Any, ...]]) -> Iterator[pd.DataFrame]:
    for part in (rows[:1], rows[1:]):
        if part:
            yield pd.DataFrame(part, columns=list(INPUT_COLUMNS), dtype=object).assign(shard=KEY)


def values(output: pd.DataFrame, topic: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the records of a topic, each with its partition."""
    packs = output[output["topic"] == topic]
    return [(p, json.loads(v)) for p, told in zip(packs["partition"], packs["values"], strict=True) for v in told if v]


def tally(output: pd.DataFrame) -> dict[str, Any]:
    return dict(json.loads(output["tally"].iloc[-1]))


def test_records_go_to_the_partition_of_their_group() -> None:
    """Readers find a group's records by the hash of its id, whatever partition of the source it has."""
    groups = [f"g{n}" for n in range(8)]
    output = Spark().batch(1_000, *(founded(group, 990) for group in groups))
    for topic in ("observed.groups", "observed.events"):
        found = {value["group_id"]: partition for partition, value in values(output, topic)}
        assert found == {group: shard_of(group, PARTITIONS) for group in groups}


def test_records_are_translated_in_the_order_of_their_offsets() -> None:
    output = Spark().batch(1_000, founded("g", 990), classic("g", 1, 995, member("a", {"orders": [0]})))
    names = [value["event"] for _, value in values(output, "observed.events")]
    assert names == [
        "observation_began",
        "member_joined",
        "rebalance_started",
        "rebalance_completed",
        "assignment_changed",
    ]
    assert [value["state"] for _, value in values(output, "observed.groups")] == ["Empty", "Stable"]


def test_state_goes_from_batch_to_batch() -> None:
    spark = Spark()
    spark.batch(1_000, founded("g", 990))
    output = spark.batch(2_000, classic("g", 1, 1_990, member("a", {"orders": [0]})))
    assert values(output, "observed.groups")[0][1]["version"] == 7


def test_tombstones_have_version_and_time_in_their_headers() -> None:
    spark = Spark()
    spark.batch(1_000, founded("g", 990))
    output = spark.batch(2_000, gone(Kind.CLASSIC_GROUP, "g"))
    (row,) = output[output["topic"] == "observed.groups"].itertuples()
    assert (row.keys, row.values, row.versions, row.times) == ([b'["group","g"]'], [None], [b"4"], [b"2000"])


def test_names_of_ids_are_asked_for_and_used() -> None:
    spark = Spark()
    output = spark.batch(1_000, *founding())
    assert (tally(output)["unnamed"], tally(output)["unnamed_total"]) == ([ORDERS_TEXT], 1)
    output = spark.batch(2_000, names=[Name(NUMBER, ORDERS_TEXT, "orders")])
    assert tally(output)["unnamed"] == []
    assert values(output, "observed.groups")[0][1]["members"][0]["assigned"] == {"orders": [0, 1, 2, 3]}


@pytest.mark.parametrize("value", [b"", b"{}", b'{"shard":7,"topic_id":1,"name":"orders"}', b"\xff", None])
def test_value_that_is_no_name_is_passed_over(value: bytes | None) -> None:
    spark = Spark()
    rows = [(NUMBER, True, 0, 1_000, b"", value), (NUMBER, False, 0, 1_000, *founded("g", 990))]
    (output,) = spark.operator((KEY,), _frames(rows), spark.state)
    assert [event["event"] for _, event in values(output, "observed.events")] == ["observation_began"]


def test_figures_of_a_batch() -> None:
    output = Spark().batch(1_000, founded("g", 990), commit("g", 0, 5, 1_000), (b"\0\2", b""), commit("h", 0, 5, 1_000))
    assert tally(output) == {
        "partition": NUMBER,
        "groups": 2,
        "members": 0,
        "records": {"1": 2, "2": 1, "unreadable": 1},
        "published": 7,
        "unnamed": [],
        "unnamed_total": 0,
    }


def test_unreadable_record_is_an_event_of_the_partition() -> None:
    output = Spark().batch(1_000, (b"\0\2", b""))
    ((partition, event),) = values(output, "observed.events")
    assert (partition, event["event"], event["partition"], event["offset"]) == (
        NUMBER % PARTITIONS,
        "rejected",
        NUMBER,
        0,
    )


class Task:
    """The running task as far as the operator asks it."""

    batch: str | None = None

    @classmethod
    def get(cls) -> "type[Task] | None":
        return cls if cls.batch is not None else None

    @classmethod
    def getLocalProperty(cls, name: str) -> str | None:  # noqa: N802
        return cls.batch if name == BATCH else None


@pytest.mark.parametrize(("batch", "ended"), [("4", True), ("5", False), ("6", False), ("2", True)])
def test_facts_of_a_start_hold_from_its_first_batch_on(
    monkeypatch: pytest.MonkeyPatch, batch: str, ended: bool
) -> None:
    """A batch that is repeated after a restart is cut as it was, so that its outputs are equal."""
    monkeypatch.setattr("streaming.observe.operator.TaskContext", Task)
    monkeypatch.setattr(Task, "batch", batch)
    spark = Spark(Start(3, {NUMBER: 0}), Start(5, {NUMBER: HELD}))
    spark.batch(1_000, founded("g", 990))
    output = spark.batch(2_000, gone(Kind.CLASSIC_GROUP, "g"))
    assert bool(values(output, "observed.events")) is ended


def test_state_that_is_no_text_of_ours_is_refused() -> None:
    with pytest.raises(CorruptState, match="not base 64"):
        unpacked("?")
    spark = Spark()
    spark.state.getOption = ("AAAA",)
    with pytest.raises(CorruptState):
        spark.batch(1_000, founded("g", 990))


def test_driver_names_the_topics_of_a_changed_hash() -> None:
    """The batch asks for them until their record has been read. A batch that is repeated has the same outputs."""
    spark, orders = Spark(), Name(NUMBER, ORDERS_TEXT, "orders")
    assert tally(spark.batch(1_000, *founding(), names=[orders]))["topics"] == ["orders"]
    waiting = tally(spark.batch(2_000, epoch("m", 3, metadata_hash=8)))["hash_changes"]
    assert waiting == [["m", 3, 7, 8, ["orders"], ["orders"]]]
    grown = TopicsOfEpoch(NUMBER, "m", 3, 8, (TopicChange("orders", "partitions", 4, 6),))
    before = spark.state.getOption
    output = spark.batch(3_000, names=[grown])
    (event,) = [value for _, value in values(output, "observed.events")]
    assert (event["event"], event["generation_id"], event["changes"][0]["what"]) == ("topics_named", 3, "partitions")
    assert "hash_changes" not in tally(output)
    spark.state.getOption = before
    pd.testing.assert_frame_equal(spark.batch(3_000, names=[grown]), output)
