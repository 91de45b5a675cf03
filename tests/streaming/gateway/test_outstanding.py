"""Heartbeats of the consumer protocol over another connection wait while the member's last one has no answer."""

import pytest
from msgspec.structs import replace

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from streaming.gateway.coordinator import outstanding as module
from streaming.gateway.coordinator.outstanding import LOST_AFTER_S, Key, OutstandingHeartbeats, key_of
from tests.streaming.gateway.examples import WHO

ANA, BO = ("g", "ana", None), ("g", "bo", None)


class Bench:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.unanswered = OutstandingHeartbeats(lambda: self.now_s)
        self.calls: list[str] = []

    def waits(self, key: Key, name: str) -> bool:
        return self.unanswered.wait(key, lambda: self.calls.append(name))


def test_a_heartbeat_is_sent_after_the_answer_to_the_last_one():
    bench = Bench()
    bench.unanswered.sent(ANA, "1")
    assert bench.waits(ANA, "second")
    assert not bench.waits(BO, "another member's")
    bench.unanswered.answered("1")
    assert bench.calls == ["second"]
    assert not bench.waits(ANA, "third")


def test_no_heartbeat_waits_for_one_of_another_principal():
    bench, theirs = Bench(), ConsumerGroupHeartbeat(**WHO, member_id="ana", member_epoch=5)
    bench.unanswered.sent(key_of(theirs), "1")
    assert bench.waits(key_of(theirs), "theirs")
    assert not bench.waits(key_of(replace(theirs, principal="User:eve")), "another's")


def test_only_the_last_of_those_that_wait_is_sent():
    bench = Bench()
    bench.unanswered.sent(ANA, "1")
    assert bench.waits(ANA, "second")
    assert bench.waits(ANA, "third")
    bench.unanswered.answered("1")
    assert bench.calls == ["third"]


def test_the_answer_to_an_earlier_heartbeat_lets_nothing_go_on():
    bench = Bench()
    bench.unanswered.sent(ANA, "1")
    bench.unanswered.sent(ANA, "2")
    assert bench.waits(ANA, "third")
    bench.unanswered.answered("1")
    bench.unanswered.answered(None)
    assert bench.calls == []
    bench.unanswered.answered("2")
    assert bench.calls == ["third"]
    assert not bench.unanswered


def test_a_heartbeat_that_is_sent_once_more_keeps_the_one_that_waits_for_its_answer():
    """It has waited for the tick before, and counts as lost from the time that it is sent."""
    bench = Bench()
    bench.unanswered.sent(ANA, "1")
    assert bench.waits(ANA, "second")
    bench.now_s += LOST_AFTER_S
    bench.unanswered.sent(ANA, "1")
    assert bench.waits(ANA, "third")
    bench.unanswered.sent(ANA, "1")
    bench.unanswered.answered("1")
    assert bench.calls == ["third"]


@pytest.mark.parametrize(("after_s", "is_awaited"), [(LOST_AFTER_S - 0.001, True), (LOST_AFTER_S, False)])
def test_an_answer_counts_as_lost_after_a_time(after_s: float, is_awaited: bool):
    bench = Bench()
    bench.unanswered.sent(ANA, "1")
    bench.now_s += after_s
    assert bench.waits(ANA, "second") is is_awaited


def test_the_stored_members_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MEMBERS_MAX", 2)
    bench = Bench()
    for request_id in "123":
        bench.unanswered.sent(("g", request_id, None), request_id)
    assert [bench.waits(("g", request_id, None), "") for request_id in "123"] == [False, True, True]
    assert len(bench.unanswered) == 2
    bench.unanswered.answered("1")
