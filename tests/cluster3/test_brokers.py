"""The cluster itself: each fault has its effect, and is mended."""

import socket

import pytest
from confluent_kafka import Consumer, KafkaException

from tests.cluster3.brokers import IDS, ThreeBrokers
from tests.cluster3.proxy import Cut
from tests.system.waiting import wait_until

pytestmark = pytest.mark.long


def test_leader_of_a_killed_broker_moves_and_moves_back(three: ThreeBrokers) -> None:
    three.create("moved")
    assert three.leaders("moved") == {0: 1, 1: 2, 2: 3}
    three.kill(1)
    wait_until(lambda: three.leaders("moved")[0] in (2, 3))
    three.mend()
    three.elect_preferred()
    wait_until(lambda: three.leaders("moved")[0] == 1)


def test_frozen_broker_loses_its_leaders_and_goes_on(three: ThreeBrokers) -> None:
    three.create("frozen")
    three.suspend(3)
    wait_until(lambda: three.leaders("frozen")[2] in (1, 2))
    three.mend()


@pytest.mark.parametrize("cut", [Cut.SILENT, Cut.REFUSED])
def test_client_that_is_cut_off_reaches_only_the_other_brokers(three: ThreeBrokers, cut: Cut) -> None:
    hosts = [tuple(address.split(":")) for address in three.through_proxies("QUERY").split(",")]
    three.cut_off("QUERY", 2, cut)
    for number, (host, port) in zip(IDS, hosts, strict=True):
        consumer = Consumer({"bootstrap.servers": f"{host}:{port}", "group.id": "unused"}, logger=None)
        if number == 2:
            with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT"):
                consumer.list_topics(timeout=2)
        else:
            assert len(consumer.list_topics(timeout=15).brokers) == len(IDS)
        consumer.close()
    three.cut_off("QUERY", 2, Cut.NONE)
    with socket.create_connection((hosts[1][0], int(hosts[1][1])), timeout=5):
        pass
