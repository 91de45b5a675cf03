"""Tests of what a group knows of topics and patterns, and what their changes do (next-generation.md 5)."""

import pytest
from msgspec import UNSET

from coordinator.base import limits
from coordinator.consumer import not_found, topics
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, GroupTopics, ResolvedPattern, TopicFact
from coordinator.messages.events import OffsetsExpired, RebalanceStarted
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.requests import OffsetCommit, OffsetToCommit
from coordinator.messages.responses import Ask
from tests.coordinator.consumer.conversation import Conversation, topic_id


def causes(c: Conversation) -> list[str]:
    return [e.cause for e in c.events(RebalanceStarted)]


# -- topics ------------------------------------------------------------------------------------------------------------


def test_a_topic_that_appears_is_assigned():
    c = Conversation().plays("A 0 -> 2 {}\n= Stable 2 2\n-- 1000\nT:2")
    assert c.tells_topics("T").changed
    c.plays("= Reconciling 3 3\nA 2 -> 3 {0 1}\n= Stable 3 3")
    assert causes(c) == ["member_joined", "topics_changed"]
    started = c.events(RebalanceStarted)[-1]
    assert (started.member_id, started.client_id, started.client_host) == ("", "client-?", "/10.0.0.1")


def test_added_partitions_are_assigned_and_none_can_be_taken_away():
    c = Conversation().plays("T:2\nA 0 -> 2 {0 1}\n-- 1000\nT:3")
    assert c.tells_topics("T").changed
    c.plays("A 2 -> 3 {0 1 2}\nT:1")
    answer = c.tells_topics("T")
    assert (answer.changed, answer.group_epoch) == (False, 3)
    c.plays("A 3 -> 3\n= Stable 3 3")


def test_a_heartbeat_brings_added_partitions():
    c = Conversation().plays("T:2\nA 0 -> 2 {0 1}\n-- 1000\nT:3\nA 2 names T -> 3 {0 1 2}")
    assert causes(c) == ["member_joined", "topics_changed"]


def test_a_deleted_topic_is_taken_away():
    c = Conversation().plays("T:2\nU:1\nA 0 names T U -> 2 {T 0 1, U 0}\n-- 1000\nT:0")
    c.tells_topics("T")
    c.plays("A 2 -> 2 {U 0}\nA 2 own U 0 -> 3\n= Stable 3 3")
    assert c.group.gone_topics == {topic_id("T"): "T"}
    c.plays("-- 1000\nT:1 anew")
    c.tells_topics("T")
    assert c.group.gone_topics == {}
    c.plays("A 3 -> 4 {T 0, U 0}")


def test_a_topic_that_comes_back_with_its_id_is_not_gone():
    c = Conversation().plays("T:2\nA 0 -> 2 {0 1}\nT:0")
    c.tells_topics("T")
    assert (c.group.gone_topics, c.group.name_of(topic_id("T"))) == ({topic_id("T"): "T"}, "T")
    c.plays("T:2")
    c.tells_topics("T")
    assert (c.group.gone_topics, c.group.name_of(topic_id("T"))) == ({}, "T")
    assert c.group.name_of(topic_id("U")) == "", "no topic has ever had this id"


def test_a_topic_that_is_made_anew_is_another_topic():
    """The old partitions are taken away, the new ones are given; both have the same name."""
    c = Conversation().plays("T:2\nA 0 -> 2 {0 1}\n-- 1000\nT:2 anew")
    c.tells_topics("T")
    c.plays("A 2 -> 2 {}")
    (member,) = c.group.members.values()
    assert set(member.revoking) == {topic_id("T")}
    assert c.group.name_of(topic_id("T")) == "T"
    c.plays("A 2 own U 0 -> 3 {0 1}")
    assert set(c.group.members["A"].assigned) == {topic_id("T", 1)}


def test_a_heartbeat_does_not_change_a_topics_id():
    """Only `group_topics` is authoritative: a heartbeat may come from a gateway with old metadata."""
    c = Conversation().plays("T:2\nA 0 -> 2 {0 1}\nT:2 anew\nB 0 names T -> 2 {}")
    assert set(c.group.topics["T"].topic_id or "") == set(topic_id("T"))
    c.plays("T:3")
    c.lives["T"] = 0
    c.plays("C 0 -> 2 {}")
    assert c.group.topics["T"].partitions == 3


def test_the_answer_asks_for_topics_of_which_the_group_was_never_told():
    c = Conversation()
    fields = {"rebalance_timeout_ms": 1_000, "subscribed_topic_names": ("U", "T"), "topic_partitions": ()}
    answer = c.sends(ConsumerGroupHeartbeat, member_id="A", **fields)
    assert (answer.member_epoch, answer.ask) == (2, Ask(("T", "U")))
    c.tells_topics("T", "U")  # neither exists
    assert c.sends(ConsumerGroupHeartbeat, member_id="A", **fields).ask is UNSET
    assert c.state == "Stable 2 2"


def test_every_heartbeat_asks_until_all_topics_are_known():
    c = Conversation().plays("T:1\nA 0 names T -> 2 {0}\n-- 1000")
    fields = {"subscribed_topic_names": ("T", "U"), "member_epoch": 2}
    assert c.sends(ConsumerGroupHeartbeat, member_id="A", **fields).ask == Ask(("U",))
    c.plays("-- 1000")
    plain = {"member_id": "A", "member_epoch": 3}
    assert [c.sends(ConsumerGroupHeartbeat, **plain).ask for _ in range(2)] == [Ask(("U",))] * 2
    c.tells_topics("U")
    assert not c.group.hot_state.asks
    assert c.sends(ConsumerGroupHeartbeat, **plain).ask is UNSET


def test_a_response_asks_for_names_up_to_a_bound(monkeypatch: pytest.MonkeyPatch):
    """The bound counts the characters of the names, and a byte for each name."""
    monkeypatch.setattr(topics, "ASK_BYTES_MAX", 5)
    fields = {"rebalance_timeout_ms": 1_000, "subscribed_topic_names": ("a", "bc", "d"), "topic_partitions": ()}
    assert Conversation().sends(ConsumerGroupHeartbeat, member_id="A", **fields).ask == Ask(("a", "bc"))


def test_facts_about_topics_that_nobody_reads_are_not_kept():
    c = Conversation().plays("T:2\nU:2\nA 0 -> 2 {0 1}")
    assert not c.tells_topics("U").changed
    assert list(c.group.topics) == ["T"]
    c.plays("A 2 names U -> 2 {}\nA 2 own U 5 -> 2\n-- 1000\nA 2 -> 3 {U 0 1}")
    assert list(c.group.topics) == ["U"]


def test_facts_for_a_group_without_members_raise_no_epoch():
    c = Conversation().plays("T:2\nA 0 -> 2 {0 1}\nA -1 -> -1\nT:4")
    answer = c.tells_topics("T")
    assert (answer.code, answer.group_epoch) == (0, 3)
    assert c.state == "Empty 3 3"


def test_facts_for_no_group_are_refused():
    c = Conversation()
    answer = c.sends(GroupTopics, topics=(TopicFact("T", topic_id("T"), 1),))
    assert (answer.code, answer.error_message) == (69, not_found.NOT_OF_CONSUMERS)
    assert c.shard.is_blank


# -- patterns ----------------------------------------------------------------------------------------------------------


def test_a_pattern_is_resolved_with_the_request():
    c = Conversation().plays("T:2\nU:1\nA 0 regex [TU] = T U -> 2 {T 0 1, U 0}\n= Stable 2 2")
    assert c.group.subscribes("U")
    assert causes(c) == ["member_joined"]
    assert not c.group.hot_state.asks


def test_a_pattern_that_nobody_has_resolved_brings_nothing_and_is_asked_for():
    c = Conversation().plays("T:2\nA 0 regex T.* -> 1 {}\n= Stable 1 1")
    answer = c.sends(ConsumerGroupHeartbeat, member_id="A", member_epoch=1, rack_id="r")
    assert answer.ask == Ask((), ("T.*",))
    told = (ResolvedPattern("T.*", ("T",), "A"),)
    assert c.sends(GroupTopics, topics=(c.fact("T"),), regexes=told).changed is True
    c.plays("A 1 -> 2 {0 1}")
    assert causes(c) == ["regex_resolved"]


def test_a_heartbeat_brings_other_topics_of_its_members_pattern():
    c = Conversation().plays("T:1\nU:1\nA 0 regex .* = T -> 2 {0}\n-- 1000\nA 2 regex .* = T U -> 3 {T 0, U 0}")
    assert causes(c) == ["member_joined", "regex_resolved"]


def test_a_known_pattern_counts_as_resolved():
    c = Conversation().plays("T:2\nA 0 regex T = T -> 2 {0 1}\n-- 1000\nB 0 regex T -> 3 {}")
    assert causes(c) == ["member_joined", "member_joined"]


def test_a_heartbeat_does_not_change_what_another_member_has_resolved():
    """The topics depend on the rights of the member that resolves the pattern."""
    c = Conversation().plays("T:1\nU:1\nA 0 regex .* = T -> 2 {0}\n-- 1000\nB 0 regex .* = T U -> 3 {}")
    assert c.group.patterns[".*"].topics == ("T",)


def test_group_topics_changes_what_a_pattern_matches_for_any_member_that_has_it():
    """In Kafka too, the heartbeat of any member may renew the resolution."""
    c = Conversation().plays("T:1\nU:1\nA 0 regex .* = T -> 2 {0}\n-- 1000\nB 0 regex .* = T U -> 3 {}")
    told = {"topics": (c.fact("U"),)}
    for member_id in ("C", ""):
        assert not c.sends(GroupTopics, **told, regexes=(ResolvedPattern(".*", ("T", "U"), member_id),)).changed
    assert not c.sends(GroupTopics, **told, regexes=(ResolvedPattern("U", ("U",), "B"),)).changed
    assert c.sends(GroupTopics, **told, regexes=(ResolvedPattern(".*", ("T", "U"), "B"),)).changed
    assert c.group.patterns[".*"].topics == ("T", "U")


def test_a_pattern_is_forgotten_with_its_last_member():
    c = Conversation().plays("T:1\nA 0 regex .* = T -> 2 {0}\n-- 1000\nB 0 -> 3 {}\nA -1 -> -1\n-- 1000")
    assert c.group.patterns == {}


def test_a_member_may_have_a_pattern_and_names():
    c = Conversation().plays("T:1\nU:1\nA 0 names U regex T = T -> 2 {T 0, U 0}")
    c.plays("-- 1000\nA 2 regex -> 2 {U 0}\nA 2 own U 0 -> 3\n= Stable 3 3")
    c.plays("-- 1000\nA 3 names none -> 3 {}\nA 3 own T 7 -> 4\n= Stable 4 4")


def test_a_change_to_an_unresolved_pattern_takes_all_away():
    c = Conversation().plays("T:2\nA 0 regex T = T -> 2 {0 1}\nA 2 regex U.* -> 2 {}\n= Reconciling 2 2")
    c.plays("A 2 own U 9 -> 2")
    assert c.group.members["A"].assigned == {}


def test_every_heartbeat_asks_for_a_pattern_whose_resolver_is_gone():
    """next-generation.md 5.3, 10.3: also the plain heartbeat of a settled member, until somebody resolves it again."""
    c = Conversation().plays("""
        T:2
        A 0 regex T.* = T -> 2 {0 1}
        -- 1000
        B 0 regex T.* = T -> 3 {}
        A 2 -> 2 {0}
        A 2 own 0 -> 3
        B 3 -> 3 {1}
        A -1 -> -1
        -- 1000
        B 3 -> 4 {0 1}
    """)
    plain = {"member_id": "B", "member_epoch": 4}
    assert [c.sends(ConsumerGroupHeartbeat, **plain).ask for _ in range(2)] == [Ask((), ("T.*",))] * 2
    c.sends(GroupTopics, regexes=(ResolvedPattern("T.*", ("T",), "B"),))
    assert c.sends(ConsumerGroupHeartbeat, **plain).ask is UNSET


def test_a_pattern_is_forgotten_when_its_last_member_has_another_one():
    """Also without a new target assignment: a change to a pattern that nobody has resolved raises no epoch."""
    c = Conversation().plays("A 0 regex a -> 1 {}\nB 0 regex b -> 1 {}\nA 1 regex c -> 1\n= Stable 1 1")
    assert list(c.group.patterns) == ["b", "c"]
    c.plays("A 1 regex -> 2\nB 1 regex -> 2")
    assert c.group.patterns == {}
    assert not c.group.hot_state.asks


def test_one_member_does_not_use_up_the_patterns_of_a_group():
    """PATTERNS_MAX bounds the patterns of the members, not those that they have had."""
    c = Conversation().plays("A 0 regex a -> 1 {}")
    for number in range(limits.PATTERNS_MAX + 1):
        c.plays(f"A 1 regex a{number} -> 1")
    assert len(c.group.patterns) == 1


@pytest.mark.parametrize("end", ["leaves", "session", "replaced"])
def test_a_pattern_is_forgotten_with_its_last_member_at_once(end: str):
    """next-generation.md 3.6: before the next target assignment. The group's record has the topics no more."""
    c = Conversation(group_consumer_session_timeout_ms=10_000).plays("T:1\nU:1\nA(i) 0 regex .* = U -> 2 {U 0}")
    if end == "replaced":
        c.plays("A(i) -2 -> -2\nA2(i) 0 names T regex -> 2 {}")
    else:
        c.plays("-- 6000\nB 0 names T -> 3 {0}")
        c.plays("A -1 -> -1") if end == "leaves" else c.plays("-- 4000")
    assert c.group.patterns == {}
    records = [o.record for o in c.latest if isinstance(o, Published) and isinstance(o.record, GroupRecord)]
    assert records[-1].subscribed_topics == ("T",)


def test_a_pattern_that_another_member_has_is_kept():
    c = Conversation().plays("T:1\nA 0 regex .* = T -> 2 {0}\nB 0 regex .* -> 2 {}\nA 2 regex x -> 2 {}")
    assert c.group.patterns[".*"].topics == ("T",)


def test_the_responses_ask_for_many_topics_bit_by_bit():
    """The response to a heartbeat of a hundred bytes has no megabytes. At last, the responses have named all topics."""
    names = tuple(f"{number:05}" + "x" * 240 for number in range(300))
    c = Conversation()
    c.sends(ConsumerGroupHeartbeat, member_id="A", rebalance_timeout_ms=1_000, topic_partitions=(),
            subscribed_topic_names=names)  # fmt: skip
    asked: list[str] = []
    while (ask := c.sends(ConsumerGroupHeartbeat, member_id="A", member_epoch=2).ask) is not UNSET:
        assert sum(map(len, ask.topics)) < 16384
        asked += ask.topics
        c.sends(GroupTopics, topics=tuple(map(TopicFact, ask.topics)))
    assert asked == list(names)


# -- offsets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["names", "pattern", "matches", "leaves"])
def test_offsets_of_a_topic_expire_when_no_member_subscribes_to_it_any_more(how: str):
    """next-generation.md 6.3: by the time of the commit, in any state of the group."""
    c = Conversation(offsets_retention_ms=5_000).plays("T:1\nU:1\nA 0 names T -> 2 {0}\n-- 1000")
    c.plays(f"B 0 {'names U' if how in ('names', 'leaves') else 'names none regex U.* = U'} -> 3 {{U 0}}")
    c.sends(OffsetCommit, member_id="B", generation_id=3, offsets=(OffsetToCommit("U", 0, 7),))
    c.plays("-- 6000")
    assert c.group.offsets_count == 1, "B may be reading it"
    if how == "matches":
        c.sends(GroupTopics, regexes=(ResolvedPattern("U.*", (), "B"),))
    else:
        c.says({"names": "B 3 names none", "pattern": "B 3 regex", "leaves": "B -1"}[how])
    c.plays("-- 1")
    assert c.group.offsets_count == 0
    assert [e.partitions for e in c.events(OffsetsExpired)] == [(("U", 0),)]
