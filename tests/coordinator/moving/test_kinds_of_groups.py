"""Every kind of group moves as it is: members of the consumer protocol, holds, quarantines, classic members in a mixed
group (moving.md 2.4, 2.5).
"""

from typing import Any

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.base.policies import Freeze, Quarantine, Settle, Succession
from coordinator.messages.fields import Event
from coordinator.messages.move_events import GroupArrived, GroupReleased, GroupTakenBack
from coordinator.messages.move_requests import PeerRecord, ReleaseGroup
from coordinator.messages.outputs import Output, ToPeer
from coordinator.messages.requests import Received
from coordinator.messages.responses import Reply
from tests.coordinator.consumer.conversation import START_MS, Conversation
from tests.coordinator.moving.pair import Pair

OF_MOVES = (GroupReleased, GroupArrived, GroupTakenBack)


class Consumers(Conversation):
    """A coordinator that exchanges groups of the consumer protocol with another one."""

    def __init__(self, prefix: str, peer: str, **config: Any) -> None:
        super().__init__(prefix=prefix, peers=(peer,), slots="all" if prefix == "A" else "none", **config)
        self.peer = peer

    def release(self) -> list[PeerRecord]:
        """Release the group. Return the records for the other coordinator."""
        self._offset += 1
        request = ReleaseGroup(request_id=f"r{self._offset}", reply_to="op", group_id="g", to=self.peer)
        return self.reads(request)

    def reads(self, *records: Any) -> list[PeerRecord]:
        """Read records. Return those for the other coordinator."""
        written: list[PeerRecord] = []
        for record in records:
            self._offset += 1
            self.steps([Received(self._offset, self.now_ms, record)])
            written += [output.record for output in self.latest if isinstance(output, ToPeer)]
        return written


def moved(text: str, passed_ms: int = 500, **config: Any) -> tuple[Consumers, Consumers]:
    """Return A, in which a conversation was played, and B, to which the group has moved."""
    a, b = Consumers("A", "B", **config), Consumers("B", "A", **config)
    a.plays(text)
    b.counts, b.lives = a.counts, a.lives
    released = a.release()
    b.now_ms = a.now_ms + passed_ms
    answers = b.reads(*released)
    a.now_ms = b.now_ms
    a.reads(*answers)
    assert "g" not in a.shard.group_ids
    return a, b


def others(outputs: list[Output]) -> list[Event]:
    """Return the events of a group that are not those of a move."""
    return [o for o in outputs if isinstance(o, Event) and not isinstance(o, OF_MOVES)]


def test_members_of_the_consumer_protocol_continue():
    """Epochs, targets, assigned and revoking partitions are those of the source."""
    a, b = moved("""
        T:4
        A 0               -> 2 {0 1 2 3}
        -- 1000
        B 0               -> 3 {}
        A 2               -> 2 {0 1}
        = Reconciling 3 3
    """)
    assert others(b.outputs) == []
    assert b.group.hot_state.revocations["A"].deadline_ms == b.now_ms + 30_000
    assert b.group.hot_state.sessions["B"].deadline_ms == b.now_ms + 45_000
    b.plays("""
        A 2 own 0 1       -> 3
        B 3               -> 3 {2 3}
        = Stable 3 3
    """)
    assert a.says("A 3").code == ErrorCode.NOT_COORDINATOR.number
    assert a.says("A 3").moved.to == "B"


def test_heartbeats_take_the_short_path_again_once_no_mailbox_is_missing():
    _, b = moved("T:2\nA 0 -> 2 {0 1}\n-- 1000\nB 0 -> 3 {}\nA 2 own 0 1 -> 2 {0}\nA 2 own 0 -> 3")
    assert b.shard.moves.arrived["g"].lacks_addresses
    b.plays("A 3 -> 3")
    assert b.shard.moves.arrived["g"].lacks_addresses, "the mailbox of B is missing"
    b.plays("B 3 -> 3 {1}")
    assert not b.shard.moves.arrived["g"].lacks_addresses
    assert b.group.members["A"].reply_to == "box-A"


def test_the_wait_for_a_target_assignment_has_the_time_that_was_left():
    _, b = moved(
        """
        T:4
        A 0               -> 2 {0 1 2 3}
        -- 400
        B 0               -> 2 {}
        = Assigning 3 2
        """,
        passed_ms=10_000,
    )
    assert b.group.hot_state.plan_ms == b.now_ms + 600
    b.plays("-- 600\n= Reconciling 3 3")


def test_a_hold_of_the_consumer_protocol_has_the_time_that_was_left():
    a, b = Consumers("A", "B"), Consumers("B", "A")
    for side in (a, b):
        side.policy(settle=Settle(join_quiet_ms=5_000))
    a.plays("T:4\nA 0 -> 2 {0 1 2 3}\n-- 2000\nB 0 -> 2 {}\n-- 1000")
    assert a.group.held is not None
    left_ms = a.group.held.until_ms - a.now_ms
    released = a.release()
    b.now_ms = a.now_ms + 60_000
    b.reads(*released)
    assert b.group.held is not None
    assert b.group.held.until_ms - b.now_ms == left_ms


def policed(*names: str, **policies: Any) -> Pair:
    """Return two coordinators with equal policies, and a Stable group at A."""
    pair = Pair.blank()
    for side in (pair.a, pair.b):
        side.policy(**policies)
    for name in (*names, names[0]) if len(names) > 1 else names:
        pair.a.join(name, session_timeout_ms=1_000_000)
    pair.a.sync(names[0], plan={name: {"t": [place]} for place, name in enumerate(names)})
    for name in names[1:]:
        pair.a.sync(name)
    pair.a.is_("Stable")
    return pair


def test_a_held_seat_has_the_time_that_was_left():
    pair = policed("c1", "c2", succession=Succession(vacant_ms=20_000))
    a, b = pair.a, pair.b
    a.at(3_000).leave("c2").is_("Stable", members="c1")
    (vacancy,) = a.group.policy_state.vacant.values()
    left_ms = vacancy.until_ms - 4_000
    a.at(4_000).release()
    b.at(90_000)
    pair.carry()
    (carried,) = b.group.policy_state.vacant.values()
    assert (carried.until_ms, carried.assignment) == (90_000 + left_ms, vacancy.assignment)
    assert [e for e in others(b.outputs) if e.group_id] == []
    b.at(90_100).join("n1").hears(ErrorCode.NONE)
    b.sync("n1").hears(ErrorCode.NONE, assignment=vacancy.assignment)
    b.is_("Stable", members="c1 n1")


def test_a_member_in_quarantine_stays_in_it():
    pair = policed("c1", settle=Settle(join_quiet_ms=1_000), quarantine=Quarantine(flaps=3, for_ms=30_000))
    a, b = pair.a, pair.b
    for at_ms in (1_000, 12_000, 23_000):
        a.at(at_ms).join("f", member_id="")
        a.at(at_ms + 1_000).join("c1", session_timeout_ms=1_000_000).until(at_ms + 10_000)
        a.sync("c1", plan={"c1": {"t": [0]}})
    a.at(34_000).join("f", member_id="", session_timeout_ms=1_000_000)
    ((member_id, until_ms),) = a.group.policy_state.quarantined.items()
    a.at(35_000).release()
    b.at(37_000)
    pair.carry()
    assert b.group.policy_state.quarantined == {member_id: until_ms + 2_000}
    b.until(until_ms + 1_999)
    assert b.group.policy_state.quarantined
    b.until(until_ms + 2_000)
    assert not b.group.policy_state.quarantined


def test_a_freeze_ends_at_its_time():
    pair = policed("c1", "c2", freeze=Freeze(until_ms=500_000))
    a, b = pair.a, pair.b
    a.at(3_000).leave("c2").release()
    b.at(9_000)
    pair.carry()
    assert b.group.policy_state.frozen_until_ms == 500_000


@pytest.mark.parametrize("released_in", ["Stable", "PreparingRebalance", "CompletingRebalance"])
def test_a_group_that_is_taken_back_has_not_changed(released_in: str):
    """RefusalChangesNothing: but for time, number, version and addresses."""
    pair = Pair.stable("c1", "c2")
    a = pair.a.at(20_000)
    if released_in != "Stable":
        a.join("c1")
    if released_in == "CompletingRebalance":
        a.join("c2").sync("c2")
    before = a.is_(released_in).group
    a.release()
    pair.b.at(20_100).cancel(pair.adopt_record())
    a.written.clear()
    a.at(20_200)
    pair.carry()
    after = a.is_(released_in).group
    for group in (before, after):
        group.version = group.token = 0
        hot_state = group.hot_state
        hot_state.now_ms = hot_state.earliest_ms = hot_state.back_ms = 0
        for name in ("joins_ms", "syncs_ms", "offsets_ms"):
            setattr(hot_state, name, getattr(hot_state, name) < NEVER_MS)
        for session in hot_state.sessions.values():
            session.deadline_ms = 0
        for member in group.members.values():
            member.reply_to = ""
            member.awaiting_join, member.awaiting_sync = bool(member.awaiting_join), bool(member.awaiting_sync)
    assert after == before


def test_replies_are_written_to_no_missing_mailbox():
    _, b = moved("T:2\nA 0 -> 2 {0 1}\nA 2 -> 2")
    b.plays("-- 1000\nB 0 -> 3 {}")
    assert all(output.to for output in b.outputs if isinstance(output, Reply))
    assert b.now_ms > START_MS
