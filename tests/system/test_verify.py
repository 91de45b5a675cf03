"""`coordinator verify` on real topics: it finds nothing in the coordinator's records and reports every error."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kafka import KafkaProducer

from coordinator.messages.requests import OffsetCommit, OffsetToCommit
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.kafka.topics import ensure
from streaming.query.coordinator import Coordinator
from streaming.verify import Report, verify
from tests.streaming.views.written import WrittenTopics
from tests.system.asking import Asker
from tests.system.secured import secured_broker
from tests.system.waiting import HANG_S

pytestmark = pytest.mark.long

EVIL = "\x1b]0;pwned\x07\r\n\u202e\x9b31m[red]"


def command(settings: Settings, *words: str) -> subprocess.CompletedProcess[str]:
    where = ["-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix]
    return subprocess.run(
        [sys.executable, "-m", "streaming", "verify", *where, *words],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def test_nothing_is_found_in_the_coordinators_records(coordinator: Coordinator, transport: Transport) -> None:
    """I1, I2, I5, I6, I8, I13 hold on the topics of all tests so far, with a group that commits and is left."""
    asker = Asker(transport, "verified")
    ana, generation = asker.alone()
    asker.commit(generation, ana, 5)
    asker.commit(generation, ana, 3)
    assert asker.fetch() == {("t", 0): 3}
    asker.leave(ana)
    report = verify(coordinator.settings, ["verified"])
    assert report.findings == [], str(report)
    assert (report.groups, report.commits) == (1, 2)
    assert report.requests >= 7


@pytest.fixture
def written(broker: Broker) -> tuple[Settings, WrittenTopics]:
    """Make topics, and return the records of a real shard, which each test may change before it publishes them."""
    prefix = f"verify-{time.time_ns()}"
    settings = Settings(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=prefix,
        replication_factor=1,
        request_partitions=1,
        reply_partitions=1,
    )
    ensure(settings)
    world = WrittenTopics([EVIL], now_ms=time.time_ns() // 1_000_000 - 600_000)
    world.join(EVIL, client_id=EVIL)
    world.batch()
    world.now_ms += 10
    world.ask(OffsetCommit, EVIL, offsets=(OffsetToCommit("t", 0, 5),))
    world.batch()
    return settings, world


def publish(settings: Settings, world: WrittenTopics) -> None:
    producer = KafkaProducer(bootstrap_servers=settings.bootstrap_servers)
    for records in (world.requests, *world.topics.values()):
        for record in records:
            topic, stamp = f"{settings.topic_prefix}.{record.topic}", record.timestamp
            producer.send(topic, record.value, record.key, headers=record.headers, timestamp_ms=stamp)
    producer.flush()


def test_verify_of_intact_topics_exits_0(written: tuple[Settings, WrittenTopics]) -> None:
    settings, world = written
    publish(settings, world)
    done = command(settings)
    assert (done.returncode, done.stdout.startswith("Nothing found: ")) == (0, True), done


def test_findings_are_printed_escaped_and_as_json(written: tuple[Settings, WrittenTopics]) -> None:
    """I8, I23: a missing version is reported, and the exit code is 1."""
    settings, world = written
    world.lose("events", 1)
    publish(settings, world)
    done = command(settings)
    assert done.returncode == 1, done
    assert "missing" in done.stdout
    assert r"\x1b]0;pwned\x07\r\n\u202e\x9b31m" in done.stdout
    assert all(line.isprintable() for line in done.stdout.splitlines())
    told = json.loads(command(settings, "-o", "json").stdout)
    assert [finding["kind"] for finding in told["findings"]] == ["missing"]
    assert told["findings"][0]["group_id"] == EVIL
    assert command(settings, "another group").returncode == 0


def test_progress_is_reported_while_reading(written: tuple[Settings, WrittenTopics]) -> None:
    settings, world = written
    publish(settings, world)
    told: list[tuple[int, int]] = []
    report = verify(settings, tell=lambda read, of: told.append((read, of)))
    assert isinstance(report, Report)
    assert told[-1][0] == report.records
    assert {of for _, of in told} == {report.records}, "the total is known from the start"


def test_verify_reads_from_brokers_with_authentication(tmp_path: Path) -> None:
    """`verify` uses the same security settings as every other command."""
    with secured_broker(tmp_path) as secured:
        counts = {"replication_factor": 1, "request_partitions": 1, "reply_partitions": 1, "topic_prefix": "verify"}
        settings = Settings.load(**secured.access("SASL_SSL", "SCRAM-SHA-512"), **counts)
        ensure(settings)
        assert verify(settings).findings == []


def test_missing_topics_are_reported_in_a_sentence(broker: Broker) -> None:
    settings = Settings(bootstrap_servers=broker.bootstrap_servers, topic_prefix="nowhere")
    done = command(settings)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("coordinator: There is no topic nowhere.")
