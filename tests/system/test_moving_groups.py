"""A group moves here from Kafka's own coordinator: its observed offsets are compared, taken over, and fetched."""

import json

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from typer.testing import CliRunner

from coordinator.base.hashing import shard_of
from streaming.administration.resetting import NewOffset
from streaming.cli.groups.resets import commit
from streaming.cli.main import app
from streaming.config.settings import Settings
from streaming.query.coordinator import Coordinator
from streaming.wire.records import to_row
from tests.streaming.views.observing import TOPICS, Observed, member_id, published
from tests.system.waiting import wait_until

PREFIX, PARTITIONS = "moving-observed", 2
ANA = member_id("ana")


@pytest.fixture(scope="module")
def observed(coordinator: Coordinator) -> Settings:
    """The topics that an observer writes, with one group of Kafka's coordinator."""
    settings = coordinator.settings.model_copy(update={"topic_prefix": PREFIX})
    names = {settings.groups_topic: PARTITIONS, settings.events_topic: PARTITIONS, "orders": PARTITIONS}
    with KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers) as admin:
        wanted = {name: {"num_partitions": n, "replication_factor": 1} for name, n in names.items()}
        admin.create_topics(
            {n: each for n, each in wanted.items() if n not in admin.list_topics()}, wait_for_metadata=True
        )
    clicks = Observed("clicks").begins(founded=True).to(3).record(0, {ANA: [0, 1]})
    clicks.commits(10, 0, 1).commits(11, 1, 2)
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers})
    for number in range(4):
        producer.produce("orders", b"record", partition=number % PARTITIONS)
    for record in clicks.written:
        row = to_row(published(record), TOPICS, 0)
        topic = settings.groups_topic if row.topic == "groups" else settings.events_topic
        producer.produce(topic, row.value, row.key, partition=shard_of("clicks", PARTITIONS))
    producer.flush()
    return settings


def run(settings: Settings, *typed: str) -> tuple[int, str]:
    flags = ("-b", str(settings.bootstrap_servers), "--topic-prefix", settings.topic_prefix)
    done = CliRunner().invoke(app, [*typed, *flags])
    return done.exit_code, done.output or str(done.exception)


def test_a_group_is_compared_and_its_offsets_are_taken_over(coordinator: Coordinator, observed: Settings) -> None:
    ours = coordinator.settings
    asked = ("offsets", "import", "--from-observed", "clicks", "--observed", PREFIX)
    code, told = run(ours, *asked)
    assert (code, "Nothing was changed." in told) == (0, True)
    assert run(ours, *asked, "--execute")[0] == 0

    await_compared(ours, [(1, 1, 0), (2, 2, 0)])


def await_compared(ours: Settings, expected: list[tuple[int, int, int]]) -> None:
    """Wait until the comparison shows these offsets: ours, Kafka's, and how far ours is ahead."""

    def compared() -> list[tuple[int, int, int]]:
        code, told = run(ours, "groups", "compare", "clicks", "--observed", PREFIX, "-o", "json")
        assert code == 0, told
        return [(row["offset"], row["kafkas_offset"], row["ahead"]) for row in json.loads(told)["partitions"]]

    wait_until(lambda: compared() == expected, account=compared)


def test_repeated_import_takes_no_group_back(coordinator: Coordinator, observed: Settings) -> None:
    """An offset that was committed here since the first import stays, unless --rewind replaces it."""
    ours = coordinator.settings
    asked = ("offsets", "import", "--from-observed", "clicks", "--observed", PREFIX, "--execute", "-o", "json")
    assert run(ours, *asked)[0] == 0
    commit(ours, "clicks", {("orders", 0): NewOffset(2)})
    await_compared(ours, [(2, 1, 1), (2, 2, 0)])

    def imported(*flags: str) -> list[tuple[int, int | None, str]]:
        code, told = run(ours, *asked, *flags)
        assert code == 0, told
        return [(row["offset"], row["new_offset"], row["status"]) for row in json.loads(told[told.index("[") :])]

    assert imported() == [(2, None, "kept, newer"), (2, 2, "")]
    await_compared(ours, [(2, 1, 1), (2, 2, 0)])
    assert imported("--rewind") == [(2, 1, ""), (2, 2, "")]
    await_compared(ours, [(1, 1, 0), (2, 2, 0)])


def test_the_group_of_kafka_is_shown_checked_and_not_changed(observed: Settings) -> None:
    code, told = run(observed, "groups", "list", "-o", "json")
    assert [(group["group_id"], group["kept_by"]) for group in json.loads(told)] == [("clicks", "kafka")]
    code, told = run(observed, "verify")
    assert (code, told.rstrip().endswith("Nothing found: 4 records of 1 group were read.")) == (0, True), told
    code, told = run(observed, "groups", "delete", "clicks", "--yes")
    assert code == 1
    assert "is kept by Kafka's coordinator; observe only reads: use kafka-consumer-groups." in told
