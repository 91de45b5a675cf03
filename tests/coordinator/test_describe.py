"""Descriptions of a group, and its records on the groups topic (protocol.md 3.11; design.md 5)."""

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase
from coordinator.messages.group_records import GroupMember, GroupRecord
from coordinator.messages.responses import DescribedMember, DescribeGroupAnswer
from tests.coordinator.scenario import Scenario
from tests.coordinator.wire import assignment, subscription


def test_an_unknown_group_is_dead_and_empty():
    """S50: an unknown group is Dead and empty."""
    s = Scenario().describe().hears(ErrorCode.NONE)
    assert s.said == DescribeGroupAnswer(request_id=s.latest_request_id, group_id="g")
    assert (s.said.state, s.said.generation_id, s.said.members) == (Phase.DEAD, -1, ())
    s.is_gone()


def test_a_stable_group_in_full():
    """S27, S28, S31 to S34, S38: the description of a Stable group has every field."""
    s = Scenario.stable("c1").at(700).describe()
    assert s.said == DescribeGroupAnswer(
        request_id=s.latest_request_id,
        group_id="g",
        state=Phase.STABLE,
        since_ms=0,
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=s.ids["c1"],
        subscribed_topics=("t",),
        members=(
            DescribedMember(
                member_id=s.ids["c1"],
                group_instance_id=None,
                client_id="c1",
                client_host="/c1.example",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                metadata=subscription(["t"]),
                assignment=assignment({"t": [0]}),
                awaiting=None,
            ),
        ),
    )


@pytest.mark.parametrize("phase", ["PreparingRebalance", "CompletingRebalance"])
def test_outside_stable_a_description_has_the_old_assignments_but_no_metadata(phase: str):
    """S47, S48; protocol.md 3.11, 10 row 21: protocol and metadata are left out, the old assignments are returned."""
    s = Scenario.stable("c1", "c2").join("c1")
    if phase == "CompletingRebalance":
        s.join("c2")
    s.describe()
    assert (s.said.state.value, s.said.protocol_type, s.said.protocol_name) == (phase, "consumer", "")
    assert {m.metadata for m in s.said.members} == {b""}
    assert [m.assignment for m in s.said.members] == [assignment({"t": [0]}), assignment({"t": [1]})]


def test_a_description_has_the_awaited_members_and_the_deadline():
    """S43, S47, S48: a description names the awaited members and the deadline."""
    s = Scenario.stable("c1", "c2").at(1_000).join("p", require_known_member_id=True).describe()
    assert (s.said.awaited, s.said.deadline_ms) == ((), None)
    s.at(2_000).join("c2", topics=["u"]).describe()
    assert [s.name(m) for m in s.said.awaited] == ["c1", "p"]
    assert s.said.deadline_ms == 12_000
    assert [(s.name(m.member_id), m.awaiting) for m in s.said.members] == [("c1", None), ("c2", "join")]
    s.leave("p").at(3_000).join("c1").sync("c2").describe()
    assert [s.name(m) for m in s.said.awaited] == ["c1"]
    assert s.said.deadline_ms == 13_000
    assert [(s.name(m.member_id), m.awaiting) for m in s.said.members] == [("c1", None), ("c2", "sync")]
    s.sync("c1", plan={}).describe()
    assert (s.said.awaited, s.said.deadline_ms) == ((), None)


def test_an_emptied_group_keeps_its_type_and_reads_no_topics():
    """S32, S33, S46: an emptied group keeps its type, and subscribes to no topics."""
    s = Scenario.stable("c1").at(4_000).leave("c1").describe()
    assert (s.said.state, s.said.since_ms, s.said.generation_id) == (Phase.EMPTY, 4_000, 2)
    assert (s.said.protocol_type, s.said.protocol_name, s.said.leader) == ("consumer", "", None)
    assert (s.said.subscribed_topics, s.said.members) == ((), ())


def test_describing_changes_nothing():
    s = Scenario.stable("c1")
    before = s.shard.to_bytes()
    s.describe()
    assert s.shard.to_bytes() == before


def test_topics_are_those_of_all_members_sorted():
    """S33, I16: topics are those of all members, sorted."""
    s = Scenario(delay_ms=3_000).join("c1", topics=["z", "b"]).join("c2", topics=["a", "b"]).until(9_000).describe()
    assert s.said.subscribed_topics == ("a", "b", "z")


def test_the_group_record_in_full():
    """S27, S35: the record has only fields that anybody may read; the assignment is also decoded."""
    s = Scenario.stable("c1")
    record = s.published()[-1]
    assert (record.group_id, record.key) == ("g", ("group", "g"))
    assert record.record == GroupRecord(
        group_id="g",
        state=Phase.STABLE,
        since_ms=0,
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=s.ids["c1"],
        subscribed_topics=("t",),
        members=(
            GroupMember(
                member_id=s.ids["c1"],
                group_instance_id=None,
                client_id="c1",
                client_host="/c1.example",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                assignment=assignment({"t": [0]}),
                assigned={"t": [0]},
                fencing_token=1,
            ),
        ),
        version=record.version,
    )


def test_unreadable_assignments_are_not_decoded():
    """S35: assignments of another type, and bytes that are not an assignment."""
    s = Scenario.joined("c1").sync("c1", plan={"c1": b"\xff"})
    assert s.published()[-1].record.members[0].assigned is None
    s = Scenario().join("c1", protocol_type="connect").sync("c1", plan={"c1": assignment({"t": [0]})})
    assert s.published()[-1].record.members[0].assigned is None


def test_a_group_is_published_at_changes_and_not_at_heartbeats():
    """design.md 5: a group is published once at each change of phase or generation."""
    s = Scenario.stable("c1", "c2")
    states = [p.record.state.value for p in s.published()]
    one_round = ["PreparingRebalance", "CompletingRebalance"]
    assert states == ["Empty", *one_round, *one_round, "Stable"]
    published = len(s.published())
    s.at(1_000).heartbeat("c1").heartbeat("c2").join("c2").sync("c2").describe().fetch("c1")
    assert len(s.published()) == published


def test_a_generation_right_after_another_is_published():
    """S30, S66: a sole member changes its subscription in CompletingRebalance: the same phase, another round."""
    s = Scenario.joined("c1").join("c1", topics=["u"]).hears(ErrorCode.NONE, generation_id=2)
    latest = s.published()[-1].record
    assert (latest.state, latest.generation_id, latest.subscribed_topics) == (Phase.COMPLETING, 2, ("u",))


def test_topics_of_a_group_of_another_type_stay_unknown_when_it_empties():
    """S33: an emptied consumer group has no topics; the topics of a group of another type are unknown."""
    s = Scenario.stable("c1").leave("c1").describe().hears(ErrorCode.NONE, subscribed_topics=())
    s = Scenario().join("c1", protocol_type="connect").sync("c1").leave("c1").describe()
    s.hears(ErrorCode.NONE, subscribed_topics=None)
