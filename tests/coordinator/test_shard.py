"""The shard as its caller sees it: its groups, the times at which it must be called, and its state."""

import pytest

from coordinator.base.config import Config
from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.messages.events import Rejected
from coordinator.messages.requests import DescribeGroup, JoinGroup, Protocol, Received, Unreadable
from coordinator.messages.responses import ErrorAnswer, Reply
from coordinator.shard.shard import Shard
from tests.coordinator.scenario import SECRET, Scenario

# -- the shard of a group ----------------------------------------------------------------------------------------------


ASKS = ["join", "sync", "heartbeat", "leave", "commit", "fetch", "describe"]
ASKS += ["delete_offsets", "delete", "rebalance", "expel"]


@pytest.mark.parametrize("ask", ASKS)
def test_a_request_to_a_group_of_another_shard_is_refused(ask: str):
    """S17, design.md 1: NOT_COORDINATOR, with the right partition in the message, and no group is created."""
    s = Scenario()
    home = shard_of("g", 16)
    s.shard = s._living = Shard((home + 1) % 16, 16, SECRET, s.config)
    s.new_shard = lambda state=None: Shard((home + 1) % 16, 16, SECRET, s.config, state)
    getattr(s, ask)(*{"commit": ["c", {("t", 0): 1}], "delete_offsets": ["c", {"t": [0]}]}.get(ask, ["c"])).hears(
        ErrorCode.NOT_COORDINATOR, error_message=f"this group's requests belong in partition {home}"
    )
    assert s.shard.group_ids == ()


def test_every_group_has_exactly_one_shard():
    """S17, S20: every group has exactly one shard."""
    config = Config(group_initial_rebalance_delay_ms=0)
    for group_id in ("g", "h", "消费者组", "😀"):
        request = DescribeGroup(request_id="1", reply_to="inbox", group_id=group_id)
        said = [Shard(p, 16, SECRET, config).step([Received(0, 0, request)], 0)[0].answer.code for p in range(16)]
        assert sorted(said) == [0] + [16] * 15
        assert said[shard_of(group_id, 16)] == 0


def test_unreadable_requests_are_answered_if_they_have_a_mailbox():
    """S25, I6: the response has the reader's message; without a mailbox an event names the record."""
    s = Scenario().at(5)
    s.send("c", Unreadable("no kind", "id", "inbox"))
    assert s.latest == [
        Reply("inbox", ErrorAnswer(request_id="id", error="INVALID_REQUEST", code=42, error_message="no kind"))
    ]
    for half in (Unreadable("why"), Unreadable("why", None, "inbox")):
        s.send("c", half)
        (rejected,) = s.latest
        assert isinstance(rejected, Rejected)
        assert (rejected.partition, rejected.offset, rejected.at_ms, rejected.why) == (0, s._offset, 5, "why")
        assert (rejected.group_id, rejected.version, rejected.generation_id) == (None, None, None)


def test_a_request_id_without_a_mailbox_gets_no_response():
    s = Scenario()
    (rejected,) = s.shard.step([Received(7, 5, Unreadable("why", "id", None))], 5)
    assert isinstance(rejected, Rejected)


# -- alarms ------------------------------------------------------------------------------------------------------------


def test_a_shard_without_deadlines_needs_no_call():
    """S145, design.md 7.4: it has no next deadline."""
    assert Scenario().shard.next_deadline_ms is None


def test_the_alarm_is_the_earliest_of_all_groups():
    """S86, S145: the alarm is the earliest deadline of all groups."""
    s = Scenario().join("c", group_id="g1", member_id="").at(500).join("d", group_id="g2", session_timeout_ms=6_000)
    s.sync("c", group_id="g1").sync("d", group_id="g2")
    assert s.shard.next_deadline_ms <= 6_500
    assert [s.until(6_499).shard.group(g).phase.value for g in ("g1", "g2")] == ["Stable", "Stable"]
    assert s.shard.next_deadline_ms == 6_500
    assert [s.until(6_500).shard.group(g).phase.value for g in ("g1", "g2")] == ["Stable", "Empty"]
    assert s.shard.next_deadline_ms == 10_500


def test_an_offset_without_an_end_sets_no_alarm():
    s = Scenario().join("c", session_timeout_ms=1_800_000).commit("c", {("t", 0): 1})
    s = Scenario().commit_from_outside("c", {("t", 0): 1}, retention_ms=2**62).until(1_000)
    assert s.shard.next_deadline_ms is None


# -- state -------------------------------------------------------------------------------------------------------------


def test_reading_a_shard_does_not_change_it():
    s = Scenario.stable("c1", "c2")
    copy = s.shard.group("g")
    copy.members.clear()
    copy.hot_state.sessions.clear()
    assert len(s.group.members) == 2
    assert s.shard.members == 2


def test_members_are_counted_over_all_groups():
    """I22: the count includes the members of all groups."""
    s = Scenario.stable("c1", "c2").join("d", group_id="h").join("p", group_id="i", require_known_member_id=True)
    assert s.shard.members == 3
    s.until(60_000)
    assert s.shard.members == 0


def test_reads_and_refused_requests_create_no_group():
    """I22: a request that reads a group does not create it."""
    s = Scenario().describe().fetch("c").heartbeat("c").sync("c").leave("c").join("c", member_id="made-up")
    s.commit("c", {("t", 0): 1}, generation_id=1).join("c", member_id="", session_timeout_ms=1)
    assert s.shard.group_ids == ()


def test_member_ids_depend_on_the_secret():
    """S36, I16: the same log gives other ids with another secret, and the same ids with the same one."""
    request = JoinGroup(
        request_id="1",
        reply_to="inbox",
        group_id="g",
        client_id="c",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(Protocol("range"),),
    )
    secrets = [b"s" * 16, b"s" * 16, b"t" * 16]
    one, same, other = (Shard(0, 1, secret, Config()).step([Received(0, 0, request)], 0)[-1] for secret in secrets)
    assert one == same
    assert one.answer.member_id != other.answer.member_id


def test_a_join_after_the_leaders_sync_starts_the_next_rebalance():
    """S95: in one batch, syncs get NONE and then the next rebalance begins."""
    s = Scenario.joined("c1", "c2").sync("c2").away().sync("c1", plan={"c1": {"t": [0]}}).join("c3").back(0)
    s.is_("PreparingRebalance", generation=2)
    assert [p.record.state.value for p in s.published()][-2:] == ["Stable", "PreparingRebalance"]


def test_every_sync_response_has_its_group_record():
    """S94: assignments are published in the step that returns them."""
    s = Scenario.joined("c1", "c2").sync("c2").sync("c1", plan={"c2": {"t": [0, 1]}})
    (published,) = [o for o in s.latest if not isinstance(o, Reply) and hasattr(o, "record")]
    assert [m.assigned for m in published.record.members] == [{}, {"t": [0, 1]}]
