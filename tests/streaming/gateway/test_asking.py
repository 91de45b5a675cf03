"""Requests to the coordinator and its answers, on topics of a broker that librdkafka imitates in this process."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from itertools import count
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from coordinator.errors import ErrorCode
from coordinator.hashing import shard_of
from coordinator.limits import RECORD_BYTES_MAX
from coordinator.outputs import AnyAnswer, HeartbeatAnswer, RebalanceNotice
from coordinator.requests import Assignment, Heartbeat, Request, SyncGroup
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, NoCoordinator
from streaming.gateway import asking as module
from streaming.gateway.asking import Asking
from streaming.wire.records import decode_request

WAIT_S = 30.0
"""How long a test waits for what must come; it takes milliseconds."""

PARTITIONS = 4
"""librdkafka's imitation makes a topic with as many when somebody asks about it."""

_prefixes = (f"prefix{number}" for number in count())


class Kafka:
    """A broker in this process, and a client of it that plays the coordinator."""

    def __init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._producer.list_topics(timeout=WAIT_S).brokers.values()
        self.bootstrap_servers = f"{broker.host}:{broker.port}"

    def coordinator(self) -> Settings:
        """Make the topics of another coordinator."""
        settings = Settings.load(bootstrap_servers=self.bootstrap_servers, topic_prefix=next(_prefixes))
        for name in (settings.requests_topic, settings.replies_topic):
            self._producer.list_topics(name, timeout=WAIT_S)
        return settings

    def write(self, topic: str, partition: int, key: str, value: bytes) -> None:
        self._producer.produce(topic, value, key.encode(), partition)
        self._producer.flush(WAIT_S)

    def requests(self, settings: Settings, number: int) -> list[tuple[int, str, Request]]:
        """Read that many requests: the partition, the key and the request of each."""
        with closing(Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": "unused"})) as consumer:
            consumer.assign([TopicPartition(settings.requests_topic, each, 0) for each in range(PARTITIONS)])
            found: list[tuple[int, str, Request]] = []
            for message in consumer.consume(number, WAIT_S):
                request = decode_request(message.value())
                assert isinstance(request, Request)
                found.append((message.partition(), message.key().decode(), request))
            return found


@pytest.fixture(scope="module")
def kafka() -> Kafka:
    return Kafka()


class Gateway:
    """One gateway's way to the coordinator, and what was told."""

    def __init__(self, kafka: Kafka, settings: Settings) -> None:
        self.kafka, self.settings = kafka, settings
        self.asking = Asking(settings, asyncio.get_running_loop())
        self.notices: list[RebalanceNotice] = []
        self.inbox = self.asking.open_inbox(self.notices.append)
        self.told: dict[str, tuple[AnyAnswer, int]] = {}

    def request(self, group_id: str = "g") -> Heartbeat:
        who = {"request_id": self.asking.request_id(), "reply_to": self.inbox}
        return Heartbeat(**who, group_id=group_id, generation_id=1, member_id="m")

    def send(self, request: Request, shard: int | None = None) -> Request:
        self.asking.send(request, lambda *told: self.told.update({request.request_id: told}), shard)
        return request

    def reply(self, answer: AnyAnswer | bytes, inbox: str | None = None) -> int:
        """Write something to an inbox as the coordinator does; return its bytes."""
        value = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
        partition = shard_of(self.inbox, PARTITIONS)
        self.kafka.write(self.settings.replies_topic, partition, self.inbox if inbox is None else inbox, value)
        return len(value)

    async def hears_all(self) -> None:
        """Wait until everything that was written so far has been read."""
        last = self.request()
        heard: asyncio.Future[AnyAnswer] = asyncio.get_running_loop().create_future()
        self.asking.send(last, lambda answer, size: heard.set_result(answer))
        self.reply(HeartbeatAnswer(request_id=last.request_id))
        await asyncio.wait_for(heard, WAIT_S)


def run(kafka: Kafka, story: Callable[[Gateway], Awaitable[None]]) -> None:
    async def tell() -> None:
        gateway = Gateway(kafka, kafka.coordinator())
        try:
            await story(gateway)
        finally:
            await asyncio.to_thread(gateway.asking.close)

    asyncio.run(tell())


def notice(member_id: str) -> RebalanceNotice:
    return RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id=member_id)


# -- requests ----------------------------------------------------------------------------------------------------------


def test_requests_go_to_the_shard_of_their_group_or_to_the_one_that_is_named(kafka: Kafka):
    async def story(gateway: Gateway) -> None:
        assert gateway.asking.shards == PARTITIONS
        groups = {group_id: gateway.send(gateway.request(group_id)) for group_id in ("a", "b", "my-group")}
        named = gateway.send(gateway.request("a"), shard=(shard_of("a", PARTITIONS) + 1) % PARTITIONS)
        found = await asyncio.to_thread(kafka.requests, gateway.settings, 4)
        expected = [(shard_of(group_id, PARTITIONS), group_id, request) for group_id, request in groups.items()]
        expected.append(((shard_of("a", PARTITIONS) + 1) % PARTITIONS, "a", named))
        assert sorted(found, key=str) == sorted(expected, key=str)
        assert (gateway.asking.waiting, gateway.told) == (4, {})

    run(kafka, story)


def test_a_request_that_is_too_large_is_answered_at_once(kafka: Kafka):
    async def story(gateway: Gateway) -> None:
        who = {"request_id": "r", "reply_to": gateway.inbox, "group_id": "g", "member_id": "m"}
        large = bytes(RECORD_BYTES_MAX)
        gateway.send(SyncGroup(**who, generation_id=1, assignments=(Assignment("m", large),)))
        assert gateway.told == {}, "not from within `send`"
        await asyncio.sleep(0)
        answer, size = gateway.told["r"]
        assert (answer.request_id, answer.code, size) == ("r", ErrorCode.INVALID_REQUEST.number, 0)
        assert gateway.asking.waiting == 0

    run(kafka, story)


def test_a_request_that_no_broker_takes_is_answered_with_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "SEND_WAIT_MS", 100, raising=False)
    kafka = Kafka()

    async def story(gateway: Gateway) -> None:
        del kafka._producer  # and the broker with it
        gateway.send(gateway.request())
        async with asyncio.timeout(WAIT_S * 2):
            while not gateway.told:
                await asyncio.sleep(0.01)
        ((answer, size),) = gateway.told.values()
        assert (answer.code, size) == (ErrorCode.COORDINATOR_NOT_AVAILABLE.number, 0)

    run(kafka, story)


def test_closing_sends_what_is_still_to_be_sent(kafka: Kafka):
    settings = kafka.coordinator()

    async def tell() -> None:
        gateway = Gateway(kafka, settings)
        for _ in range(100):
            gateway.send(gateway.request())
        gateway.asking.close()

    asyncio.run(tell())
    assert len(kafka.requests(settings, 100)) == 100


# -- answers -----------------------------------------------------------------------------------------------------------


def test_an_answer_is_told_once_with_its_bytes(kafka: Kafka):
    async def story(gateway: Gateway) -> None:
        request, other = gateway.send(gateway.request()), gateway.send(gateway.request())
        size = gateway.reply(HeartbeatAnswer(request_id=request.request_id, error="UNKNOWN_MEMBER_ID", code=25))
        await gateway.hears_all()
        answer, told_size = gateway.told.pop(request.request_id)
        assert (answer.code, told_size) == (25, size)
        gateway.reply(HeartbeatAnswer(request_id=request.request_id))
        await gateway.hears_all()
        assert gateway.told == {}, "the coordinator repeats itself after a restart"
        assert gateway.asking.waiting == 1
        gateway.reply(HeartbeatAnswer(request_id=other.request_id))
        await gateway.hears_all()
        assert (list(gateway.told), gateway.asking.waiting) == ([other.request_id], 0)

    run(kafka, story)


def test_an_answer_counts_only_in_the_inbox_that_asked(kafka: Kafka):
    async def story(gateway: Gateway) -> None:
        request, other = gateway.send(gateway.request()), gateway.asking.open_inbox()
        for inbox in (other, "another-gateway.1", f"x{gateway.inbox}", ""):
            gateway.reply(HeartbeatAnswer(request_id=request.request_id), inbox)
        await gateway.hears_all()
        assert gateway.told == {}

    run(kafka, story)


def test_what_cannot_be_read_is_skipped(kafka: Kafka):
    async def story(gateway: Gateway) -> None:
        request = gateway.send(gateway.request())
        gateway.reply(b"garbage")
        gateway.reply(HeartbeatAnswer(request_id=request.request_id))
        await gateway.hears_all()
        assert list(gateway.told) == [request.request_id]

    run(kafka, story)


def test_forgotten_requests_are_not_answered(kafka: Kafka):
    async def story(gateway: Gateway) -> None:
        request, kept = gateway.send(gateway.request()), gateway.send(gateway.request())
        gateway.asking.forget(gateway.inbox, [request.request_id, "never sent"])
        assert gateway.asking.waiting == 1
        for each in (request, kept):
            gateway.reply(HeartbeatAnswer(request_id=each.request_id))
        await gateway.hears_all()
        assert list(gateway.told) == [kept.request_id]

    run(kafka, story)


def test_replies_from_before_the_start_are_not_read(kafka: Kafka):
    settings = kafka.coordinator()

    async def tell() -> None:
        for partition in range(PARTITIONS):
            kafka.write(settings.replies_topic, partition, "anyone", b"old")
        gateway = Gateway(kafka, settings)
        assert gateway.asking.silence_s() == float("inf")
        await gateway.hears_all()
        await asyncio.to_thread(gateway.asking.close)

    asyncio.run(tell())


# -- inboxes -----------------------------------------------------------------------------------------------------------


def test_inboxes_of_a_gateway_share_a_partition_and_no_name(kafka: Kafka):
    async def story(gateway: Gateway) -> None:
        inboxes = [gateway.inbox, *(gateway.asking.open_inbox() for _ in range(20))]
        assert len(set(inboxes)) == 21
        assert len({shard_of(inbox, PARTITIONS) for inbox in inboxes}) == 1
        names = {inbox.split(".")[0] for inbox in inboxes}
        assert {len(name) for name in names} == {32}, "128 bits that nobody guesses"
        assert len(names) == 1

    run(kafka, story)


def test_request_ids_cannot_be_guessed(kafka: Kafka):
    async def story(gateway: Gateway) -> None:
        ids = {gateway.asking.request_id() for _ in range(1_000)}
        assert (len(ids), {len(each) for each in ids}) == (1_000, {32})

    run(kafka, story)


def test_notices_are_told_to_their_own_inbox_while_it_is_open(kafka: Kafka):
    async def story(gateway: Gateway) -> None:
        others: list[RebalanceNotice] = []
        other = gateway.asking.open_inbox(others.append)
        gateway.reply(notice("m"))
        gateway.reply(notice("o"), other)
        await gateway.hears_all()
        assert [[each.member_id for each in told] for told in (gateway.notices, others)] == [["m"], ["o"]]
        gateway.asking.close_inbox(other)
        gateway.asking.close_inbox(other)
        gateway.reply(notice("o"), other)
        await gateway.hears_all()
        assert len(others) == 1

    run(kafka, story)


# -- whether anybody answers -------------------------------------------------------------------------------------------


def test_any_answer_shows_that_the_coordinator_is_there(kafka: Kafka):
    async def story(gateway: Gateway) -> None:
        assert gateway.asking.silence_s() == float("inf")
        assert not await gateway.asking.heard(0)
        waiting = [asyncio.create_task(gateway.asking.heard(WAIT_S)) for _ in range(2)]
        await asyncio.sleep(0)
        gateway.reply(HeartbeatAnswer(request_id="never asked"))
        assert await asyncio.gather(*waiting) == [True, True]
        assert gateway.asking.silence_s() < WAIT_S
        assert not await gateway.asking.heard(0), "that was the answer before"

    run(kafka, story)


def test_the_brokers_topics_are_listed(kafka: Kafka):
    async def story(gateway: Gateway) -> None:
        listed = await asyncio.to_thread(gateway.asking.list_topics, timeout=WAIT_S)
        assert len(listed.topics[gateway.settings.replies_topic].partitions) == PARTITIONS

    run(kafka, story)


def start(**settings: Any) -> None:
    async def tell() -> None:
        Asking(Settings.load(**settings), asyncio.get_running_loop())

    asyncio.run(tell())


def test_without_its_topics_there_is_no_coordinator(kafka: Kafka):
    with pytest.raises(NoCoordinator, match=r"nowhere\.requests"):
        start(bootstrap_servers=kafka.bootstrap_servers, topic_prefix="nowhere")


def test_without_brokers_there_is_no_start(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "ANSWER_WAIT_S", 0.2, raising=False)
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        start(bootstrap_servers="127.0.0.1:1")
