"""Groups with members move between two coordinators that run, there and back, and no client notices."""

import asyncio
import json
import re
import time
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import ConsumerRebalanceListener, KafkaAdminClient
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from typer.testing import CliRunner

from coordinator.base.limits import SLOTS
from coordinator.base.slots import ranges_of, slot_of
from coordinator.messages.move_requests import ReleaseGroup
from streaming.cli.main import app
from streaming.client import GroupConsumer
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.errors import Exit, NoAnswer
from streaming.gateway import Gateway
from streaming.kafka.transactional import TransactionWriter
from tests.system.conftest import Service
from tests.system.moving import Run, move, start_pair
from tests.system.raw_producer import RawProducer
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until
from tests.system.wire import connect

pytestmark = pytest.mark.long

TOPIC, PARTITIONS = "moved-records", 4

MOVES = 12
"""The number of moves at least: each of six groups moves there and back."""

TAKEN_BACK = "taken-back"

SILENCE_MS = 20_000
"""The time without a response after which a member connects again. It is shorter than its session."""


class Member(Thread):
    """A member that commits growing offsets without a pause, and stores all that happens to it.

    Its `run` belongs to the kind of client.
    """

    def __init__(self, group_id: str) -> None:
        super().__init__(name=group_id)
        self.assigned: list[Any] = []
        self.revoked: list[Any] = []
        self.committed, self.errors = 0, list[str]()
        self.stopping = Event()

    def commits_on(self, *, may_fail: bool = False) -> None:
        """Wait until five more commits have succeeded."""
        target = self.committed + 5
        wait_until(
            lambda: self.committed >= target or (self.errors and not may_fail),
            account=lambda: (self.name, self.committed, self.errors),
        )
        assert may_fail or self.errors == []

    def stop(self) -> None:
        self.stopping.set()
        self.join(HANG_S)


class OfLibrdkafka(Member):
    """A consumer of librdkafka behind the gateway."""

    def __init__(self, bootstrap_servers: str, group_id: str, protocol: str, **options: int) -> None:
        super().__init__(group_id)
        classic = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 500} if protocol == "classic" else {}
        self._config = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            **classic,
            **options,
        }

    def run(self) -> None:
        consumer = Consumer(self._config)
        consumer.subscribe(
            [TOPIC],
            on_assign=lambda _, partitions: self.assigned.append(partitions),
            on_revoke=lambda _, partitions: self.revoked.append(partitions),
            on_lost=lambda _, partitions: self.revoked.append(partitions),
        )
        while not self.stopping.is_set():
            consumer.poll(0.05)
            if owned := consumer.assignment():
                try:
                    self.commit(consumer, TopicPartition(TOPIC, owned[0].partition, self.committed + 1))
                    self.committed += 1
                except KafkaException as error:
                    self.errors.append(str(error))
        revoked = len(self.revoked)
        consumer.close()
        del self.revoked[revoked:]

    def commit(self, consumer: Consumer, place: TopicPartition) -> None:
        """Commit an offset."""
        consumer.commit(offsets=[place], asynchronous=False)


class InTransactions(OfLibrdkafka):
    """A consumer of librdkafka whose producer commits the offsets, each in a transaction of its own."""

    def __init__(self, bootstrap_servers: str, group_id: str, protocol: str) -> None:
        super().__init__(bootstrap_servers, group_id, protocol)
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": group_id})
        self._producer.init_transactions(HANG_S)

    def commit(self, consumer: Consumer, place: TopicPartition) -> None:
        self._producer.begin_transaction()
        self._producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), HANG_S)
        self._producer.commit_transaction(HANG_S)


class OfTheTopics(Member, ConsumerRebalanceListener):
    """A consumer of this project's client, which writes to the request topics itself."""

    def __init__(self, settings: Settings, group_id: str, protocol: str, **options: Any) -> None:
        super().__init__(group_id)
        self._config = {
            **options,
            "bootstrap_servers": settings.bootstrap_servers,
            "topic_prefix": settings.topic_prefix,
            "group_id": group_id,
            "group_protocol": protocol,
            "enable_auto_commit": False,
        }

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned.append(assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked and not self.stopping.is_set():
            self.revoked.append(revoked)

    def run(self) -> None:
        with GroupConsumer(**self._config) as consumer:
            consumer.subscribe([TOPIC], listener=self)
            while not self.stopping.is_set():
                consumer.poll(50)
                if owned := sorted(consumer.assignment()):
                    try:
                        consumer.commit({owned[0]: OffsetAndMetadata(self.committed + 1, "", -1)}, 1_000 * int(HANG_S))
                        self.committed += 1
                    except KafkaError as error:
                        self.errors.append(repr(error))


@pytest.fixture
def pair(run_service: Run, broker: Any, tmp_path: Path) -> tuple[Service, Service]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({TOPIC: {"num_partitions": PARTITIONS, "replication_factor": 1}}, wait_for_metadata=True)
    return start_pair(run_service, broker.bootstrap_servers, tmp_path, ("moves-from", "moves-to"))


def verified(settings: Settings, *typed: str) -> str:
    """Return the result of `coordinator verify`."""
    flags = ("-b", str(settings.bootstrap_servers), "--topic-prefix", settings.topic_prefix)
    return str(CliRunner().invoke(app, ["verify", *typed, *flags]).output)


def check_the_topics(a: Settings, b: Settings) -> None:
    """Check that nothing is found at each coordinator, nor in the moves between both, from either one."""
    for settings, other in ((a, b), (b, a)):
        assert "Nothing found" in (found := verified(settings)), found
        found = verified(settings, "--peer", other.topic_prefix)
        assert "Nothing found" in found, found
        compared = re.search(r"both ends of (\d+) moves were compared", found)
        assert compared is not None, found
        assert int(compared[1]) >= MOVES, found


def history(settings: Settings, group_id: str) -> list[dict[str, Any]]:
    """Return the events that `coordinator groups timeline` shows."""
    flags = ("-b", str(settings.bootstrap_servers), "--topic-prefix", settings.topic_prefix, "-o", "json")
    done = CliRunner().invoke(app, ["groups", "timeline", group_id, *flags])
    return list(json.loads(done.stdout)["events"])


def check_the_events(a: Settings, b: Settings, group_id: str) -> None:
    """Check that a group has only events of the moves since it was released, and one history."""
    at_b = [each["event"] for each in Reader(b, group_id).events()]
    assert set(at_b) == {"group_arrived", "group_released", "group_moved"}, at_b
    at_a = [each["event"] for each in Reader(a, group_id).events()]
    away = at_a.index("group_released")
    assert at_a[away : away + 3] == ["group_released", "group_moved", "group_arrived"], at_a
    assert len(history(a, group_id)) == len(at_a) + len(at_b)
    assert history(a, group_id) == history(b, group_id)


def check_that_clients_of_the_target_ask_its_peer(a: Settings, b: Settings) -> None:
    """moving.md 3.2: B has never owned a slot, so it refuses the new groups and does not know who has them."""
    with Gateway(b.model_copy(update={"peers": (a.topic_prefix,), "gateway_port": 0})) as gateway:
        members = [
            OfLibrdkafka(gateway.bootstrap_servers, "at-the-peer", "classic"),
            OfTheTopics(b, "at-the-peer-by-topics", "classic", peers=[a.topic_prefix]),
        ]
        for member in members:
            member.start()
            member.commits_on()
            member.stop()
            assert (len(member.assigned), member.errors) == (1, [])
            assert Reader(b, member.name).events() == []
            assert "rebalance_completed" in [each["event"] for each in Reader(a, member.name).events()]


def check_that_new_groups_begin_at_the_owner_of_their_slot(a: Settings, b: Settings, gateway: Gateway) -> None:
    """moving.md 4.3: B owns all slots but one from now on, has the groups in them, and the gateway finds it."""
    slots = ranges_of(frozenset(range(SLOTS)) - {slot_of(TAKEN_BACK)})
    assert set(move(a, b, "--slots", slots, "--yes").values()) == {"moved"}
    shown = CliRunner().invoke(
        app, ["slots", "-b", str(b.bootstrap_servers), "--topic-prefix", b.topic_prefix, "-o", "json"]
    )
    assert {each["slots"]: each["status"] for each in json.loads(shown.stdout)}[slots] == "here"
    newcomer = OfLibrdkafka(gateway.bootstrap_servers, "newcomer", "classic")
    newcomer.start()
    newcomer.commits_on()
    newcomer.stop()
    assert Reader(a, "newcomer").events() == []
    assert "rebalance_completed" in [each["event"] for each in Reader(b, "newcomer").events()]


def check_that_a_group_is_taken_back(a: Settings, target: Service, gateway: Gateway) -> None:
    """Stop the target, release a group to it, and take the group back. Its member keeps its partitions.

    One commit of the member stands in the log of the target, and has no response. So the member connects again.
    """
    member = OfLibrdkafka(gateway.bootstrap_servers, TAKEN_BACK, "classic", **{"socket.timeout.ms": SILENCE_MS})
    member.start()
    member.commits_on(may_fail=True)
    b = target.settings
    assert target.stop() == Exit.DONE, target.log
    with Transport(a.kafka_client_arguments(), a.topic_prefix) as transport, pytest.raises(NoAnswer):
        transport.ask(ReleaseGroup(request_id="", reply_to="", group_id=member.name, to=b.topic_prefix), timeout_s=5.0)
    Reader(a, member.name).await_event("group_released")
    wait_until(lambda: [r for r in Reader(b, member.name).records(b.requests_topic) if b"adopt_group" in r.value])
    flags = ("-b", str(a.bootstrap_servers), "--topic-prefix", a.topic_prefix, "-o", "json", "--yes")
    typed = ("move", "--to", b.topic_prefix, "-g", member.name, "--take-back", *flags)
    refused = CliRunner().invoke(app, typed)
    assert "has the whole group in its log, and may have adopted it" in str(refused.exception), refused.output
    taken = CliRunner().invoke(app, [*typed, "--target-is-lost"])
    assert (taken.exit_code, json.loads(taken.stdout)[0]["status"]) == (0, "taken back"), taken.exception
    member.commits_on(may_fail=True)
    member.stop()
    assert (len(member.assigned), member.revoked) == (1, []), member.errors


def check_that_a_transaction_goes_on_at_a_gateway_that_heard_of_no_move(a: Settings, b: Settings) -> None:
    """Its offsets were added by a gateway that has seen the group at the peer, and are committed by another one."""
    with (
        Gateway(a.model_copy(update={"peers": (b.topic_prefix,), "gateway_port": 0})) as gateway,
        connect(gateway.bootstrap_servers) as wire,
        closing(TransactionWriter(b, b.transactions_topic)) as other_gateway,
    ):
        producer = RawProducer(gateway.bootstrap_servers, "goes-on", TOPIC)
        asyncio.run(other_gateway.join(producer.transaction, 0, time.monotonic() + HANG_S))
        producer.commit_offsets(wire, {0: 3})
        producer.end(wire, committed=True)


def test_groups_move_there_and_back_and_their_clients_notice_nothing(pair: tuple[Service, Service]) -> None:
    """moving.md 6: MovesAreQuiet, MovedCommitsAreKept, NobodyExpiresInTransit, VersionsHaveNoGap."""
    a, b = pair[0].settings, pair[1].settings
    with ExitStack() as stack:
        gateway = stack.enter_context(Gateway(a.model_copy(update={"peers": (), "gateway_port": 0})))
        members: list[Member] = []
        for protocol in ("classic", "consumer"):
            members.append(OfLibrdkafka(gateway.bootstrap_servers, f"librdkafka-{protocol}", protocol))
            members.append(OfTheTopics(a, f"topics-{protocol}", protocol))
            members.append(InTransactions(gateway.bootstrap_servers, f"transactions-{protocol}", protocol))
        groups = {member.name for member in members}
        for member in members:
            member.start()
            stack.callback(member.stop)
        for member in members:
            member.commits_on()
        assert move(a, b, "--all", "--dry-run") == dict.fromkeys(groups, "would be moved")
        named = [word for group in sorted(groups) for word in ("-g", group)]
        assert set(move(a, b, *named, "--yes")) == groups
        for member in members:
            member.commits_on()
        assert move(a, b, "--yes", *named) == dict.fromkeys(groups, "there already")
        assert set(move(b, a, "--all", "--yes")) <= groups  # those of a try without an answer are not listed again
        for member in members:
            member.commits_on()
        for member in members:
            member.stop()
        assert {member.name: (len(member.assigned), member.revoked, member.errors) for member in members} == {
            member.name: (1, [], []) for member in members
        }
        for group in groups:
            check_the_events(a, b, group)
        check_that_clients_of_the_target_ask_its_peer(a, b)
        check_that_a_transaction_goes_on_at_a_gateway_that_heard_of_no_move(a, b)
        check_that_new_groups_begin_at_the_owner_of_their_slot(a, b, gateway)
        check_that_a_group_is_taken_back(a, pair[1], gateway)
    check_the_topics(a, b)
