"""Tests of the words for the events and records of policies."""

import re
from typing import Any

import pytest
from msgspec import structs

from coordinator.base.states import Phase
from coordinator.messages.events import RebalanceStarted
from coordinator.messages.group_records import Hold
from coordinator.messages.policy_events import (
    FreezeBegun,
    FreezeBroken,
    MemberQuarantined,
    PolicySet,
    QuarantineEnded,
    RebalanceHeld,
    SeatTaken,
    SeatVacated,
)
from streaming.views.sentences.records import to_line
from streaming.views.text import clock, clock_after
from tests.streaming.views.test_watch import BLAMED, BO, NOW_MS, WHO, event, group, member

HOLD = Hold(since_ms=1, until_ms=9, frozen_until_ms=600_000, vacant=1, standing_by=2, quarantined=0)

TEXTS: list[tuple[Any, str]] = [
    (event(PolicySet, None, group_id=None, principal="User:root", client_id="c", client_host="/10.0.0.1",
           partition=3, made_ms=1, policies=1), "shard 3 uses 1 policy of User:root at /10.0.0.1"),
    (structs.replace(group(1, Phase.STABLE, structs.replace(member(BO), standing="standing_by")), hold=HOLD),
     (f"Stable, generation 3, frozen until {clock(600_000)}, 1 seat vacant, 2 members standing by"
      ", led by ana-2a84 | bo-cbcd (standing by): nothing")),
    (event(RebalanceHeld, **WHO, policy="settle", cause="member_joined", until_ms=3_000),
     f"rebalance held by settle until {clock(3_000)} at the latest: member joined, ana-2a84"),
    (event(RebalanceStarted, cause="member_left", **BLAMED, reason=None, members=2, joins_until_ms=6, held_ms=30_000),
     "rebalance: member left, ana-2a84 at /10.0.0.1, held for 30.0 s"),
    (event(SeatVacated, **WHO, policy="succession", cause="member_left", reason="bye", partitions={"t": [0, 1]},
           until_ms=40_000),
     ('the seat of ana-2a84 is vacant (t 0-1): member left ("bye"); kept by succession until '
      f"{clock(40_000)} at the latest")),
    (event(SeatTaken, **WHO, how="took", before=BO, partitions={"t": [0]}, unowned_ms=400, fencing_token=9),
     "ana-2a84 took the seat of bo-cbcd (t 0), without an owner for 400 ms"),
    (event(SeatTaken, **WHO, how="passed", before=BO, partitions={"t": [0]}, unowned_ms=400, fencing_token=9),
     "ana-2a84 stood by and took the seat of bo-cbcd (t 0), without an owner for 400 ms"),
    (event(SeatTaken, **WHO, how="adopted", before="", partitions={"t": [7]}, unowned_ms=60_000, fencing_token=9),
     "ana-2a84 adopted the seat of added partitions beside its own (t 7), without an owner for 1.0 min"),
    (event(MemberQuarantined, **WHO, identity="ana/10.0.0.1", flaps=3, times=2, until_ms=60_000),
     f"ana-2a84 is in quarantine until {clock(60_000)}, time 2: 3 memberships of ana/10.0.0.1 ended too soon"),
    (event(QuarantineEnded, **WHO, identity="ana/10.0.0.1", why="nobody_else"),
     "the quarantine of ana-2a84 has ended: nobody else"),
    (event(FreezeBegun, until_ms=60_000), f"the group is frozen until {clock(60_000)}"),
    (event(FreezeBroken, **BLAMED, why="unowned_too_long", how="adopted", until_ms=60_000),
     f"the freeze until {clock(60_000)} is broken: unowned too long; the seat of ana-2a84 is adopted"),
    (event(FreezeBroken, member_id="", client_id="ops", client_host="/1", why="operator", how="rebalanced", until_ms=1),
     f"the freeze until {clock(1)} is broken: operator; all members join again"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "text"), TEXTS, ids=[type(record).__name__ for record, _ in TEXTS])
def test_each_record_has_its_text(record: Any, text: str) -> None:
    assert to_line(record, None).text == text


def test_a_time_on_another_day_has_its_date() -> None:
    day_ms = 24 * 3_600_000
    assert clock_after(NOW_MS, NOW_MS) == clock(NOW_MS)
    assert re.fullmatch(r"1970-01-0[34] \d\d:\d\d:00\.000", clock_after(3 * day_ms, NOW_MS))
    assert clock_after(None, NOW_MS) == "--:--:--.---"
    assert clock_after(10**18, NOW_MS) == str(10**18)
