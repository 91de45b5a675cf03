"""Groups of the broker's own coordinator, as the observer's topics show them: real clients, broker and query."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from streaming.embedded import Broker
from streaming.observe.observer import Observer
from tests.system.kafka_groups import KafkaGroup, kafka_group
from tests.system.reading import Published, Reader
from tests.system.waiting import HANG_S, wait_until

COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
MODERN = {"group.protocol": "consumer"}


class Seen:
    """What the observer has published about one group."""

    def __init__(self, observer: Observer, group_id: str) -> None:
        self.reader = Reader(observer.settings, group_id)

    def all(self) -> Published:
        return self.reader.everything()

    def has_all_versions(self) -> bool:
        """Return whether versions have no gap and no repeat. The two topics are read one after the other."""
        versions = self.all().versions
        return versions == list(range(1, len(versions) + 1))

    def events(self, *names: str) -> list[dict[str, Any]]:
        return [each for each in self.all().events if each["event"] in names]

    def await_record(self, is_wanted: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Wait until the group's last record is as wanted, and return it."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            found[:] = self.all().groups[-1:]
            return bool(found and found[0] and is_wanted(found[0]))

        wait_until(look, account=lambda: found)
        return found[0]

    def await_stable(self, members: int, generation: int) -> dict[str, Any]:
        return self.await_record(
            lambda record: (
                (record["state"], len(record["members"])) == ("Stable", members)
                and record["generation_id"] >= generation
            )
        )


@pytest.fixture
def group(broker: Broker, observer: Observer, request: pytest.FixtureRequest) -> Iterator[KafkaGroup]:
    name = request.node.name.removeprefix("test_")[:60]
    with kafka_group(broker.bootstrap_servers, name) as group:
        yield group


@pytest.fixture
def seen(observer: Observer, group: KafkaGroup) -> Iterator[Seen]:
    seen = Seen(observer, group.group_id)
    yield seen
    if not any(each["event"] == "group_deleted" for each in seen.reader.events()):
        wait_until(seen.has_all_versions, account=lambda: seen.all().versions)


def check_against_brokers(group: KafkaGroup, seen: Seen) -> None:
    """Check that the observer shows what the broker answers: members, their partitions, and committed offsets."""

    def differences() -> list[Any]:
        record, told = seen.all().groups[-1], group.admin.describe_consumer_groups([group.group_id])
        described = told[group.group_id].result(HANG_S)
        members = {
            (m.member_id, m.group_instance_id, m.client_id, m.host): sorted(
                (each.topic, each.partition) for each in m.assignment.topic_partitions
            )
            for m in described.members
        }
        shown = {
            (m["member_id"], m["group_instance_id"], m["client_id"], m["client_host"]): sorted(
                (topic, number) for topic, numbers in m["assigned"].items() for number in numbers
            )
            for m in record["members"]
        }
        listed = group.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group.group_id)])
        committed = {
            (each.topic, each.partition): each.offset for each in listed[group.group_id].result(HANG_S).topic_partitions
        }
        offsets: dict[tuple[str, int], int] = {}
        for each in seen.all().offsets:
            offsets |= each
        states = described.state.name.lower(), record["state"].lower()
        return [(ours, theirs) for ours, theirs in ((shown, members), (offsets, committed), states) if ours != theirs]

    wait_until(lambda: not differences(), account=differences)


def assigned(record: dict[str, Any], topic: str) -> dict[str, list[int]]:
    """Return the partitions of each member, by its client id."""
    return {each["client_id"]: each["assigned"].get(topic, []) for each in record["members"]}


def test_classic_group_from_its_founding_to_its_end(group: KafkaGroup, seen: Seen) -> None:
    """Walkthroughs 1, 2, 3, 5: members, plans and causes; no duration of joins; left or expired is not known."""
    ana = group.join("ana").await_owned(0, 1, 2, 3)
    ana.commit(3, 17)
    record = seen.await_stable(members=1, generation=1)
    assert (record["kept_by"], record["type"], record["protocol_name"]) == ("kafka", "classic", "range")
    assert assigned(record, group.topic) == {"ana": [0, 1, 2, 3]}
    assert record["subscribed_topics"] == [group.topic]
    wait_until(lambda: {(group.topic, 3): 17} in seen.all().offsets)

    check_against_brokers(group, seen)
    bo = group.join("bo", **{"session.timeout.ms": 2_000}).await_owned(2, 3)
    record = seen.await_stable(members=2, generation=2)
    check_against_brokers(group, seen)
    began, *_ = seen.all().events
    assert (began["event"], began["founded"]) == ("observation_began", True)
    first, second = seen.events("rebalance_started")
    assert (first["cause"], second["cause"], second["how_known"]) == ("member_joined", "member_joined", "inferred")
    assert second["not_before_ms"] <= second["at_ms"]
    completed = seen.events("rebalance_completed")[-1]
    assert (completed["duration_ms"], completed["joins_ms"]) == (None, None)
    assert completed["syncs_ms"] >= 0
    assert len(seen.events("assignment_changed")[-1]["handovers"]) == 2

    bo.kill()
    record = seen.await_stable(members=1, generation=3)
    (gone,) = seen.events("member_gone")
    assert (gone["client_id"], gone["likely"], gone["session_timeout_ms"]) == ("bo", None, 2_000)
    assert gone["last_commit_ms"] is None

    ana.close()
    record = seen.await_record(lambda each: each["state"] == "Empty")
    check_against_brokers(group, seen)
    assert record["members"] == []
    assert len(seen.events("group_emptied")) == 1
    assert seen.events("member_left", "member_expired") == []


def test_member_that_committed_just_before_has_left(group: KafkaGroup, seen: Seen) -> None:
    """Walkthrough 4: a commit renews the session, so the member cannot have expired."""
    ana, bo = group.join("ana"), group.join("bo")
    wait_until(lambda: len(ana.owned) == len(bo.owned) == 2, account=lambda: (ana.owned, bo.owned))
    bo.commit(bo.owned[0], 5)
    bo.close()
    ana.await_owned(0, 1, 2, 3)
    wait_until(lambda: seen.events("member_gone"))
    (gone,) = seen.events("member_gone")
    assert (gone["client_id"], gone["likely"]) == ("bo", "left")
    assert gone["at_ms"] - gone["last_commit_ms"] < gone["session_timeout_ms"]


def test_static_member_restarts_without_a_rebalance(group: KafkaGroup, seen: Seen) -> None:
    """Walkthrough 7: the same generation under another member id."""
    till = group.join("till", **{"group.instance.id": "till-1", "session.timeout.ms": 30_000}).await_owned(0, 1, 2, 3)
    generation = seen.await_stable(members=1, generation=1)["generation_id"]
    till.kill()
    group.join("till", **{"group.instance.id": "till-1", "session.timeout.ms": 30_000}).await_owned(0, 1, 2, 3)
    wait_until(lambda: seen.events("member_fenced"))
    (fenced,) = seen.events("member_fenced")
    record = seen.await_record(lambda each: each["members"][0]["member_id"] == fenced["replaced_by"])
    assert (record["generation_id"], len(seen.events("rebalance_started"))) == (generation, 1)
    assert fenced["group_instance_id"] == "till-1"


def test_cooperative_rebalance_has_two_rounds(group: KafkaGroup, seen: Seen) -> None:
    """Walkthrough 8: what a member gives up is nobody's until the second round."""
    group.join("ana", **COOPERATIVE).await_owned(0, 1, 2, 3)
    seen.await_stable(members=1, generation=1)
    bo = group.join("bo", **COOPERATIVE)
    wait_until(lambda: len(bo.owned) == 2)
    record = seen.await_stable(members=2, generation=3)
    check_against_brokers(group, seen)
    assert sorted(len(each) for each in assigned(record, group.topic).values()) == [2, 2]
    assert [each["cause"] for each in seen.events("rebalance_started")][-2:] == ["member_joined", "cooperative_round"]
    given_up, given = seen.events("assignment_changed")[-2:]
    assert [each["after"] for each in given_up["handovers"]] == [None, None]
    assert [each["before"] for each in given["handovers"]] == [None, None]


def test_group_of_the_consumer_protocol(group: KafkaGroup, seen: Seen) -> None:
    """Walkthrough 9: real durations, each member's step, and names of topics in place of ids."""
    group.join("ana", **MODERN).await_owned(0, 1, 2, 3)
    record = seen.await_record(lambda each: each["members"] and group.topic in each["members"][0]["assigned"])
    assert (record["type"], record["state"], record["leader"]) == ("consumer", "Stable", None)
    bo = group.join("bo", **MODERN)
    wait_until(lambda: len(bo.owned) == 2)
    record = seen.await_stable(members=2, generation=record["generation_id"] + 1)
    check_against_brokers(group, seen)
    assert sorted(len(each) for each in assigned(record, group.topic).values()) == [2, 2]
    started, completed = seen.events("rebalance_started")[-1], seen.events("rebalance_completed")[-1]
    assert (started["how_known"], started["cause"], started["client_id"]) == ("recorded", "member_joined", "bo")
    assert completed["duration_ms"] == completed["at_ms"] - started["at_ms"]
    assert completed["joins_ms"] + completed["syncs_ms"] == completed["duration_ms"]
    bo.close()
    seen.await_stable(members=1, generation=record["generation_id"] + 1)
    assert [each["likely"] for each in seen.events("member_gone")] == [None]
    assert seen.events("rebalance_started")[-1]["cause"] == "member_gone"


def test_upgrade_and_downgrade_are_no_end_of_the_group(group: KafkaGroup, seen: Seen) -> None:
    """Walkthrough 10: the group's history goes on through both changes."""
    group.join("c1").await_owned(0, 1, 2, 3)
    seen.await_stable(members=1, generation=1)
    c3 = group.join("c3", **MODERN)
    wait_until(lambda: len(c3.owned) == 2, account=lambda: c3.assignments)
    record = seen.await_record(lambda each: each["type"] == "consumer" and len(each["members"]) == 2)
    check_against_brokers(group, seen)
    assert {each["client_id"]: each["protocol"] for each in record["members"]} == {"c1": "classic", "c3": "consumer"}
    c3.close()
    seen.await_record(lambda each: each["type"] == "classic" and len(each["members"]) == 1)
    wait_until(lambda: "protocol_downgraded" in [each["cause"] for each in seen.events("rebalance_started")])
    assert [each["group_type"] for each in seen.events("group_converted")] == ["consumer", "classic"]
    assert "protocol_upgraded" in [each["cause"] for each in seen.events("rebalance_started")]
    assert seen.events("group_deleted") == []


def test_offsets_of_a_simple_group_are_forgotten_with_their_topic(group: KafkaGroup, seen: Seen) -> None:
    """Walkthrough 11: offsets without a committing member; a deleted topic; a deleted group."""
    offsets = [TopicPartition(group.topic, partition, 17) for partition in (0, 1)]
    by_hand = ConsumerGroupTopicPartitions(group.group_id, offsets)
    group.admin.alter_consumer_group_offsets([by_hand])[group.group_id].result(HANG_S)
    wait_until(lambda: len(seen.all().offsets) == 2)
    (value,) = {value for each in seen.all().offsets for value in each.values()}
    assert value == 17
    group.admin.delete_topics([group.topic])[group.topic].result(HANG_S)
    wait_until(lambda: seen.events("offsets_forgotten"))
    assert {each["why"] for each in seen.events("offsets_forgotten")} == {"deleted"}, "they cannot have expired"
    assert seen.all().groups == []


def test_offsets_that_an_operator_sets_are_an_event(group: KafkaGroup, seen: Seen) -> None:
    """M1: as by kafka-consumer-groups --reset-offsets, in one request."""
    ana = group.join("ana").await_owned(0, 1, 2, 3)
    ana.commit(0, 5)
    ana.close()
    seen.await_record(lambda each: each["state"] == "Empty")
    offsets = [TopicPartition(group.topic, partition, offset) for partition, offset in ((0, 2), (1, 7))]
    by_hand = ConsumerGroupTopicPartitions(group.group_id, offsets)
    group.admin.alter_consumer_group_offsets([by_hand])[group.group_id].result(HANG_S)
    wait_until(lambda: seen.events("offsets_set"))
    (event,) = seen.events("offsets_set")
    places = {each["partition"]: (each["topic"], each["before"], each["after"]) for each in event["partitions"]}
    assert places == {0: (group.topic, 5, 2), 1: (group.topic, None, 7)}
    assert (event["offsets_set"], event["set_back"]) == (2, 1)


def test_deleted_group_is_told_to_be_deleted(group: KafkaGroup, seen: Seen) -> None:
    """The brokers tell their retention of 7 days, so that a group emptied just before did not expire."""
    ana = group.join("ana").await_owned(0, 1, 2, 3)
    ana.commit(0, 5)
    ana.close()
    seen.await_record(lambda each: each["state"] == "Empty")
    group.admin.delete_consumer_groups([group.group_id])[group.group_id].result(HANG_S)
    wait_until(lambda: any(each["event"] == "group_deleted" for each in seen.reader.events()))
    deleted = [each for each in seen.reader.events() if each["event"] in ("offsets_forgotten", "group_deleted")]
    assert [each["why"] for each in deleted] == ["deleted", "deleted"]
