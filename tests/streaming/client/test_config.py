"""Tests of the configuration of members, and of the errors for invalid settings."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.errors import KafkaConfigurationError

from coordinator.assignors import RebalanceProtocol
from streaming.client import GroupConsumer
from streaming.client import config as module
from streaming.client.config import CONSUMER_DEFAULTS, MEMBER_DEFAULTS, configure_consumer, configure_member
from streaming.client.plans import effective_protocol

REFUSED: dict[str, dict[str, Any]] = {
    "Unrecognized configs: fetch_size, sesion_timeout_ms": {"sesion_timeout_ms": 1, "fetch_size": 2},
    "group_id is needed": {"group_id": None},
    "group_id is needed: .* 249 characters at most": {"group_id": "g" * 250},
    "client_id is needed": {"client_id": ""},
    r"heartbeat_interval_ms \(6000\) must be lower than session_timeout_ms \(6000\)": {
        "heartbeat_interval_ms": 6_000,
        "session_timeout_ms": 6_000,
    },
    r"session_timeout_ms \('6000'\) must be a whole number": {"session_timeout_ms": "6000"},
    r"heartbeat_interval_ms \(0\) must be a whole number from 1": {"heartbeat_interval_ms": 0},
    r"max_poll_interval_ms \(True\) must be a whole number": {"max_poll_interval_ms": True},
    r"group_instance_id \('a b'\) must be 1 to 249": {"group_instance_id": "a b"},
    r"group_instance_id \('\.\.'\) must be": {"group_instance_id": ".."},
    r"security_protocol \('TLS'\) must be one of PLAINTEXT, SSL": {"security_protocol": "TLS"},
    r"peers \('new'\) must be a list of topic prefixes": {"peers": "new"},
    r"peers \(\['a b'\]\) must be a list": {"peers": ["a b"]},
    r"peers .* must be 32 different prefixes at most": {"peers": [f"p{n}" for n in range(33)]},
    r"peers \(\['a', 'a'\]\) must be .* different": {"peers": ["a", "a"]},
    r"peers .* and not topic_prefix itself": {"peers": ["coordinator"]},
    "at least one assignor is needed": {"partition_assignment_strategy": []},
    "'sticki' is not an assignor": {"partition_assignment_strategy": ["sticki"]},
}


@pytest.mark.parametrize("configure", [configure_consumer, configure_member])
@pytest.mark.parametrize("message", REFUSED)
def test_an_invalid_setting_is_refused_by_name(message: str, configure: Callable[..., object]) -> None:
    with pytest.raises(KafkaConfigurationError, match=message):
        configure({"group_id": "g"} | REFUSED[message])


def test_settings_of_records_are_refused_for_a_member_without_records() -> None:
    with pytest.raises(KafkaConfigurationError, match="Unrecognized configs: auto_offset_reset, max_poll_records"):
        configure_member({"group_id": "g", "auto_offset_reset": "latest", "max_poll_records": 1})
    with pytest.raises(KafkaConfigurationError, match=r"max_poll_records \(0\)"):
        configure_consumer({"group_id": "g", "max_poll_records": 0})


def test_defaults_equal_those_of_kafka() -> None:
    """S111, S125, S126, S127, S128: the defaults equal Kafka's; a session has room for more than three heartbeats."""
    group = configure_consumer({"group_id": "g"}).group
    assert (group["session_timeout_ms"], group["heartbeat_interval_ms"]) == (45_000, 3_000)
    assert (group["max_poll_interval_ms"], group["max_poll_records"]) == (300_000, 500)
    own = {"partition_assignment_strategy", "group_id", "default_offset_commit_callback"}
    shared = group.keys() & KafkaConsumer.DEFAULT_CONFIG.keys() - own
    assert {name: group[name] for name in shared} == {name: KafkaConsumer.DEFAULT_CONFIG[name] for name in shared}


def test_default_assignors_are_javas_for_consumers_and_cooperative_for_members() -> None:
    """S134: the defaults are both of Java's, and eager is their common protocol until range is removed."""
    config = configure_consumer({"group_id": "g"})
    assert [s.name for s in config.strategies] == ["range", "cooperative-sticky"]
    assert effective_protocol(config.strategies) is RebalanceProtocol.EAGER
    strategies = configure_member({"group_id": "g"}).strategies
    assert effective_protocol(strategies) is RebalanceProtocol.COOPERATIVE


def test_every_setting_is_one_of_kafka_python_or_of_ours() -> None:
    """Every setting of kafka-python's consumer is accepted."""
    ours = {"topic_prefix", "peers", "retry_backoff_max_ms", "principal", "access_key_file", "metadata_refresh_ms"}
    javas = {"group_protocol", "group_remote_assignor"}
    assert CONSUMER_DEFAULTS.keys() - KafkaConsumer.DEFAULT_CONFIG.keys() == ours | javas
    assert MEMBER_DEFAULTS.keys() < CONSUMER_DEFAULTS.keys()


def test_kafkas_consumer_gets_no_group_settings() -> None:
    given = {"group_id": "g", "enable_auto_commit": True, "auto_offset_reset": "earliest", "group_instance_id": "i"}
    reading = configure_consumer(given).reading
    assert (reading["group_id"], reading["group_instance_id"], reading["enable_auto_commit"]) == (None, None, False)
    assert reading["auto_offset_reset"] == "earliest"
    assert "topic_prefix" not in reading


def test_every_client_gets_the_connection_settings() -> None:
    given = {"bootstrap_servers": "b:9093", "security_protocol": "SSL", "ssl_cafile": "ca.pem"}
    config = configure_consumer({"group_id": "g", "client_id": "ana", "max_poll_records": 7} | given)
    assert config.connection == given
    assert config.reading.items() >= given.items()
    assert configure_member({"group_id": "g"} | given).connection == given


# -- the consumer protocol ---------------------------------------------------------------------------------------------

CONSUMER = {"group_id": "g", "group_protocol": "consumer"}


@pytest.mark.parametrize("configure", [configure_consumer, configure_member])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"group_protocol": "new"}, r"group_protocol \('new'\) must be one of classic, consumer"),
        ({**CONSUMER, "group_remote_assignor": "sticky"}, "must be one of None, uniform, range"),
        ({**CONSUMER, "session_timeout_ms": 6_000}, "session_timeout_ms cannot be set when group_protocol=consumer"),
        ({**CONSUMER, "heartbeat_interval_ms": 1}, "heartbeat_interval_ms cannot be set when group_protocol=consumer"),
        (
            {**CONSUMER, "partition_assignment_strategy": ["range"], "session_timeout_ms": 1},
            "session_timeout_ms, partition_assignment_strategy cannot be set when group_protocol=consumer",
        ),
        ({"group_remote_assignor": "range"}, "group_remote_assignor cannot be set when group_protocol=classic"),
        ({"metadata_refresh_ms": 500}, "metadata_refresh_ms cannot be set when group_protocol=classic"),
        ({**CONSUMER, "metadata_refresh_ms": 99}, r"metadata_refresh_ms \(99\) must be a whole number from 100"),
    ],
)
def test_a_setting_of_the_other_protocol_is_refused(
    given: dict[str, Any], message: str, configure: Callable[..., object]
) -> None:
    """9.2: as in Java's client, the coordinator chooses session timeout and interval."""
    with pytest.raises(KafkaConfigurationError, match=message):
        configure({"group_id": "g"} | given)


def test_a_member_of_the_consumer_protocol_makes_its_own_id() -> None:
    """KIP-848: a UUID as Kafka writes it."""
    transport: Any = SimpleNamespace(inbox="inbox", client_host=lambda: "/here")
    config = configure_consumer({**CONSUMER, "client_rack": "north", "group_remote_assignor": "range"})
    members = [config.consumer_protocol_member(transport) for _ in range(200)]
    assert len({member.member_id for member in members}) == 200
    assert all(re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]{21}", member.member_id) for member in members)
    member = members[0]
    assert (member.rack_id, member.server_assignor, member.reply_to, member.client_host) == (
        "north", "range", "inbox", "/here",
    )  # fmt: skip


def test_members_of_both_protocols_count_their_heartbeats_by_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "unix_ms", lambda: 1_790_000_001_300)
    monkeypatch.setattr(module, "monotonic_ms", lambda: 0)
    transport: Any = SimpleNamespace(inbox="inbox", client_host=lambda: "/here")
    classic = configure_consumer({"group_id": "g"}).member(transport, "consumer")
    consumer = configure_consumer(CONSUMER).consumer_protocol_member(transport)
    assert [classic.next_heartbeat_ms(now_ms) for now_ms in (0, 2_699, 2_700)] == [2_700, 2_700, 5_700]
    assert [consumer.next_heartbeat_ms(now_ms, 5_000) for now_ms in (0, 3_699, 3_700)] == [3_700, 3_700, 8_700]


def test_resources_are_assigned_evenly_and_consumers_vote_only_if_they_say_so() -> None:
    """With range, one member would get all resources: each is a topic with one partition."""
    assert configure_member(CONSUMER).group["group_remote_assignor"] == "uniform"
    assert configure_consumer(CONSUMER).group["group_remote_assignor"] is None


@pytest.mark.parametrize("request_timeout_ms", [1, 600_000])
def test_time_that_a_kafka_consumer_refuses_is_no_missing_broker(request_timeout_ms: int) -> None:
    """It was reported as brokers that do not answer. A KafkaConsumer refuses it before it looks for brokers."""
    with pytest.raises(KafkaConfigurationError, match=rf"request_timeout_ms \({request_timeout_ms}\)"):
        GroupConsumer("t", bootstrap_servers="127.0.0.1:1", group_id="g", request_timeout_ms=request_timeout_ms)
