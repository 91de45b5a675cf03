"""A heartbeat that says nothing new gets the answer to the one before it, if that is late."""

from typing import Any

import pytest

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, OwnedPartitions
from coordinator.messages.responses import ConsumerGroupHeartbeatAnswer
from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.members import late_responses as module
from streaming.gateway.members.late_responses import LateResponses
from tests.streaming.gateway.examples import WHO
from tests.streaming.gateway.parts import fact_of, slot_of

WAIT_S = 5.0
OWNED = (OwnedPartitions(fact_of("t", 3).topic_id or "", (0, 1)),)
FULL = {"rebalance_timeout_ms": 9_000, "subscribed_topic_names": ("t",), "topic_partitions": OWNED}
ANSWER = ConsumerGroupHeartbeatAnswer(request_id="1", member_id="m", member_epoch=5, heartbeat_interval_ms=5_000)


def beat(epoch: int = 5, member_id: str = "m", **fields: Any) -> ConsumerGroupHeartbeat:
    return ConsumerGroupHeartbeat(**WHO, member_id=member_id, member_epoch=epoch, **fields)


class Bench:
    """The heartbeats of a member that has said all before."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.late = LateResponses(WAIT_S, lambda: self.now_s)
        self.said = beat(**FULL)
        assert not self.late.take_over(slot := slot_of(68), self.said)
        assert self.late.deliver(slot, self.said, ANSWER) is slot

    def give_up(self, request: ConsumerGroupHeartbeat) -> InFlightRequest:
        """Send a heartbeat, whose client hears an error before the coordinator's answer comes."""
        slot = slot_of(68)
        assert not self.late.take_over(slot, request)
        slot.answer = b"error"
        return slot


@pytest.mark.parametrize("repeated", [beat(), beat(**FULL), beat(rebalance_timeout_ms=9_000)])
def test_an_answer_that_comes_late_is_for_the_repeated_heartbeat(repeated: ConsumerGroupHeartbeat):
    """After an error, a client repeats all that it has said."""
    bench, first, later = Bench(), beat(), slot_of(68)
    slot = bench.give_up(first)
    assert bench.late.take_over(later, repeated)
    assert bench.late.answer_to(repeated) is None
    assert bench.late.deliver(slot, first, ANSWER) is later
    assert not bench.late.take_over(slot_of(68), beat())


def test_an_answer_that_came_between_two_heartbeats_is_for_the_second():
    bench, first = Bench(), beat()
    assert bench.late.deliver(bench.give_up(first), first, ANSWER) is None
    assert bench.late.take_over(slot_of(68), beat(**FULL))
    assert bench.late.answer_to(beat()) == ANSWER
    assert not bench.late.take_over(slot_of(68), beat()), "it is given once"


@pytest.mark.parametrize(
    "news",
    [
        beat(6),
        beat(-1),
        beat(0, **FULL),
        beat(topic_partitions=()),
        beat(subscribed_topic_names=("u",)),
        beat(subscribed_topic_regex="u.*"),
        beat(server_assignor="range"),
        beat(rebalance_timeout_ms=8_000),
        beat(member_id="other"),
    ],
)
def test_a_heartbeat_that_says_something_new_is_sent(news: ConsumerGroupHeartbeat):
    bench, first, later = Bench(), beat(), slot_of(68)
    slot = bench.give_up(first)
    assert not bench.late.take_over(later, news)
    assert bench.late.deliver(slot, first, ANSWER) is None
    assert bench.late.deliver(later, news, ANSWER) is later


def test_a_heartbeat_is_sent_when_the_answer_before_it_counts_as_lost():
    bench = Bench()
    bench.give_up(beat())
    bench.now_s += WAIT_S
    assert not bench.late.take_over(slot_of(68), beat())


def test_a_heartbeat_whose_client_has_an_error_already_is_sent():
    """The facts about its topics took too long."""
    bench, slot = Bench(), slot_of(68)
    first = beat()
    bench.late.deliver(bench.give_up(first), first, ANSWER)
    slot.answer = b"error"
    assert not bench.late.take_over(slot, beat())


def test_a_heartbeat_behind_one_without_a_response_is_sent():
    bench = Bench()
    assert not bench.late.take_over(slot_of(68), beat())
    assert not bench.late.take_over(slot_of(68), beat())


def test_the_stored_members_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MEMBERS_MAX", 2)
    bench = Bench()
    for member_id in "abc":
        bench.late.take_over(slot_of(68), beat(member_id=member_id))
    assert [member_id for _, member_id in bench.late._outstanding] == ["b", "c"]
