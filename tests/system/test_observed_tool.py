"""`coordinator-consumer-groups` prints for observed groups what Kafka's own tool prints, column by column."""

import io
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout, suppress

import pytest
from confluent_kafka import Producer

from streaming.cli.consumer_groups import main
from streaming.embedded import Broker
from streaming.observe.observer import Observer
from tests.system.kafka_groups import KafkaGroup, KafkaMember, kafka_group
from tests.system.test_consumer_groups_tool import theirs
from tests.system.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.long, pytest.mark.nightly]

RECORDS = 10
CLASSIC, MODERN, EMPTY = "tool-classic", "tool-modern", "tool-empty"

COMMANDS = [
    # arguments                                     part of the output, with single blanks
    (f"--describe --group {CLASSIC}", f"{CLASSIC} orders-of-{CLASSIC} 0 7 10 3 ana-"),
    (f"--describe --group {CLASSIC} --members --verbose", "GROUP-INSTANCE-ID"),
    (f"--describe --group {CLASSIC} --state", "range Stable 2"),
    (f"--describe --group {MODERN}", f"{MODERN} orders-of-{MODERN} 0 7 10 3"),
    (f"--describe --group {MODERN} --members --verbose", "TARGET-EPOCH"),
    (f"--describe --group {MODERN} --state --verbose", "range Stable"),
    (f"--describe --group {EMPTY}", f"{EMPTY} orders-of-{EMPTY} 0 7 10 3 - - -"),
    (f"--describe --group {EMPTY} --state", "Empty"),
]


@pytest.fixture(scope="module")
def address(broker: Broker, observer: Observer) -> Iterator[str]:
    """Make the three groups, and yield the broker's address."""
    with ExitStack() as stack:
        for name in (CLASSIC, MODERN, EMPTY):
            group = stack.enter_context(kafka_group(broker.bootstrap_servers, name))
            fill(broker.bootstrap_servers, group.topic)
            set_up(group)
        yield broker.bootstrap_servers


def fill(address: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number in range(4 * RECORDS):
        producer.produce(topic, b"an order", partition=number % 4)
    assert producer.flush(HANG_S) == 0


def set_up(group: KafkaGroup) -> None:
    """Make a member that commits, and another one; the only member of the empty group leaves."""
    config = {"group.protocol": "consumer", "group.remote.assignor": "range"} if group.group_id == MODERN else {}
    ana = group.join("ana", **config).await_owned(0, 1, 2, 3)
    for partition in range(3):
        ana.commit(partition, 7)
    if group.group_id == EMPTY:
        ana.close()
    else:
        bo = group.join("bo", **{**config, "group.instance.id": "desk-2"})
        wait_until(lambda: owns_half(ana) and owns_half(bo), account=lambda: (ana.owned, bo.owned))


def owns_half(member: KafkaMember) -> bool:
    return len(member.owned) == 2


def ours(observer: Observer, typed: str) -> str:
    which = ["--bootstrap-server", observer.settings.bootstrap_servers]
    with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
        main([*which, "--topic-prefix", observer.settings.topic_prefix, *typed.split()])
    return printed.getvalue()


@pytest.mark.parametrize(("typed", "expected"), COMMANDS, ids=[typed for typed, _ in COMMANDS])
def test_a_description_equals_that_of_kafkas_tool(observer: Observer, address: str, typed: str, expected: str) -> None:
    """Walkthrough 1. Kafka's tool asks the coordinator itself. The order of lines varies in Kafka."""
    their = theirs(address, typed)
    assert expected in " ".join(their.out.split()), their
    wanted, found = sorted(their.out.splitlines()), list[str]()

    def is_equal() -> bool:
        found[:] = sorted(ours(observer, typed).splitlines())
        return found == wanted

    wait_until(is_equal, account=lambda: "\n".join(["", *wanted, *found]))
