"""librdkafka's consumers share topics with the consumer protocol (KIP-848), through the gateway.

Each test names the check of the specification's section 11 that it is. The times of the checks 2 and 3 are figures of
`tests.benchmarks.next_rebalance`: a test makes no promise about speed.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import libversion
from kafka import KafkaAdminClient
from kafka.admin import NewPartitions

from coordinator.messages.heartbeats import Heartbeats
from coordinator.messages.responses import HeartbeatsAnswer
from streaming.client.transport import Transport
from streaming.embedded import Broker
from streaming.gateway import Gateway
from streaming.query.coordinator import Coordinator
from streaming.wire.inbox import read_answer
from streaming.wire.records import decode_request
from tests.system.next_members import Group
from tests.system.reading import Reader
from tests.system.waiting import wait_until

PARTITIONS = 6


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def group(transport: Transport, gateway: Gateway, group_id: str) -> Iterator[Group]:
    """Return a group that no other test uses."""
    with Group.of(transport, gateway.bootstrap_servers, f"next-{group_id}") as group:
        yield group


@pytest.fixture
def topic(admin: KafkaAdminClient, group: Group) -> str:
    """Return a topic with the name of the group."""
    make(admin, group.group_id)
    return group.group_id


def make(admin: KafkaAdminClient, topic: str, partitions: int = PARTITIONS) -> None:
    admin.create_topics({topic: {"num_partitions": partitions}}, wait_for_metadata=True)


def test_only_member_has_all_partitions(group: Group, topic: str) -> None:
    """Check 1: one call of the listener; the group is Stable at its first epoch, by the default assignor."""
    ana = group.join(topic)
    group.until_shared(topic, partitions=PARTITIONS)
    assert ana.calls == [("assigned", {(topic, number) for number in range(PARTITIONS)})]
    described = group.describe()
    assert (described.state.value, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)
    assert described.assignor == "uniform"


def test_second_member_takes_half_of_the_partitions(group: Group, topic: str, coordinator: Coordinator) -> None:
    """Checks 2 and 3: only moved partitions are revoked, and a member that leaves is not waited for."""
    ana = group.join(topic)
    group.until_shared(topic, partitions=PARTITIONS)
    for _ in range(3):
        ana.calls.clear()
        bo = group.join(topic)
        group.until_shared(topic, partitions=PARTITIONS)
        assert ana.calls == [("revoked", bo.owned)]
        group.close(bo)
        group.until_shared(topic, partitions=PARTITIONS)
    events = [event["event"] for event in Reader(coordinator.settings, group.group_id).events()]
    assert (events.count("member_left"), events.count("member_expired")) == (3, 0)


@pytest.mark.long
def test_heartbeats_of_members_at_rest_share_records(group: Group, topic: str, coordinator: Coordinator) -> None:
    """Six members send a heartbeat every five seconds, so that some of them wait for the same tick of a second."""
    for _ in range(PARTITIONS):
        group.join(topic)
    group.until_shared(topic, partitions=PARTITIONS)
    before, settings = group.describe(), coordinator.settings
    of_replies = settings.model_copy(update={"request_partitions": settings.reply_partitions})

    def answered() -> list[tuple[int, ...]]:
        """Return the codes of each record that has heartbeats of several members of the group."""
        records = Reader(settings, group.group_id).records(settings.requests_topic)
        requests = [decode_request(record.value) for record in records]
        many = [each for each in requests if isinstance(each, Heartbeats) and each.groups.count(group.group_id) > 1]
        replies = Reader(of_replies, many[0].reply_to).records(settings.replies_topic) if many else []
        answers = [read_answer(record.value) for record in replies]
        ids = {each.request_id for each in many}
        return [each.codes for each in answers if isinstance(each, HeartbeatsAnswer) and each.request_id in ids]

    wait_until(lambda: any(not any(codes) for codes in answered()), account=answered)
    after = group.describe()
    assert (after.state.value, after.group_epoch, len(after.members)) == ("Stable", before.group_epoch, PARTITIONS)


def test_range_gives_a_member_the_same_partitions_of_both_topics(
    group: Group, admin: KafkaAdminClient, topic: str
) -> None:
    """Check 4: a member chooses the assignor."""
    other = f"{topic}-b"
    make(admin, other)
    ana, bo = (group.join(topic, other, group_remote_assignor="range") for _ in range(2))
    group.until_shared(topic, other, partitions=PARTITIONS)
    for member in (ana, bo):
        assert {n for t, n in member.owned if t == topic} == {n for t, n in member.owned if t == other}
    assert group.describe().assignor == "range"


def test_pattern_finds_a_new_topic(group: Group, admin: KafkaAdminClient, topic: str) -> None:
    """Check 5: a topic that matches the pattern is assigned when it is there."""
    ana = group.join(f"^{topic}.*")
    group.until_shared(topic, partitions=PARTITIONS)
    make(admin, f"{topic}-b")
    group.until_shared(topic, f"{topic}-b", partitions=PARTITIONS)
    assert [what for what, _ in ana.calls] == ["assigned", "assigned"]


@pytest.mark.skipif(libversion()[1] < 0x021000FF, reason="librdkafka 2.12.2 raises no error")
def test_invalid_pattern_is_fatal(group: Group) -> None:
    """Check 5: the gateway cannot compile the pattern. librdkafka itself refuses patterns that it cannot read."""
    ana = group.join(r"^(orders)\1")
    wait_until(lambda: ana.fatal, account=lambda: ana)
    assert "regular expression is not valid" in ana.fatal


@pytest.mark.long
def test_changes_of_a_topic_are_followed(group: Group, admin: KafkaAdminClient, topic: str) -> None:
    """Check 6: added partitions are assigned, a deleted topic is revoked, and a topic of its name is another one."""
    ana, bo = group.join(topic), group.join(topic)
    group.until_shared(topic, partitions=PARTITIONS)
    admin.create_partitions({topic: NewPartitions(total_count=PARTITIONS + 2)})
    group.until_shared(topic, partitions=PARTITIONS + 2)
    admin.delete_topics([topic])
    wait_until(lambda: not ana.owned and not bo.owned, account=lambda: group.members)
    make(admin, topic)
    group.until_shared(topic, partitions=PARTITIONS)


def test_static_member_restarts_with_its_partitions(group: Group, topic: str) -> None:
    """Check 7: the group keeps its epoch and the partitions; a second process of the same name gets a fatal error."""
    ana, bo = (group.join(topic, group_instance_id=name) for name in ("desk-1", "desk-2"))
    group.until_shared(topic, partitions=PARTITIONS)
    had, epoch, moves = set(ana.owned), group.describe().group_epoch, list(bo.calls)
    group.close(ana)
    again = group.join(topic, group_instance_id="desk-1")
    group.until_shared(topic, partitions=PARTITIONS)
    assert (again.owned, group.describe().group_epoch, bo.calls) == (had, epoch, moves)

    second = group.join(topic, group_instance_id="desk-1")
    wait_until(lambda: second.fatal, account=lambda: second)
    assert "instance ID is still used by another member" in second.fatal
    assert again.owned == had
