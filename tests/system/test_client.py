"""Consumers in groups on the real broker and query: they join, leave, commit, are killed and are paused."""

import signal
import socket
import threading
from functools import partial

import pytest
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import CommitFailedError, InvalidSessionTimeoutError, KafkaError, RebalanceInProgressError
from kafka.structs import OffsetAndMetadata

from coordinator.base.states import Phase
from coordinator.member.member import MemberState
from coordinator.messages.events import MemberExpired, MemberLeft
from coordinator.messages.requests import DescribeGroup
from coordinator.messages.responses import DescribeGroupAnswer
from streaming.client import NoAnswer, NoCoordinator, Transport
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.errors import BrokerUnreachable
from streaming.kafka.topics import ensure
from tests.system.staging import MakeStage, read
from tests.system.waiting import HANG_S, wait_until

# -- membership --------------------------------------------------------------------------------------------------------


def test_partitions_follow_the_membership(stage: MakeStage) -> None:
    """S01, S03, S04, S10, S11: one member owns all partitions. Of four members on three partitions, one owns none.

    The partitions of a member that leaves go to the others.
    """
    s = stage(3)
    ana = s.consumer(client_id="ana")
    s.until(lambda: s.is_shared_out([0, 1, 2]))
    for name in ("bo", "cy", "di"):
        s.consumer(client_id=name)
    s.until(lambda: s.is_shared_out([0], [1], [2], []))
    assert len({c.generation for c in s.consumers}) == 1
    idle = next(c for c in s.consumers if not c.assignment())
    s.consumers.remove(ana)
    ana.close("going home")
    s.until(lambda: s.is_shared_out([0], [1], [2]))
    assert idle.assignment()
    left = next(s.published(MemberLeft))
    assert (left.client_id, left.reason) == ("ana", "going home")


def test_killed_member_is_expelled_and_its_partitions_get_a_new_owner(stage: MakeStage) -> None:
    """S05: a killed member sends no LeaveGroup; its session expires."""
    s = stage(2)
    s.consumer(client_id="ana")
    bo = s.worker(client_id="bo", session_timeout_ms=1_500)
    assert len(bo.tells("assigned", s.turn)) == 1
    bo.signal(signal.SIGKILL)
    s.until(lambda: s.is_shared_out([0, 1]))
    expired = next(s.published(MemberExpired))
    assert (expired.client_id, expired.why) == ("bo", "session_expired")
    if expired.silence_ms is not None:  # null after a late batch, which extends the session
        assert expired.silence_ms >= 1_500


def test_paused_member_learns_that_it_has_lost_its_partitions_and_rejoins_with_a_new_id(
    stage: MakeStage,
) -> None:
    """S06: SIGSTOP pauses the member for longer than its session; its next request gets error 25."""
    s = stage(2)
    s.consumer(client_id="ana")
    bo = s.worker(client_id="bo", session_timeout_ms=1_500)
    was = bo.tells("member_id", s.turn)
    (mine,) = bo.tells("assigned", s.turn)
    bo.signal(signal.SIGSTOP)
    s.until(lambda: s.is_shared_out([0, 1]))
    bo.signal(signal.SIGCONT)
    assert bo.tells("lost", s.turn) == [mine]
    assert bo.tells("member_id", s.turn) != was
    assert len(bo.tells("assigned", s.turn)) == 1


def test_listeners_are_called_in_order_on_the_callers_thread(stage: MakeStage) -> None:
    """S121, S122: revoked comes before assigned. Nothing is revoked before the first join. Closing revokes."""
    s = stage(2)
    calls: list[tuple[str, list[int], threading.Thread]] = []

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            calls.append(("revoked", sorted(p.partition for p in revoked), threading.current_thread()))

        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            calls.append(("assigned", sorted(p.partition for p in assigned), threading.current_thread()))

    ana = s.consumer(client_id="ana")
    ana.subscribe([s.topic], listener=Listener())
    s.until(lambda: s.is_shared_out([0, 1]))
    s.consumer(client_id="bo")
    s.until(lambda: s.is_shared_out([0], [1]))
    ana.close()
    share = calls[2][1]
    assert [(what, partitions) for what, partitions, _ in calls] == [
        ("assigned", [0, 1]), ("revoked", [0, 1]), ("assigned", share), ("revoked", share),
    ]  # fmt: skip
    assert {thread for _, _, thread in calls} == {threading.current_thread()}
    s.consumers.remove(ana)


def test_error_of_a_listener_is_raised_and_members_continue(stage: MakeStage) -> None:
    s = stage(2)

    class Failing(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            pass

        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            raise ZeroDivisionError

    ana = s.consumer()
    ana.subscribe([s.topic], listener=Failing())
    s.until(lambda: s.is_shared_out([0, 1]))
    s.consumer()
    with pytest.raises(KafkaError) as failed:
        s.until(lambda: s.is_shared_out([0], [1]))
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    s.until(lambda: s.is_shared_out([0], [1]))
    ana.subscribe([s.topic])


def test_unsubscribe_leaves_and_subscribe_joins_with_a_new_id(stage: MakeStage) -> None:
    """S112, S114."""
    s = stage(1)
    ana = s.consumer(client_id="ana")
    s.until(lambda: s.is_shared_out([0]))
    was = ana.member_id
    ana.unsubscribe()
    assert (ana.member_id, ana.generation, ana.assignment(), ana.subscription()) == ("", -1, set(), None)
    assert "unsubscribed" in (next(s.published(MemberLeft)).reason or "")
    ana.subscribe([s.topic])
    s.until(lambda: s.is_shared_out([0]))
    assert ana.member_id not in ("", was)


def test_fatal_refusal_of_the_coordinator_is_raised(stage: MakeStage) -> None:
    s = stage(1)
    s.consumer(session_timeout_ms=10_000_000)
    with pytest.raises(InvalidSessionTimeoutError):
        s.until(lambda: False)


def test_kafkas_own_coordinator_does_not_know_the_group(stage: MakeStage) -> None:
    s = stage(1)
    ana = s.consumer()
    s.until(lambda: s.is_shared_out([0]))
    ana.commit({TopicPartition(s.topic, 0): OffsetAndMetadata(0, "", -1)})
    with KafkaAdminClient(bootstrap_servers=s.settings.bootstrap_servers) as admin:
        assert s.group_id not in str(admin.list_groups())


# -- offsets -----------------------------------------------------------------------------------------------------------


def test_reading_continues_from_the_committed_offset_of_any_member(stage: MakeStage) -> None:
    """S135 to S142: the position is not the committed offset; records without a commit are read again."""
    s = stage(1)
    first = TopicPartition(s.topic, 0)
    s.produce(*(b"%d" % n for n in range(10)))
    ana = s.consumer(client_id="ana")
    assert read(ana, 5) == [b"0", b"1", b"2", b"3", b"4"]
    assert (ana.position(first), ana.committed(first)) == (5, None)
    ana.commit()
    assert ana.committed(first) == 5
    assert read(ana, 3) == [b"5", b"6", b"7"]
    assert (ana.position(first), ana.committed(first)) == (8, 5)
    s.consumers.remove(ana)
    ana.close()
    bo = s.consumer(client_id="bo")
    assert read(bo, 5) == [b"5", b"6", b"7", b"8", b"9"]


def test_auto_commit_commits_before_a_rebalance_and_on_close(stage: MakeStage) -> None:
    """Protocol.md 6.4, 6.6: the interval is an hour, so these commits come from joining and from closing."""
    s = stage(2)
    first = TopicPartition(s.topic, 0)
    s.produce(b"a", b"b")
    ana = s.consumer(enable_auto_commit=True, auto_commit_interval_ms=3_600_000)
    assert read(ana, 2) == [b"a", b"b"]
    assert ana.committed(first) is None
    bo = s.consumer(enable_auto_commit=True, auto_commit_interval_ms=3_600_000)
    s.until(lambda: s.is_shared_out([0], [1]))
    assert bo.committed(first) == 2
    s.produce(b"c")
    owner = next(c for c in s.consumers if first in c.assignment())
    assert read(owner, 1) == [b"c"]
    s.consumers.remove(owner)
    owner.close()
    assert s.consumers[0].committed(first) == 3


def test_iteration_commits_only_records_that_were_handed_out(stage: MakeStage) -> None:
    """This holds also for a partition whose records are fetched already and of which none was handed out."""
    s = stage(2)
    for partition in (0, 1):
        s.produce(*(b"%d" % n for n in range(5)), partition=partition)
    ana = s.consumer(consumer_timeout_ms=30_000)
    handed_out = [next(ana) for _ in range(3)]
    ana.commit()
    for number in (0, 1):
        partition = TopicPartition(s.topic, number)
        count = sum(record.partition == number for record in handed_out)
        assert (ana.position(partition), ana.committed(partition)) == (count, count)


def test_commit_during_a_rebalance_or_outside_the_group_is_refused(stage: MakeStage) -> None:
    s = stage(1)
    offsets = {TopicPartition(s.topic, 0): OffsetAndMetadata(1, "", -1)}
    ana = s.consumer()
    with pytest.raises(CommitFailedError):
        ana.commit(offsets)
    ana.poll(0)
    assert ana.state is MemberState.PREPARING_REBALANCE
    with pytest.raises(RebalanceInProgressError):
        ana.commit(offsets)


# -- one-shot requests -------------------------------------------------------------------------------------------------


def describe(group_id: str) -> DescribeGroup:
    return DescribeGroup(request_id="", reply_to="", group_id=group_id)


def test_one_shot_requests_share_a_transport_with_members(stage: MakeStage) -> None:
    s = stage(1)
    ana = s.consumer(client_id="ana")
    s.until(lambda: s.is_shared_out([0]))
    answer = ana._transport.ask(describe(s.group_id), HANG_S)
    assert isinstance(answer, DescribeGroupAnswer)
    assert (answer.state, [m.client_id for m in answer.members]) == (Phase.STABLE, ["ana"])
    assert answer.members[0].client_host == "/127.0.0.1"
    assert s.consumer()._transport is ana._transport


@pytest.fixture
def unserved(broker: Broker) -> Settings:
    """Return the settings of topics that no coordinator serves."""
    settings = Settings.load(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix="nobody-serves",
        request_partitions=1,
        reply_partitions=1,
        replication_factor=1,
    )
    ensure(settings)
    return settings


def test_requests_keep_their_leader_when_the_topics_are_fetched_again(unserved: Settings) -> None:
    """A request that waits while its broker restarts is sent to the leader of the next metadata."""
    clients = []

    def recorded(**config: object) -> object:
        clients.append(KafkaConsumer.DEFAULT_CONFIG["kafka_client"](**config))
        return clients[-1]

    with Transport(unserved.kafka_client_arguments() | {"kafka_client": recorded}, unserved.topic_prefix):
        cluster = clients[-1].cluster
        for _ in range(2):  # the first may be a request of the start, for all topics
            fetched = cluster.request_update()
            wait_until(partial(getattr, fetched, "is_done"))
            assert cluster.partitions_for_topic(unserved.requests_topic) == {0}


def test_error_for_a_missing_response_names_the_topic_and_the_group(unserved: Settings) -> None:
    with (
        Transport(unserved.kafka_client_arguments(), unserved.topic_prefix) as transport,
        pytest.raises(NoAnswer, match=r"'orders'.*nobody-serves\.replies within 0\.2 s.*nobody-serves\.requests"),
    ):
        transport.ask(describe("orders"), timeout_s=0.2)


def test_error_without_a_coordinator_names_the_topic(broker: Broker) -> None:
    with pytest.raises(NoCoordinator, match=r"no topic nothing-here\.requests"):
        Transport({"bootstrap_servers": broker.bootstrap_servers}, "nothing-here")
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert "nothing-here.requests" not in admin.list_topics(), "the search must not create the topic"


def test_error_without_a_broker_names_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        servers = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(BrokerUnreachable, match=servers):
        Transport({"bootstrap_servers": servers, "bootstrap_timeout_ms": 500})
