"""Requests to the coordinator and its responses, on topics of librdkafka's mock broker in this process."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from ctypes import CDLL, c_char_p, c_int, c_void_p
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import confluent_kafka
import msgspec
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.base.limits import RECORD_BYTES_MAX
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import Assignment, Request, SyncGroup
from coordinator.messages.responses import AnyAnswer, ConsumerGroupHeartbeatAnswer, HeartbeatAnswer, RebalanceNotice
from streaming.config import timeouts
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, NoCoordinator
from streaming.gateway.coordinator import client as module
from streaming.gateway.coordinator.client import CoordinatorClient
from streaming.gateway.coordinator.outstanding import OutstandingHeartbeats
from streaming.wire.records import decode_request
from tests.system.waiting import HANG_S

PARTITIONS = 4
"""The number of partitions of a topic that librdkafka's mock broker creates when a client requests its metadata."""

LINGER_MS = 500
"""How long a request waits in the producer of a test that must come before the request is sent."""

_prefixes = (f"prefix{number}" for number in count())


class Kafka:
    """A broker in this process, and a client of it that acts as the coordinator."""

    def __init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._producer.list_topics(timeout=HANG_S).brokers.values()
        self.bootstrap_servers = f"{broker.host}:{broker.port}"

    def coordinator(self) -> Settings:
        """Return the settings of a new coordinator, with its own topics."""
        settings = Settings.load(bootstrap_servers=self.bootstrap_servers, topic_prefix=next(_prefixes))
        for name in (settings.requests_topic, settings.replies_topic):
            self._producer.list_topics(name, timeout=HANG_S)
        return settings

    def write(self, topic: str, partition: int, key: str, value: bytes) -> None:
        self._producer.produce(topic, value, key.encode(), partition)
        self._producer.flush(HANG_S)

    def requests(self, settings: Settings, number: int) -> list[tuple[int, str, Request]]:
        """Read `number` requests; return the partition, the key and the request of each."""
        with closing(Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": "unused"})) as consumer:
            consumer.assign([TopicPartition(settings.requests_topic, each, 0) for each in range(PARTITIONS)])
            found: list[tuple[int, str, Request]] = []
            for message in consumer.consume(number, HANG_S):
                request = decode_request(message.value())
                assert isinstance(request, Request)
                found.append((message.partition(), message.key().decode(), request))
            return found


@pytest.fixture(scope="module")
def kafka() -> Kafka:
    return Kafka()


class Gateway:
    """One gateway's client of the coordinator, and the received responses and notices."""

    def __init__(self, kafka: Kafka, settings: Settings) -> None:
        self.kafka, self.settings = kafka, settings
        self.unanswered = OutstandingHeartbeats()
        self.asking = CoordinatorClient(settings, asyncio.get_running_loop(), self.unanswered, self.send)
        self.notices: list[RebalanceNotice] = []
        self.inbox = self.asking.open_inbox(self.notices.append)
        self.responses: dict[str, tuple[AnyAnswer, int]] = {}

    def request(self, group_id: str = "g") -> Heartbeat:
        who = {"request_id": self.asking.request_id(), "reply_to": self.inbox}
        return Heartbeat(**who, group_id=group_id, generation_id=1, member_id="m")

    def send(self, request: Request, shard: int | None = None) -> Request:
        self.asking.send(request, lambda *response: self.responses.update({request.request_id: response}), shard)
        return request

    def reply(self, answer: AnyAnswer | bytes, inbox: str | None = None) -> int:
        """Write a record to an inbox as the coordinator does; return its size in bytes."""
        value = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
        partition = shard_of(self.inbox, PARTITIONS)
        self.kafka.write(self.settings.replies_topic, partition, self.inbox if inbox is None else inbox, value)
        return len(value)

    async def await_all_read(self) -> None:
        """Wait until all records that were written so far have been read."""
        last = self.request()
        heard: asyncio.Future[AnyAnswer] = asyncio.get_running_loop().create_future()
        self.asking.send(last, lambda answer, size: heard.set_result(answer))
        self.reply(HeartbeatAnswer(request_id=last.request_id))
        await asyncio.wait_for(heard, HANG_S)


def run(kafka: Kafka, scenario: Callable[[Gateway], Awaitable[None]], **more: object) -> None:
    async def main() -> None:
        gateway = Gateway(kafka, kafka.coordinator().model_copy(update=more))
        try:
            await scenario(gateway)
        finally:
            await asyncio.to_thread(gateway.asking.close)

    asyncio.run(main())


def notice(member_id: str) -> RebalanceNotice:
    return RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id=member_id)


def test_an_answer_does_not_wait_for_more_answers(kafka: Kafka, monkeypatch: pytest.MonkeyPatch):
    """`Consumer.consume` returns when it has all the messages that it may have, or when its time is over."""
    monkeypatch.setattr(module, "READ_WAIT_S", 2 * HANG_S)

    async def scenario(gateway: Gateway) -> None:
        await gateway.await_all_read()
        await gateway.await_all_read()
        monkeypatch.undo()
        await gateway.await_all_read()  # the reader's last long wait ends

    run(kafka, scenario)


# -- requests ----------------------------------------------------------------------------------------------------------


def test_requests_go_to_the_shard_of_their_group_or_to_the_given_shard(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        assert gateway.asking.shards == PARTITIONS
        groups = {group_id: gateway.send(gateway.request(group_id)) for group_id in ("a", "b", "my-group")}
        named = gateway.send(gateway.request("a"), shard=(shard_of("a", PARTITIONS) + 1) % PARTITIONS)
        found = await asyncio.to_thread(kafka.requests, gateway.settings, 4)
        expected = [(shard_of(group_id, PARTITIONS), group_id, request) for group_id, request in groups.items()]
        expected.append(((shard_of("a", PARTITIONS) + 1) % PARTITIONS, "a", named))
        assert sorted(found, key=str) == sorted(expected, key=str)
        assert (gateway.asking.waiting, gateway.responses) == (4, {})

    run(kafka, scenario)


def test_a_request_that_is_too_large_is_answered_at_once(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        who = {"request_id": "r", "reply_to": gateway.inbox, "group_id": "g", "member_id": "m"}
        large = bytes(RECORD_BYTES_MAX)
        gateway.send(SyncGroup(**who, generation_id=1, assignments=(Assignment("m", large),)))
        assert gateway.responses == {}, "`send` itself must not call back"
        await asyncio.sleep(0)
        answer, size = gateway.responses["r"]
        assert (answer.request_id, answer.code, size) == ("r", ErrorCode.INVALID_REQUEST.number, 0)
        assert gateway.asking.waiting == 0

    run(kafka, scenario)


def test_a_request_that_no_broker_accepts_is_answered_with_an_error(monkeypatch: pytest.MonkeyPatch):
    lost = Event()
    monkeypatch.setitem(module._SENDING, "message.timeout.ms", 100)
    on_error = lambda error: error.code() == KafkaError._ALL_BROKERS_DOWN and lost.set()  # noqa: E731
    monkeypatch.setitem(module._SENDING, "error_cb", on_error)
    kafka = Kafka()

    async def scenario(gateway: Gateway) -> None:
        del kafka._producer  # this ends the broker too
        # A record that librdkafka has taken for a connection that ends now may wait until the broker is back.
        assert await asyncio.to_thread(lost.wait, HANG_S)
        gateway.send(gateway.request())
        async with asyncio.timeout(HANG_S):
            while not gateway.responses:
                await asyncio.sleep(0.01)
        ((answer, size),) = gateway.responses.values()
        assert (answer.code, size) == (ErrorCode.COORDINATOR_NOT_AVAILABLE.number, 0)

    run(kafka, scenario)


def fail_for_good(producer: Producer) -> None:
    """Cause a fatal error of a producer, as the brokers do if they have lost acknowledged records.

    Python's client lacks this function of librdkafka. Its object has librdkafka's handle in its first field.
    """
    folder = Path(confluent_kafka.__file__).parent.with_suffix(".libs")
    (library,) = folder.glob("librdkafka-*.so.*")
    fail = CDLL(str(library)).rd_kafka_test_fatal_error
    fail.argtypes, fail.restype = (c_void_p, c_int, c_char_p), c_int
    handle = c_void_p.from_address(id(producer) + object.__basicsize__)
    assert fail(handle, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"the test says so") == 0


def test_a_producer_with_a_fatal_error_is_replaced(kafka: Kafka, caplog: pytest.LogCaptureFixture):
    """E2: after an unclean election, an idempotent producer accepts no request any more."""

    async def scenario(gateway: Gateway) -> None:
        broken = gateway.asking._producer
        queued = gateway.send(gateway.request())
        fail_for_good(broken)
        async with asyncio.timeout(HANG_S):
            while not gateway.responses:
                await asyncio.sleep(0.01)
        assert gateway.responses[queued.request_id][0].code == ErrorCode.COORDINATOR_NOT_AVAILABLE.number
        accepted = gateway.send(gateway.request())
        found = await asyncio.to_thread(kafka.requests, gateway.settings, 1)
        assert [request for *_, request in found] == [accepted]
        assert gateway.asking.waiting == 1
        assert "the producer of requests failed for good, and another one takes its place" in caplog.text

    run(kafka, scenario, gateway_linger_ms=LINGER_MS)


def test_closing_sends_the_queued_requests(kafka: Kafka):
    settings = kafka.coordinator()

    async def main() -> None:
        gateway = Gateway(kafka, settings)
        for _ in range(100):
            gateway.send(gateway.request())
        gateway.asking.close()

    asyncio.run(main())
    assert len(kafka.requests(settings, 100)) == 100


# -- responses ---------------------------------------------------------------------------------------------------------


def test_a_response_is_delivered_once_with_its_size(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        request, other = gateway.send(gateway.request()), gateway.send(gateway.request())
        size = gateway.reply(HeartbeatAnswer(request_id=request.request_id, error="UNKNOWN_MEMBER_ID", code=25))
        await gateway.await_all_read()
        answer, response_size = gateway.responses.pop(request.request_id)
        assert (answer.code, response_size) == (25, size)
        gateway.reply(HeartbeatAnswer(request_id=request.request_id))
        await gateway.await_all_read()
        assert gateway.responses == {}, "a repeated response, as after a restart of the coordinator, is dropped"
        assert gateway.asking.waiting == 1
        gateway.reply(HeartbeatAnswer(request_id=other.request_id))
        await gateway.await_all_read()
        assert (list(gateway.responses), gateway.asking.waiting) == ([other.request_id], 0)

    run(kafka, scenario)


def test_a_response_counts_only_in_the_inbox_of_its_request(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        request, other = gateway.send(gateway.request()), gateway.asking.open_inbox()
        for inbox in (other, "another-gateway.1", f"x{gateway.inbox}", ""):
            gateway.reply(HeartbeatAnswer(request_id=request.request_id), inbox)
        await gateway.await_all_read()
        assert gateway.responses == {}

    run(kafka, scenario)


def test_unreadable_records_are_skipped(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        request = gateway.send(gateway.request())
        gateway.reply(b"garbage")
        gateway.reply(HeartbeatAnswer(request_id=request.request_id))
        await gateway.await_all_read()
        assert list(gateway.responses) == [request.request_id]

    run(kafka, scenario)


def test_forgotten_requests_are_not_answered(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        request, kept = gateway.send(gateway.request()), gateway.send(gateway.request())
        gateway.asking.forget(gateway.inbox, [request.request_id, "never sent"])
        assert gateway.asking.waiting == 1
        for each in (request, kept):
            gateway.reply(HeartbeatAnswer(request_id=each.request_id))
        await gateway.await_all_read()
        assert list(gateway.responses) == [kept.request_id]

    run(kafka, scenario)


def test_replies_from_before_the_start_are_not_read(kafka: Kafka):
    settings = kafka.coordinator()

    async def main() -> None:
        for partition in range(PARTITIONS):
            kafka.write(settings.replies_topic, partition, "anyone", b"old")
        gateway = Gateway(kafka, settings)
        assert gateway.asking.silence_s() == float("inf")
        await gateway.await_all_read()
        await asyncio.to_thread(gateway.asking.close)

    asyncio.run(main())


# -- heartbeats of the consumer protocol without an answer -------------------------------------------------------------


def beat(gateway: Gateway, **fields: Any) -> ConsumerGroupHeartbeat:
    who = {"request_id": gateway.asking.request_id(), "reply_to": gateway.inbox}
    return ConsumerGroupHeartbeat(**who, **{"group_id": "g", "member_id": "m", "member_epoch": 5, **fields})


def test_a_heartbeat_is_stored_until_its_answer_comes_also_if_its_connection_is_closed(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        unanswered = gateway.unanswered
        request = gateway.send(beat(gateway))
        assert len(unanswered) == 1
        gateway.asking.forget(gateway.inbox, [request.request_id])
        gateway.reply(ConsumerGroupHeartbeatAnswer(request_id=request.request_id, member_id="m", member_epoch=5))
        await gateway.await_all_read()
        assert len(unanswered) == 0

    run(kafka, scenario)


@pytest.mark.parametrize("fields", [{"member_epoch": 0}, {"member_epoch": -1}, {"again": True}])
def test_joins_leaves_and_heartbeats_on_behalf_of_a_member_are_not_stored(kafka: Kafka, fields: dict[str, Any]):
    async def scenario(gateway: Gateway) -> None:
        gateway.send(beat(gateway, **fields))
        assert len(gateway.unanswered) == 0

    run(kafka, scenario)


def test_a_heartbeat_that_the_brokers_do_not_accept_is_not_stored_any_more(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        names = tuple(f"{number:0>249}" for number in range(RECORD_BYTES_MAX // 249))
        request = gateway.send(beat(gateway, subscribed_topic_names=names))
        while request.request_id not in gateway.responses:
            await asyncio.sleep(0.01)
        assert len(gateway.unanswered) == 0

    run(kafka, scenario)


# -- inboxes -----------------------------------------------------------------------------------------------------------


def test_inboxes_of_a_gateway_share_a_partition_and_have_different_names(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        inboxes = [gateway.inbox, *(gateway.asking.open_inbox() for _ in range(20))]
        assert len(set(inboxes)) == 21
        assert len({shard_of(inbox, PARTITIONS) for inbox in inboxes}) == 1
        names = {inbox.split(".")[0] for inbox in inboxes}
        assert {len(name) for name in names} == {32}, "a name has 128 random bits"
        assert len(names) == 1

    run(kafka, scenario)


def test_request_ids_cannot_be_guessed(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        ids = {gateway.asking.request_id() for _ in range(1_000)}
        assert (len(ids), {len(each) for each in ids}) == (1_000, {32})

    run(kafka, scenario)


def test_notices_are_delivered_to_their_inbox_while_it_is_open(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        others: list[RebalanceNotice] = []
        other = gateway.asking.open_inbox(others.append)
        gateway.reply(notice("m"))
        gateway.reply(notice("o"), other)
        await gateway.await_all_read()
        assert [[each.member_id for each in notices] for notices in (gateway.notices, others)] == [["m"], ["o"]]
        gateway.asking.close_inbox(other)
        gateway.asking.close_inbox(other)
        gateway.reply(notice("o"), other)
        await gateway.await_all_read()
        assert len(others) == 1

    run(kafka, scenario)


# -- brokers that cannot be reached ------------------------------------------------------------------------------------


def test_the_mailbox_moves_and_requests_of_before_get_an_error(kafka: Kafka):
    """Their answers may be in the earlier partition, which nobody reads any more."""

    async def scenario(gateway: Gateway) -> None:
        asking, before = gateway.asking, gateway.asking.mailbox_partition
        request = gateway.send(gateway.request())
        others = [each for each in range(PARTITIONS) if each != before]
        assert await asking.move_mailbox(others)
        assert gateway.responses[request.request_id][0].code == ErrorCode.COORDINATOR_NOT_AVAILABLE.number
        assert (asking.mailbox_partition, asking.waiting) == (others[0], 0)
        gateway.inbox = asking.open_inbox(gateway.notices.append)
        assert shard_of(gateway.inbox, PARTITIONS) == others[0]
        await gateway.await_all_read()

    run(kafka, scenario)


def test_lost_shards_refuse_requests_at_once(kafka: Kafka):
    """The others go on. A request that was sent before gets an error too: its client looks for another gateway."""

    async def scenario(gateway: Gateway) -> None:
        asking, lost = gateway.asking, shard_of("a", PARTITIONS)
        other = (lost + 1) % PARTITIONS
        refused = [gateway.send(gateway.request("a")), gateway.send(gateway.request("b"), lost)]
        kept = gateway.send(gateway.request("a"), other)
        asking.lose({lost})
        refused += [gateway.send(gateway.request("a")), gateway.send(gateway.request("b"), lost)]
        while len(gateway.responses) < len(refused):
            await asyncio.sleep(0.01)
        gateway.responses.pop(kept.request_id, None)  # withdrawn if it was still in the queue
        assert gateway.responses.keys() == {each.request_id for each in refused}
        assert {answer.code for answer, _ in gateway.responses.values()} == {ErrorCode.COORDINATOR_NOT_AVAILABLE.number}
        asking.lose(())
        again = gateway.send(gateway.request("a"))
        await gateway.await_all_read()
        assert again.request_id not in gateway.responses

    run(kafka, scenario)


def test_leaders_are_learned_from_the_brokers(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        asking, before = gateway.asking, gateway.asking.leaders
        assert [set(part) for part in before] == [{1}, {1}]
        asking.leaders = before._replace(requests=[7] * PARTITIONS)
        await asyncio.to_thread(asking.learn_leaders)
        assert asking.leaders == before

    run(kafka, scenario)


# -- availability of the coordinator -----------------------------------------------------------------------------------


def test_any_response_shows_that_the_coordinator_is_available(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        assert gateway.asking.silence_s() == float("inf")
        assert not await gateway.asking.heard(0)
        waiting = [asyncio.create_task(gateway.asking.heard(HANG_S)) for _ in range(2)]
        await asyncio.sleep(0)
        gateway.reply(HeartbeatAnswer(request_id="never asked"))
        assert await asyncio.gather(*waiting) == [True, True]
        assert gateway.asking.silence_s() < HANG_S
        assert not await gateway.asking.heard(0), "the response arrived before the call"

    run(kafka, scenario)


def test_the_brokers_topics_are_listed(kafka: Kafka):
    async def scenario(gateway: Gateway) -> None:
        listed = await asyncio.to_thread(gateway.asking.list_topics, timeout=HANG_S)
        assert len(listed.topics[gateway.settings.replies_topic].partitions) == PARTITIONS

    run(kafka, scenario)


def start(**settings: Any) -> None:
    async def main() -> None:
        CoordinatorClient(Settings.load(**settings), asyncio.get_running_loop(), OutstandingHeartbeats(), print)

    asyncio.run(main())


def test_a_start_without_the_coordinators_topics_fails(kafka: Kafka):
    with pytest.raises(NoCoordinator, match=r"nowhere\.requests"):
        start(bootstrap_servers=kafka.bootstrap_servers, topic_prefix="nowhere")


def test_a_start_without_brokers_fails(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timeouts, "ANSWER_WAIT_S", 0.2)
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        start(bootstrap_servers="127.0.0.1:1")
