"""A streams group and a share group that Kafka 4.4.0 keeps, as the observer follows them and the commands show them."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from coordinator.base.states import Phase
from streaming.cli.groups.show import ends_of
from streaming.embedded import Broker
from streaming.observe.observer import Observer
from streaming.views import GroupView
from streaming.views.api import answers
from streaming.views.api.rows import OffsetRow
from tests.clients.streams import STREAMS_PROTOCOL, WordCounts
from tests.system.test_observed_walkthroughs import Shown
from tests.system.waiting import HANG_S, wait_until

APPLICATION, LINES, COUNTS = "observed-words", "observed-lines", "observed-counts"
REPARTITION, CHANGELOG = f"{APPLICATION}-words-repartition", f"{APPLICATION}-counts-changelog"
QUEUE, QUEUED = "observed-queue", "observed-queued"


@pytest.fixture(scope="module")
def admin(broker: Broker) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topics = {LINES: 3, COUNTS: 1, QUEUED: 2}
    for future in admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()]).values():
        future.result(HANG_S)
    return admin


@pytest.fixture
def words(broker: Broker, admin: AdminClient, tmp_path: Path) -> WordCounts:
    with closing(Producer({"bootstrap.servers": broker.bootstrap_servers})) as producer:
        for number in range(30):
            producer.produce(LINES, b"one two three", str(number).encode())
        assert producer.flush(HANG_S) == 0
    return WordCounts(tmp_path, broker.bootstrap_servers, APPLICATION, LINES, COUNTS, settings=STREAMS_PROTOCOL)


def await_group(shown: Shown, is_wanted: Callable[[GroupView], object]) -> GroupView:
    found: list[GroupView | None] = []

    def look() -> bool:
        found[:] = [shown.views().groups.get(shown.group_id)]
        return bool(found[0] is not None and is_wanted(found[0]))

    wait_until(look, account=lambda: found[0] and found[0].record)
    assert found[0] is not None
    return found[0]


def tasks(group: GroupView) -> list[list[str]]:
    """Return the active tasks of each member."""
    return [row.streams.active for row in answers.members(group) if row.streams is not None]


def test_streams_group_from_its_first_instance_to_a_topic_that_grows(
    admin: AdminClient, words: WordCounts, observer: Observer
) -> None:
    """Its tasks, its causes, and the names of the topics that the observer computes from the hashes."""
    shown = Shown(observer, APPLICATION)
    with words.running(1):
        whole = [f"{subtopology}_{number}" for subtopology in (0, 1) for number in range(3)]
        group = await_group(shown, lambda each: each.state is Phase.STABLE and tasks(each) == [whole])
        assert group.record is not None
        assert set(group.record.subscribed_topics or ()) == {CHANGELOG, REPARTITION, LINES}
        told = shown.await_why(lambda each: "were made" in each.who or "was made" in each.who)
        for topic in (CHANGELOG, REPARTITION):
            assert f"{topic} was made, with 3 partitions" in told.who
        assert "all topics of the topology are there now" in told.who
        with words.running(2):
            group = await_group(shown, lambda each: sorted(map(len, tasks(each))) == [3, 3])
            told = shown.await_why(lambda each: each.cause == "member_joined" and each.generation_id > 3)
            assert (told.is_avoidable, "partitions changed hands among 2 members" in told.what) == (False, True)
            assert {owner.client_host for owner in group.owned().values()} == {"/127.0.0.1"}
        admin.create_partitions([NewPartitions(LINES, 4)])[LINES].result(HANG_S)
        await_group(shown, lambda each: each.state is Phase.NOT_READY)
        told = shown.await_why(lambda each: f"{LINES} has 4 partitions now, 3 before" in each.who)
        assert "topics of the topology are missing, or have wrong numbers of partitions" in told.who
        assert (told.cause, told.is_avoidable) == ("topology_not_ready", True)


def test_share_group_with_its_lag(broker: Broker, admin: AdminClient, observer: Observer) -> None:
    shown = Shown(observer, QUEUE)
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    with closing(ShareConsumer({**servers, "group.id": QUEUE})) as consumer, closing(Producer(servers)) as producer:
        consumer.subscribe([QUEUED])

        def has_partitions(group: GroupView) -> bool:
            consumer.poll(0.1)
            return len(group.shared()) == 2

        group = await_group(shown, has_partitions)

        def row() -> OffsetRow:
            """Return the row of the first partition. Kafka has its position when records were acknowledged."""
            producer.produce(QUEUED, b"line", partition=0)
            consumer.poll(0.1)
            return answers.offsets(group, ends_of(observer.settings, [group]))[0]

        wait_until(lambda: row().lag is not None, account=row)
        assert row().committed_offset is not None
    assert (group.state, len(group.members), group.owned()) == (Phase.STABLE, 1, {})
    assert shown.await_why(lambda each: each.cause == "share_state_ready").is_avoidable is False
