"""Records are deleted by the leaders that answer. Waiting for another one takes no processor time."""

import os
import time

import pytest
from confluent_kafka import Producer
from kafka.errors import RequestTimedOutError

from streaming.config.settings import Settings
from streaming.kafka.deleting import delete_records
from streaming.kafka.offsets import EARLIEST, OffsetAsker, Why
from tests.cluster3.brokers import ThreeBrokers
from tests.cluster3.test_offsets import CPU_SHARE_MAX
from tests.system.waiting import wait_until

pytestmark = pytest.mark.long

TOPIC = "deleted"


def test_leader_that_is_frozen_costs_nothing_until_another_one_deletes_its_records(three: ThreeBrokers) -> None:
    three.create(TOPIC)
    settings = Settings(bootstrap_servers=three.bootstrap_servers)
    writer = Producer({"bootstrap.servers": three.bootstrap_servers})
    for partition in range(3):
        for _ in range(3):
            writer.produce(TOPIC, b"x", partition=partition)
    writer.flush()
    three.suspend(2)
    used_s, began_s = sum(os.times()[:2]), time.monotonic()
    failed = delete_records(settings, TOPIC, {0: 2, 1: 2, 2: 1, 3: 1})
    took_s = time.monotonic() - began_s
    late = RequestTimedOutError.__name__  # broker 2 follows the others
    assert failed == {0: late, 1: Why.SILENT.value, 2: late, 3: Why.NO_LEADER.value}
    assert sum(os.times()[:2]) - used_s < CPU_SHARE_MAX * took_s
    wait_until(lambda: not delete_records(settings, TOPIC, {0: 2, 1: 2, 2: 1}))
    asker = OffsetAsker(settings, "test")
    assert asker.await_all([(TOPIC, partition) for partition in range(3)], EARLIEST) == {
        (TOPIC, partition): begin for partition, begin in enumerate([2, 2, 1])
    }
    asker.close()
