"""Whom an answer goes to, out of all that a process has in its one inbox. The brokers are left out."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import json

from coordinator.outputs import AnyAnswer, HeartbeatAnswer, JoinGroupAnswer, RebalanceNotice
from streaming.client.transport import Transport


class Quiet:
    """A reader to whom nothing comes; tests deliver by hand."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def poll(self, timeout_ms: int) -> dict[Any, Any]:
        self._closed.wait(timeout_ms / 1000)
        return {}

    def close(self, **_: object) -> None:
        self._closed.set()


class Listening:
    """A correspondent that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[AnyAnswer] = []

    def receive(self, answer: AnyAnswer) -> None:
        self.heard.append(answer)

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


def test_an_answer_goes_to_whoever_asked_and_a_notice_to_whom_it_names(transport: Transport) -> None:
    """One of a thousand members of a process must not cost the others a look."""
    ana, bo = Listening(), Listening()
    first, second = transport.register(ana), transport.register(bo)
    joins = [JoinGroupAnswer(request_id=f"{prefix}1", generation_id=1, member_id=member_id)
             for prefix, member_id in ((first, "ana-1"), (second, "bo-1"))]  # fmt: skip
    notice = RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id="bo-1")
    stranger = RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id="cy-1")
    for answer in (*joins, notice, stranger, HeartbeatAnswer(request_id=f"{first}2")):
        transport._deliver(json.encode(answer))
    assert ana.heard == [joins[0], HeartbeatAnswer(request_id=f"{first}2")]
    assert bo.heard == [joins[1], notice]
    transport.unregister(second)
    transport._deliver(json.encode(notice))
    transport._deliver(json.encode(HeartbeatAnswer(request_id=f"{second}2")))
    assert bo.heard == [joins[1], notice]
    assert transport._answers._joined_through == {"ana-1": first.removesuffix(".")}


def test_what_cannot_be_read_or_fails_silences_nobody(transport: Transport, caplog: pytest.LogCaptureFixture) -> None:
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
    assert len(ana.heard) == 1
    assert "cannot be read" in caplog.text
    assert "a member's code failed" in caplog.text
