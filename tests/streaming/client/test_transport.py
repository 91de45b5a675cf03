"""Tests of the delivery of responses to the members of a process, without brokers."""

import secrets
import threading
from collections.abc import Iterator
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError
from msgspec import json

from coordinator.base.hashing import shard_of
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.requests import Request
from coordinator.messages.responses import (
    AnyAnswer,
    HeartbeatAnswer,
    HeartbeatsAnswer,
    JoinGroupAnswer,
    RebalanceNotice,
)
from streaming.client.group_router import CoordinatorRoute
from streaming.client.transport import Transport
from tests.system.waiting import HANG_S


class Quiet:
    """A reader without messages; tests deliver messages themselves."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def poll(self, timeout_ms: int) -> dict[Any, Any]:
        self._closed.wait(timeout_ms / 1000)
        return {}

    def close(self, **_: object) -> None:
        self._closed.set()


class Listening:
    """A receiver that keeps its messages."""

    def __init__(self) -> None:
        self.received: list[AnyAnswer] = []

    def receive(self, answer: AnyAnswer) -> None:
        self.received.append(answer)

    def advance(self) -> None:
        pass


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> Iterator[Transport]:
    def opened(transport: Transport, kafka: object) -> Quiet:
        transport._producer = Quiet()
        return Quiet()

    monkeypatch.setattr(Transport, "_open", opened)
    with Transport({"bootstrap_servers": "nowhere:1"}) as transport:
        yield transport


def test_a_response_goes_to_its_requester_and_a_notice_to_its_member(transport: Transport) -> None:
    """A message for one of a thousand members of a process must not call the others."""
    ana, bo = Listening(), Listening()
    first, second = transport.register(ana), transport.register(bo)
    joins = [JoinGroupAnswer(request_id=f"{prefix}1", generation_id=1, member_id=member_id)
             for prefix, member_id in ((first, "ana-1"), (second, "bo-1"))]  # fmt: skip
    notice = RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id="bo-1")
    stranger = RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id="cy-1")
    for answer in (*joins, notice, stranger, HeartbeatAnswer(request_id=f"{first}2")):
        transport._deliver(transport._home, json.encode(answer))
    assert ana.received == [joins[0], HeartbeatAnswer(request_id=f"{first}2")]
    assert bo.received == [joins[1], notice]
    transport.unregister(second)
    transport._deliver(transport._home, json.encode(notice))
    transport._deliver(transport._home, json.encode(HeartbeatAnswer(request_id=f"{second}2")))
    assert bo.received == [joins[1], notice]
    assert transport._answers._joined_through == {"ana-1": first.removesuffix(".")}


class Beating(Listening):
    """A receiver that sends a heartbeat in each of its turns until one was sent together with others."""

    def __init__(self, transport: Transport, group_id: str, kind: type[Any] = Heartbeat, **fields: Any) -> None:
        super().__init__()
        self._transport, self._count, self._kind = transport, 0, kind
        self._fields = {"group_id": group_id, "member_id": "m", "reply_to": transport.inbox, **fields}
        self.prefix = transport.register(self)

    def advance(self) -> None:
        self._count += 1
        self._transport.send(self._kind(request_id=f"{self.prefix}{self._count}", **self._fields))


def test_heartbeats_of_one_turn_are_sent_together_and_answered_apart(transport: Transport) -> None:
    appended: Queue[tuple[Request, int | None]] = Queue()
    transport._append_to = lambda route, request, partition=None, on_error=None: appended.put((request, partition))  # type: ignore
    transport._producer.partitions_for = lambda topic: {0}
    ana, bo = Beating(transport, "g", generation_id=1), Beating(transport, "h", generation_id=1)
    while not isinstance(found := appended.get(timeout=HANG_S), tuple) or not isinstance(found[0], Heartbeats):
        pass
    record, partition = found
    assert isinstance(record, Heartbeats)
    assert (record.groups, partition) == (("g", "h"), 0)
    said = HeartbeatsAnswer(request_id=record.request_id, request_ids=record.request_ids, codes=(0, 27))
    transport._deliver(transport._home, json.encode(said))
    assert [(a.code, a.error) for a in ana.received] == [(0, "NONE")]
    assert [(a.code, a.error) for a in bo.received] == [(27, "REBALANCE_IN_PROGRESS")]


def test_bare_heartbeats_of_the_consumer_protocol_are_sent_together_and_others_alone(transport: Transport) -> None:
    appended: Queue[tuple[Request, int | None]] = Queue()
    transport._append_to = lambda route, request, partition=None, on_error=None: appended.put((request, partition))  # type: ignore
    transport._producer.partitions_for = lambda topic: {0}
    classic = Beating(transport, "g", generation_id=1)
    bare = Beating(transport, "h", ConsumerGroupHeartbeat, member_epoch=5)
    Beating(transport, "i", ConsumerGroupHeartbeat, member_epoch=5, topic_partitions=())
    found = [appended.get(timeout=HANG_S)[0]]
    while not isinstance(found[-1], Heartbeats) or len(found) < 10:
        found.append(appended.get(timeout=HANG_S)[0])
    record = found[-1]
    assert isinstance(record, Heartbeats)
    assert (record.groups, record.generation_ids, record.consumers) == (("g", "h"), (1, 5), (False, True))
    assert "i" in {request.group_id for request in found}
    said = HeartbeatsAnswer(request_id=record.request_id, request_ids=record.request_ids, codes=(0, 14))
    transport._deliver(transport._home, json.encode(said))
    assert [(a.code, a.request_id) for a in classic.received] == [(0, record.request_ids[0])]
    assert [(a.code, a.request_id) for a in bare.received] == [(14, record.request_ids[1])]


def test_an_unreadable_message_or_a_failing_receiver_does_not_stop_delivery(
    transport: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Listening):
        def receive(self, answer: AnyAnswer) -> None:
            raise ZeroDivisionError

    bad, ana = transport.register(Failing()), Listening()
    good = transport.register(ana)
    for data in (
        b"no reply",
        json.encode(HeartbeatAnswer(request_id=f"{bad}1")),
        json.encode(HeartbeatAnswer(request_id="9.1")),
    ):
        transport._deliver(transport._home, data)
    transport._deliver(transport._home, json.encode(HeartbeatAnswer(request_id=f"{good}1")))
    assert len(ana.received) == 1
    assert "cannot be read" in caplog.text
    assert "a member's code failed" in caplog.text


@pytest.mark.parametrize(
    ("servers", "host"),
    [
        ("127.0.0.1:9", "/127.0.0.1"),
        ("[::1]:9,127.0.0.1:9", "/::1"),
        ("kafka.invalid:9,127.0.0.1:9", "/127.0.0.1"),
        (["kafka.invalid:9", "127.0.0.1:9"], "/127.0.0.1"),
        ("127.0.0.1:port", ""),
    ],
)
def test_a_member_has_the_address_from_which_the_brokers_are_reached(
    transport: Transport, servers: str | list[str], host: str
) -> None:
    """A name that does not resolve may be the first one: the process is connected to another broker."""
    transport._servers = servers
    assert transport.client_host() == host


class FrozenLeaders:
    """A reader of six partitions. The leaders of those with an even number do not answer."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.at: dict[TopicPartition, int] = {}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(6))

    def end_offsets(self, partitions: list[TopicPartition], timeout_ms: float) -> dict[TopicPartition, int]:
        self.asked += [place.partition for place in partitions]
        if self.asked[-1] % 2 == 0:
            raise KafkaTimeoutError
        return dict.fromkeys(partitions, 7)

    def assignment(self) -> set[TopicPartition]:
        return set()

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.at = dict.fromkeys(partitions, -1)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.at[partition] = offset


def test_a_mailbox_moves_to_a_partition_whose_leader_answers(transport: Transport) -> None:
    """After each silence the clients ask who leads now, so that a leader that has moved is found in time."""
    asked_first: set[int] = set()
    updates: list[None] = []
    transport._clients = [SimpleNamespace(cluster=SimpleNamespace(request_update=lambda: updates.append(None)))]
    while len(asked_first) < 6:  # the names are random
        reader, route = FrozenLeaders(), CoordinatorRoute("elsewhere", secrets.token_hex(16), transport._home.signer)
        updates.clear()
        transport._read_replies(reader, route)
        *silent, answered = reader.asked
        assert (len(silent), answered % 2) == (1 - reader.asked[0] % 2, 1)
        assert len(updates) == len(silent)
        assert reader.at == {TopicPartition("elsewhere.replies", answered): 7}
        assert (shard_of(route.inbox, 6), route.key) == (answered, route.inbox.encode())
        asked_first.add(reader.asked[0])
