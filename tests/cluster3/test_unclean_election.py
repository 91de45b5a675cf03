"""An unclean leader election: the requests that it loses are noticed, and no start goes on as if they were there."""

import re
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from coordinator.base.hashing import shard_of
from streaming.client.transport import Transport
from streaming.errors import Exit
from tests.cluster3.brokers import IDS, ThreeBrokers
from tests.cluster3.scene import Scene
from tests.system.asking import Asker
from tests.system.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.long, pytest.mark.nightly]

REPLACED = re.compile(
    r'Handled requests are gone from \S+\.requests, as after an unclean leader election .* see "Replaced requests" in'
    r" docs/checkpoints\.md\."
)
LOST, GROWN = 5, 40
"""The requests that the election loses, and the records that take their offsets."""


def test_lost_requests_are_refused_at_each_start(three: ThreeBrokers, tmp_path: Path) -> None:
    """The follower is killed, requests go on and are answered, the leader is killed, and the follower leads."""
    (folder := tmp_path / "unclean").mkdir()
    with Scene(three, folder, gateways=0) as scene:
        topic = scene.settings.requests_topic
        three.configure(topic, {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})
        group = next(name for name in map(str, range(100)) if shard_of(name, scene.settings.request_partitions) == 0)
        leader, follower, _ = IDS
        three.place(topic, 0, [leader, follower])
        three.elect_preferred()
        wait_until(lambda: three.leaders(topic)[0] == leader)
        with Transport(scene.settings.kafka_client_arguments(), scene.prefix) as transport:
            asker = Asker(transport, group)
            member_id = asker.new_id()
            asker.ask(asker.joining(member_id))
            three.kill(follower)
            wait_until(lambda: three.in_sync(topic, 0) == {leader})
            for _ in range(LOST):
                asker.describe()
        assert scene.service.stop() == 0, scene.service.log
    three.kill(leader)
    three.start_without_waiting(follower)
    wait_until(lambda: three.leaders(topic)[0] == follower)
    _append(three, topic, GROWN)
    three.mend()

    for _ in range(2):
        with pytest.raises(AssertionError):
            scene.start_driver().await_ready()
        assert scene.service.process.wait(HANG_S) == Exit.NEEDS_A_PERSON
        assert REPLACED.search(scene.service.log), scene.service.log


def _append(three: ThreeBrokers, topic: str, records: int) -> None:
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": ",".join(three.running_servers)})
    for _ in range(records):
        producer.produce(topic, b"any", partition=0, on_delivery=lambda error, _: error and failed.append(error))
    producer.flush(HANG_S)
    assert not failed, failed
