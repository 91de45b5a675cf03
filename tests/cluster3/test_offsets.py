"""Offsets while a leader is down, and after leaders have moved. Waiting for a leader takes no processor time."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Producer, TopicPartition

from streaming.config.settings import Settings
from streaming.kafka.clients import admin
from streaming.kafka.offsets import EARLIEST, NO_SUCH, OffsetAsker, Why
from tests.cluster3.brokers import IDS, ThreeBrokers
from tests.cluster3.proxy import Cut
from tests.system.waiting import wait_until

CPU_SHARE_MAX = 0.2
"""The most processor time of this process for each second of waiting. librdkafka's admin client takes about 0.9."""

ASKERS = 12
"""About a third of them choose the silent broker first."""

MOVED_S = 60.0
"""The time until leaders that moved are found. librdkafka's admin client finds them after 900 s."""


@pytest.fixture
def settings(three: ThreeBrokers) -> Settings:
    return Settings(bootstrap_servers=three.bootstrap_servers)


@pytest.fixture
def asker(settings: Settings) -> Iterator[OffsetAsker]:
    asker = OffsetAsker(settings, "test")
    yield asker
    asker.close()


def test_leader_that_is_down_hides_only_its_partitions_and_costs_nothing(
    three: ThreeBrokers, asker: OffsetAsker
) -> None:
    three.create("ends", partitions=6)
    places = [("ends", partition) for partition in range(6)]
    assert dict(asker.ask(places).known) == dict.fromkeys(places, 0)
    three.kill(2)
    used, began_s = sum(os.times()[:2]), time.monotonic()
    found = asker.ask(places)
    took_s = time.monotonic() - began_s
    assert {place for place, why in found.unknown.items() if why is Why.SILENT} == {("ends", 1), ("ends", 4)}
    assert set(found.known) == {("ends", partition) for partition in (0, 2, 3, 5)}
    assert (found.silent, found.answering) == ({2}, {1, 3})
    assert sum(os.times()[:2]) - used < CPU_SHARE_MAX * took_s
    wait_until(lambda: not asker.ask(places).unknown)

    three.start(2)
    three.mend()
    three.elect_preferred()
    wait_until(lambda: three.leaders("ends")[1] == 2)
    wait_until(lambda: not asker.ask(places).unknown, within_s=MOVED_S, account=lambda: asker.ask(places))


def test_silent_broker_costs_one_attempt(three: ThreeBrokers) -> None:
    """librdkafka sends a request for metadata to one broker, which may be the one that does not answer."""
    three.create("silent", partitions=6)
    settings = Settings(bootstrap_servers=three.through_proxies("GATEWAY"))
    with ExitStack() as stack:
        askers = [stack.enter_context(closing(OffsetAsker(settings, f"test-{n}"))) for n in range(ASKERS)]
        wait_until(lambda: not any(asker.ask_all("silent").unknown for asker in askers))
        stack.callback(three.cut_off, "GATEWAY", 2, Cut.NONE)
        three.cut_off("GATEWAY", 2)
        for asker in askers:
            assert set(asker.metadata().brokers) == set(IDS)


def test_beginning_end_and_stable_end_of_a_partition(
    three: ThreeBrokers, settings: Settings, asker: OffsetAsker
) -> None:
    three.create("stable", partitions=1)
    place = ("stable", 0)
    plain = Producer({"bootstrap.servers": three.bootstrap_servers})
    plain.produce("stable", b"1", partition=0, timestamp=1_000)
    plain.flush()
    open_one = Producer({"bootstrap.servers": three.bootstrap_servers, "transactional.id": "holds-back"})
    open_one.init_transactions(30)
    open_one.begin_transaction()
    open_one.produce("stable", b"2", partition=0)
    open_one.flush()
    stable = OffsetAsker(settings, "test-stable", is_stable=True)
    assert asker.ask([place]).known[place] == 2
    assert stable.ask([place]).known[place] == 1
    open_one.abort_transaction(30)
    wait_until(lambda: stable.ask([place]).known[place] == 3)
    assert asker.ask([place], EARLIEST).known[place] == 0
    assert asker.ask([place], 2**50).known[place] == NO_SUCH
    stable.close()

    client = admin(settings, "test-admin")
    next(iter(client.delete_records([TopicPartition("stable", 0, 1)]).values())).result()
    assert asker.ask([place], EARLIEST).known[place] == 1


def test_topic_that_does_not_exist_is_absent_and_not_created(three: ThreeBrokers, asker: OffsetAsker) -> None:
    assert asker.ask([("no-such-topic", 0)]).unknown == {("no-such-topic", 0): Why.ABSENT}
    three.create("short", partitions=1)
    found = asker.ask([("short", 0), ("short", 7)])
    assert (set(found.known), dict(found.unknown)) == ({("short", 0)}, {("short", 7): Why.ABSENT})
    assert "no-such-topic" not in asker.metadata().topics
