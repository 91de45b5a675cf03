"""What a consumer may be told, and what it refuses by name."""

from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaConfigurationError

from streaming.client.config import configure

REFUSED: dict[str, dict[str, Any]] = {
    "Unrecognized configs: fetch_size, sesion_timeout_ms": {"sesion_timeout_ms": 1, "fetch_size": 2},
    "group_id is needed": {"group_id": None},
    r"heartbeat_interval_ms \(6000\) must be lower than session_timeout_ms \(6000\)": {
        "heartbeat_interval_ms": 6_000,
        "session_timeout_ms": 6_000,
    },
    "group_instance_id: static members are not served yet": {"group_instance_id": "i"},
    "cooperative-sticky is cooperative, which is not served yet": {
        "partition_assignment_strategy": [CooperativeStickyAssignor]
    },
    "at least one assignor is needed": {"partition_assignment_strategy": []},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused_by_name(message: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=message):
        configure({"group_id": "g"} | REFUSED[message])


def test_defaults_are_kafkas() -> None:
    """S111: three heartbeats and more fit into a session."""
    group = configure({"group_id": "g"}).group
    assert (group["session_timeout_ms"], group["heartbeat_interval_ms"]) == (45_000, 3_000)
    assert (group["max_poll_interval_ms"], group["auto_commit_interval_ms"]) == (300_000, 5_000)
    shared = group.keys() & KafkaConsumer.DEFAULT_CONFIG.keys() - {"partition_assignment_strategy", "group_id"}
    assert {name: group[name] for name in shared} == {name: KafkaConsumer.DEFAULT_CONFIG[name] for name in shared}


def test_kafkas_consumer_never_learns_of_the_group() -> None:
    reading = configure({"group_id": "g", "enable_auto_commit": True, "auto_offset_reset": "earliest"}).reading
    assert (reading["group_id"], reading["enable_auto_commit"]) == (None, False)
    assert reading["auto_offset_reset"] == "earliest"
    assert "topic_prefix" not in reading


def test_the_way_to_the_brokers_is_everybodys() -> None:
    given = {"bootstrap_servers": "b:9093", "security_protocol": "SSL", "ssl_cafile": "ca.pem"}
    config = configure({"group_id": "g", "client_id": "ana", "max_poll_records": 7} | given)
    assert config.way == given
    assert config.reading.items() >= given.items()


def test_assignors_may_be_given_as_classes_or_ready_made() -> None:
    ready = RoundRobinPartitionAssignor()
    strategy = [RoundRobinPartitionAssignor, ready]
    assignors = configure({"group_id": "g", "partition_assignment_strategy": strategy}).assignors
    assert [type(a) for a in assignors] == [RoundRobinPartitionAssignor] * 2
    assert assignors[1] is ready
