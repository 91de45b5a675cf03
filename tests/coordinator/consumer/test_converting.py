"""Tests of conversions and new groups that a refused request must not cause, and of generations that never fall."""

from typing import Any

import pytest

from coordinator.base.config import Config
from coordinator.base.states import Phase
from coordinator.consumer import checks
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.events import GroupConverted
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.requests import (
    Assignment,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    SyncGroup,
)
from tests.coordinator.consumer.conversation import Conversation
from tests.coordinator.consumer.test_mixed import Mixed, classic
from tests.coordinator.wire import assignment

JOIN: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ("T",), "topic_partitions": ()}


@pytest.fixture
def c() -> Mixed:
    return Mixed(group_initial_rebalance_delay_ms=0)


def of_classic_members_alone() -> Mixed:
    """Return a group of the consumer protocol at epoch 4 with one classic member P, which a policy does not convert."""
    c = Mixed(group_consumer_migration_policy="upgrade")
    c.plays("T:2\nA 0 -> 2 {0 1}\n-- 1000")
    c.joins("P")
    c.plays("A -1 -> -1\n-- 1000")
    c.beats("P", 3)
    assert c.joins("P").generation_id == 4
    assert c.syncs("P", 4) == "0 1"
    return c


def under_another_policy(c: Mixed) -> Mixed:
    """Restart the coordinator with a policy that allows the downgrade."""
    c.config = Config(group_consumer_migration_policy="bidirectional")
    c._living = c.new_shard(c.shard.to_bytes())
    return c


# -- generations -------------------------------------------------------------------------------------------------------


def test_a_downgrade_without_a_removal_keeps_the_generation():
    """A setting changes with a restart: no request has raised the epoch, so the classic group takes it as it is."""
    c = under_another_policy(of_classic_members_alone())
    assert [c.beats("P", 4), c.beats("P", 4)] == [0, 0]
    group = c.shard.group("g")
    assert group is not None
    assert (group.phase, group.generation_id) == (Phase.STABLE, 4)


def test_a_downgrade_by_a_deadline_without_a_removal_keeps_the_generation():
    c = of_classic_members_alone()
    offsets = (OffsetToCommit("U", 0, 1, retention_ms=1),)
    c.sends(OffsetCommit, member_id="P", generation_id=4, offsets=offsets)
    under_another_policy(c).passes(1_000)
    group = c.shard.group("g")
    assert group is not None, "the deadline of the offset has converted the group"
    assert (group.phase, group.generation_id) == (Phase.STABLE, 4)


def test_a_refused_join_does_not_convert_a_group(c: Mixed):
    """The allowance for large responses is used up: COORDINATOR_LOAD_IN_PROGRESS, and the members hear nothing."""
    _, q = classic(c)
    offsets = tuple(OffsetToCommit("big", i, i, metadata="m" * 4_000) for i in range(1_800))
    c.sends(OffsetCommit, member_id=q, generation_id=2, offsets=offsets)
    while c.sends(OffsetFetch, topics=None, member_id=None).code == 0:
        pass
    before = c.shard.group("g")
    c.plays("X 0 -> 14")
    assert c.shard.group("g") == before
    assert not c.events(GroupConverted)
    assert c.beats(q, 2) == 0


def test_a_refused_join_does_not_replace_an_empty_group(c: Mixed):
    """The allowance for large responses is used up, and the group of the other protocol would take it over."""
    _, q = classic(c)
    offsets = tuple(OffsetToCommit("big", i, i, metadata="m" * 4_000) for i in range(1_800))
    c.sends(OffsetCommit, member_id=q, generation_id=2, offsets=offsets)
    c.sends(LeaveGroup, members=(Leaving("", "p"), Leaving(q)))
    while c.sends(OffsetFetch, topics=None, member_id=None).code == 0:
        pass
    c.plays("X 0 -> 14")
    group = c.shard.group("g")
    assert group is not None
    assert group.phase is Phase.EMPTY


def test_a_response_that_asks_for_many_topics_counts_against_the_allowance(c: Mixed):
    """A join of some hundred bytes asks for the topics of all partitions of the group: otherwise it amplifies."""
    names = {f"{number:04}" + "x" * 200: [0] for number in range(200)}
    member_id = c.joins().member_id
    plan = (Assignment(member_id, assignment(names)),)
    c.sends(SyncGroup, member_id=member_id, generation_id=1, assignments=plan)
    answers = [c.sends(ConsumerGroupHeartbeat, member_id="X", **JOIN) for _ in range(500)]
    asked = sum(bool(answer.ask) for answer in answers)
    assert {answer.code for answer in answers} == {14}
    assert 300 < asked < 450, "16 MiB for responses of 40 KB"


# -- groups that are not made ------------------------------------------------------------------------------------------


def test_a_refused_first_heartbeat_creates_no_group(monkeypatch: pytest.MonkeyPatch):
    """next-generation.md 1.3, its last sentence."""
    monkeypatch.setattr(checks, "PLANNED_PARTITIONS_MAX", 5)
    c = Conversation().plays("T:6\nA 0 -> 42")
    assert c.shard.is_blank
    assert not c.outputs[:-1]
    c.plays("T:5\nA 0 -> 2 {0 1 2 3 4}")


def test_a_refused_heartbeat_does_not_replace_an_empty_classic_group(c: Mixed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "PLANNED_PARTITIONS_MAX", 5)
    assert c.joins(require_known_member_id=True).code == 79
    c.plays("T:6\nA 0 -> 42")
    group = c.shard.group("g")
    assert group is not None
    assert group.phase is Phase.EMPTY
    c.plays("T:1\nA 0 -> 2 {0}")


def test_the_record_of_an_empty_group_names_its_new_protocol(c: Mixed):
    """The join that replaces the group may be answered 79, and never come back."""
    c.plays("T:1\nA 0 -> 2 {0}\nA -1 -> -1")
    assert c.joins(require_known_member_id=True).code == 79
    records = [o.record for o in c.latest if isinstance(o, Published) and isinstance(o.record, GroupRecord)]
    assert [(record.type or "classic", record.state, record.generation_id) for record in records] == [
        ("classic", Phase.EMPTY, 0)
    ]


# -- fencing tokens ----------------------------------------------------------------------------------------------------


def test_a_downgrade_gives_new_partitions_a_higher_token(c: Mixed):
    """P is assigned its target, which it has never had: a store must not take it for older than the last owner."""
    c.plays("T:2\nA 0 -> 2 {0 1}\n-- 1000")
    c.joins("P")
    mixed = c.shard.consumer_group("g")
    assert mixed is not None
    of_last_owner = mixed.members["A"].fencing_token
    assert of_last_owner > mixed.members["P"].fencing_token
    c.plays("A -1 -> -1")
    group = c.shard.group("g")
    assert group is not None
    assert group.members["P"].fencing_token > of_last_owner
