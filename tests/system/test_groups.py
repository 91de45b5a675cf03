"""The protocol on the real broker and the real query, with raw requests."""

import json

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from msgspec import structs

from coordinator.base.hashing import shard_of
from coordinator.messages.requests import OffsetCommit, OffsetToCommit
from coordinator.messages.responses import AnyAnswer
from streaming.query.coordinator import Coordinator
from streaming.wire.records import decode_answer, encode_request
from tests.system.asking import Asker
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until

SESSION_MS = 8_000
"""Long enough that the only member of a group syncs within it on a busy machine."""

SLACK_TICK_BATCH_S = 1 + 1 + 3
"""The largest delay of an expiry in seconds, with room for a batch on a busy machine."""


@pytest.fixture
def reader(coordinator: Coordinator, asker: Asker) -> Reader:
    return Reader(coordinator.settings, asker.group_id)


def test_group_from_the_first_join_to_the_last_leave(asker: Asker, reader: Reader) -> None:
    """S02 to S04, S30, S31, S36, S46 to S49, S57, S58, S61, S100, S116, S136, S140."""
    ana, generation = asker.alone(client_id="ana")
    assert generation == 1
    assert ana.startswith("ana-")
    assert asker.heartbeat(1, ana).error == "NONE"
    assert asker.commit(1, ana, 7).error == "NONE"
    assert asker.fetch() == {("t", 0): 7}

    bo = asker.new_id("bo")
    bo_joins = asker.begin(asker.joining(bo, "bo"))
    wait_until(lambda: asker.describe().state.value == "PreparingRebalance")
    awaited = asker.describe()
    assert awaited.awaited == (ana,)
    assert awaited.deadline_ms is not None
    assert asker.heartbeat(1, ana).error == "REBALANCE_IN_PROGRESS"
    ana_joined = asker.ask(asker.joining(ana, "ana"))
    bo_joined = bo_joins.result(HANG_S)
    assert (ana_joined.generation_id, ana_joined.leader) == (2, ana)
    assert [m.member_id for m in ana_joined.members] == [ana, bo]
    assert (bo_joined.generation_id, bo_joined.leader, bo_joined.members) == (2, ana, ())  # type: ignore[union-attr]

    bo_syncs = asker.begin(asker.syncing(2, bo))
    assert asker.ask(asker.syncing(2, ana, {ana: b"half", bo: b"rest"})).assignment == b"half"
    assert bo_syncs.result(HANG_S).assignment == b"rest"  # type: ignore[union-attr]

    assert asker.leave(bo, "had enough").members[0].error == "NONE"
    assert asker.heartbeat(2, bo).error == "UNKNOWN_MEMBER_ID"
    assert asker.leave(ana).error == "NONE"
    emptied = asker.describe()
    assert (emptied.state.value, emptied.generation_id, emptied.members) == ("Empty", 3, ())
    assert asker.fetch() == {("t", 0): 7}, "offsets stay when members leave"

    published = reader.everything()
    assert [r["state"] for r in published.groups][-1] == "Empty"
    causes = [(e["cause"], e["reason"]) for e in published.events if e["event"] == "rebalance_started"]
    assert causes == [("member_joined", None), ("member_joined", None), ("member_left", "had enough")]
    assert published.versions == list(range(1, len(published.versions) + 1)), "no gap, no repeat (I8)"
    assert published.offsets[-1] == {("t", 0): 7}


def test_silent_member_is_expelled_neither_early_nor_late(asker: Asker, reader: Reader) -> None:
    """S05, S74, S145, I10: the member expires by time alone, without any request."""
    member_id, generation = asker.alone(session_timeout_ms=SESSION_MS)
    asker.heartbeat(generation, member_id)
    last_beat_ms = reader.time_of_last_request()
    expired = reader.await_event("member_expired", within_s=HANG_S)
    assert expired["silence_ms"] == SESSION_MS
    assert expired["at_ms"] == last_beat_ms + SESSION_MS, "the event has the time of the deadline"
    late_ms = expired["_appended_ms"] - expired["at_ms"]
    assert 0 <= late_ms <= SLACK_TICK_BATCH_S * 1_000
    assert asker.heartbeat(generation, member_id).error == "UNKNOWN_MEMBER_ID"
    assert asker.describe().state.value == "Empty"


def test_overdue_join_phase_is_closed_by_time_alone(asker: Asker, reader: Reader) -> None:
    """S37, S74, S78, W9: ana sends heartbeats and does not rejoin; bo gets its response without her."""
    ana, generation = asker.alone(rebalance_timeout_ms=SESSION_MS)
    bo = asker.new_id("bo", rebalance_timeout_ms=SESSION_MS)
    joined = asker.ask(asker.joining(bo, "bo", rebalance_timeout_ms=SESSION_MS), within_s=HANG_S)
    assert (joined.error, joined.generation_id, joined.leader) == ("NONE", generation + 1, bo)
    assert asker.heartbeat(generation, ana).error == "UNKNOWN_MEMBER_ID"
    overdue = reader.await_event("member_expired")
    assert (overdue["why"], overdue["member_id"]) == ("joins_overdue", ana)


def test_invalid_records_are_rejected_and_do_not_stop_others(coordinator: Coordinator, asker: Asker) -> None:
    """S25: truncated, foreign and hostile records between valid ones are rejected, and others are answered."""
    settings = coordinator.settings
    member_id, generation = asker.alone()
    home = shard_of(asker.group_id, settings.request_partitions)
    consumer = KafkaConsumer(**settings.kafka_client_arguments())
    partitions = [TopicPartition(settings.events_topic, p) for p in range(settings.request_partitions)]
    consumer.assign(partitions)
    consumer.seek_to_end(*partitions)
    assert all(consumer.position(p) is not None for p in partitions)
    producer = KafkaProducer(**settings.kafka_client_arguments())
    garbage = [b"{", b"[]", b"\xff\xfe", None, b"", b'{"x":' + b"[" * 50_000, json.dumps({"kind": "dance"}).encode()]
    placed = [
        producer.send(settings.requests_topic, partition=home, key=b"any", value=value).get(10).offset
        for value in garbage
    ]
    assert asker.heartbeat(generation, member_id).error == "NONE"
    told: list[int] = []

    def all_told() -> bool:
        for records in consumer.poll(timeout_ms=200).values():
            found = [json.loads(r.value) for r in records]
            told.extend(e["offset"] for e in found if e["event"] == "rejected" and e["partition"] == home)
        return set(placed) <= set(told)

    wait_until(all_told, account=lambda: (placed, told))
    consumer.close()
    producer.close()


def test_error_for_a_request_in_the_wrong_partition_names_the_right_one(coordinator: Coordinator, asker: Asker) -> None:
    """S17, S19."""
    settings = coordinator.settings
    home = shard_of(asker.group_id, settings.request_partitions)
    wrong = (home + 1) % settings.request_partitions
    inbox = shard_of("lost", settings.reply_partitions)
    request = structs.replace(asker.joining(), request_id="lost-1", reply_to="lost")
    producer = KafkaProducer(**settings.kafka_client_arguments())
    producer.send(settings.requests_topic, partition=wrong, value=encode_request(request)).get(10)
    producer.close()
    consumer = KafkaConsumer(**settings.kafka_client_arguments())
    consumer.assign([TopicPartition(settings.replies_topic, inbox)])
    consumer.seek_to_beginning()
    heard: list[AnyAnswer] = []

    def answered() -> bool:
        for records in consumer.poll(timeout_ms=200).values():
            heard.extend(decode_answer(r.value) for r in records if r.key == b"lost")
        return bool(heard)

    wait_until(answered)
    consumer.close()
    assert (heard[0].request_id, heard[0].error, heard[0].code) == ("lost-1", "NOT_COORDINATOR", 16)
    assert str(home) in str(heard[0].error_message)


def test_a_hundred_groups_on_all_shards_are_independent(asker: Asker, coordinator: Coordinator) -> None:
    """S23: each group has its own ids, generations and offsets."""
    askers = [Asker(asker.transport, f"{asker.group_id}-{i}") for i in range(100)]
    pending = [a.begin(a.joining(require_known_member_id=False)) for a in askers]
    joined = [p.result(HANG_S) for p in pending]
    assert {j.generation_id for j in joined} == {1}  # type: ignore[union-attr]
    homes = {shard_of(a.group_id, coordinator.settings.request_partitions) for a in askers}
    assert homes == set(range(coordinator.settings.request_partitions))
    stranger = askers[0].heartbeat(1, joined[1].member_id)  # type: ignore[union-attr]
    assert stranger.error == "UNKNOWN_MEMBER_ID", "a member id of another group is no member (S26)"
    commits = [a.begin(c) for a, c in zip(askers, _commits(askers), strict=True)]
    assert {c.result(HANG_S).error for c in commits} == {"UNKNOWN_MEMBER_ID"}, "the group has members"
    wait_until(lambda: set(coordinator.tallies.shards) == homes)
    latest = coordinator.tallies.latest
    assert latest is not None
    assert latest.groups >= 100


def _commits(askers: list[Asker]) -> list[OffsetCommit]:
    return [
        OffsetCommit(request_id="", reply_to="", group_id=a.group_id, offsets=(OffsetToCommit("t", 0, i),))
        for i, a in enumerate(askers)
    ]
