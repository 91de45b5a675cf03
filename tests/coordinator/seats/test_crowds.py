"""Crowds: what thousands of members cost that come or go at once in a held group (I22).

Each test compares two sizes. If a cost grows as the square of the size, eight times as many members cost 64 times as
much. The work is counted in lines of code, so a busy machine changes nothing.
"""

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import pytest

from coordinator.base.config import Config
from coordinator.base.limits import PUBLISH_BYTES_FREE, PUBLISH_BYTES_PER_S
from coordinator.base.policies import Freeze, Policy, Quarantine, Settle, Succession
from coordinator.messages.events import MemberJoined
from coordinator.messages.group_records import Published
from coordinator.messages.outputs import Output
from coordinator.messages.requests import (
    Assignment,
    JoinGroup,
    LeaveGroup,
    Leaving,
    Protocol,
    Received,
    Request,
    SetPolicies,
    SyncGroup,
)
from coordinator.shard.shard import Shard
from coordinator.state.classic_group import MEMBER_RECORD_BYTES
from tests.coordinator.waking import wake
from tests.coordinator.wire import assignment, subscription
from tests.tiers import NIGHTLY

FEW, MANY = 200, 1_600
GROWTH_MAX = 20
"""Eight times as many members may cost this times as much: 64 times would be a look at all members for each of them."""

SIZE_BYTES = 2**24
"""The size of each request, so large that no step defers the next one."""

CONFIG = Config(group_initial_rebalance_delay_ms=0, late_notice_ms=2**40)
FREEZE = Policy(name="g", freeze=Freeze(until_ms=7_200_000, unowned_max_ms=5_000))
SUCCESSION = Succession(vacant_ms=600_000, standby_ms=600_000, vacant_percent_max=100)
SEATS = Policy(name="g", succession=SUCCESSION)
FLAPS = Policy(name="g", succession=SUCCESSION, quarantine=Quarantine())
QUIET = Policy(name="g", settle=Settle(join_quiet_ms=50, max_ms=300_000))


class Crowd:
    """A Stable group of many members, with one partition each; and the work that its latest requests took."""

    def __init__(self, size: int, policy: Policy) -> None:
        self.shard, self.now_ms, self.lines = Shard(0, 1, bytes(16), CONFIG), 0, 0
        """`lines` is the number of lines of code that the latest requests ran."""

        self.latest: list[Output] = []
        self._offset = 0
        self.ids: list[str] = []
        self.take([SetPolicies(request_id="p", reply_to="p", made_ms=1, policies=(policy,))])
        self.take([self.join("c", n) for n in range(size)])
        self.take([self.join("c", 0, self.ids[0])])
        group = self.shard.group("g")
        assert group is not None
        parts = tuple(Assignment(m, assignment({"t": [place]})) for place, m in enumerate(group.members))
        self.generation_id = group.generation_id
        self.take([self.sync(group.leader_id or "", parts), *(self.sync(m) for m in group.members)])

    def join(self, client: str, number: int, member_id: str = "", topics: tuple[str, ...] = ("t",)) -> JoinGroup:
        return JoinGroup(
            **self._asked(f"{client}{number}"), member_id=member_id, session_timeout_ms=100_000,
            protocol_type="consumer", rebalance_timeout_ms=300_000, require_known_member_id=False,
            protocols=(Protocol("range", subscription(topics)),),
        )  # fmt: skip

    def sync(self, member_id: str, parts: tuple[Assignment, ...] = ()) -> SyncGroup:
        return SyncGroup(**self._asked("c"), generation_id=self.generation_id, member_id=member_id, assignments=parts)

    def leave(self, *places: int) -> LeaveGroup:
        return LeaveGroup(**self._asked("c"), members=tuple(Leaving(self.ids[place]) for place in places))

    def _asked(self, client: str) -> dict[str, str]:
        self._offset += 1
        return {"request_id": str(self._offset), "reply_to": client, "group_id": "g", "client_id": client}

    def _count(self, frame: FrameType, event: str, value: object) -> Callable[..., Any]:
        self.lines += 1
        return self._count

    def take(self, requests: Iterable[Request], at_ms: int | None = None, apart_ms: int = 0) -> list[Output]:
        """Run one batch with requests, each some time after the one before."""
        log, self.now_ms = [], self.now_ms if at_ms is None else at_ms
        for request in requests:
            self._offset, self.now_ms = self._offset + 1, self.now_ms + apart_ms
            log.append(Received(self._offset, self.now_ms, request, size_bytes=SIZE_BYTES))
        self.lines, outer = 0, sys.gettrace()
        sys.settrace(self._count)
        try:
            self.latest = outputs = self.shard.step(log or [wake(self.now_ms)], self.now_ms)
        finally:
            sys.settrace(outer)
        assert not self.shard.deferred
        self.ids += [output.member_id for output in outputs if isinstance(output, MemberJoined)]
        return outputs


def _come_in_a_freeze(size: int) -> Crowd:
    crowd = Crowd(10, FREEZE)
    crowd.take([crowd.join("n", n, topics=(f"own {n}",)) for n in range(size)], 1_000, apart_ms=1)
    return crowd


def _go_in_a_freeze(size: int) -> Crowd:
    crowd = Crowd(size, FREEZE)
    crowd.take([crowd.leave(*range(size - 5))], 1_000)
    return crowd


def _are_adopted(size: int) -> Crowd:
    crowd = Crowd(size, FREEZE)
    crowd.take([crowd.leave(place) for place in range(size - 5)], 1_000, apart_ms=1)
    crowd.take([], 60_000)
    return crowd


def _take_seats(size: int) -> Crowd:
    crowd = Crowd(size, SEATS)
    crowd.take([crowd.leave(*range(size - 5))], 1_000)
    crowd.take([crowd.join("n", n) for n in range(size - 5)], 2_000)
    return crowd


def _are_called(size: int) -> Crowd:
    crowd = Crowd(size, SEATS)
    crowd.take([crowd.join("n", n) for n in range(size)], 1_000)
    crowd.take([crowd.leave(place) for place in range(size - 1)], 2_000, apart_ms=1)
    return crowd


def _let_offers_pass(size: int) -> Crowd:
    crowd = _are_called(size)
    crowd.take([], 40_000)
    return crowd


def _expire(size: int) -> Crowd:
    crowd = Crowd(size, FLAPS)
    crowd.take([], 200_000)
    return crowd


def _have_one_identity(size: int) -> Crowd:
    crowd = Crowd(10, FLAPS)
    crowd.take([crowd.join("n", 0) for _ in range(size)], 1_000)
    crowd.take([], 200_000)
    return crowd


def _come_while_it_settles(size: int) -> Crowd:
    crowd = Crowd(10, QUIET)
    crowd.take([crowd.join("n", n) for n in range(size)], 1_000, apart_ms=10)
    return crowd


CROWDS = (
    _come_in_a_freeze, _go_in_a_freeze, _are_adopted, _take_seats, _are_called, _let_offers_pass, _expire,
    _have_one_identity, _come_while_it_settles,
)  # fmt: skip
FEW_CROWDS = (_go_in_a_freeze, _take_seats, _expire)


@pytest.mark.parametrize(
    "members",
    [pytest.param(each, marks=() if each in FEW_CROWDS else NIGHTLY, id=each.__name__.strip("_")) for each in CROWDS],
)
def test_a_crowd_costs_no_more_than_its_size(members: Callable[[int], Crowd]):
    """I22: no request, and no deadline, looks through all members of the group."""
    assert members(MANY).lines < GROWTH_MAX * members(FEW).lines


@pytest.mark.parametrize("members", [_come_in_a_freeze, _come_while_it_settles], ids=["freeze", "settle"])
def test_a_crowd_is_published_at_a_bounded_rate(members: Callable[[int], Crowd]):
    """I22: a large group's record is written some times a second, however many members sit down."""
    crowd = members(MANY)
    records = [output.record for output in crowd.latest if isinstance(output, Published)]
    published_bytes = sum(MEMBER_RECORD_BYTES * len(record.members) for record in records)  # type: ignore[union-attr]
    while_small_bytes = PUBLISH_BYTES_FREE * PUBLISH_BYTES_FREE // MEMBER_RECORD_BYTES
    assert published_bytes < PUBLISH_BYTES_PER_S * crowd.now_ms // 1_000 + while_small_bytes
