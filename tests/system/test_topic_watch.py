"""Topics that are altered while the query runs, on a real broker (F, broker)."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.errors import Exit
from streaming.kafka import topics
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

OFTEN = (
    "from streaming.query.watchers import topic_watch; topic_watch.CHECK_EVERY_S = 0.5; "
    "from streaming.cli.main import main; main()"
)
"""The command line, with an interval of 0.5 s in place of the watch's minute."""


@pytest.fixture
def settings(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    return Settings.load(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=re.sub(r"\W", "-", request.node.name),
        replication_factor=1,
        request_partitions=2,
        checkpoint=str(tmp_path / "state"),
    )


DOC = '"Topics that were altered" in docs/checkpoints.md'


@pytest.fixture
def run_again(settings: Settings, tmp_path: Path) -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    """A function that starts the service, whose log is the file `log` of the test's folder."""
    flags = {
        "--bootstrap-servers": settings.bootstrap_servers,
        "--topic-prefix": settings.topic_prefix,
        "--checkpoint": settings.checkpoint,
        "--ready-file": str(tmp_path / "ready"),
    }
    environment = {**os.environ, "COORDINATOR_REPLICATION_FACTOR": "1", "COORDINATOR_REQUEST_PARTITIONS": "2"}
    command = [sys.executable, "-c", OFTEN, "run", *(word for flag in flags.items() for word in flag)]
    started: list[subprocess.Popen[bytes]] = []

    def run() -> "subprocess.Popen[bytes]":
        with (tmp_path / "log").open("wb") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(HANG_S)


@pytest.fixture
def service(run_again: Callable[[], "subprocess.Popen[bytes]"], tmp_path: Path) -> "subprocess.Popen[bytes]":
    process = run_again()
    wait_until(lambda: (tmp_path / "ready").exists() or process.poll() is not None, account=lambda: log_of(tmp_path))
    return process


def log_of(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")


def alter(settings: Settings, topic: str, **config: str) -> None:
    configs = {name.replace("_", "."): value for name, value in config.items()}
    with closing(KafkaAdminClient(**settings.kafka_client_arguments())) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])


@pytest.mark.parametrize(("config", "sentence"), [
    pytest.param({"message_timestamp_type": "CreateTime"},
     "has message.timestamp.type=CreateTime where LogAppendTime is needed", id="clients date their requests"),
    pytest.param({"cleanup_policy": "compact"}, "has cleanup.policy=compact where delete is needed",
     id="requests vanish", marks=pytest.mark.nightly),
])  # fmt: skip
def test_unsuitable_request_topic_stops_the_query(
    settings: Settings, service: "subprocess.Popen[bytes]", tmp_path: Path, config: dict[str, str], sentence: str
) -> None:
    """As at a start, the query prints one sentence and exits with the code after which no supervisor restarts it."""
    assert service.poll() is None, log_of(tmp_path)
    needed = {"message_timestamp_type": "LogAppendTime", "cleanup_policy": "delete"}
    alter(settings, settings.requests_topic, **{**needed, **config})
    assert service.wait(HANG_S) == Exit.NEEDS_A_PERSON, log_of(tmp_path)
    (told,) = [line for line in log_of(tmp_path).splitlines() if sentence in line]
    assert told == (
        f"coordinator: {settings.requests_topic} {sentence}: alter the topics or the settings, or choose a topic_prefix"
        " that is not in use."
    )


def made_anew(settings: Settings) -> None:
    with closing(KafkaAdminClient(**settings.kafka_client_arguments())) as admin:
        admin.delete_topics([settings.requests_topic])
    topics.ensure(settings)


def with_a_partition_more(settings: Settings) -> None:
    with closing(KafkaAdminClient(**settings.kafka_client_arguments())) as admin:
        admin.create_partitions({settings.requests_topic: settings.request_partitions + 1})
    with closing(KafkaProducer(**settings.kafka_client_arguments())) as producer:
        producer.send(settings.requests_topic, b"any", partition=settings.request_partitions).get(HANG_S)


@pytest.mark.parametrize(
    ("altered", "sentences"),
    [
        (made_anew, ("was deleted and made anew: see {doc}.", "is not the one it was made with")),
        (
            with_a_partition_more,
            (
                "(has 3 partitions, and the groups are divided among 2|has more partitions than .*): see {doc}.",
                r"has 3 partitions where request_partitions is 2 \(if they were added, see {doc}\)",
            ),
        ),
    ],
)
def test_topic_that_was_altered_stops_the_query_and_refuses_the_next_start(
    settings: Settings,
    service: "subprocess.Popen[bytes]",
    run_again: Callable[[], "subprocess.Popen[bytes]"],
    tmp_path: Path,
    altered: Callable[[Settings], None],
    sentences: tuple[str, str],
) -> None:
    """With the topics made anew, the query would pass over requests, and its groups would lose their members."""
    altered(settings)
    told, refused = (each.format(doc=DOC) for each in sentences)
    assert service.wait(HANG_S) == Exit.NEEDS_A_PERSON, log_of(tmp_path)
    assert re.search(f"{settings.requests_topic} {told}", log_of(tmp_path)), log_of(tmp_path)
    assert run_again().wait(HANG_S) == Exit.NEEDS_A_PERSON, log_of(tmp_path)
    assert re.search(f"{settings.requests_topic} {refused}", log_of(tmp_path)), log_of(tmp_path)


@pytest.mark.nightly
def test_setting_with_which_records_may_be_lost_is_logged_once(
    settings: Settings, service: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    """An unclean leader has not all acknowledged records. The query continues, until it is stopped here."""
    sentence = f"set unclean.leader.election.enable=false on {settings.requests_topic}."
    assert sentence not in log_of(tmp_path)
    needed = {"cleanup_policy": "delete", "message_timestamp_type": "LogAppendTime"}
    alter(settings, settings.requests_topic, unclean_leader_election_enable="true", **needed)
    wait_until(lambda: sentence in log_of(tmp_path) or service.poll() is not None, account=lambda: log_of(tmp_path))
    alter(settings, settings.requests_topic, cleanup_policy="delete", message_timestamp_type="CreateTime")
    assert service.wait(HANG_S) == Exit.NEEDS_A_PERSON, log_of(tmp_path)
    assert log_of(tmp_path).count(sentence) == 1


@pytest.mark.nightly
def test_unsuitable_output_topic_is_logged_once(
    settings: Settings, service: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    sentence = f"{settings.groups_topic} has cleanup.policy=delete where compact is needed"
    alter(settings, settings.groups_topic, cleanup_policy="delete")
    wait_until(lambda: sentence in log_of(tmp_path) or service.poll() is not None, account=lambda: log_of(tmp_path))
    alter(settings, settings.requests_topic, cleanup_policy="delete", message_timestamp_type="CreateTime")
    assert service.wait(HANG_S) == Exit.NEEDS_A_PERSON, log_of(tmp_path)
    warned, refused = [line for line in log_of(tmp_path).splitlines() if sentence in line]
    assert "CreateTime" not in warned
    assert "CreateTime" in refused
