"""The topics of a coordinator on a real broker: they are made, checked and refused."""

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from streaming.cli.services.service import SHARDS_ON_ONE_MACHINE, with_shards
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.errors import BrokerUnreachable, TopicMismatch, TopicRefused
from streaming.kafka import any_broker, peers
from streaming.kafka.topics import FEWER_COPIES, ensure, layout, topic_ids

PREFIXES = (f"topics-{number}" for number in itertools.count())


@pytest.fixture
def settings(broker: Broker) -> Callable[..., Settings]:
    """Return a function that makes settings for topics that no other test uses."""
    prefix = next(PREFIXES)

    def make(**changed: Any) -> Settings:
        few = {"request_partitions": 4, "reply_partitions": 2, "replication_factor": 1}
        return Settings(**{"bootstrap_servers": broker.bootstrap_servers, "topic_prefix": prefix} | few | changed)

    return make


@pytest.fixture
def admin(broker: Broker) -> Iterator[Any]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as client:
        yield client


def create(admin: Any, name: str, partitions: int, **config: str) -> None:
    configs = {setting.replace("_", "."): value for setting, value in config.items()}
    admin.create_topics({name: {"num_partitions": partitions, "configs": configs}}, wait_for_metadata=True)


def delete(admin: Any, name: str) -> None:
    admin.delete_topics([name])
    deadline_s = time.monotonic() + 10.0
    while admin.describe_topics([name])[0]["partitions"]:
        assert time.monotonic() < deadline_s


def test_missing_topics_are_made_and_then_found(settings: Callable[..., Settings]) -> None:
    told: list[str] = []
    topics = ensure(settings(), report=told.append)
    assert topics == layout(settings())
    assert told == [f"Creating the topics {', '.join(topic.name for topic in topics)}."]
    assert ensure(settings(), report=told.append) == topics
    assert len(told) == 1


def test_up_keeps_the_shards_of_existing_topics_and_of_the_user(broker: Broker) -> None:
    """A coordinator on one machine begins with few shards. Topics that have more stay as they are."""
    prefix = next(PREFIXES)
    there = {"bootstrap_servers": broker.bootstrap_servers, "topic_prefix": prefix, "replication_factor": 1}
    assert with_shards(Settings(**there)).request_partitions == SHARDS_ON_ONE_MACHINE
    assert with_shards(Settings(**there, request_partitions=16)).request_partitions == 16
    ensure(Settings(**there, request_partitions=7))
    assert with_shards(Settings(**there)).request_partitions == 7
    assert with_shards(Settings(**there, request_partitions=16)).request_partitions == 16


def test_broker_has_the_configured_settings(settings: Callable[..., Settings], admin: Any) -> None:
    for topic in ensure(settings()):
        (described,) = admin.describe_topics([topic.name])
        assert len(described["partitions"]) == topic.partitions
        assert all(partition["leader_id"] >= 0 for partition in described["partitions"])
        resource = ConfigResource(ConfigResourceType.TOPIC, topic.name)
        found = admin.describe_configs([resource], config_filter="all")["topic"][topic.name]
        assert {name: found[name]["value"] for name in topic.config} == topic.config


def test_services_can_make_the_topics_at_the_same_time(settings: Callable[..., Settings]) -> None:
    with ThreadPoolExecutor() as pool:
        made = list(pool.map(ensure, [settings()] * 3))
    assert made == [layout(settings())] * 3


def test_all_mismatches_of_all_topics_are_reported_together(settings: Callable[..., Settings], admin: Any) -> None:
    requests, replies, groups, events, transactions = layout(settings())
    create(admin, requests.name, 3, message_timestamp_type="CreateTime")
    create(admin, replies.name, 5, cleanup_policy="delete")
    create(admin, groups.name, 4, cleanup_policy="compact,delete")
    create(admin, events.name, 4, cleanup_policy="compact", max_message_bytes="32767")
    create(admin, transactions.name, 4, retention_ms="60000")
    with pytest.raises(TopicMismatch) as caught:
        ensure(settings())
    assert str(caught.value) == (
        f"{requests.name} has 3 partitions where request_partitions is 4;"
        f" {requests.name} has message.timestamp.type=CreateTime where LogAppendTime is needed;"
        f" {replies.name} has 5 partitions where reply_partitions is 2;"
        f" {groups.name} has cleanup.policy=compact,delete where compact is needed;"
        f" {events.name} has cleanup.policy=compact where delete or compact,delete is needed;"
        f" {events.name} has max.message.bytes=32767 where 32768 or more is needed;"
        f" {transactions.name} has retention.ms=60000 where -1 is needed:"
        " alter the topics or the settings, or choose a topic_prefix that is not in use."
    )


def test_suitable_settings_of_the_user_are_kept(settings: Callable[..., Settings], admin: Any) -> None:
    requests, _, _, events, _ = layout(settings())
    create(admin, requests.name, 4, message_timestamp_type="LogAppendTime", retention_ms="3600000")
    create(admin, events.name, 4, cleanup_policy="delete,compact", max_message_bytes="32768")
    ensure(settings())


def test_more_replicas_than_brokers_are_refused(settings: Callable[..., Settings]) -> None:
    with pytest.raises(TopicRefused) as caught:
        ensure(settings(replication_factor=3))
    assert str(caught.value).startswith(f"The brokers did not create the topic {layout(settings()).requests.name} (")
    assert str(caught.value).endswith("): set replication_factor to the number of brokers or less.")


def test_replicas_that_nobody_has_set_follow_the_number_of_brokers(broker: Broker, admin: Any) -> None:
    """First contact: a Kafka of one broker."""
    given = {"bootstrap_servers": broker.bootstrap_servers, "topic_prefix": next(PREFIXES)}
    settings, told = Settings(**given, request_partitions=1, reply_partitions=1), list[str]()
    topics = ensure(settings, told.append)
    assert told[1:] == [FEWER_COPIES.format(number=1, wanted=3)]
    for topic in topics:
        (described,) = admin.describe_topics([topic.name])
        assert [len(partition["replica_nodes"]) for partition in described["partitions"]] == [1]
        resource = ConfigResource(ConfigResourceType.TOPIC, topic.name)
        found = admin.describe_configs([resource], config_filter="all")["topic"][topic.name]
        assert found["min.insync.replicas"]["value"] == "1"
    ensure(settings, told.append)
    assert len(told) == 2


def test_topic_that_is_made_again_has_another_id(
    settings: Callable[..., Settings], admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = ensure(settings())
    before = topic_ids(settings())
    assert set(before) == {topic.name for topic in topics}
    assert topic_ids(settings()) == before
    delete(admin, topics.events.name)
    monkeypatch.setattr(any_broker, "KNOWN_WAIT_S", 1.0)
    with pytest.raises(TopicRefused) as caught:
        topic_ids(settings())
    assert str(caught.value).endswith(
        ": start the coordinator, which creates it, or wait for a broker that lags behind."
    )
    ensure(settings())
    after = topic_ids(settings())
    assert {name for name in before if before[name] != after[name]} == {topics.events.name}


def test_unreachable_broker_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_broker, "ANSWER_WAIT_S", 0.3)
    with pytest.raises(BrokerUnreachable) as caught:
        ensure(Settings(bootstrap_servers="127.0.0.1:9"))
    assert str(caught.value) == (
        "No Kafka broker answers at 127.0.0.1:9 (111 ECONNREFUSED):"
        " start one there, or correct bootstrap_servers and the security settings."
    )


# -- peers -------------------------------------------------------------------------------------------------------------


def test_topics_of_peers_are_checked(
    settings: Callable[..., Settings], admin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """moving.md 1: a start with peers looks at their request topics, and at how long the own requests are kept."""
    monkeypatch.setattr(any_broker, "KNOWN_WAIT_S", 1.0)
    key = tmp_path / "peer.key"
    key.write_text("0123456789abcdef0123456789abcdef")
    own = settings()
    assert peers.check(own) == {}
    peer = f"{own.topic_prefix}-peer"
    with_peer = settings(peers=(peer,), peer_key_file=str(key))
    ensure(own)
    with pytest.raises(TopicMismatch, match=f"the brokers have no topic {peer}.requests: start that coordinator first"):
        peers.check(with_peer)
    create(admin, f"{peer}.requests", 4, message_timestamp_type="CreateTime", max_message_bytes="40000")
    with pytest.raises(TopicMismatch, match=f"{peer}.requests has message.timestamp.type=CreateTime .*=40000 where"):
        peers.check(with_peer)
    delete(admin, f"{peer}.requests")
    ensure(of_peer := settings(topic_prefix=peer))
    assert peers.check(with_peer) == {peer: of_peer.request_partitions}
