"""The causes of group epochs beside a real Kafka 4.4.0: assignors, topics, patterns and rebalance timeouts.

In each of them nothing but the log of the broker's coordinator and its metadata is known.
"""

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions, NewTopic  # type: ignore[attr-defined]
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from streaming.embedded import Broker
from streaming.gateway.protocol.definitions import ConsumerGroupHeartbeatRequest
from streaming.kafka.any_broker import AnyBroker
from streaming.observe.observer import Observer
from streaming.views.sentences.why import Why
from tests.system.kafka_groups import KafkaGroup
from tests.system.reading import Reader
from tests.system.test_observed_walkthroughs import MODERN, Shown, shown
from tests.system.waiting import HANG_S, wait_until

RANGE, UNIFORM = {"group.remote.assignor": "range"}, {"group.remote.assignor": "uniform"}

AT_ONCE = {"consumer.heartbeat.interval.ms": "200"}
"""The settings of a group whose members' heartbeats are frequent, so that the tests are short."""

Stage = tuple[KafkaGroup, Shown]


@pytest.fixture
def stage(broker: Broker, observer: Observer, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Return a group whose members have frequent heartbeats, and what is shown of it."""
    name = f"cause-{request.node.name.removeprefix('test_')[:40]}"
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, name, configs=AT_ONCE)])
    admin.close()
    with shown(broker, observer, name) as (group, seen):
        yield group, seen


@pytest.fixture
def beats(broker: Broker) -> Iterator[Callable[..., Any]]:
    """Return a function that sends one heartbeat, and returns its response."""
    with AnyBroker({"bootstrap_servers": broker.bootstrap_servers}) as brokers:

        def beat(**fields: Any) -> Any:
            return brokers.ask(lambda: ConsumerGroupHeartbeatRequest(version=1, **fields))

        yield beat


def events(observer: Observer, group: KafkaGroup, name: str) -> list[dict[str, Any]]:
    return [each for each in Reader(observer.settings, group.group_id).events() if each["event"] == name]


def grow(group: KafkaGroup, partitions: int) -> None:
    group.admin.create_partitions([NewPartitions(group.topic, partitions)])[group.topic].result(HANG_S)


def delete(group: KafkaGroup, topic: str) -> None:
    group.admin.delete_topics([topic])[topic].result(HANG_S)


def create(group: KafkaGroup, topic: str) -> None:
    group.admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(HANG_S)


def by_cause(cause: str) -> Callable[[Why], bool]:
    return lambda told: told.cause == cause


def says(*parts: str) -> Callable[[Why], bool]:
    return lambda told: all(part in told.who for part in parts)


def test_static_member_that_returns_with_another_assignor(stage: Stage) -> None:
    """W1: a rolling restart with another group.remote.assignor. No topic has changed."""
    group, seen = stage
    member = {**MODERN, "group.instance.id": "i-1"}
    group.join("ana", **member).await_owned(0, 1, 2, 3).close()
    group.join("ana", **member, **RANGE).await_owned(0, 1, 2, 3)
    told = seen.await_why(by_cause("assignor_changed"))
    assert re.fullmatch(r"ana-\S{4} at /127.0.0.1 prefers the assignor range now, none before\.", told.who)
    assert (told.is_avoidable, told.setting) == (True, "group.remote.assignor")


@pytest.mark.long
def test_tie_of_assignors_that_never_rests(stage: Stage, observer: Observer) -> None:
    """W2: one member prefers range and one uniform; Kafka 4.4.0 raises the epoch at every heartbeat of one of them."""
    group, seen = stage
    group.join("ana", **MODERN, **RANGE).await_owned(0, 1, 2, 3)
    group.join("bob", **MODERN, **UNIFORM)
    told = seen.await_why(by_cause("assignors_tied"))
    tied = r"members prefer different assignors, one each \(\S+: range; \S+: uniform\), and Kafka 4\.4\.0 rebalances"
    assert re.search(tied, told.who, re.IGNORECASE)
    assert (told.is_avoidable, told.setting) == (True, "group.remote.assignor")

    def raised() -> list[str]:
        return [each["cause"] for each in events(observer, group, "rebalance_started")]

    wait_until(lambda: raised().count("assignors_tied") >= 5, account=raised)
    assert "topics_changed" not in raised()


def test_changed_topics_are_named(stage: Stage, observer: Observer) -> None:
    """W4: a topic grows, is deleted, is made, and is made anew while the observer reads on."""
    group, seen = stage
    topic = group.topic
    group.join("ana", **MODERN).await_owned(0, 1, 2, 3)
    seen.await_why(by_cause("member_joined"))
    grow(group, 6)
    told = seen.await_why(says(f"{topic} has 6 partitions now, 4 before."))
    assert (told.cause, told.is_avoidable) == ("topics_changed", False)
    delete(group, topic)
    seen.await_why(says(f"{topic} was deleted"))
    create(group, topic)
    seen.await_why(says(f"{topic} was made, with 4 partitions"))
    named = events(observer, group, "topics_named")
    assert [change["what"] for each in named for change in each["changes"]] == ["partitions", "deleted", "made"]
    started = events(observer, group, "rebalance_started")
    assert {each["generation_id"] for each in named} <= {each["generation_id"] for each in started}


@pytest.mark.long
def test_new_topic_of_a_pattern(stage: Stage) -> None:
    """W6: the member does nothing; Kafka resolves its pattern again."""
    group, seen = stage
    prefix = f"pt-{uuid.uuid4().hex[:8]}"
    create(group, f"{prefix}-1")
    group.topic = f"^{prefix}-.*"
    group.join("dan", **MODERN).await_owned(0, 1, 2, 3)
    seen.await_why(by_cause("member_joined"))
    create(group, f"{prefix}-2")
    told = seen.await_why(by_cause("regex_resolved"))
    assert re.fullmatch(rf"{prefix}-2 matches the pattern \(\^{prefix}-\.\*\) of dan-\S{{4}}\.", told.who)
    assert told.is_avoidable is False
    first = seen.lines()[0]
    assert first == "the history begins here: the group is new", "M4"


def test_member_that_gives_nothing_up_within_its_rebalance_timeout(
    stage: Stage, beats: Callable[..., Any], observer: Observer
) -> None:
    """W7: it sends heartbeats to the end. Its session is longer than the timeout."""
    group, seen = stage
    ann, bob = (str(uuid.uuid4()) for _ in "ab")
    owned = ConsumerGroupHeartbeatRequest.TopicPartitions
    epochs, assigned = dict[str, int](), dict[str, Any]()

    def heartbeat(member: str, **fields: Any) -> None:
        """Send a heartbeat. That of a member that was dropped is refused, and its epoch stays."""
        response = beats(group_id=group.group_id, member_id=member, member_epoch=epochs.get(member, 0), **fields)
        epochs[member] = epochs[member] if response.error_code else response.member_epoch
        if response.assignment is not None:
            assigned[member] = response.assignment.topic_partitions

    def join(member: str) -> None:
        fields = {"subscribed_topic_names": [group.topic], "topic_partitions": []}
        heartbeat(member, rebalance_timeout_ms=3_000, **fields)

    def has_partitions() -> bool:
        heartbeat(ann)
        return bool(assigned[ann])

    def is_dropped() -> bool:
        heartbeat(bob)
        heartbeat(ann)
        return bool(events(observer, group, "member_gone"))

    join(ann)
    wait_until(has_partitions)
    (whole,) = assigned[ann]
    heartbeat(ann, topic_partitions=[owned(topic_id=whole.topic_id, partitions=whole.partitions)])
    join(bob)
    wait_until(is_dropped)
    told = seen.await_why(by_cause("revocation_overdue"))
    assert (
        "did not give up partitions within its rebalance timeout (max.poll.interval.ms) of 3.0 s and was dropped"
        in (told.who)
    )
    assert (told.member_id, told.is_avoidable, told.setting) == (ann, True, "max.poll.interval.ms")
    (gone,) = events(observer, group, "member_gone")
    assert gone["likely"] == "revocation_overdue"
