"""Starts and commands while one of three brokers has just died, and while not every broker knows the new topics."""

import itertools
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from typer.testing import CliRunner

from coordinator.messages.requests import DescribeGroup
from streaming.cli.main import app
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.doctor import Case, Level, cluster, examine
from streaming.doctor import topics as doctor_topics
from streaming.errors import BrokerUnreachable, NoAnswer
from streaming.gateway import Gateway
from streaming.kafka import acls, founding, topics
from streaming.kafka.brokers import check_brokers
from streaming.kafka.clients import producer
from streaming.kafka.reader import TopicReader
from tests.cluster3.brokers import IDS, ThreeBrokers
from tests.system.waiting import HANG_S, wait_until
from tests.tiers import sampled

pytestmark = pytest.mark.long

PREFIXES = (f"starts-{number}" for number in itertools.count())

FENCED_AFTER_S = 12.0
"""The time after which the cluster has found out that a broker is down, and has moved its leaders."""

SILENT_TWO = r"[Bb]rokers 1 and 2 do not answer; 3 does: start what is down"

CLIENTS = 6
"""A third of them choose the frozen broker first."""


@pytest.fixture
def settings(three: ThreeBrokers) -> Callable[..., Settings]:
    """Return a function that makes settings for topics that no other test uses."""

    def make(**changed: Any) -> Settings:
        few = {"request_partitions": 6, "reply_partitions": 6, "replication_factor": 3, "gateway_port": 0}
        return Settings(bootstrap_servers=three.bootstrap_servers, topic_prefix=next(PREFIXES), **few | changed)

    return make


def moments(seconds: float) -> Iterator[int]:
    """Yield numbers until a time is over."""
    until_s = time.monotonic() + seconds
    yield from itertools.takewhile(lambda _: time.monotonic() < until_s, itertools.count())


def list_groups(settings: Settings) -> None:
    words = ["groups", "list", "-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output + str(done.exception)


def start_client(settings: Settings) -> None:
    Transport(settings.kafka_client_arguments(), settings.topic_prefix).close()


def start_gateway(settings: Settings) -> None:
    with Gateway(settings):
        pass


def start_founder(settings: Settings) -> None:
    topics.ensure_all(settings, topics.directory_layout(settings))
    founding.ensure(settings)


def check_topics(settings: Settings) -> None:
    assert topics.mismatches(settings, topics.layout(settings)) == []
    assert len(topics.topic_ids(settings)) == len(settings.topics)
    acls.check_acls(settings, acls.Role.COORDINATOR)


WORKS = (list_groups, start_client, start_gateway, check_topics, start_founder)


@pytest.mark.parametrize("victim", sampled(IDS, [1]))
def test_nothing_fails_after_a_broker_has_died(
    three: ThreeBrokers, settings: Callable[..., Settings], victim: int
) -> None:
    """The others still name it for nine seconds: as a leader, as the controller, and as a broker like any."""
    old = settings(directory=next(PREFIXES))
    start_founder(old)
    topics.ensure(old)
    three.kill(victim)

    def again_and_again(work: Callable[[Settings], None]) -> int:
        return sum(1 for _ in moments(FENCED_AFTER_S) if work(old) is None)

    with ThreadPoolExecutor(len(WORKS)) as pool:
        assert all(pool.map(again_and_again, WORKS))


def test_topics_are_created_after_a_broker_has_died(three: ThreeBrokers, settings: Callable[..., Settings]) -> None:
    three.kill(three.controller())
    for _ in moments(FENCED_AFTER_S):
        topics.ensure(settings(request_partitions=2, reply_partitions=2))


def test_topics_of_a_frozen_broker_are_described_by_the_others(
    three: ThreeBrokers, settings: Callable[..., Settings]
) -> None:
    """A frozen broker takes connections and answers nothing."""
    old = settings()
    topics.ensure(old)
    three.suspend(2)
    for _ in moments(FENCED_AFTER_S):
        check_topics(old)


def test_clients_start_while_a_broker_is_frozen(three: ThreeBrokers, settings: Callable[..., Settings]) -> None:
    """kafka-python would give the whole time of a start to the broker that it has chosen at random."""
    old = settings()
    topics.ensure(old)
    three.suspend(2)
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(start_client, [old] * CLIENTS))


def test_new_topics_are_known_to_whoever_asks_at_once(settings: Callable[..., Settings]) -> None:
    """No configuration of a topic is unreadable because a broker lags behind, and no topic is missing."""

    def start(new: Settings) -> None:
        topics.ensure(new)
        check_topics(new)
        TopicReader(new, [new.groups_topic], "test").close()

    for _ in range(5):
        new = settings()
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(start, [new] * 3))


def test_gateway_starts_though_it_alone_cannot_reach_a_broker(
    three: ThreeBrokers, settings: Callable[..., Settings]
) -> None:
    """The broker's leaders stay. A mailbox has a random partition, and the next one serves as well."""
    here = settings()
    topics.ensure(here)
    three.cut_off("GATEWAY", 2)
    for _ in range(6):
        start_gateway(here.model_copy(update={"bootstrap_servers": three.through_proxies("GATEWAY")}))


@pytest.mark.nightly
def test_two_frozen_brokers_are_named_as_the_cause(three: ThreeBrokers, settings: Callable[..., Settings]) -> None:
    """Their leaders stay, because the controllers have no majority. Nothing else is wrong, and nothing is missing."""
    here = settings()
    topics.ensure(here)
    asked = DescribeGroup(request_id="", reply_to="", group_id="g")
    with Transport(here.kafka_client_arguments(), here.topic_prefix) as transport:
        three.suspend(1)
        three.suspend(2)
        with pytest.raises(NoAnswer, match=f"within 1 s. .*{SILENT_TWO}"):
            transport.ask(asked, 1)
        rows = examine(Case(here), {"brokers": cluster.check, "topics": doctor_topics.check}).rows
        assert not [row for row in rows if row.level is Level.WARNING and "Grant" in row.remedy]
        (wrong,) = [row.text for row in rows if row.level is Level.WRONG]
        assert re.search(SILENT_TWO, wrong)
        assert len([row for row in rows if row.text.startswith("Broker 3 answers at ")]) == 1


@pytest.mark.nightly
def test_more_replicas_in_sync_than_there_are_is_no_fault(
    three: ThreeBrokers, settings: Callable[..., Settings]
) -> None:
    """Brokers then need all replicas, and accept writes while all are in sync."""
    here = settings()
    topics.ensure(here)
    three.configure(here.requests_topic, {"min.insync.replicas": "4"})
    failed: list[object] = []
    writer = producer(here, "test")
    writer.produce(here.requests_topic, b"any", partition=0, on_delivery=lambda error, _: failed.append(error))
    assert writer.flush(HANG_S) == 0
    assert failed == [None]
    assert check_brokers(here.kafka_client_arguments(), here.topics).sentence == ""
    three.kill(3)
    wait_until(lambda: three.in_sync(here.requests_topic, 0) == {1, 2})
    assert check_brokers(here.kafka_client_arguments(), here.topics).sentence.startswith(
        f"The brokers refuse to write {here.requests_topic}: too few replicas are in sync (min.insync.replicas); broker"
    )


@pytest.mark.nightly
def test_error_names_the_broker_that_does_not_answer(three: ThreeBrokers, settings: Callable[..., Settings]) -> None:
    here = settings()
    topics.ensure(here)
    assert check_brokers(here.kafka_client_arguments(), here.topics).sentence == ""
    three.suspend(3)
    found = check_brokers(here.kafka_client_arguments(), here.topics)
    assert (found.answering, found.silent) == ({1, 2}, {3})
    assert found.sentence.startswith("Broker 3 does not answer; 1 and 2 do: ")
    three.kill(1)
    found = check_brokers(here.kafka_client_arguments(), here.topics)
    assert found.sentence.startswith("The brokers refuse to write ")
    assert "too few replicas are in sync (min.insync.replicas); brokers 1 and 3 do not answer; 2 does" in found.sentence
    three.kill(2)
    assert check_brokers(here.kafka_client_arguments(), here.topics).sentence.startswith("No Kafka broker answers at ")
    with pytest.raises(BrokerUnreachable, match="No Kafka broker answers at "):
        topics.ensure(here)
