"""Tests of the data that a group takes along when it is converted (next-generation.md 8.1, 8.2, 8.4)."""

from typing import Any

import pytest

from coordinator.base.consumer_protocol import Subscription, write_subscription
from coordinator.base.states import GroupType, Phase
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, TopicFact
from coordinator.messages.events import GroupConverted, RebalanceStarted
from coordinator.messages.group_records import Published
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    Assignment,
    DescribeGroup,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    SyncGroup,
    TxnOffsetCommit,
)
from coordinator.messages.responses import Ask, JoinGroupAnswer, Reply, SyncGroupAnswer
from tests.coordinator.consumer.conversation import START_MS, topic_id
from tests.coordinator.consumer.test_mixed import Mixed, classic
from tests.coordinator.wire import assignment

JOIN: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "topic_partitions": ()}


@pytest.fixture
def c() -> Mixed:
    return Mixed(group_initial_rebalance_delay_ms=0)


def alone(c: Mixed, partitions: dict[str, list[int]], *protocols: Protocol, **fields: Any) -> str:
    """Make a Stable classic group of one member with some partitions, and return its id."""
    offers = {"protocols": protocols} if protocols else {}
    joined = c.joins(**offers, **fields)
    plan = (Assignment(joined.member_id, assignment(partitions)),)
    c.sends(SyncGroup, member_id=joined.member_id, generation_id=1, assignments=plan)
    return str(joined.member_id)


def converts(c: Mixed, *topics: str, names: tuple[str, ...] = ()) -> Any:
    """Send the heartbeat of a member X, with facts about some topics. Without names, it needs no new assignment."""
    fields = JOIN | {"subscribed_topic_names": names}
    return c.sends(ConsumerGroupHeartbeat, member_id="X", topics=tuple(map(c.fact, topics)), **fields)


# -- classic to consumer -----------------------------------------------------------------------------------------------


def test_members_keep_all_their_data(c: Mixed):
    c.counts["T"] = 4
    metadata = write_subscription(Subscription(("U", "T"), None, {}, -1, "rack"))
    offer = Protocol("range", metadata), Protocol("x", b"")
    who = {"client_id": "old", "client_host": "/10.0.0.9"}
    p = alone(c, {"T": [1, 0]}, *offer, instance="p", **who)
    before = c.shard.group("g")
    assert before is not None
    c.passes(5_000)
    assert converts(c, "T").code == 0
    group, member = c.group, c.group.members[p]
    session = group.hot_state.sessions[p]
    assert (member.group_instance_id, member.client_id, member.client_host) == ("p", "old", "/10.0.0.9")
    assert (member.reply_to, member.rack_id, member.names) == ("box-?", "rack", ("T", "U"))
    assert (member.rebalance_timeout_ms, member.previous_epoch, member.regex) == (20_000, 1, "")
    assert member.fencing_token == before.members[p].fencing_token > 0
    assert member.classic is not None
    assert member.classic.protocols == offer
    assert (session.deadline_ms, session.timeout_ms, session.epoch) == (c.now_ms + 10_000, 10_000, 1)
    assert (session.is_settled, session.is_classic) == (True, True)
    assert member.assigned == {topic_id("T"): {0: 1, 1: 1}}
    assert group.targets[p] == {topic_id("T"): [0, 1]}
    assert (group.since_ms, group.hot_state.group_epoch, group.hot_state.assignment_epoch) == (c.now_ms, 1, 1)
    assert group.assignment_ms == 0
    (event,) = c.events(GroupConverted)
    assert (event.at_ms, event.group_type, event.members, event.generation_before) == (c.now_ms, "consumer", 1, 1)


def test_partitions_that_do_not_exist_are_left_out(c: Mixed):
    c.counts["T"] = 2
    p = alone(c, {"T": [0, 1, 2, -1], "gone": [0]})
    converts(c, "T", "gone")
    assert c.group.members[p].assigned == {topic_id("T"): {0: 1, 1: 1}}


def test_the_first_of_two_facts_with_different_ids_counts(c: Mixed):
    """Facts of a heartbeat do not change the id of a topic."""
    c.counts["T"] = 1
    p = alone(c, {"T": [0]})
    facts = c.fact("T"), TopicFact("T", topic_id("T", 1), 1)
    fields = JOIN | {"subscribed_topic_names": ()}
    assert c.sends(ConsumerGroupHeartbeat, member_id="X", topics=facts, **fields).code == 0
    assert set(c.group.members[p].assigned) == {topic_id("T")}


def test_partitions_of_topics_without_a_subscriber_are_held_under_their_name(c: Mixed):
    """The leader has assigned a topic to which no member subscribes. Its name stays known until it is given up."""
    c.counts.update(T=1, U=1)
    p = alone(c, {"T": [0], "U": [0]})
    converts(c, "T", "U", names=("T",))
    assert set(c.group.members[p].assigned) == {topic_id("T"), topic_id("U")}
    assert (list(c.group.topics), c.group.gone_topics) == (["T"], {topic_id("U"): "U"})


def test_partition_of_two_members_stays_with_the_first(c: Mixed):
    c.counts["T"] = 2
    p = c.joins(instance="p").member_id
    assert c.joins() is None
    joined = c.joins(p, instance="p")
    q = next(m.member_id for m in joined.members if m.member_id != p)
    plan = tuple(Assignment(each, assignment({"T": [0, 1, 1]})) for each in (p, q))
    c.sends(SyncGroup, member_id=p, group_instance_id="p", generation_id=2, assignments=plan)
    converts(c, "T")
    first, second = (c.group.members[each] for each in (p, q))
    assert (first.assigned, second.assigned) == ({topic_id("T"): {0: 2, 1: 2}}, {})


def test_topics_of_unknown_partitions_are_asked_for_in_order(c: Mixed):
    alone(c, {"b": [0], "a": [0], "c": [0]})
    answer = converts(c, "c")
    assert (answer.code, answer.ask) == (14, Ask(("a", "b")))
    assert answer.error_message == "the partitions of the group's members are not known yet"


def test_parked_requests_are_answered(c: Mixed):
    """REBALANCE_IN_PROGRESS, to each member, so that it joins the converted group."""
    c.counts["T"] = 4
    p, q = classic(c)
    assert c.joins() is None
    c.joins(p, instance="p")
    c.joins(q)
    assert c.asks(SyncGroup, member_id=q, generation_id=3) is None
    group = c.shard.group("g")
    assert group is not None
    assert group.phase is Phase.COMPLETING
    converts(c, "T")
    answers = [o.answer for o in c.latest if isinstance(o, Reply) and isinstance(o.answer, SyncGroupAnswer)]
    assert [(answer.code, answer.request_id) for answer in answers] == [(27, f"r{c._offset - 1}")]


def test_parked_joins_are_answered_with_the_members_id(c: Mixed):
    _, q = classic(c)
    assert c.joins(q, topics=(), protocols=(Protocol("range", write_subscription(Subscription(("U",)))),)) is None
    converts(c, "T", names=("T",))
    answers = [o.answer for o in c.latest if isinstance(o, Reply) and isinstance(o.answer, JoinGroupAnswer)]
    assert [(answer.code, answer.member_id) for answer in answers] == [(27, q)]


REFUSALS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    # a reason                 settings                                     the join of the classic member, a sentence
    "the policy":              ({"group_consumer_migration_policy": "disabled"}, {},
                                "its members use the classic protocol, and may not be mixed"),
    "no consumers":            ({}, {"protocol_type": "connect"}, "its members are no consumers"),
    "unreadable subscription": ({}, {"protocols": (Protocol("range", b""),)},
                                "the data of its member {} cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "fields", "sentence"), REFUSALS.values(), ids=REFUSALS)
def test_refusal_of_a_conversion_names_the_reason(settings: dict[str, Any], fields: dict[str, Any], sentence: str):
    c = Mixed(group_initial_rebalance_delay_ms=0, **settings)
    member_id = alone(c, {}, **fields)
    answer = converts(c)
    assert (answer.code, answer.error_message) == (69, sentence.format(member_id))
    assert c.shard.group("g") is not None


def test_group_with_too_many_members_is_not_converted():
    c = Mixed(group_initial_rebalance_delay_ms=0, group_consumer_max_size=1)
    classic(c)
    answer = converts(c, "T")
    assert (answer.code, answer.error_message) == (69, "it has more members than group_consumer_max_size")
    c = Mixed(group_initial_rebalance_delay_ms=0, group_consumer_max_size=2)
    classic(c)
    assert converts(c, "T").code == 81, "the converted group has no room for the sender"


def test_group_with_user_data_is_not_converted(c: Mixed):
    joined = c.joins()
    data = assignment({}, rest=b"\0\0\0\1x")
    c.sends(SyncGroup, member_id=joined.member_id, generation_id=1, assignments=(Assignment(joined.member_id, data),))
    assert converts(c).error_message == "its members use an assignor of their own"


def test_group_in_its_first_join_phase_is_not_converted():
    c = Mixed(group_initial_rebalance_delay_ms=3_000)
    assert c.joins() is None
    answer = converts(c)
    assert (answer.code, answer.error_message) == (14, "its first join phase has not ended yet")


def test_assignment_of_a_member_with_an_unreadable_first_protocol_is_written_in_version_0(c: Mixed):
    """The group's protocol is another one, so the conversion does not read the metadata of the first."""
    metadata = write_subscription(Subscription(("T",)))
    offers = Protocol("x", b"\xff\xff"), Protocol("range", metadata)
    c.counts["T"] = 1
    p = c.joins(protocols=(Protocol("range", metadata),), instance="p").member_id
    assert c.joins(protocols=offers) is None
    joined = c.joins(p, instance="p", protocols=(Protocol("range", metadata),))
    q = next(m.member_id for m in joined.members if m.member_id != p)
    plan = (Assignment(q, assignment({"T": [0]})),)
    c.sends(SyncGroup, member_id=p, group_instance_id="p", generation_id=2, assignments=plan)
    assert converts(c, "T").code == 0
    answer = c.sends(SyncGroup, member_id=q, generation_id=2)
    assert answer.assignment == assignment({"T": [0]})


# -- consumer to classic -----------------------------------------------------------------------------------------------


def test_downgrade_of_an_up_to_date_group_keeps_all_data_of_its_members():
    c = Mixed()
    c.plays("T:2\nA(i) 0 -> 2 {0 1}\n-- 5000")
    who = {"client_id": "old", "client_host": "/10.0.0.9"}
    joined = c.joins(instance="i", session_timeout_ms=7_000, **who)
    group = c.shard.group("g")
    assert group is not None
    (member,) = group.members.values()
    session = group.hot_state.sessions[joined.member_id]
    assert (group.type, group.phase, group.since_ms) == (GroupType.CLASSIC, Phase.STABLE, c.now_ms)
    assert (group.protocol_type, group.protocol_name, group.leader_id) == ("consumer", "range", joined.member_id)
    assert group.subscribed_topics == ("T",)
    assert (member.member_id, member.group_instance_id) == (joined.member_id, "i")
    assert (member.client_id, member.client_host, member.reply_to) == ("old", "/10.0.0.9", "box-?")
    assert (member.rebalance_timeout_ms, member.is_new) == (20_000, False)
    assert [p.name for p in member.protocols] == ["range", "roundrobin"]
    assert member.assignment == assignment({"T": [0, 1]})
    assert (session.deadline_ms, session.timeout_ms) == (c.now_ms + 7_000, 7_000)
    (event,) = c.events(GroupConverted)
    assert (event.at_ms, event.group_type, event.members, event.generation_before) == (c.now_ms, "classic", 1, 2)
    assert [type(o).__name__ for o in c.latest][-1] == "Published", "the record is one of a classic group now"


def test_downgrade_after_a_removal_rebalances():
    c = Mixed(group_initial_rebalance_delay_ms=0)
    c.plays("T:2\nA 0 -> 2 {0 1}\n-- 1000")
    c.joins("P")
    token = c.group.members["P"].fencing_token
    c.plays("-- 100\nA -1 -> -1")
    group = c.shard.group("g")
    assert group is not None
    assert (group.phase, group.generation_id) == (Phase.PREPARING, 3)
    started = c.events(RebalanceStarted)[-1]
    assert (started.cause, started.member_id, started.at_ms) == ("group_converted", "", START_MS + 1_100)
    assert group.members["P"].assignment == assignment({"T": [1]})
    assert group.members["P"].fencing_token > token


def test_downgrade_keeps_the_token_of_a_member_that_gets_nothing_new():
    c = Mixed()
    c.plays("T:2\nA 0 -> 2 {0 1}\n-- 1000")
    c.joins("P")
    c.plays("A 2 -> 2 {0}\nA 2 own 0 -> 3")
    c.joins("P")
    token = c.group.members["P"].fencing_token
    c.plays("A -1 -> -1")
    group = c.shard.group("g")
    assert group is not None
    assert group.members["P"].fencing_token == token > 0


def test_downgrade_of_a_member_without_a_target():
    """It has joined after the latest target assignment, so it is assigned nothing."""
    c = Mixed()
    c.plays("T:2\nA 0 -> 2 {0 1}")
    c.joins("P")
    c.plays("A -1 -> -1")
    group = c.shard.group("g")
    assert group is not None
    assert group.members["P"].assignment == assignment({})


# -- an Empty group ----------------------------------------------------------------------------------------------------


def test_empty_group_takes_its_offsets_versions_and_tokens_along():
    c = Mixed(group_initial_rebalance_delay_ms=0)
    c.plays("T:1\nA 0 -> 2 {0}")
    offsets = (OffsetToCommit("T", 0, 7),)
    c.sends(OffsetCommit, member_id="A", generation_id=2, offsets=offsets)
    c.sends(TxnOffsetCommit, member_id="A", generation_id=2, place=1, producer_id=1, producer_epoch=0, offsets=offsets)
    c.plays("A -1 -> -1\n-- 100")
    before = c.group
    c.joins()
    group = c.shard.group("g")
    assert group is not None
    assert (group.offsets, group.offsets_count) == (before.offsets, 1)
    assert group.pending_commits == before.pending_commits
    assert group.version == before.version + sum(not isinstance(o, Reply) for o in c.latest)
    assert (group.generation_id, group.token) == (1, before.token)
    assert c.sends(OffsetFetch, topics=None, require_stable=True).partitions[0].code == 88
    assert c.sends(DescribeGroup).state is Phase.COMPLETING
    assert c.sends(Heartbeat, member_id="A", generation_id=2).code == 25
    assert any(isinstance(o, Published) for o in c.outputs)
