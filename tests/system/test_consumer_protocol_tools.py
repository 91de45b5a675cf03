"""Kafka's own tools with groups of the consumer protocol (KIP-848).

Each test names the check of the specification's section 11 that it is. Check 12 compares the output for a group of this
coordinator with the output for a group of Kafka's own, in the same situation, as `test_group_tools` does for classic
groups.
"""

import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from streaming.embedded import Broker
from streaming.gateway import Gateway
from streaming.query.coordinator import Coordinator
from tests.clients import java
from tests.clients.kinds import JAVA_848, LIBRDKAFKA_848
from tests.clients.play import Play, Venue, playing
from tests.system import test_group_tools as classic
from tests.system.reading import Reader
from tests.system.waiting import HANG_S

pytestmark = [pytest.mark.long, pytest.mark.nightly]

RECORDS = 20
PREFIX = "next-tools"

COMMANDS = {
    # arguments, in this order                                               part of the output
    "--list --type": f"{PREFIX}-busy Consumer",
    "--list --state": f"{PREFIX}-busy Stable",
    "--describe --group next-tools-busy": f"{PREFIX}-busy {PREFIX} 0 10 13 3 ID /127.0.0.1 ana",
    "--describe --group next-tools-busy --members": f"{PREFIX}-busy ID /127.0.0.1 bo 2",
    "--describe --group next-tools-busy --members --verbose": f"{PREFIX}:0,1",
    "--describe --group next-tools-busy --state": f"{PREFIX}-busy ADDRESS (1) uniform Stable 2",
    "--describe --group next-tools-busy --state --verbose": f"{PREFIX}-busy ADDRESS (1) uniform Stable",
    "--describe --group next-tools-idle --state": f"{PREFIX}-idle ADDRESS (1) uniform Empty 0",
    "--reset-offsets --group next-tools-busy --topic next-tools --to-earliest --execute": "current state is Stable",
    "--reset-offsets --group next-tools-idle --topic next-tools:0,2 --shift-by -4 --execute": f"{PREFIX} 2 6",
    "--delete-offsets --group next-tools-idle --topic next-tools:1": "Successful",
    "--delete-offsets --group next-tools-busy --topic next-tools": "is actively subscribed to it",
    "--describe --group next-tools-idle --offsets": f"{PREFIX}-idle {PREFIX} 2 6 13 7 - - -",
    "--delete --group next-tools-busy": "The group is not empty.",
    "--delete --group next-tools-idle": "was successful",
    f"{classic.GROUPS} --list --group-type consumer": f"{PREFIX}-busy Consumer consumer",
}


@pytest.fixture(scope="module")
def said(
    broker: Broker, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[str, dict[str, str]]:
    """Return the output of each command that this test run has selected, by side."""
    selected = {item.callspec.params.get("typed") for item in request.session.items if hasattr(item, "callspec")}
    commands = [typed for typed in COMMANDS if typed in selected]
    addresses = {"Kafka": broker.bootstrap_servers, "the gateway": gateway.bootstrap_servers}
    venue = Venue(broker.bootstrap_servers, "", tmp_path_factory.mktemp("next-tools"))
    with playing(venue, PREFIX) as play, ThreadPoolExecutor(len(addresses)) as pool:
        play.topic(partitions=4, records=10)
        for ready in [pool.submit(_set_up, play, address) for address in addresses.values()]:
            ready.result()
        play.produce(PREFIX, 3)
        said = {side: pool.submit(classic.run_all, address, commands) for side, address in addresses.items()}
        return {side: future.result() for side, future in said.items()}


def _set_up(play: Play, address: str) -> None:
    """Make group `busy` with two members that have committed all records, and `idle`, whose member has left."""
    idle = play.start(LIBRDKAFKA_848, bootstrap=address, group=f"{PREFIX}-idle", client_id="cy")
    ana = play.start(LIBRDKAFKA_848, bootstrap=address, group=f"{PREFIX}-busy", client_id="ana")
    play.until_shared(PREFIX, idle)
    play.until_shared(PREFIX, ana)
    bo = play.start(LIBRDKAFKA_848, bootstrap=address, group=f"{PREFIX}-busy", client_id="bo")
    play.until_shared(PREFIX, ana, bo)
    for worker in (idle, ana, bo):
        play.until_read(worker)
        worker.order("commit")
        play.until(lambda worker=worker: {worker.committed.get(each) for each in worker.owned} == {10})
    idle.close()


def neutral(printed: str) -> list[str]:
    """Remove all that differs between clusters, also the members' ids, and the partitions that follow from them."""
    lines = classic.neutral(re.sub(r"(?<= )\S{22}(?= +/127)", "ID", printed))
    return sorted(line.replace(f"{PREFIX}:2,3", f"{PREFIX}:0,1") for line in lines)


@pytest.mark.parametrize("typed", COMMANDS)
def test_output_equals_the_output_for_kafka(said: dict[str, dict[str, str]], typed: str) -> None:
    """Check 12: kafka-consumer-groups prints the same columns, and refuses the same."""
    theirs, ours = neutral(said["Kafka"][typed]), neutral(said["the gateway"][typed])
    if typed.endswith("-busy"):  # which member has which partitions follows from ids that clients draw
        theirs, ours = ([re.sub(r"\b(ana|bo)$", "WHO", line) for line in lines] for lines in (theirs, ours))
    assert any(COMMANDS[typed].replace(" ana", " WHO") in line or COMMANDS[typed] in line for line in theirs), theirs
    assert ours == theirs


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
