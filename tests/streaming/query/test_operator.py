"""Tests of the operator without Spark, called as Spark calls it."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from coordinator.base.config import Config
from coordinator.base.errors import CorruptState
from coordinator.base.hashing import shard_of
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    Assignment,
    DescribeGroup,
    JoinGroup,
    LeaveGroup,
    Leaving,
    Protocol,
    Request,
    SyncGroup,
)
from coordinator.state import codec, member_index
from streaming.query.operator.continuity import LastRecord, LogReplaced
from streaming.query.operator.operator import ALARM_WAIT_MS, ShardOperator, unpacked
from streaming.wire.records import OutputTopics, encode_request
from tests.streaming.query.fake_spark import NO_TIMEOUT, FakeSpark, Record

PARTITIONS = 4
TOPICS = OutputTopics("replies", "groups", "events", "requests")
HOME = shard_of("g", PARTITIONS)


@pytest.fixture
def spark() -> FakeSpark:
    config = Config(group_initial_rebalance_delay_ms=0)
    return FakeSpark(ShardOperator(PARTITIONS, b"a secret of some length", config, TOPICS))


def record(request: Request, offset: int, at_ms: int, shard: int = HOME) -> Record:
    return shard, offset, at_ms, encode_request(request)


def join(request_id: str = "join", group_id: str = "g") -> JoinGroup:
    return JoinGroup(
        request_id=request_id,
        reply_to="inbox",
        group_id=group_id,
        client_id="ana",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="work",
        protocols=(Protocol("share"),),
        require_known_member_id=False,
    )


def published(rows: pd.DataFrame, topic: str) -> list[dict[str, Any]]:
    """Return the records of one output topic."""
    return [json.loads(value) for value in rows[rows["topic"] == topic]["value"]]


def replies(rows: pd.DataFrame) -> list[dict[str, Any]]:
    return published(rows, "replies")


def stable(spark: FakeSpark, at_ms: int) -> str:
    (joined,) = replies(spark.batch(at_ms, [record(join(), 0, at_ms)]))
    member_id = str(joined["member_id"])
    plan = (Assignment(member_id, b"all"),)
    sync = SyncGroup(
        request_id="sync", reply_to="inbox", group_id="g", generation_id=1, member_id=member_id, assignments=plan
    )
    (synced,) = replies(spark.batch(at_ms, [record(sync, 1, at_ms)]))
    assert synced["error"] == "NONE"
    return member_id


def beat(member_id: str, request_id: str = "beat") -> Heartbeat:
    return Heartbeat(request_id=request_id, reply_to="inbox", group_id="g", generation_id=1, member_id=member_id)


def written(*batches: pd.DataFrame) -> list[tuple[str, bytes, bytes]]:
    """List the records that some batches write, sorted by topic."""
    records = [(r.topic, r.key, r.value) for rows in batches for r in rows.itertuples() if r.topic is not None]
    return sorted(records, key=lambda record: record[0])


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_replanned_batch_keeps_its_time(spark: FakeSpark, cut: int) -> None:
    """I17: requests of a replaced plan are handled as of its time, with equal bytes; later requests are not."""
    stable(spark, 0)
    log = [record(join(str(n)), n + 2, 1_000 + n) for n in range(3)]
    after = record(DescribeGroup(request_id="d", reply_to="inbox", group_id="g"), 5, 30_000)
    first_ms, again_ms = 9_000, 30_000
    plans = [(first_ms, {HOME: 5}), (first_ms + 1, {HOME: 4})]  # the second replaced the first, and was replaced too
    anew = FakeSpark(replace(spark.operator, replanned=plans), store=dict(spark.store))
    plain = FakeSpark(spark.operator, store=dict(spark.store))
    once = spark.batch(first_ms, log)
    assert any(b'"joins_until_ms":19000' in value for _, _, value in written(once)), (
        "the coordinator was unavailable until then"
    )
    pieces = ((again_ms, log[:cut]), (again_ms + 1, [*log[cut:], after]))
    records = written(*(anew.batch(*piece) for piece in pieces))
    assert records == written(once, spark.batch(again_ms + 1, [after]))
    assert records != written(*(plain.batch(*piece) for piece in pieces))


def test_the_worker_keeps_rosters_from_batch_to_batch(spark: FakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of heartbeats decodes no member index, whichever task Spark runs it in."""
    member_id = stable(spark, 0)
    monkeypatch.setattr(member_index, "_read_member_index", None)
    another = FakeSpark(replace(spark.operator), store=dict(spark.store))
    (answer,) = replies(another.batch(1_000, [record(beat(member_id), 2, 1_000)]))
    assert answer["error"] == "NONE"


def test_a_join_is_answered_in_its_own_batch_and_the_records_carry_their_keys(spark: FakeSpark) -> None:
    """S25, S57: the response leaves in the batch of the request, and each record has its topic's key."""
    rows = spark.batch(1_000, [record(join(), 0, 990)])
    assert [r["error"] for r in replies(rows)] == ["NONE"]
    keys = {(topic, bytes(key)) for topic, key in zip(rows["topic"], rows["key"], strict=True) if topic}
    assert keys == {("replies", b"inbox"), ("groups", b'["group","g"]'), ("events", b"g")}


def test_a_silent_member_never_expires_before_its_session_timeout(spark: FakeSpark) -> None:
    """S05, S74, S145: the session timeout is 10000 ms, plus the slack of 1000 ms for heartbeats on their way."""
    member_id = stable(spark, 5_000)
    spark.batch(6_000, [record(beat(member_id), 2, 6_000)])
    spark.batch(5_000 + 10_000 + 1_000 + ALARM_WAIT_MS, [])
    assert spark.calls == [], "until then the alarm is responsible"
    woken = spark.batch(5_000 + 10_000 + 1_000 + ALARM_WAIT_MS + 1, [])
    assert woken["topic"].tolist() == ["requests", None], "only the wake record shows that the whole log was read"
    early = spark.batch(20_000, [(HOME, 3, 6_000 + 10_000 + 1_000 - 1, woken["value"][0])])
    assert early["topic"].isna().all()
    due = spark.batch(20_000, [(HOME, 4, 6_000 + 10_000 + 1_000, woken["value"][0])])
    events = [json.loads(v) for v in due[due["topic"] == "events"]["value"]]
    assert [e["event"] for e in events] == ["member_expired", "rebalance_started", "group_emptied"]
    assert events[0]["at_ms"] == 16_000
    assert events[0]["silence_ms"] == 10_000


def test_an_alarm_moved_by_heartbeats_does_not_repeat_itself(spark: FakeSpark) -> None:
    member_id = stable(spark, 0)
    for second in range(1, 60):
        spark.batch(second * 1_000, [record(beat(member_id), second + 1, second * 1_000)])
    woken = 0
    for ms in range(59_000, 69_000, 500):
        spark.batch(ms, [])
        woken += len(spark.calls)
    assert woken <= 1, "at most one early call, which corrects the timeout"


def test_rows_are_processed_in_the_order_of_the_log(spark: FakeSpark) -> None:
    """I20: the operator sorts the rows by offset."""
    member_id = stable(spark, 0)
    beats = [record(beat(member_id, f"beat-{i}"), 10 + i, 100 + i) for i in range(7)]
    rows = spark.batch(200, beats[::-1])
    assert [r["request_id"] for r in replies(rows)] == [f"beat-{i}" for i in range(7)]


def test_a_repeated_batch_writes_equal_bytes(spark: FakeSpark) -> None:
    """I16: the earlier state, the same rows and the same time give equal bytes."""
    spark.batch(0, [record(join("first"), 0, 0)])
    before = dict(spark.store)
    first = spark.batch(50, [record(join("second"), 1, 50)])
    spark.store = before
    again = spark.batch(50, [record(join("second"), 1, 50)])
    pd.testing.assert_frame_equal(first, again)


BAD = {
    "half a record": b'{"kind":"heartbeat","request_id":"x"',
    "no object": b"[]",
    "no UTF-8": b'{"kind":"\xff"}',
    "no value": None,
    "nested deeply": b'{"x":' + b"[" * 100_000,
    "nothing": b"",
}
ANSWERED = {
    "unknown kind": ({"kind": "dance"}, "dance"),
    "missing field": ({"kind": "heartbeat", "group_id": "g"}, "generation_id"),
    "extra field": ({**json.loads(encode_request(beat("m"))), "extra": 1}, "extra"),
    "wrong type": ({**json.loads(encode_request(beat("m"))), "generation_id": "one"}, "generation_id"),
    "huge integer": ({**json.loads(encode_request(beat("m"))), "generation_id": 10**400}, "generation_id"),
    "a fraction": ({**json.loads(encode_request(beat("m"))), "generation_id": 1.5}, "generation_id"),
    "10,000 characters": ({**json.loads(encode_request(beat("m" * 10_000)))}, "member_id"),
    "not base64": ({**json.loads(encode_request(join())), "protocols": [{"name": "x", "metadata": "!"}]}, "metadata"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_record_that_is_not_a_request_becomes_a_rejected_event(spark: FakeSpark, name: str) -> None:
    """S25, I6: the record is reported, and the next request is answered."""
    member_id = stable(spark, 0)
    rows = spark.batch(10, [(HOME, 2, 10, BAD[name]), record(beat(member_id), 3, 10)])
    (event,) = published(rows, "events")
    assert (event["event"], event["partition"], event["offset"], event["at_ms"]) == ("rejected", HOME, 2, 10)
    assert event["why"]
    assert [r["error"] for r in replies(rows)] == ["NONE"]


@pytest.mark.parametrize("name", ANSWERED)
def test_a_bad_field_is_answered_42_with_its_name(spark: FakeSpark, name: str) -> None:
    """S25, I6: the response names the field, and the next request is answered."""
    member_id = stable(spark, 0)
    fields, named = ANSWERED[name]
    value = json.dumps({**fields, "request_id": "bad", "reply_to": "inbox"}).encode()
    rows = spark.batch(10, [(HOME, 2, 10, value), record(beat(member_id), 3, 10)])
    bad, good = replies(rows)
    assert (bad["request_id"], bad["error"], bad["code"]) == ("bad", "INVALID_REQUEST", 42)
    assert named in str(bad["error_message"])
    assert good["error"] == "NONE"


def test_a_request_in_the_wrong_shard_is_answered_with_the_right_shard(spark: FakeSpark) -> None:
    """S17: the response is NOT_COORDINATOR and names the shard of the group."""
    wrong = (HOME + 1) % PARTITIONS
    (reply,) = replies(spark.batch(0, [record(join(), 0, 0, shard=wrong)]))
    assert (reply["error"], reply["code"]) == ("NOT_COORDINATOR", 16)
    assert str(HOME) in str(reply["error_message"])
    ((text, timeout),) = spark.store.values()
    assert text is not None
    held = unpacked(text)
    assert (held.next_offset, held.deferred, timeout) == (1, (), NO_TIMEOUT)
    kept = codec.decode_shard(held.shard or b"")
    assert not kept.groups, "the state keeps only the next offset and the time"


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda text: text[:-8] + ("AAAAAAAA" if text[-8:] != "AAAAAAAA" else "BBBBBBBB"), "checksum"),
        (lambda text: text[:-1], "base 64"),
        (lambda text: f"x{text}", "offset"),
    ],
)
def test_damaged_state_stops_the_batch(spark: FakeSpark, damage: Callable[[str], str], sentence: str) -> None:
    """F8: damaged state raises CorruptState."""
    stable(spark, 0)
    text, timeout = spark.store[HOME]
    assert text is not None
    spark.store[HOME] = (damage(text), timeout)
    with pytest.raises(CorruptState, match=sentence):
        spark.batch(1, [record(beat("m"), 2, 1)])


def test_skipped_requests_are_reported(spark: FakeSpark) -> None:
    """F8: Spark's plans of batches have no checksum; a changed digit there must be noticed."""
    member_id = stable(spark, 0)
    rows = spark.batch(100, [record(beat(member_id), 12, 100)])
    (event,) = published(rows, "events")
    assert (event["event"], event["partition"], event["expected"], event["found"]) == ("log_broken", HOME, 2, 12)
    assert [r["error"] for r in replies(rows)] == ["NONE"]
    assert not published(spark.batch(200, [record(beat(member_id), 13, 200)]), "events"), "the log continues from there"


def test_repeated_requests_are_reported_and_change_nothing(spark: FakeSpark) -> None:
    """F8, I14: repeated requests were answered before; a second response could differ."""
    member_id = stable(spark, 0)
    leave = LeaveGroup(request_id="go", reply_to="inbox", group_id="g", members=(Leaving(member_id=member_id),))
    spark.batch(100, [record(beat(member_id, "before"), 2, 100), record(leave, 3, 101)])
    rows = spark.batch(200, [record(leave, 3, 101), record(beat(member_id, "late"), 4, 200)])
    (event,) = published(rows, "events")
    assert (event["event"], event["expected"], event["found"]) == ("log_broken", 4, 3)
    assert [(r["request_id"], r["error"]) for r in replies(rows)] == [("late", "UNKNOWN_MEMBER_ID")]
    rows = spark.batch(300, [record(leave, 3, 101)])
    assert not replies(rows)
    assert [e["found"] for e in published(rows, "events")] == [3]
    assert not published(spark.batch(400, [record(beat(member_id), 5, 400)]), "events")


def test_the_next_offset_is_kept_by_a_batch_that_a_timeout_began(spark: FakeSpark) -> None:
    """F8: requests that a damaged plan skips just after a silence must be noticed."""
    member_id = stable(spark, 0)
    woken = spark.batch(11_001 + ALARM_WAIT_MS, [])
    assert spark.calls == [HOME], "called by its timeout, without a record"
    assert published(woken, "requests") == [{"kind": "wake"}]
    rows = spark.batch(11_002 + ALARM_WAIT_MS, [record(beat(member_id), 12, 11_002)])
    (event,) = (event for event in published(rows, "events") if event["event"] == "log_broken")
    assert (event["expected"], event["found"]) == (2, 12)


def test_a_shard_whose_last_record_was_replaced_handles_nothing(spark: FakeSpark) -> None:
    """The log's record at the offset of the last handled one has another time, in every batch until a person acts."""
    member_id = stable(spark, 0)
    spark.batch(100, [record(beat(member_id), 2, 99)])
    before = dict(spark.store)
    again = FakeSpark(replace(spark.operator, last_records={HOME: LastRecord(2, 98)}), store=dict(before))
    for now_ms, rows in ((200, [record(beat(member_id), 3, 200)]), (60_000, [])):
        with pytest.raises(LogReplaced, match=f"partition {HOME}, offset 2"):
            again.batch(now_ms, rows)
        assert again.store == before


@pytest.mark.parametrize(
    "in_the_log",
    [
        pytest.param({}, id="expired"),
        pytest.param({HOME: LastRecord(2, 99)}, id="the handled record"),
        pytest.param({HOME: LastRecord(1, 98)}, id="a marker is at its offset"),
        pytest.param({HOME + 1: LastRecord(2, 98)}, id="another shard"),
    ],
)
def test_a_shard_whose_last_record_is_in_the_log_or_unknown_continues(
    spark: FakeSpark, in_the_log: dict[int, LastRecord]
) -> None:
    member_id = stable(spark, 0)
    spark.batch(100, [record(beat(member_id), 2, 99)])
    again = FakeSpark(replace(spark.operator, last_records=in_the_log), store=dict(spark.store))
    (answer,) = replies(again.batch(200, [record(beat(member_id), 3, 200)]))
    assert answer["error"] == "NONE"
    (answer,) = replies(again.batch(300, [record(beat(member_id), 4, 300)]))
    assert answer["error"] == "NONE"


def test_the_last_row_of_a_shard_is_its_tally(spark: FakeSpark) -> None:
    stable(spark, 0)
    rows = spark.batch(500, [record(beat("stranger"), 2, 100), record(beat("stranger"), 3, 400)])
    assert rows.iloc[-1]["topic"] is None
    assert rows.iloc[-1]["tally"] == {
        "shard": HOME, "groups": 1, "members": 1, "requests": 2, "heartbeats": 2, "answered": 2, "oldest_ms": 400,
        "deferred": 0, "due_in_ms": 10_500, "settled": ["", 0], "last": [3, 400],
        "stop": None,
    }  # fmt: skip


def test_heartbeats_of_both_protocols_are_counted(spark: FakeSpark) -> None:
    stable(spark, 0)
    asked = ConsumerGroupHeartbeat(request_id="c", reply_to="inbox", group_id="g", member_id="x", member_epoch=3)
    rows = spark.batch(500, [record(beat("stranger"), 2, 100), record(asked, 3, 400)])
    assert rows.iloc[-1]["tally"]["heartbeats"] == 2


def test_a_wake_record_is_not_counted_as_a_request_and_runs_the_shard(spark: FakeSpark) -> None:
    """S05: everything that has become due since is done."""
    stable(spark, 0)
    rows = spark.batch(11_001, [(HOME, 2, 11_000, b'{"kind":"wake"}')])
    events = published(rows, "events")
    assert [e["event"] for e in events] == ["member_expired", "rebalance_started", "group_emptied"]
    assert rows.iloc[-1]["tally"]["requests"] == 0


# -- requests that wait for the next batch -----------------------------------------------------------------------------


def test_requests_beyond_the_budget_wait_in_the_state_and_are_answered_by_the_next_batch(
    spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I22: 300 small requests with large responses killed the worker, and the batch was repeated for ever."""
    member_id = stable(spark, 0)
    monkeypatch.setattr("coordinator.shard.budget.STEP_BYTES_MAX", 1)
    describe = DescribeGroup(request_id="d", reply_to="inbox", group_id="g")
    before = dict(spark.store)
    records = [record(describe, 2, 100), record(beat(member_id), 3, 200), record(describe, 4, 300)]
    first = spark.batch(300, records)
    assert [reply["kind"] for reply in replies(first)] == ["describe_group"]
    tally = first.iloc[-1]["tally"]
    assert (tally["requests"], tally["deferred"], tally["due_in_ms"]) == (1, 2, 0)
    after, spark.store = spark.store, before
    assert spark.batch(300, records).equals(first), "a batch that is repeated writes the same bytes"
    assert spark.store == after
    monkeypatch.undo()
    second = spark.batch(302, [])
    assert spark.calls == [HOME], "called by its timeout, without a record"
    assert [reply["kind"] for reply in replies(second)] == ["heartbeat", "describe_group"]
    assert second.iloc[-1]["tally"]["deferred"] == 0
    text, _ = spark.store[HOME]
    assert unpacked(str(text)).next_offset == 5
    assert not unpacked(str(text)).deferred


@pytest.mark.parametrize("text", ["1 x y z", "1 eA== !", "1 eA== eA=="])
def test_state_with_damaged_deferred_requests_is_refused(text: str) -> None:
    with pytest.raises(CorruptState):
        unpacked(text)
