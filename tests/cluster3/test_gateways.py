"""Gateways on three brokers: one broker is killed, or cut off from one gateway alone."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import count, pairwise
from typing import Self
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka.errors import NotLeaderForPartitionError
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from coordinator.base.hashing import shard_of
from streaming.config.settings import Settings
from streaming.embedded.broker import HOST
from streaming.gateway import Gateway
from streaming.gateway.members import topics
from streaming.gateway.security.acls import BrokerAcls, EverythingIsAllowed
from streaming.kafka.topic_facts import TopicFacts
from streaming.query.coordinator import Coordinator
from tests.cluster3.brokers import IDS, SILENT, ThreeBrokers
from tests.cluster3.proxy import Cut
from tests.ports import free_gateway_port, free_port
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until
from tests.system.wire import connect
from tests.tiers import sampled

pytestmark = pytest.mark.long

SHARDS = 6
TOPIC = "read"
SESSION_MS = 45_000
SESSION_S = SESSION_MS / 1_000
POLL_S = 0.5

PAUSE_S_MAX = 60.0
"""How long a member may commit nothing after a broker was killed: leaders move after 9 s, and the rest is for busy
machines. It was 69 s and more while a heartbeat waited for the broker that librdkafka takes for the controller."""

DESCRIBED_WITHIN_S = 10.0
"""As in a gateway. A broker that does not answer is given up after 3 s."""

USED_S_MAX = 1.0
"""The processor time of a request that waits: librdkafka's admin client used 2.5 to 8 s in 10 s."""

NOT_READY_WITHIN_S = 60.0
READY_WITHIN_S = 30.0

OF_CLASSIC = {"session.timeout.ms": SESSION_MS}
OF_CONSUMERS = {"group.protocol": "consumer"}

RETRIED = {
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError._WAIT_CACHE,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.STALE_MEMBER_EPOCH,
}
"""The errors of a commit after which a client commits again."""


class Member:
    """A member that polls and commits in a thread until `close`."""

    def __init__(self, bootstrap: str, group_id: str, options: Mapping[str, object]) -> None:
        self.group_id = group_id
        self.committed: list[float] = []
        self.errors: list[KafkaError] = []
        self.lost = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "client.id": f"{group_id}-client",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **options,
            },
            logger=SILENT,
        )
        self._consumer.subscribe([TOPIC], on_lost=self._count_lost)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _count_lost(self, *_: object) -> None:
        self.lost += 1

    def _run(self) -> None:
        number = 0
        while not self._closing.is_set():
            self._consumer.poll(POLL_S)
            if not (own := self._consumer.assignment()):
                continue
            number += 1
            try:
                self._consumer.commit(
                    offsets=[TopicPartition(own[0].topic, own[0].partition, number)], asynchronous=False
                )
            except KafkaException as error:
                self.errors.append(error.args[0])
            else:
                self.committed.append(time.monotonic())
        self._consumer.close()

    def has_committed_since(self, moment_s: float) -> bool:
        return bool(self.committed) and self.committed[-1] > moment_s

    def longest_pause_s(self, since_s: float) -> float:
        moments = [since_s, *(each for each in self.committed if each > since_s), time.monotonic()]
        return max(later - earlier for earlier, later in pairwise(moments))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(HANG_S)


class Parts:
    """The query, which reaches the brokers directly, and a topic for members."""

    def __init__(self, three: ThreeBrokers, coordinator: Coordinator) -> None:
        self.three, self.settings = three, coordinator.settings
        three.create(TOPIC)

    def expelled(self, group_id: str) -> list[str]:
        return [each["event"] for each in Reader(self.settings, group_id).events() if "expired" in each["event"]]

    def gateway_settings(self, bootstrap_servers: str, port: int = 0) -> Settings:
        return self.settings.model_copy(update={"bootstrap_servers": bootstrap_servers, "gateway_port": port})

    def group_at(self, broker: int, name: str) -> str:
        """Return a group whose shard a broker leads."""
        leaders = self.three.leaders(self.settings.requests_topic)
        names = (f"{name}-{number}" for number in count())
        return next(each for each in names if leaders[shard_of(each, SHARDS)] == broker)

    def assert_undisturbed(self, members: list[Member]) -> None:
        """Check that no member was expelled, or got an error after which it does not simply commit again."""
        for member in members:
            assert self.expelled(member.group_id) == []
            assert member.lost == 0
            assert {error.code() for error in member.errors} <= RETRIED


@pytest.fixture(scope="module")
def parts(_shared_brokers: ThreeBrokers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    settings = Settings.load(
        bootstrap_servers=_shared_brokers.bootstrap_servers,
        topic_prefix="gateways",
        request_partitions=SHARDS,
        reply_partitions=6,
        replication_factor=3,
        checkpoint=str(tmp_path_factory.mktemp("checkpoint")),
        group_initial_rebalance_delay_ms=300,
        group_consumer_session_timeout_ms=SESSION_MS,
    )
    coordinator = Coordinator(settings)
    coordinator.start()
    yield Parts(_shared_brokers, coordinator)
    coordinator.stop()


def ready(port: int) -> tuple[int, str]:
    try:
        with urlopen(f"http://{HOST}:{port}/readyz", timeout=HANG_S) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("cut", [Cut.SILENT, Cut.REFUSED])
def test_topics_and_access_are_described_whichever_broker_does_not_answer(three: ThreeBrokers, cut: Cut) -> None:
    """librdkafka's admin client asks only the broker that it takes for the controller, which may be any of them."""
    three.create(f"described-{cut.name}")
    settings = Settings.load(bootstrap_servers=three.through_proxies("GATEWAY"))
    facts = TopicFacts(settings, "test")
    expected = facts.of([f"described-{cut.name}", "nowhere"], HANG_S)
    for number in IDS:
        three.cut_off("GATEWAY", number, cut)
        used_s = sum(os.times()[:2])
        assert facts.of(expected, DESCRIBED_WITHIN_S) == expected
        with closing(BrokerAcls(settings)) as acls:
            asyncio.run(acls.refresh())
            assert isinstance(acls.current(), EverythingIsAllowed)
        assert sum(os.times()[:2]) - used_s < USED_S_MAX
        three.cut_off("GATEWAY", number, Cut.NONE)
    facts.close()


def test_new_leaders_are_named_with_the_gateways_addresses(three: ThreeBrokers, parts: Parts) -> None:
    """From Produce 10 on, a broker that does not lead a partition names the leader with its address (KIP-951)."""
    records = DefaultRecordBatchBuilder(magic=2, compression_type=0, is_transactional=False, producer_id=-1,
                                        producer_epoch=-1, base_sequence=-1, batch_size=1_000)  # fmt: skip
    records.append(0, timestamp=0, key=None, value=b"x", headers=[])
    topic = ProduceRequest.TopicProduceData
    part = topic.PartitionProduceData(index=0, records=bytes(records.build()))
    leader = three.leaders(TOPIC)[0]
    with Gateway(parts.gateway_settings(three.bootstrap_servers)) as gateway:
        ours = {number: gateway.cluster.ours(number) for number in IDS}
        for number, address in ours.items():
            assert address is not None
            with connect(f"{address.host}:{address.port}") as wire:
                said = wire.call(ProduceRequest(version=12, transactional_id=None, acks=-1, timeout_ms=10_000,
                                                topic_data=[topic(name=TOPIC, partition_data=[part])]))  # fmt: skip
            (answered,) = said.responses[0].partition_responses
            named = [(each.node_id, (each.host, each.port)) for each in said.node_endpoints]
            is_leader = number == leader
            assert answered.error_code == (0 if is_leader else NotLeaderForPartitionError.errno)
            assert named == ([] if is_leader else [(leader, ours[leader])])


@pytest.mark.nightly
def test_members_commit_while_the_controller_is_down(
    three: ThreeBrokers, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their heartbeats name their topics. The gateway must not wait for one certain broker to describe them."""
    monkeypatch.setattr(topics, "METADATA_AGE_S", 1.0)
    three.elect_preferred()
    with ExitStack() as stack:
        gateway = stack.enter_context(Gateway(parts.gateway_settings(three.through_proxies("GATEWAY"))))
        groups = [parts.group_at(broker, "controller") for broker in IDS]
        members = [stack.enter_context(Member(gateway.bootstrap_servers, each, OF_CONSUMERS)) for each in groups]
        wait_until(lambda: all(each.committed for each in members))
        three.kill(three.controller())
        killed_s = time.monotonic()
        wait_until(lambda: all(each.has_committed_since(killed_s + PAUSE_S_MAX) for each in members))
        pauses_s = [each.longest_pause_s(killed_s) for each in members]
        assert max(pauses_s) < PAUSE_S_MAX, pauses_s
        parts.assert_undisturbed(members)


@pytest.mark.parametrize("cut", sampled([Cut.SILENT, Cut.REFUSED], [Cut.SILENT]))
def test_members_leave_a_gateway_that_is_cut_off_from_their_broker(three: ThreeBrokers, parts: Parts, cut: Cut) -> None:
    """All other clients reach the broker, so its leaders stay: the gateway's mailbox moves, and its members leave."""
    three.elect_preferred()
    health, first, second = free_port(), free_gateway_port(), free_gateway_port()
    with ExitStack() as stack:
        gateway = Gateway(parts.gateway_settings(three.through_proxies("GATEWAY"), first))
        asking = stack.enter_context(gateway).coordinators.clients[parts.settings.topic_prefix]
        gateway.serve_health_at(HOST, health)
        bootstrap = f"{HOST}:{first},{HOST}:{second}"
        broker, *others = sorted(IDS, key=lambda each: each != asking.leaders.replies[asking.mailbox_partition])
        members = [
            stack.enter_context(Member(bootstrap, parts.group_at(at, f"{cut.name}-{n}"), options))
            for n, (at, options) in enumerate(
                [(broker, OF_CLASSIC), (broker, OF_CONSUMERS), (others[0], OF_CLASSIC), (others[1], OF_CONSUMERS)]
            )
        ]
        wait_until(lambda: all(each.committed for each in members))
        wait_until(lambda: ready(health)[0] == 200)
        stack.enter_context(Gateway(parts.gateway_settings(three.bootstrap_servers, second)))
        mailbox = asking.mailbox_partition
        stack.callback(three.cut_off, "GATEWAY", broker, Cut.NONE)  # members that cannot leave would wait
        three.cut_off("GATEWAY", broker, cut)
        cut_s = time.monotonic()
        wait_until(lambda: ready(health)[0] == 503, NOT_READY_WITHIN_S)
        assert f"broker {broker} has not answered this gateway" in ready(health)[1]
        assert asking.mailbox_partition != mailbox
        wait_until(lambda: all(each.has_committed_since(cut_s + 1.5 * SESSION_S) for each in members))
        parts.assert_undisturbed(members)
        assert ready(health)[0] == 503
        three.cut_off("GATEWAY", broker, Cut.NONE)
        wait_until(lambda: ready(health)[0] == 200, READY_WITHIN_S)
        mended_s = time.monotonic()
        wait_until(lambda: all(each.has_committed_since(mended_s) for each in members))
        parts.assert_undisturbed(members)
