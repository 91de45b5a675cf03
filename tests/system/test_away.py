"""The behaviour of clients when the coordinator, its topics or a broker is unavailable, or a setting is invalid."""

import gc
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaConfigurationError, KafkaError, KafkaTimeoutError
from kafka.net.connection import KafkaConnection

from coordinator.base.hashing import shard_of
from coordinator.member.member import MemberState
from streaming.client import GroupConsumer, GroupMember, NoCoordinator
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.errors import BrokerUnreachable
from streaming.query.coordinator import Coordinator
from streaming.wire.records import decode_answer, decode_request
from tests.system.conftest import Service
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

SESSION_MS = 6_000
REQUEST_MS = 2_000
CLOSE_MS = 1_500
SPARE_S = 2.0
"""The time in seconds that a call may take beyond its time-out on a busy machine."""

OF_THE_QUERY = re.compile("coordinator-(?!client-)")
"""The start of the client ids of a query, which `coordinator-client-` of its members is not."""

Run = Callable[..., Service]
T = TypeVar("T")


def way(settings: Settings, **more: Any) -> dict[str, Any]:
    """Return the configuration of a member that soon detects that the coordinator is unavailable."""
    return {
        "bootstrap_servers": settings.bootstrap_servers, "topic_prefix": settings.topic_prefix,
        "session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 1_000, "request_timeout_ms": REQUEST_MS, **more,
    }  # fmt: skip


@contextmanager
def takes(low_s: float, high_s: float) -> Iterator[None]:
    """Check that the duration of the block is between the two limits."""
    began_s = time.monotonic()
    try:
        yield
    finally:
        took_s = time.monotonic() - began_s
        assert low_s <= took_s <= high_s, f"{took_s:.2f} s"


class Work:
    """A topic of one partition, and a producer that writes one record for each call of `reaches`."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self.partition = TopicPartition(topic, 0)
        self._producer = KafkaProducer(bootstrap_servers=settings.bootstrap_servers)
        with KafkaAdminClient(bootstrap_servers=settings.bootstrap_servers) as admin:
            admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)

    def reaches(self, consumer: GroupConsumer) -> int:
        """Produce a record, poll until it comes, and return its offset."""
        offset = int(self._producer.send(self.partition.topic, b"work").get(10).offset)
        read: list[int] = []
        wait_until(lambda: read.extend(r.offset for r in consumer.poll(100).get(self.partition, ())) or offset in read)
        return offset

    def close(self) -> None:
        self._producer.close()


def silences(caplog: pytest.LogCaptureFixture, group_id: str) -> list[str]:
    """Return the log lines of a group's members about a coordinator that does not answer."""
    said = re.compile(rf"group {group_id}: no response from the coordinator for {SESSION_MS} ms; continuing with \d")
    return [record.getMessage() for record in caplog.records if said.match(record.getMessage())]


# -- the coordinator is unavailable ------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_members_survive_an_unavailable_coordinator(run_service: Run, caplog: pytest.LogCaptureFixture) -> None:
    """S141, S142, S147: for longer than a session, members read but cannot commit, and log one warning each.

    Afterwards they have the same member ids and the same generation as before.
    """
    service = run_service("outlasted")
    service.await_ready()
    settings = service.settings
    work, jobs = Reader(settings, "work"), Reader(settings, "jobs")
    with ExitStack() as stack:
        orders = Work(settings, "outlasted-orders")
        stack.callback(orders.close)
        consumer = stack.enter_context(
            GroupConsumer("outlasted-orders", **way(settings, group_id="work", auto_offset_reset="earliest"))
        )
        member = stack.enter_context(GroupMember(["gate"], **way(settings, group_id="jobs")))
        member.wait_for_assignment(HANG_S)
        orders.reaches(consumer)
        consumer.commit(timeout_ms=HANG_S * 1_000)
        was = [(each.member_id, each.generation, each.state) for each in (consumer, member)]
        assert {state for _, _, state in was} == {MemberState.STABLE}

        service.kill()
        with pytest.raises(KafkaTimeoutError), takes(REQUEST_MS / 1_000, REQUEST_MS / 1_000 + SPARE_S):
            consumer.commit()
        read_while_away = 0
        while not (silences(caplog, "work") and silences(caplog, "jobs")):
            read_while_away = orders.reaches(consumer)
            assert member.poll(0.1) == {"gate"}
        again = run_service("outlasted")
        while not again.ready_file.exists() and again.process.poll() is None:
            read_while_away = orders.reaches(consumer)
            assert member.poll(0.1) == {"gate"}
        again.await_ready()

        assert read_while_away > 1
        assert [len(silences(caplog, group_id)) for group_id in ("work", "jobs")] == [1, 1], "one warning"
        consumer.commit(timeout_ms=HANG_S * 1_000)
        assert consumer.committed(orders.partition, timeout_ms=HANG_S * 1_000) == read_while_away + 1
        beaten = time.monotonic() + SESSION_MS / 1_000
        while time.monotonic() < beaten:  # nothing from the time without a coordinator expels them later
            orders.reaches(consumer)
            assert member.poll(0.1) == {"gate"}
        assert [(each.member_id, each.generation, each.state) for each in (consumer, member)] == was
        for reader in (work, jobs):
            events = [e["event"] for e in reader.events()]
            assert (events.count("rebalance_started"), events.count("member_expired")) == (1, 0), events


@pytest.mark.nightly
def test_leave_without_a_coordinator_is_processed_when_it_returns(
    run_service: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """S11, S112: close and leave keep their time-outs and log that no response came; the LeaveGroup stays in Kafka."""
    service = run_service("unanswered")
    service.await_ready()
    settings = service.settings
    orders = Work(settings, "unanswered-orders")
    consumer = GroupConsumer("unanswered-orders", **way(settings, group_id="work", auto_offset_reset="earliest"))
    member = GroupMember(["gate"], **way(settings, group_id="jobs"))
    member.wait_for_assignment(HANG_S)
    last = [orders.reaches(consumer) for _ in range(3)][-1]
    service.kill()
    with takes(CLOSE_MS / 1_000, CLOSE_MS / 1_000 + SPARE_S):
        consumer.close("going home", timeout_ms=CLOSE_MS)
    with takes(CLOSE_MS / 1_000, CLOSE_MS / 1_000 + SPARE_S):
        member.leave("shift is over", timeout_s=CLOSE_MS / 1_000)
    orders.close()
    logged = [record.getMessage() for record in caplog.records]
    assert f"group work: no response to leaving within {CLOSE_MS} ms" in logged
    assert f"group jobs: no response to leaving within {CLOSE_MS / 1_000:g} s" in logged

    run_service("unanswered").await_ready()
    for group_id, reason in (("work", "going home"), ("jobs", "shift is over")):
        reader = Reader(settings, group_id)
        assert reader.await_event("member_left", HANG_S)["reason"] == reason
        assert "member_expired" not in [e["event"] for e in reader.events()]
        assert reader.everything().groups[-1]["state"] == "Empty"
    commits = Reader(settings, "work").everything().offsets
    assert commits[-1] == {tuple(orders.partition): last + 1}, "close commits before it leaves"


# -- unreachable brokers, missing topics, invalid settings -------------------------------------------------------------


def connections(servers: str) -> set[socket.socket]:
    """Return this process's connections to a broker that are Python sockets, as members have them.

    Those of the query are left out: it may run since an earlier test, and opens and closes them at any time. Those of
    the gateway are no Python sockets.
    """
    port = int(servers.rpartition(":")[2])
    found = {each for each in living(socket.socket) if peer_port(each) == port}
    clients = (each for each in living(KafkaConnection) if getattr(each, "transport", None))
    return found - {each.transport._sock for each in clients if OF_THE_QUERY.match(each.config["client_id"])}


def living(kind: type[T]) -> Iterator[T]:
    """Yield all objects of a class in this process."""
    for each in gc.get_objects():
        with suppress(ReferenceError):  # a proxy of an object that is gone
            if isinstance(each, kind):
                yield each


def peer_port(connection: socket.socket) -> int | None:
    """Return the port of the peer, or None if the socket has no peer with an Internet address."""
    try:
        return int(connection.getpeername()[1])
    except (OSError, IndexError, ValueError):
        return None


def threads() -> set[threading.Thread]:
    """Return the threads of this process, without those of the query's clients, as for `connections`."""
    return {each for each in threading.enumerate() if not OF_THE_QUERY.match(each.name.removeprefix("kafka-io-"))}


@pytest.fixture
def leaving_no_trace(broker: Broker) -> Iterator[None]:
    """Check that the test leaves no new thread and no new connection; older ones may have ended."""
    threads_before, before = threads(), connections(broker.bootstrap_servers)

    def left() -> tuple[set[threading.Thread], set[socket.socket]]:
        return threads() - threads_before, connections(broker.bootstrap_servers) - before

    yield
    wait_until(lambda: not any(left()), account=left)


def make(kind: type, **config: Any) -> object:
    """Construct a consumer or a member; the test expects that this fails."""
    config = {"group_id": "g", **config}
    return GroupMember(["gate"], **config) if kind is GroupMember else GroupConsumer("t", **config)


@pytest.fixture
def nobody() -> Iterator[str]:
    """Yield an address at which no process listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def mute() -> Iterator[str]:
    """Yield an address at which a server accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def error_of(call: Callable[[], object], within_s: float) -> BaseException | None:
    """Return the exception that a call raises, or None. A call that never returns fails this test alone."""
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=guarded, name="the call", daemon=True)
    thread.start()
    thread.join(within_s)
    assert not thread.is_alive(), f"the call did not return within {within_s} s"
    return raised[0] if raised else None


@pytest.mark.usefixtures("leaving_no_trace")
@pytest.mark.parametrize("kind", [GroupConsumer, GroupMember])
@pytest.mark.parametrize("who", ["nobody", "mute"])
def test_unreachable_broker_is_named_within_the_timeout(kind: type, who: str, request: pytest.FixtureRequest) -> None:
    """The error comes within bootstrap_timeout_ms and says what to do; repeated attempts leave no threads."""
    servers = request.getfixturevalue(who)
    error = error_of(lambda: make(kind, bootstrap_servers=servers, bootstrap_timeout_ms=1_000), 1 + SPARE_S)
    assert isinstance(error, BrokerUnreachable)
    wait_until(lambda: not connections(servers), account=lambda: connections(servers))
    assert re.search(rf"{servers}.*start one there, or correct bootstrap_servers", str(error))


@pytest.mark.usefixtures("leaving_no_trace")
@pytest.mark.parametrize("kind", [GroupConsumer, GroupMember])
def test_missing_topics_are_named(kind: type, broker: Broker) -> None:
    """The error comes at once, says that no coordinator has used this prefix, and says what to do."""
    with pytest.raises(NoCoordinator, match=r"no topic nobodys\.requests.*start the coordinator.*topic prefix"):
        make(kind, bootstrap_servers=broker.bootstrap_servers, topic_prefix="nobodys")


BAD = {
    "unknown name": ({"sesion_timeout_ms": 1}, "sesion_timeout_ms"),
    "text for a number": ({"session_timeout_ms": "10000"}, "session_timeout_ms"),
    "a number too low": ({"max_poll_interval_ms": 0}, "max_poll_interval_ms"),
    "heartbeats too rare": ({"heartbeat_interval_ms": 45_000}, "heartbeat_interval_ms"),
    "no group": ({"group_id": ""}, "group_id"),
    "an instance id that cannot be": ({"group_instance_id": "a b"}, "group_instance_id"),
    "an unknown assignor": ({"partition_assignment_strategy": ["fair"]}, "fair"),
    "no assignor": ({"partition_assignment_strategy": []}, "partition_assignment_strategy"),
}


@pytest.mark.usefixtures("leaving_no_trace")
@pytest.mark.parametrize("kind", [GroupConsumer, GroupMember])
@pytest.mark.parametrize("bad", BAD)
def test_invalid_configuration_is_refused_at_once(kind: type, bad: str) -> None:
    """The error names the setting and comes before any connection is opened."""
    config, named = BAD[bad]
    with socket.create_server(("127.0.0.1", 0)) as server:
        servers = f"127.0.0.1:{server.getsockname()[1]}"
        with takes(0, 0.5), pytest.raises(KafkaConfigurationError, match=named):
            make(kind, bootstrap_servers=servers, **config)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


BAD_FOR_KAFKA = {
    "auto_offset_reset": "sometimes",
    "fetch_max_wait_ms": 10**9,
    "isolation_level": "some",
    "security_protocol": "SECRET",
}


@pytest.mark.usefixtures("leaving_no_trace")
@pytest.mark.parametrize("name", BAD_FOR_KAFKA)
def test_invalid_value_for_kafka_python_is_refused(name: str, coordinator: Coordinator) -> None:
    """The value is passed on to kafka-python; the caller gets the same type of error, and nothing stays open."""
    with pytest.raises(KafkaConfigurationError, match=name):
        GroupConsumer("t", **way(coordinator.settings, group_id="g"), **{name: BAD_FOR_KAFKA[name]}).close()


@pytest.mark.usefixtures("leaving_no_trace")
@pytest.mark.parametrize("topics", [["bad topic"], [["a", "list"]], [None]], ids=str)
def test_invalid_topic_leaves_nothing_open(topics: list[Any], coordinator: Coordinator) -> None:
    """A constructor that raises leaves nothing open: the caller has no object to close."""
    with pytest.raises((KafkaError, TypeError, ValueError)):
        GroupConsumer(*topics, **way(coordinator.settings, group_id="g"))


# -- everything is available: the requests and the connections of members ----------------------------------------------


def test_member_with_only_a_bootstrap_address_gets_its_partitions(coordinator: Coordinator) -> None:
    """S02: the member joins, syncs, fetches its offsets and sends heartbeats; each request has one response."""
    settings = coordinator.settings
    group_id, topic = "three-steps", "three-steps"
    orders = Work(settings, topic)
    config = {"bootstrap_servers": settings.bootstrap_servers, "topic_prefix": settings.topic_prefix}
    with GroupConsumer(topic, **config, group_id=group_id, auto_offset_reset="earliest") as consumer:
        inbox = consumer._transport.inbox
        orders.reaches(consumer)
        requests: list[Any] = []

        def kinds() -> list[str]:
            return [type(request).__name__ for request in requests]

        def has_beaten() -> bool:
            consumer.poll(100)
            records = Reader(settings, group_id).records(settings.requests_topic)
            requests[:] = [decode_request(r.value) for r in records if r.key == group_id.encode()]
            return {"OffsetFetch", "Heartbeat"} <= set(kinds())

        wait_until(has_beaten, account=lambda: requests)
        # members send heartbeats at common moments, so the first one may come before the offsets are fetched
        assert [kind for kind in kinds() if kind != "Heartbeat"] == ["JoinGroup", "SyncGroup", "OffsetFetch"]
        asked = {r.request_id for r in requests}
        wait_until(lambda: asked <= {r.request_id for r in replies(settings, inbox)})
    orders.close()
    answered = [r.request_id for r in replies(settings, inbox)]
    assert {answered.count(request_id) for request_id in asked} == {1}
    assert {r.reply_to for r in requests} == {inbox}


def replies(settings: Settings, inbox: str) -> list[Any]:
    """Read all responses that were sent to a mailbox."""
    partition = TopicPartition(settings.replies_topic, shard_of(inbox, settings.reply_partitions))
    consumer = KafkaConsumer(**settings.kafka_client_arguments())
    consumer.assign([partition])
    end = consumer.end_offsets([partition])[partition]
    consumer.seek_to_beginning(partition)
    found: list[Any] = []
    while consumer.position(partition) < end:
        for records in consumer.poll(500).values():
            found += [decode_answer(r.value) for r in records if r.key == inbox.encode()]
    consumer.close()
    return found


def members_threads() -> list[threading.Thread]:
    """Return the threads of members, without those of the query and of its session, which change at any time."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("coordinator ")]


@pytest.mark.usefixtures("leaving_no_trace")
def test_members_of_one_process_share_one_transport(coordinator: Coordinator) -> None:
    """Ten members need no more threads and no more connections than one; the last one that closes closes them."""
    with ExitStack() as stack:
        config = way(coordinator.settings, group_id="ten-in-one-process")
        members = [stack.enter_context(GroupMember(["gate", "yard"], **config))]
        members[0].wait_for_assignment(HANG_S)
        servers = coordinator.settings.bootstrap_servers
        one = len(members_threads()), len(connections(servers))
        members += [stack.enter_context(GroupMember(["gate", "yard"], **config)) for _ in range(9)]
        wait_until(lambda: [m.poll() for m in members] and {m.state for m in members} == {MemberState.STABLE})
        assert len(members_threads()) <= one[0]
        assert len(connections(servers)) <= one[1]
        assert sum(len(m.assignment) for m in members) == 2
