"""The worked scenarios of the protocol's specification, request by request, on the real broker and the real query.

Responses are written as in the specification's tables: `0 g2 leader=c1 [c1 c2]` to a join, `0 part` to a sync, and only
Kafka's number to a refused request. A group is written as `C(2)`: CompletingRebalance in generation 2. A lost reply is
one that the test does not read. The first join of each group is answered before the next request, so the initial delay
has no effect.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import structs

from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import DescribeGroup, OffsetCommit, OffsetToCommit, Request
from coordinator.messages.responses import (
    AnyAnswer,
    DescribeGroupAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    SyncGroupAnswer,
)
from streaming.client.transport import Transport
from streaming.query.coordinator import Coordinator
from tests.system.asking import TOLD_BY_THE_TRANSPORT, Asker
from tests.system.reading import Reader
from tests.system.waiting import wait_until

pytestmark = pytest.mark.long

SHORT_MS = 1_500
"""A session timeout that is short enough for a test to wait for its end."""


@dataclass
class Step:
    """A request that was sent."""

    talk: "Talk"
    request_id: str

    def hears(self, expected: str) -> None:
        wait_until(lambda: self.request_id in self.talk.heard, account=lambda: (expected, self.talk.heard))
        assert self.talk.heard[self.request_id] == [expected]


class Talk:
    """All members of one group. They send their requests in the order of the test."""

    def __init__(self, transport: Transport, reader: Reader, group_id: str) -> None:
        self._transport, self._group_id, self._reader = transport, group_id, reader
        self._ask = Asker(transport, group_id)
        self._prefix = transport.register(self)
        self._sent: list[str] = []
        self._ids: dict[str, str] = {}
        self._described: dict[str, DescribeGroupAnswer] = {}
        self.heard: dict[str, list[str]] = {}

    # -- the transport's interface -------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Return at once: this client has no timers."""

    def receive(self, answer: AnyAnswer) -> None:
        if answer.request_id is None:
            return
        match answer:
            case DescribeGroupAnswer():
                self._described[answer.request_id] = answer
            case JoinGroupAnswer(member_id=member_id) if member_id:
                self._ids[_name(member_id)] = member_id
        self.heard.setdefault(answer.request_id, []).append(_said(answer))

    # -- requests of members -------------------------------------------------------------------------------------------

    def join(self, name: str, **fields: Any) -> Step:
        """Send a join with the id that the member has got so far, or without one."""
        wanted = {"member_id": self._ids.get(name, ""), "client_id": name, "require_known_member_id": False}
        return self._send(self._ask.joining(**(wanted | fields)))

    def sync(self, name: str, generation_id: int, **plan: str) -> Step:
        parts = {self._ids[member]: part.encode() for member, part in plan.items()}
        return self._send(self._ask.syncing(generation_id, self._ids[name], parts))

    def heartbeat(self, name: str, generation_id: int) -> Step:
        return self._send(Heartbeat(**self._as(name), generation_id=generation_id))

    def commit(self, name: str, generation_id: int) -> Step:
        offsets = (OffsetToCommit("t", 0, 1),)
        return self._send(OffsetCommit(**self._as(name), generation_id=generation_id, offsets=offsets))

    def leave(self, name: str) -> Step:
        return self._send(self._ask.leaving(self._ids[name]))

    def _as(self, name: str) -> dict[str, Any]:
        return {**TOLD_BY_THE_TRANSPORT, "group_id": self._group_id, "member_id": self._ids[name]}

    def _send(self, request: Request) -> Step:
        request_id = f"{self._prefix}{len(self._sent) + 1}"
        self._sent.append(request_id)
        self._transport.send(structs.replace(request, request_id=request_id, reply_to=self._transport.inbox))
        return Step(self, request_id)

    # -- the group's state ---------------------------------------------------------------------------------------------

    def is_(self, state: str, *, leader: str | None = None, parked: tuple[Step, ...] = ()) -> DescribeGroupAnswer:
        """Check the group's state after all requests so far, and that no parked step has a response.

        A response cannot come later than that of a later DescribeGroup: both are in one partition.
        """
        group = self._describe()
        assert f"{group.state.value[0]}({group.generation_id})" == state
        assert leader is None or _name(group.leader or "") == leader
        assert not [step for step in parked if step.request_id in self.heard]
        return group

    def _describe(self) -> DescribeGroupAnswer:
        step = self._send(DescribeGroup(**TOLD_BY_THE_TRANSPORT, group_id=self._group_id))
        wait_until(lambda: step.request_id in self.heard)
        return self._described[step.request_id]

    # -- at the end ----------------------------------------------------------------------------------------------------

    def went(self, path: str) -> None:
        """Check the published states of the group from C(1) on. Before them comes P(0) if there is an initial delay."""
        records = self._reader.everything().groups
        states = [f"{r['state'][0]}({r['generation_id']})" for r in records]
        assert states[states.index("C(1)") :] == path.split()

    def causes(self) -> list[str]:
        """Return the cause of each rebalance."""
        return [e["cause"] for e in self._reader.events() if e["event"] == "rebalance_started"]

    def end(self) -> None:
        """Check that every request has exactly one response, and unregister from the transport."""
        self._describe()
        assert {request_id: len(self.heard.get(request_id, ())) for request_id in self._sent} == dict.fromkeys(
            self._sent, 1
        )
        self._transport.unregister(self._prefix)


def _name(member_id: str) -> str:
    return member_id.partition("-")[0]


def _said(answer: AnyAnswer) -> str:
    match answer:
        case JoinGroupAnswer(code=0):
            members = " ".join(_name(m.member_id) for m in answer.members)
            return f"0 g{answer.generation_id} leader={_name(answer.leader)} [{members}]"
        case SyncGroupAnswer(code=0):
            return f"0 {answer.assignment.decode()}".strip()
        case LeaveGroupAnswer(code=0):
            return " ".join(str(m.code) for m in answer.members)
    return str(answer.code)


@pytest.fixture
def talk(transport: Transport, coordinator: Coordinator, request: pytest.FixtureRequest) -> Iterator[Talk]:
    group_id = re.sub(r"\W", "-", request.node.name)
    talk = Talk(transport, Reader(coordinator.settings, group_id), group_id)
    yield talk
    talk.end()


def three(talk: Talk, **leader: Any) -> tuple[Step, Step, Step]:
    """Join c1 (the leader), c2 and c3 into generation 2, and return their joins with unread responses (F3)."""
    talk.join("c1").hears("0 g1 leader=c1 [c1]")
    c2, c3 = talk.join("c2"), talk.join("c3")
    talk.is_("P(1)", parked=(c2, c3))
    c1 = talk.join("c1", **leader)
    talk.is_("C(2)", leader="c1")
    return c1, c2, c3


def all_leave(talk: Talk, *names: str) -> None:
    for name in names:
        talk.leave(name).hears("0")


# -- 8.1 to 8.3: three members -----------------------------------------------------------------------------------------


def test_three_members_join_together_and_rebalance_once(talk: Talk) -> None:
    """W1, S149, S61, S64, S87, S90, S92, S118: three members at once, one effective rebalance."""
    talk.join("c3").hears("0 g1 leader=c3 [c3]")
    talk.is_("C(1)")
    c2 = talk.join("c2")
    joins_until_ms = talk.is_("P(1)", parked=(c2,)).deadline_ms
    c1 = talk.join("c1")
    assert talk.is_("P(1)", parked=(c2, c1)).deadline_ms == joins_until_ms, "not extended"
    talk.sync("c3", 1, c3="012").hears("27")
    talk.is_("P(1)", parked=(c2, c1))
    talk.join("c3").hears("0 g2 leader=c3 [c3 c2 c1]")
    c2.hears("0 g2 leader=c3 []")
    c1.hears("0 g2 leader=c3 []")
    talk.is_("C(2)")
    c2, c1 = talk.sync("c2", 2), talk.sync("c1", 2)
    talk.is_("C(2)", parked=(c2, c1))
    talk.sync("c3", 2, c3="2", c2="1", c1="0").hears("0 2")
    c2.hears("0 1")
    c1.hears("0 0")
    assert talk.is_("S(2)").deadline_ms is None
    talk.leave("c3").hears("0")
    talk.is_("P(2)", leader="c2")
    talk.leave("c2").hears("0")
    talk.is_("P(2)", leader="c1")
    talk.leave("c1").hears("0")
    talk.is_("E(3)")
    talk.went("C(1) P(1) C(2) S(2) P(2) E(3)")


def test_one_joins_then_two_more_and_the_group_rebalances_twice(talk: Talk) -> None:
    """W2, S150, S69: the leader of one generation gets error 27, commits, and joins the next generation."""
    talk.join("c1").hears("0 g1 leader=c1 [c1]")
    talk.sync("c1", 1, c1="012").hears("0 012")
    talk.is_("S(1)")
    c2, c3 = talk.join("c2"), talk.join("c3")
    talk.is_("P(1)", parked=(c2, c3))
    talk.heartbeat("c1", 1).hears("27")
    talk.commit("c1", 1).hears("0")
    talk.join("c1").hears("0 g2 leader=c1 [c1 c2 c3]")
    c2.hears("0 g2 leader=c1 []")
    c3.hears("0 g2 leader=c1 []")
    talk.is_("C(2)")
    talk.sync("c1", 2, c1="0", c2="1", c3="2").hears("0 0")
    talk.is_("S(2)")
    talk.sync("c2", 2).hears("0 1")
    talk.sync("c3", 2).hears("0 2")
    all_leave(talk, "c1", "c2", "c3")
    talk.went("C(1) S(1) P(1) C(2) S(2) P(2) E(3)")
    assert talk.causes() == ["member_joined", "member_joined", "member_left"]


def test_three_join_one_after_another_and_the_group_rebalances_three_times(talk: Talk) -> None:
    """W3, S151."""
    talk.join("c1").hears("0 g1 leader=c1 [c1]")
    talk.sync("c1", 1, c1="012").hears("0 012")
    c2 = talk.join("c2")
    talk.is_("P(1)", parked=(c2,))
    talk.heartbeat("c1", 1).hears("27")
    talk.join("c1").hears("0 g2 leader=c1 [c1 c2]")
    c2.hears("0 g2 leader=c1 []")
    talk.sync("c1", 2, c1="01", c2="2").hears("0 01")
    talk.sync("c2", 2).hears("0 2")
    talk.is_("S(2)")
    c3 = talk.join("c3")
    talk.heartbeat("c1", 2).hears("27")
    c1 = talk.join("c1")
    assert [_name(m) for m in talk.is_("P(2)", parked=(c3, c1)).awaited] == ["c2"]
    talk.heartbeat("c2", 2).hears("27")
    talk.join("c2").hears("0 g3 leader=c1 []")
    c1.hears("0 g3 leader=c1 [c1 c2 c3]")
    c3.hears("0 g3 leader=c1 []")
    talk.is_("C(3)")
    talk.sync("c1", 3, c1="0", c2="1", c3="2").hears("0 0")
    talk.sync("c2", 3).hears("0 1")
    talk.sync("c3", 3).hears("0 2")
    talk.is_("S(3)")
    all_leave(talk, "c1", "c2", "c3")
    talk.went("C(1) S(1) P(1) C(2) S(2) P(2) C(3) S(3) P(3) E(4)")


# -- 8.4, 8.5: lost replies --------------------------------------------------------------------------------------------


def test_follower_that_lost_its_reply_joins_again_without_a_rebalance(talk: Talk) -> None:
    """W4, S69, S98, S152."""
    c1, c2, _ = three(talk)
    c1.hears("0 g2 leader=c1 [c1 c2 c3]")
    c2.hears("0 g2 leader=c1 []")
    c2 = talk.sync("c2", 2)
    talk.is_("C(2)", parked=(c2,))
    talk.sync("c1", 2, c1="0", c2="1", c3="2").hears("0 0")
    c2.hears("0 1")
    talk.is_("S(2)")
    talk.join("c3").hears("0 g2 leader=c1 []")
    talk.is_("S(2)")
    talk.sync("c3", 2).hears("0 2")
    talk.went("C(1) P(1) C(2) S(2)")
    assert len(talk.causes()) == 2, "no new rebalance"


def test_follower_without_its_id_leaves_an_orphan_that_expires(talk: Talk) -> None:
    """W4b: the client joins again as a new member. With pending member ids no such orphan remains (KIP-394)."""
    talk.join("c1").hears("0 g1 leader=c1 [c1]")
    talk.join("c3", session_timeout_ms=SHORT_MS)
    c1, c1_syncs = talk.join("c1"), talk.sync("c1", 2, c1="012")
    c3_anew, c1_again = talk.join("c3", member_id=""), talk.join("c1")
    c1.hears("0 g2 leader=c1 [c1 c3]")
    c1_syncs.hears("0 012")
    c3_anew.hears("0 g3 leader=c1 []")
    c1_again.hears("0 g3 leader=c1 [c1 c3]")
    talk.went("C(1) P(1) C(2) S(2) P(2) C(3)")


def test_leader_that_lost_its_reply_joins_again_and_sends_assignments(talk: Talk) -> None:
    """W5, S65, S153: the generation stays the same, and no deadline is extended."""
    _, c2, c3 = three(talk)
    c2.hears("0 g2 leader=c1 []")
    c3.hears("0 g2 leader=c1 []")
    c2, c3 = talk.sync("c2", 2), talk.sync("c3", 2)
    syncs_until_ms = talk.is_("C(2)", parked=(c2, c3)).deadline_ms
    talk.join("c1").hears("0 g2 leader=c1 [c1 c2 c3]")
    assert talk.is_("C(2)", parked=(c2, c3)).deadline_ms == syncs_until_ms
    talk.sync("c1", 2, c1="0", c2="1", c3="2").hears("0 0")
    c2.hears("0 1")
    c3.hears("0 2")
    talk.is_("S(2)")
    talk.went("C(1) P(1) C(2) S(2)")


def test_silent_leader_is_expelled_and_another_member_leads(talk: Talk) -> None:
    """W5b, S153: the parked syncs get error 27. The members that rejoin form the next generation without the leader."""
    _, c2, c3 = three(talk, session_timeout_ms=SHORT_MS)
    c2, c3 = talk.sync("c2", 2), talk.sync("c3", 2)
    c2.hears("27")
    c3.hears("27")
    talk.is_("P(2)", leader="c2")
    c2 = talk.join("c2")
    talk.is_("P(2)", parked=(c2,))
    talk.join("c3").hears("0 g3 leader=c2 []")
    c2.hears("0 g3 leader=c2 [c2 c3]")
    talk.heartbeat("c1", 2).hears("25")
    talk.went("C(1) P(1) C(2) P(2) C(3)")


# -- 8.6 and the order of syncs ----------------------------------------------------------------------------------------


def test_sync_of_an_old_generation_is_refused(talk: Talk) -> None:
    """W6, S87, S91, S92, S154: error 27 in the join phase, 22 for an earlier generation; no assignment is stored."""
    talk.join("c1").hears("0 g1 leader=c1 [c1]")
    c2 = talk.join("c2")
    talk.is_("P(1)", parked=(c2,))
    talk.sync("c1", 1, c1="012").hears("27")
    talk.join("c1").hears("0 g2 leader=c1 [c1 c2]")
    c2.hears("0 g2 leader=c1 []")
    c2_syncs = talk.sync("c2", 2)
    talk.is_("C(2)", parked=(c2_syncs,))
    c3 = talk.join("c3")
    c2_syncs.hears("27")
    c1 = talk.join("c1")
    talk.is_("P(2)", parked=(c3, c1))
    talk.join("c2").hears("0 g3 leader=c1 []")
    c1.hears("0 g3 leader=c1 [c1 c2 c3]")
    c3.hears("0 g3 leader=c1 []")
    talk.sync("c2", 2).hears("22")
    talk.is_("C(3)")
    c2 = talk.sync("c2", 3)
    talk.is_("C(3)", parked=(c2,))
    talk.sync("c1", 3, c1="0", c2="1", c3="2").hears("0 0")
    c2.hears("0 1")
    talk.sync("c3", 3).hears("0 2")
    talk.is_("S(3)")
    talk.went("C(1) P(1) C(2) P(2) C(3) S(3)")


@pytest.mark.parametrize(("parts", "late"), [({"c3": "2"}, "0 2"), ({}, "0")], ids=["planned for", "left out"])
def test_each_member_gets_its_assignment_in_any_order_of_syncs(talk: Talk, parts: dict[str, str], late: str) -> None:
    """W7, S55, S93, S97, S98, S155: a follower, the leader and a late follower sync; a missing assignment is empty."""
    three(talk)
    c2 = talk.sync("c2", 2)
    talk.is_("C(2)", parked=(c2,))
    talk.sync("c1", 2, c1="0", c2="1", **parts).hears("0 0")
    c2.hears("0 1")
    talk.is_("S(2)")
    talk.sync("c3", 2).hears(late)
    talk.went("C(1) P(1) C(2) S(2)")
