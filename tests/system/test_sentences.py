"""The error messages for users, and the exit codes."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from streaming.embedded import Broker
from streaming.errors import Exit
from tests.system.conftest import Service
from tests.system.waiting import HANG_S

pytestmark = pytest.mark.long


def run(*words: str, **environment: str) -> tuple[int, str]:
    """Run a command, and return its exit code and the last line on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "streaming", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    lines = done.stderr.strip().splitlines()
    return done.returncode, lines[-1] if lines else ""


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_missing_java_is_reported(tmp_path: Path) -> None:
    code, sentence = run("run", PATH=str(tmp_path), JAVA_HOME=str(tmp_path))
    assert code == Exit.NEEDS_A_PERSON
    assert sentence.startswith("coordinator: ")
    assert "Java 17" in sentence
    assert "JAVA_HOME" in sentence


def test_taken_port_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, sentence = run("broker", "--port", str(port))
    assert code == 1
    assert sentence.startswith("coordinator: ")
    assert str(port) in sentence


def test_missing_broker_is_reported(free_port: int) -> None:
    """S22."""
    code, sentence = run("topics", "--bootstrap-servers", f"127.0.0.1:{free_port}")
    assert code == 1
    assert sentence.startswith(f"coordinator: No Kafka broker answers at 127.0.0.1:{free_port}")


def test_unsuitable_topics_are_reported(broker: Broker) -> None:
    """S19: the partition count differs from the settings, and clients can set the time of records."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.create_topics({"unfit.requests": {"num_partitions": 3, "replication_factor": 1}})
    admin.wait_for_topics(["unfit.requests"])
    admin.close()
    words = ("run", "-b", broker.bootstrap_servers, "--topic-prefix", "unfit", "--replication-factor", "1")
    code, sentence = run(*words)
    assert code == Exit.NEEDS_A_PERSON
    assert "unfit.requests" in sentence
    assert "3 partitions" in sentence
    assert "LogAppendTime" in sentence


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("run", "--no-such-flag"), 2, ""),
        (("request", "describe_group", "generation_id"), 1, "'generation_id' is not NAME=VALUE."),
        (("request", "{"), 1, "The request is not JSON"),
        (("request", "dance", "-g", "g"), 1, "dance"),
    ],
)
def test_wrong_usage_is_reported(words: tuple[str, ...], code: int, told: str) -> None:
    found, sentence = run(*words)
    assert found == code
    assert told in sentence


def test_wrong_setting_in_the_environment_is_reported() -> None:
    code, sentence = run("run", COORDINATOR_REQUEST_PARTITIONS="many")
    assert code == Exit.NEEDS_A_PERSON
    assert sentence.startswith("coordinator: request_partitions: ")


@pytest.mark.nightly
def test_checkpoint_of_another_query_is_refused(run_service: Callable[..., Service]) -> None:
    """A changed number of request partitions and topics of another checkpoint are refused before a batch runs."""
    service = run_service("first")
    service.await_ready()
    assert service.stop() == 0, service.log
    other = run_service("second", request_partitions=8)
    assert other.process.wait(HANG_S) == Exit.NEEDS_A_PERSON
    sentence = other.log.strip().splitlines()[-1]
    assert sentence.startswith(f"coordinator: The checkpoint {other.checkpoint} belongs to another query")
    assert "request_partitions was 4 and is 8" in sentence
    assert "second.requests" in sentence


@pytest.mark.nightly
def test_broker_that_has_stopped_ends_the_query_with_a_sentence(
    run_service: Callable[..., Service], tmp_path: Path
) -> None:
    with Broker(tmp_path / "own-broker") as own:
        service = run_service("gone", bootstrap_servers=own.bootstrap_servers, broker_wait_ms=3_000)
        service.await_ready()
    assert service.process.wait(HANG_S) == 1
    sentence = service.log.strip().splitlines()[-1]
    assert sentence.startswith(f"coordinator: No Kafka broker answers at {own.bootstrap_servers}")
