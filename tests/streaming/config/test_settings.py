"""Tests of the settings: their sources, and the error of a wrong one."""

from pathlib import Path

import pytest

from streaming.config.settings import BadSettings, Settings


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COORDINATOR_CONFIG", raising=False)


def test_defaults_equal_those_of_kafka() -> None:
    """S19 and protocol.md 1.4: the defaults equal those of Kafka."""
    config = Settings.load().group_config()
    assert config.group_initial_rebalance_delay_ms == 3_000
    assert (config.group_min_session_timeout_ms, config.group_max_session_timeout_ms) == (6_000, 1_800_000)
    assert config.offsets_retention_ms == 7 * 24 * 3_600_000
    assert config.offset_metadata_max_bytes == 4_096
    assert Settings.load().request_partitions == 16


def test_a_flag_overrides_the_environment_and_the_environment_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "coordinator.toml"
    file.write_text('topic_prefix = "file"\nrequest_partitions = 4\nreply_partitions = 4\n')
    monkeypatch.setenv("COORDINATOR_CONFIG", str(file))
    monkeypatch.setenv("COORDINATOR_REQUEST_PARTITIONS", "8")
    monkeypatch.setenv("COORDINATOR_REPLY_PARTITIONS", "8")
    settings = Settings.load(reply_partitions=2, topic_prefix=None)
    assert (settings.topic_prefix, settings.request_partitions, settings.reply_partitions) == ("file", 8, 2)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"topic_prfix": "x"}, "topic_prfix: this setting does not exist."),
        ({"request_partitions": 0}, "request_partitions: Input should be greater than or equal to 1."),
        ({"state_store": "disk"}, "state_store: Input should be 'hdfs' or 'rocksdb'."),
        (
            {"group_min_session_timeout_ms": 20, "group_max_session_timeout_ms": 10},
            "Value error, group_min_session_timeout_ms is above group_max_session_timeout_ms.",
        ),
    ],
)
def test_an_invalid_setting_is_refused_by_name(flags: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadSettings) as refused:
        Settings.load(**flags)
    assert str(refused.value) == sentence


def test_an_unknown_variable_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORDINATOR_TOPIC_PRFIX", "x")
    with pytest.raises(BadSettings, match=r"COORDINATOR_TOPIC_PRFIX: this setting does not exist\."):
        Settings.load()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("no_such = 1", "no_such: this setting does not exist."), ("x = ", "is not TOML")],
)
def test_a_wrong_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str) -> None:
    file = tmp_path / "coordinator.toml"
    file.write_text(text)
    monkeypatch.setenv("COORDINATOR_CONFIG", str(file))
    with pytest.raises(BadSettings, match=sentence):
        Settings.load()


def test_a_missing_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORDINATOR_CONFIG", "no/such/file.toml")
    with pytest.raises(BadSettings, match=r"COORDINATOR_CONFIG names no/such/file.toml, which is not a file."):
        Settings.load()


@pytest.mark.parametrize("servers", ["", "localhost", "localhost:", "a:1,", ",a:1", "a b:1", "a:1;b:2", "[::1]"])
def test_brokers_are_named_by_host_and_port(servers: str) -> None:
    with pytest.raises(BadSettings, match="bootstrap_servers: String should match pattern"):
        Settings.load(bootstrap_servers=servers)


@pytest.mark.parametrize("servers", ["localhost:9092", "kafka-1.example:9092,10.0.0.7:19092", "[::1]:9092"])
def test_one_or_more_brokers_may_be_named(servers: str) -> None:
    assert Settings.load(bootstrap_servers=servers).bootstrap_servers == servers


@pytest.mark.parametrize("name", ["gateway_host", "gateway_advertised_host", "health_host", "dashboard_host"])
def test_a_host_has_no_port_and_no_brackets(name: str) -> None:
    for host in ("kafka.example", "10.0.0.7", "::1", "fe80::1%eth0"):
        assert getattr(Settings.load(**{name: host}), name) == host
    assert getattr(Settings.load(**{name: "[::1]"}), name) == "::1"
    for host in ("kafka.example:30001", "10.0.0.7:9192", "[::1]:9192", "tcp://kafka.example"):
        with pytest.raises(BadSettings, match=f"{name}: it must be a host name or an address, without a port"):
            Settings.load(**{name: host})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]"])
def test_clients_are_not_sent_to_an_address_that_stands_for_all(host: str) -> None:
    """Public reports, kafka-proxy 203. A broker refuses such an address in advertised.listeners as well."""
    for settings in (
        Settings.load(gateway_host=host),
        Settings.load(gateway_advertised_host=host),
        Settings.load(gateway_host="10.0.0.7", gateway_advertised_host=host),
    ):
        with pytest.raises(BadSettings, match="set gateway_advertised_host to its name or address"):
            settings.gateway_client_host()
    assert (
        Settings.load(gateway_host=host, gateway_advertised_host="kafka.example").gateway_client_host()
        == "kafka.example"
    )
    assert Settings.load(gateway_host="10.0.0.7").gateway_client_host() == "10.0.0.7"


def test_offsets_of_one_group_may_be_kept_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORDINATOR_OFFSETS_RETENTION_MINUTES_BY_GROUP", '{"orders": 20160}')
    assert Settings.load().group_config().offsets_retention_by_group_ms == {"orders": 14 * 24 * 3_600_000}
    monkeypatch.setenv("COORDINATOR_OFFSETS_RETENTION_MINUTES_BY_GROUP", '{"orders": 0}')
    with pytest.raises(BadSettings, match=r"offsets_retention_minutes_by_group.orders: Input should be greater"):
        Settings.load()
    monkeypatch.setenv("COORDINATOR_OFFSETS_RETENTION_MINUTES_BY_GROUP", "orders=20160")
    with pytest.raises(BadSettings, match=r"offsets_retention_minutes_by_group.*: a JSON object is required\."):
        Settings.load()


def test_commands_read_the_prefix_of_the_observer() -> None:
    """Only the observer itself needs topics and a folder that the coordinator does not have."""
    settings = Settings(bootstrap_servers="h:1", topic_prefix="observed")
    assert settings.groups_topic == "observed.groups"
    with pytest.raises(BadSettings, match="observe_prefix is topic_prefix"):
        settings.observing()
    shared = Settings(bootstrap_servers="h:1", checkpoint="same", observe_checkpoint="same")
    with pytest.raises(BadSettings, match="observe_checkpoint is checkpoint"):
        shared.observing()


def test_the_secrets_of_files_and_of_settings_are_known(tmp_path: Path) -> None:
    """An output has them removed, so each one must be among them."""
    password, access, peers = (tmp_path / name for name in ("password", "access", "peers"))
    keys = [letter * 32 for letter in "ABC"]
    password.write_text("hunter2\n")
    access.write_text(f"{keys[0]}\n{keys[1]}\n")
    peers.write_text(f"{keys[2]}\n")
    settings = Settings.load(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username="ana",
        sasl_password_file=str(password),
        access_key_file=str(access),
        peers=("other",),
        peer_key_file=str(peers),
    )
    assert settings.secrets() == {"hunter2", *keys}
    assert Settings.load(access_key=keys[0]).secrets() == {keys[0]}
    assert Settings.load().secrets() == frozenset()
