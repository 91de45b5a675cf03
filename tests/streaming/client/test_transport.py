"""Tests of the delivery of responses to the members of a process, without brokers."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import json

from coordinator.outputs import AnyAnswer, HeartbeatAnswer, JoinGroupAnswer, RebalanceNotice
from streaming.client.transport import Transport


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
        transport._deliver(json.encode(answer))
    assert ana.received == [joins[0], HeartbeatAnswer(request_id=f"{first}2")]
    assert bo.received == [joins[1], notice]
    transport.unregister(second)
    transport._deliver(json.encode(notice))
    transport._deliver(json.encode(HeartbeatAnswer(request_id=f"{second}2")))
    assert bo.received == [joins[1], notice]
    assert transport._answers._joined_through == {"ana-1": first.removesuffix(".")}


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
        transport._deliver(data)
    transport._deliver(json.encode(HeartbeatAnswer(request_id=f"{good}1")))
    assert len(ana.received) == 1
    assert "cannot be read" in caplog.text
    assert "a member's code failed" in caplog.text
