"""Kafka's own tools with groups of the consumer protocol (KIP-848).

Each test names the check of the specification's section 11 that it is. Check 12 is in `test_group_tools`.
"""

import re
import signal
import subprocess

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from streaming.embedded import Broker
from streaming.gateway import Gateway
from streaming.query.coordinator import Coordinator
from tests.clients import java
from tests.clients.kinds import JAVA_848
from tests.clients.play import Venue, playing
from tests.system.reading import Reader
from tests.system.waiting import HANG_S

pytestmark = [pytest.mark.long, pytest.mark.nightly]

RECORDS = 20


@pytest.fixture
def topic(broker: Broker, group_id: str) -> str:
    """Return a topic with records. A topic's name may not have every character of a group's id."""
    topic = re.sub(r"\W+", "-", group_id)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({topic: {"num_partitions": 2}}, wait_for_metadata=True)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for number in range(RECORDS):
        producer.send(topic, str(number).encode(), partition=number % 2)
    producer.close()
    return topic


@pytest.mark.parametrize("option", ["--command-property", "--consumer-property"])
def test_console_consumer_leaves_at_once(coordinator: Coordinator, gateway: Gateway, topic: str, option: str) -> None:
    """Check 8: Ctrl-C ends its membership, without waiting for the session timeout. The old option still works."""
    command = java.run(
        java.CONSOLE,
        *("--bootstrap-server", gateway.bootstrap_servers, "--topic", topic, "--group", topic, "--from-beginning"),
        *(option, "group.protocol=consumer"),
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        read = [next(line for line in consumer.stdout if line.strip().isdigit()) for _ in range(RECORDS)]
        assert sorted(map(int, read)) == list(range(RECORDS))
        consumer.send_signal(signal.SIGINT)
        consumer.wait(HANG_S)
    reader = Reader(coordinator.settings, topic)
    reader.await_event("member_left")
    assert "member_expired" not in [event["event"] for event in reader.events()]


def test_share_consumer_ends_with_a_sentence(gateway: Gateway, topic: str) -> None:
    """Share groups are not served. The gateway does not offer their requests, and Java's client gives the reason."""
    command = java.run(java.SHARE, "--bootstrap-server", gateway.bootstrap_servers, "--topic", topic, "--group", topic)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as consumer:
        assert consumer.stdout is not None
        said = []
        for line in consumer.stdout:
            said.append(line)
            if "transitioned to fatal state" in line:
                break
        consumer.kill()  # the tool itself does not end
    assert "does not support" in "".join(said), said


def test_verifiable_consumers_lose_no_record(
    broker: Broker, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Check 9: while one of three is killed and restarted, no record is lost and committed offsets only grow."""
    venue = Venue(broker.bootstrap_servers, gateway.bootstrap_servers, tmp_path_factory.mktemp("verifiable"))
    with playing(venue, "verifiable") as play:
        topic = play.topic(partitions=6, records=5)
        crew = [play.start(JAVA_848) for _ in range(3)]
        play.until_shared(topic, *crew)
        everybody = list(crew)
        crew[0].kill()
        crew[0] = play.start(JAVA_848)
        everybody.append(crew[0])
        play.produce(topic, 20)
        play.until_shared(topic, *crew)
        play.produce(topic, 20)
        for worker in crew:
            play.until_read(worker)
        for partition in play.partitions(topic):
            assert {offset for worker in everybody for offset in worker.read[partition]} == set(range(45))
        for worker in everybody:
            growing = [event["offsets"] for event in worker.events_of("committed")]
            for topic_name, number in play.partitions(topic):
                offsets = [at for each in growing for t, n, at in each if (t, n) == (topic_name, number)]
                assert offsets == sorted(offsets)
