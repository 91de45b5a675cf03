"""GroupConsumer and GroupMember with `group_protocol="consumer"`, on the real broker and the real query (KIP-848)."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaConfigurationError, KafkaError, UnreleasedInstanceIdError

from coordinator.member.consumer_member import State
from coordinator.messages.events import GroupConverted, RebalanceStarted
from coordinator.messages.group_records import GroupRecord
from streaming.client import GroupConsumer, GroupMember
from streaming.query.coordinator import Coordinator
from tests.system.staging import TURN_MS, Listener, Stage, at, calls, numbers, read

pytestmark = pytest.mark.long

PARTITIONS = 4
CLASSIC = {"group_protocol": "classic", "partition_assignment_strategy": ["cooperative-sticky"]}


class ConsumerStage(Stage):
    """A topic of four partitions, and consumers of the consumer protocol."""

    def config(self, **more: Any) -> dict[str, Any]:
        settings = super().config()
        if more.get("group_protocol") == "classic":
            return settings | more
        for name in ("session_timeout_ms", "heartbeat_interval_ms"):
            del settings[name]
        return {**settings, "group_protocol": "consumer", "metadata_refresh_ms": 1_000, **more}

    def is_shared_out(self, *shares: list[int]) -> bool:
        are_settled = all(consumer._driver.is_settled for consumer in self.consumers)
        return are_settled and sorted(self.shares()) == sorted(shares)

    def are_even(self) -> bool:
        """Return whether all members have the same number of partitions, and all partitions have an owner."""
        counts = {len(share) for share in self.shares()}
        return counts == {PARTITIONS // len(self.consumers)} and all(c._driver.is_settled for c in self.consumers)

    def seconds_until_even(self) -> float:
        began_s = time.monotonic()
        self.until(self.are_even)
        return time.monotonic() - began_s

    def closes(self, consumer: GroupConsumer) -> None:
        self.consumers.remove(consumer)
        consumer.close()

    def epoch(self) -> int:
        return max(consumer.generation for consumer in self.consumers)


@pytest.fixture
def s(coordinator: Coordinator) -> Iterator[ConsumerStage]:
    with ConsumerStage(coordinator.settings, PARTITIONS) as stage:
        yield stage


def test_two_consumers_share_a_topic_and_one_leaves(s: ConsumerStage) -> None:
    """11.1 to 11.3: only the partitions that move are revoked."""
    first, second = Listener(), Listener()
    ana = s.consumer(client_id="ana", listener=first)
    s.until(s.are_even)
    assert (ana.generation, ana.state, len(ana.member_id)) == (2, State.STABLE, 22)
    bo = s.consumer(client_id="bo", listener=second)
    print(f"shared after {s.seconds_until_even():.2f} s")
    assert [what for what, _ in first.calls] == ["assigned", "revoked", "assigned"]
    assert calls(first, "revoked") == [numbers(bo.assignment())]
    s.closes(bo)
    print(f"taken over after {s.seconds_until_even():.2f} s")
    assert second.calls[-1] == ("revoked", calls(first, "revoked")[0])
    assert calls(first, "lost") == []


def test_records_are_read_on_from_the_offsets_that_were_committed_before_the_partitions_moved(s: ConsumerStage) -> None:
    """6.1, 9.2: the automatic commit comes before the acknowledgement, and the next owner fetches it."""
    for number in range(PARTITIONS):
        s.produce(b"%d first" % number, partition=number)
    ana = s.consumer(client_id="ana", enable_auto_commit=True, auto_commit_interval_ms=3_600_000)
    assert len(read(ana, PARTITIONS)) == PARTITIONS
    bo = s.consumer(client_id="bo", enable_auto_commit=True)
    s.until(s.are_even)
    for number in range(PARTITIONS):
        s.produce(b"%d second" % number, partition=number)
    s.until(lambda: len(s.read) == PARTITIONS)
    assert sorted(record.value for record in s.read) == [b"%d second" % number for number in range(PARTITIONS)]
    moved = next(iter(bo.assignment()))
    bo.commit({moved: at(2)})
    assert bo.committed(moved) == 2


@pytest.mark.nightly
def test_the_partitions_of_a_killed_process_are_taken_over_after_its_session(s: ConsumerStage) -> None:
    ana = s.consumer(client_id="ana")
    worker = s.worker(client_id="killed")
    s.until(lambda: len(ana.assignment()) == PARTITIONS // 2)
    worker.tells("assigned", while_doing=s.turn)
    worker.process.kill()
    s.until(lambda: len(ana.assignment()) == PARTITIONS)
    assert "session_expired" in [event.cause for event in _started(s, until="session_expired")]


def _started(s: ConsumerStage, until: str) -> list[RebalanceStarted]:
    """Return the rebalances so far, up to the first one of a cause."""
    found: list[RebalanceStarted] = []
    for event in s.published(RebalanceStarted):
        found.append(event)
        if event.cause == until:
            break
    return found


def test_a_pattern_follows_new_topics(s: ConsumerStage) -> None:
    """5.3, 11.5: a pattern of RE2 has to match the whole name."""
    ana = s.consumer()
    ana.unsubscribe()
    with pytest.raises(ValueError, match="does not compile"):
        ana.subscribe(pattern="work-(")
    ana.subscribe(pattern=f"{s.topic}(-new)?")
    s.until(lambda: len(ana.assignment()) == PARTITIONS)
    s.create(f"{s.topic}-new", 2)
    s.create(f"{s.topic}-news", 1)
    s.until(lambda: len(ana.assignment()) == PARTITIONS + 2)
    assert {p.topic for p in ana.assignment()} == {s.topic, f"{s.topic}-new"}


def test_partitions_that_are_added_are_assigned(s: ConsumerStage) -> None:
    """5.2, 11.6."""
    ana = s.consumer()
    s.until(s.are_even)
    with KafkaAdminClient(bootstrap_servers=s.settings.bootstrap_servers) as admin:
        admin.create_partitions({s.topic: PARTITIONS + 2})
    s.until(lambda: len(ana.assignment()) == PARTITIONS + 2)


def test_a_static_member_restarts_without_a_rebalance(s: ConsumerStage) -> None:
    """3.5, 11.7: the same partitions and the same epoch; a second process is refused."""
    listener = Listener()
    s.consumer(client_id="bo", listener=listener)
    ana = s.consumer(client_id="ana", group_instance_id="i-ana")
    s.until(s.are_even)
    had, before = ana.assignment(), s.epoch()
    del listener.calls[:]
    twin = GroupConsumer(s.topic, **s.config(client_id="twin", group_instance_id="i-ana"))
    with pytest.raises(UnreleasedInstanceIdError):
        s.until(lambda: False, alone=lambda: twin.poll(TURN_MS))
    twin.close()
    s.closes(ana)
    again = s.consumer(client_id="ana", group_instance_id="i-ana")
    s.until(s.are_even)
    assert (again.assignment(), s.epoch(), listener.calls) == (had, before, [])


def test_a_classic_and_a_new_consumer_share_a_group(s: ConsumerStage) -> None:
    """8, 11.10: the group becomes one of the consumer protocol, and a classic one again with its last new member."""
    old = s.consumer(client_id="old", **CLASSIC)
    s.until(s.are_even)
    new = s.consumer(client_id="new")
    s.until(s.are_even)
    newer = s.consumer(client_id="newer")
    s.until(lambda: sorted(map(len, s.shares())) == [1, 1, 2])
    record = next(r for r in s.published(GroupRecord) if r.type == "consumer" and len(r.members) == 3)
    assert {member.client_id for member in record.members} == {"old", "new", "newer"}
    s.closes(new)
    s.closes(newer)
    s.until(s.are_even)
    assert len(old.assignment()) == PARTITIONS
    conversions = s.published(GroupConverted)
    assert [next(conversions).group_type, next(conversions).group_type] == ["consumer", "classic"]


def test_a_member_that_does_not_poll_for_too_long_loses_its_partitions_and_joins_again(s: ConsumerStage) -> None:
    """11.13."""
    listener = Listener()
    ana = s.consumer(client_id="ana", listener=listener, max_poll_interval_ms=2_000)
    bo = s.consumer(client_id="bo")
    s.until(s.are_even)
    s.until(lambda: len(bo.assignment()) == PARTITIONS, alone=lambda: bo.poll(TURN_MS))
    assert ana.state is State.STALE
    s.until(s.are_even)
    assert calls(listener, "lost")  # more than one if the machine is so busy that the others' polls are late as well


def test_members_share_resources(s: ConsumerStage) -> None:
    """10.7: a resource is a topic with one partition, and needs no topic in Kafka."""
    config = {name: value for name, value in s.config().items() if name in ("bootstrap_servers", "topic_prefix")}
    common = {**config, "group_id": f"{s.group_id}-resources", "group_protocol": "consumer"}
    cameras = ["gate", "roof", "yard", "lift"]
    with GroupMember(cameras, client_id="ana", **common) as ana, GroupMember(cameras, client_id="bo", **common) as bo:
        pair = (ana, bo)

        def turn() -> None:
            for member in pair:
                member.poll(TURN_MS / 1000)

        s.until(lambda: [len(member.assignment) for member in pair] == [2, 2], alone=turn)
        assert ana.assignment | bo.assignment == set(cameras)
        assert ana.fencing_token > 0
        bo.leave()
        s.until(lambda: len(ana.assignment) == 4, alone=lambda: ana.poll(TURN_MS / 1000))
    with pytest.raises(KafkaConfigurationError, match="one member would get all"):
        GroupMember(cameras, group_remote_assignor="range", **common)


def test_a_commit_of_a_member_that_was_removed_fails(s: ConsumerStage) -> None:
    ana = s.consumer(client_id="ana")
    s.until(s.are_even)
    s.expel(ana.member_id)
    with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
        ana.commit({s.partition(0): at(1)})
    s.until(s.are_even)
