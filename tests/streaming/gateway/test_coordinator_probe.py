"""Tests of the question whether the coordinator answers, with a double of the coordinator's client."""

import asyncio
from collections.abc import Sequence

import pytest

from coordinator.base.limits import GROUP_ID_CHARS_MAX
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.responses import HeartbeatAnswer
from streaming.gateway.server import find_coordinator
from streaming.gateway.server.find_coordinator import FRESH_S, CoordinatorProbe
from tests.streaming.gateway.parts import FakeCoordinators


class Silent(FakeCoordinators):
    """A coordinator that has been silent for some time."""

    silent_s = FRESH_S

    def silence_s(self) -> float:
        return self.silent_s

    async def heard(self, within_s: float) -> bool:
        return False

    @property
    def probed(self) -> list[str]:
        return [request.group_id for request, _ in self.sent]


def look(probing: CoordinatorProbe, *group_ids: str) -> bool:
    return asyncio.run(probing.is_served(group_ids))


def test_a_silent_coordinator_gets_a_heartbeat_with_no_member_id_about_the_group():
    asking = Silent()
    assert not look(CoordinatorProbe(asking, 5_000), "g")
    (request, _), *_ = asking.sent
    assert isinstance(request, Heartbeat)
    assert (request.group_id, request.member_id, request.generation_id) == ("g", "", -1)


def test_a_coordinator_that_has_just_answered_gets_none():
    asking = Silent()
    asking.silent_s = FRESH_S - 0.1
    assert look(CoordinatorProbe(asking, 5_000), "g")
    assert asking.sent == []


def test_one_heartbeat_about_a_group_waits_for_an_answer():
    asking = Silent()
    probing = CoordinatorProbe(asking, 5_000)
    for _ in range(3):
        look(probing, "g")
    look(probing, "h")
    assert asking.probed == ["g", "h"]
    asking.answer(HeartbeatAnswer, index=0)
    look(probing, "g")
    assert asking.probed == ["g", "h", "g"]


def test_a_lost_answer_counts_until_the_coordinator_answers_again():
    asking = Silent()
    probing = CoordinatorProbe(asking, 5_000)
    look(probing, "g")
    asking.silent_s = 0
    look(probing, "g")
    assert asking.waiting == 0
    asking.silent_s = FRESH_S
    look(probing, "g")
    assert asking.probed == ["g", "g"]


@pytest.mark.parametrize("group_ids", [(), ("g", "h"), ("g" * (GROUP_ID_CHARS_MAX + 1),)])
def test_what_no_member_looks_for_is_in_no_heartbeat(group_ids: Sequence[str]):
    """A member looks for one group. Nobody stores the names of thousands, or names of any length."""
    asking = Silent()
    look(CoordinatorProbe(asking, 5_000), *group_ids)
    assert asking.probed == [""]


def test_beyond_the_bound_no_heartbeat_is_sent_until_one_is_answered(monkeypatch: pytest.MonkeyPatch):
    """A client that looks for ever more groups does not fill the log."""
    monkeypatch.setattr(find_coordinator, "PROBED_MAX", 2)
    asking = Silent()
    asked = CoordinatorProbe(asking, 5_000)
    for group_id in ("a", "b", "c", "a"):
        look(asked, group_id)
    assert asking.probed == ["a", "b"]
    asking.answer(HeartbeatAnswer, index=0)
    look(asked, "c")
    assert asking.probed == ["a", "b", "c"]
