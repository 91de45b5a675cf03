"""The embedded broker as a process: it is started, stopped and killed, and its port is taken by another program."""

import os
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from streaming.embedded import Broker
from streaming.embedded import broker as module
from streaming.errors import BrokerFailed, JavaMissing, PortTaken

pytestmark = pytest.mark.long


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Yield a port that is taken: this process listens on it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_killed_broker_restarts_with_its_topics_on_its_port(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        before = broker.bootstrap_servers
        with KafkaAdminClient(bootstrap_servers=before) as admin:
            admin.create_topics({"kept": {"num_partitions": 3}}, wait_for_metadata=True)
        broker.kill()
        assert not broker.running
        broker.start()
        assert broker.bootstrap_servers == before
        with KafkaAdminClient(bootstrap_servers=before) as admin:
            (topic,) = admin.describe_topics(["kept"])
        assert len(topic["partitions"]) == 3


@pytest.mark.nightly
def test_two_brokers_started_at_once_are_independent(tmp_path: Path) -> None:
    told: list[str] = []
    one, two = Broker(tmp_path / "one", report=told.append), Broker(tmp_path / "two", report=told.append)
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(Broker.start, (one, two)))
        assert one.bootstrap_servers != two.bootstrap_servers
        assert f"The embedded Kafka broker listens on {one.bootstrap_servers}; its data is in {one.data_dir}." in told
        pids = [one.pid, two.pid]
        assert all(map(is_alive, pids))
    finally:
        one.stop()
        two.stop()
    assert not any(map(is_alive, pids))
    assert "shut down completed" in one.log_file.read_text()
    one.stop()


def test_taken_port_is_refused(tmp_path: Path, taken_port: int) -> None:
    with pytest.raises(PortTaken) as caught:
        Broker(tmp_path, port=taken_port).start()
    assert str(caught.value) == (
        f"Another program uses port {taken_port}. Stop that program, or choose another port for the broker."
    )
    assert list(tmp_path.iterdir()) == []  # the error came before anything was started


def test_chosen_port_that_is_taken_during_the_start_is_chosen_again(
    tmp_path: Path, taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter([taken_port])
    free_port = module.free_port
    monkeypatch.setattr(module, "free_port", lambda but=(): next(drawn, None) or free_port(but))
    with Broker(tmp_path) as broker:
        assert broker.bootstrap_servers != f"127.0.0.1:{taken_port}"
    assert "Address already in use" in broker.log_file.read_text()


@pytest.mark.parametrize(("port", "launches"), [(20_001, 1), (None, 3)])
def test_only_a_chosen_port_is_chosen_again_and_only_twice(
    port: int | None, launches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def launch(broker: Broker, java: Path, jars: list[Path], port: int, controller_port: int) -> None:
        tried.append(port)
        raise PortTaken

    monkeypatch.setattr(module, "is_free", lambda port, host: True)
    monkeypatch.setattr(Broker, "_launch", launch)
    with pytest.raises(PortTaken, match=r"^Another program uses port \d+\."):
        Broker(tmp_path, port=port).start()
    assert len(tried) == launches


def test_error_of_a_failed_start_names_the_log_and_the_reason(tmp_path: Path) -> None:
    broker = Broker(tmp_path, properties={"log.retention.ms": "soon"})
    with pytest.raises(BrokerFailed) as caught:
        broker.start()
    assert re.fullmatch(
        r"The embedded Kafka broker did not start: Invalid value soon for configuration log\.retention\.ms: .*"
        rf" Its log is {tmp_path}/broker\.log\.",
        str(caught.value),
    )
    assert not broker.running


def test_unusable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerFailed) as caught:
        Broker(tmp_path / "file").start()
    assert str(caught.value) == (
        f"The embedded Kafka broker cannot use its folder {tmp_path}/file (File exists)."
        " Free space there, or choose another folder."
    )


def test_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match=r"^Java was not found: install Java 17 or newer"):
        Broker(tmp_path).start()
