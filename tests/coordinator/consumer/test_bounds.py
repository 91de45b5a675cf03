"""Tests of hostile and of large input to a group of the consumer protocol."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from coordinator.base import limits
from coordinator.base.consumer_protocol import Subscription, write_subscription
from coordinator.consumer import checks, classic_members
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, GroupTopics, ResolvedPattern, TopicFact
from coordinator.messages.group_records import Published
from coordinator.messages.requests import Protocol, Request
from tests.coordinator.consumer.conversation import Conversation, topic_id
from tests.coordinator.consumer.test_mixed import Mixed

JOIN: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ("T",), "topic_partitions": ()}
HEARTBEAT = {"kind": "consumer_group_heartbeat", "request_id": "r", "reply_to": "b", "group_id": "g"}
COMMIT = {**HEARTBEAT, "kind": "txn_offset_commit", "producer_id": 1, "producer_epoch": 0, "offsets": []}
OPEN = {"producer_id": 1, "first": 1}
REPORT = {"kind": "settle_transactions", "request_id": "r", "reply_to": "b", "topic_id": "t", "settled_before": 9}
FACT, OWNED = {"topic": "t"}, {"topic_id": topic_id("T"), "partitions": []}


@pytest.mark.parametrize(
    "fields",
    [
        {"member_epoch": 2**31},
        {"member_epoch": -(2**31) - 1},
        {"topics": [{"topic": "t", "topic_id": topic_id("T"), "partitions": -1}]},
        {"topics": [{"topic": "t", "topic_id": "no id"}]},
        {"topic_partitions": [{"topic_id": topic_id("T") + "A", "partitions": []}]},
        {"version": 2},
    ],
    ids=str,
)
def test_a_record_with_a_wrong_field_is_no_request(fields: dict[str, Any]):
    msgspec.convert(HEARTBEAT, ConsumerGroupHeartbeat)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(HEARTBEAT | fields, ConsumerGroupHeartbeat)


def heartbeat(**fields: Any) -> dict[str, Any]:
    return {**HEARTBEAT, **fields}


def told(**fields: Any) -> dict[str, Any]:
    return {**HEARTBEAT, "kind": "group_topics", **fields}


def resolved(**fields: Any) -> dict[str, Any]:
    return told(regexes=[{"regex": "r", "topics": [], "member_id": "m", **fields}])


BOUNDS: dict[str, tuple[int, Callable[[int], dict[str, Any]]]] = {
    # a bound                  a record with a field of that length
    "subscribed names":       (limits.SUBSCRIBED_NAMES_MAX, lambda n: heartbeat(subscribed_topic_names=["t"] * n)),
    "name of a topic":        (limits.NAME_CHARS_MAX,       lambda n: heartbeat(subscribed_topic_names=["x" * n])),
    "pattern":                (limits.PATTERN_CHARS_MAX,    lambda n: heartbeat(subscribed_topic_regex="a" * n)),
    "facts":                  (limits.SUBSCRIBED_NAMES_MAX, lambda n: heartbeat(topics=[FACT] * n)),
    "partitions of a topic":  (limits.TOPIC_PARTITIONS_MAX, lambda n: heartbeat(topics=[{**FACT, "partitions": n}])),
    "topics of a pattern":    (limits.SUBSCRIBED_NAMES_MAX, lambda n: heartbeat(regex_topics=["t"] * n)),
    "owned topics":           (limits.PARTITIONS_PER_REQUEST_MAX, lambda n: heartbeat(topic_partitions=[OWNED] * n)),
    "owned partitions of a topic": (limits.TOPIC_PARTITIONS_MAX,
                               lambda n: heartbeat(topic_partitions=[{**OWNED, "partitions": [0] * n}])),
    "error of a pattern":     (limits.REASON_CHARS_MAX,     lambda n: heartbeat(regex_error="x" * n)),
    "told topics":            (limits.SUBSCRIBED_NAMES_MAX, lambda n: told(topics=[FACT] * n)),
    "told patterns":          (limits.PATTERNS_MAX,         lambda n: told(regexes=resolved()["regexes"] * n)),
    "told pattern":           (limits.PATTERN_CHARS_MAX,    lambda n: resolved(regex="x" * n)),
    "topics of a told pattern": (limits.SUBSCRIBED_NAMES_MAX, lambda n: resolved(topics=["t"] * n)),
    "ended transactions":     (limits.ENDED_TRANSACTIONS_MAX, lambda n: {**REPORT, "ended": [{**OPEN, "end": 2}] * n}),
    "open transactions":      (limits.OPEN_TRANSACTIONS_NAMED_MAX, lambda n: {**REPORT, "open": [OPEN] * n}),
    "place":                  (limits.RECORD_OFFSET_MAX,    lambda n: {**COMMIT, "place": n}),
}  # fmt: skip


@pytest.mark.parametrize(("bound", "make"), BOUNDS.values(), ids=BOUNDS)
def test_a_request_at_its_bound_is_read_and_one_beyond_it_is_not(bound: int, make: Callable[[int], dict[str, Any]]):
    msgspec.convert(make(bound), Request)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(make(bound + 1), Request)


def test_the_owned_partitions_of_a_request_are_bounded_over_all_topics(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "OWNED_PARTITIONS_MAX", 4)
    Conversation().plays("""
        T:2
        A 0                     -> 2 {0 1}
        A 2 own T 0 1 U 0 1     -> 2
        A 2 own T 0 1 U 0 1 2   -> 42
    """)


def test_the_subscriptions_of_a_group_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "GROUP_SUBSCRIPTIONS_BYTES_MAX", 8)
    c = Conversation().plays("""
        A 0 names abc    -> 2 {}
        B 0 names abc    -> 2 {}
        C 0 names a      -> 81
        A 2 names abcd   -> 81
        A 2 names ab     -> 2
        A 2 names abc    -> 2
    """)
    assert c.group.subscriptions_bytes == 8
    c.plays("B -1 -> -1")
    assert c.group.subscriptions_bytes == 4


def test_names_and_patterns_count_together(monkeypatch: pytest.MonkeyPatch):
    """A field that a request does not have counts with the member's earlier value. A request to leave has no bound."""
    monkeypatch.setattr(checks, "GROUP_SUBSCRIPTIONS_BYTES_MAX", 8)
    Conversation().plays("""
        A 0 names abcd        -> 2 {}
        A 2 regex abcd        -> 81
        A 2 regex abc         -> 2
        A 2 names abcde       -> 81
        A 2 names none regex abcdefghi -> 81
        A 2 names abcdefg regex        -> 2
        A -1 names abcdefghi  -> -1
    """)


def test_a_static_member_that_comes_back_replaces_its_subscription(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "GROUP_SUBSCRIPTIONS_BYTES_MAX", 8)
    Conversation().plays("""
        A(i) 0 names abcd     -> 2 {}
        A(i) -2               -> -2
        B(i) 0 names abcdefg  -> 2 {}
    """)


def test_what_a_group_has_already_is_kept_above_a_lower_bound(monkeypatch: pytest.MonkeyPatch):
    """The bound of a later release may be lower: a member that repeats its subscription goes on."""
    c = Conversation().plays("A 0 names abc regex a = abc -> 2 {}")
    monkeypatch.setattr(checks, "GROUP_SUBSCRIPTIONS_BYTES_MAX", 2)
    monkeypatch.setattr(checks, "GROUP_RESOLUTIONS_BYTES_MAX", 2)
    c.plays("A 2 names abc regex a = abc -> 2\nA 2 names abc regex a = ab -> 2")


def test_the_patterns_of_a_group_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "PATTERNS_MAX", 1)
    Conversation().plays("A 0 regex a -> 1 {}\nB 0 regex b -> 81\nB 0 regex a -> 1 {}")


def test_the_partitions_of_a_group_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "PLANNED_PARTITIONS_MAX", 5)
    c = Conversation().plays("T:3\nU:2\nA 0 names T U -> 2 {T 0 1 2, U 0 1}\nT:4\nB 0 names T -> 42")
    assert c.sends(GroupTopics, topics=(TopicFact("T", topic_id("T"), 4),)).code == 42
    c.plays("T:3\nB 0 names T -> 2 {}")


def test_facts_that_the_group_ignores_hide_no_partitions(monkeypatch: pytest.MonkeyPatch):
    """The bound holds for what the group has after the request, whatever the last fact about a topic says."""
    monkeypatch.setattr(checks, "PLANNED_PARTITIONS_MAX", 5)
    c = Conversation().plays("T:3\nU:3\nA 0 names T U W -> 42")
    twice = (c.fact("T"), c.fact("U"), TopicFact("U", topic_id("U"), 0))
    fields = JOIN | {"member_id": "A", "subscribed_topic_names": ("T", "U")}
    assert c.sends(ConsumerGroupHeartbeat, **fields, topics=twice).code == 42
    assert c.sends(ConsumerGroupHeartbeat, **fields, topics=(c.fact("T"),)).code == 0
    smaller = (TopicFact("T", topic_id("T"), 0), c.fact("U"))
    assert c.sends(ConsumerGroupHeartbeat, **fields, topics=smaller).code == 42
    assert c.sends(GroupTopics, topics=smaller).code == 42
    assert c.sends(GroupTopics, topics=(TopicFact("T"), c.fact("U"))).code == 0


def test_the_facts_of_a_join_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "PLANNED_PARTITIONS_MAX", 5)
    c = mixed("T:5\nA 0 -> 2 {0 1 2 3 4}\nT:6")
    assert c.joins("P").code == 42
    c.plays("T:5")
    assert c.joins("P").code == 0


def mixed(text: str) -> Mixed:
    c = Mixed()
    c.plays(text)
    return c


def test_the_subscriptions_of_classic_members_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "GROUP_SUBSCRIPTIONS_BYTES_MAX", 8)
    c = mixed("T:1\nA 0 names T -> 2 {0}")

    def joins(name: str, *topics: str) -> int:
        metadata = write_subscription(Subscription(topics))
        return int(c.joins(name, protocols=(Protocol("range", metadata),)).code)

    assert [joins("P", "abcdef"), joins("P", "abcde"), joins("P", "abcde"), joins("P", "abcdef")] == [81, 0, 0, 81]
    assert c.group.subscriptions_bytes == 8
    metadata = Protocol("range", write_subscription(Subscription(("abcde",))))
    c.plays("P -1 -> -1")
    assert [c.joins(instance="i", protocols=(metadata,)).code for _ in range(2)] == [0, 0], "the second one replaces it"
    monkeypatch.setattr(checks, "GROUP_SUBSCRIPTIONS_BYTES_MAX", 2)
    monkeypatch.setattr(classic_members, "GROUP_PROTOCOLS_BYTES_MAX", 2)
    assert c.joins(instance="i", protocols=(metadata,)).code == 0, "a lower bound keeps no member out"


def test_the_metadata_of_classic_members_are_bounded(monkeypatch: pytest.MonkeyPatch):
    """A downgrade makes a classic group of them, whose leader gets all of it in one response."""
    size = len(write_subscription(Subscription(("T",))))
    monkeypatch.setattr(classic_members, "GROUP_PROTOCOLS_BYTES_MAX", 3 * size)
    c = mixed("T:1\nA 0 -> 2 {0}")

    def joins(name: str, offers: int, instance: str | None = None) -> Any:
        metadata = write_subscription(Subscription(("T",)))
        protocols = tuple(Protocol(name, metadata) for name in ("range", "x", "y", "z")[:offers])
        return c.joins(name, instance=instance, protocols=protocols)

    monkeypatch.setattr(classic_members, "GROUP_PROTOCOLS_BYTES_MAX", 4 * size - 1)
    assert joins("P", 4).code == 81
    monkeypatch.setattr(classic_members, "GROUP_PROTOCOLS_BYTES_MAX", 3 * size)
    assert [joins("P", 4).code, joins("P", 2).code, joins("Q", 2).code, joins("Q", 1).code] == [81, 0, 81, 0]
    assert c.group.protocols_bytes == 3 * size
    c.plays("P 2 names T -> 2")
    assert c.group.protocols_bytes == size, "P uses the consumer protocol now"
    static = joins("", 2, "i").member_id
    assert joins("", 2, "i").code == 0, "it replaces its earlier process"
    assert static not in c.group.members
    c.plays("R(i) 0 -> 2 {}\nQ -1 -> -1")
    assert c.group.protocols_bytes == 0


def test_the_topics_of_patterns_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "GROUP_RESOLUTIONS_BYTES_MAX", 8)
    c = Conversation().plays("""
        T:1
        A 0 regex a = abc  -> 2 {}
        B 0 regex b = abcd -> 81
        B 0 regex b = abc  -> 2 {}
        A 2 regex a = abcd -> 81
        A 2 regex a = ab   -> 2
    """)
    assert c.group.resolutions_bytes == 7
    c.plays("B 2 regex c = abcde -> 81")

    def brings(member_id: str, *names: str) -> int:
        return int(c.sends(ConsumerGroupHeartbeat, member_id=member_id, member_epoch=2, regex_topics=names).code)

    assert [brings("A", "abcd"), brings("A", "ab"), brings("X", "abcd")] == [81, 0, 25], "for the pattern that it has"

    def tells(regex: str, *names: str, member_id: str) -> int:
        return int(c.sends(GroupTopics, regexes=(ResolvedPattern(regex, names, member_id),)).code)

    assert [tells("a", "abcd", member_id="A"), tells("a", "abcd", member_id="B")] == [42, 0]
    assert [tells("a", "abc", member_id="A"), c.group.resolutions_bytes] == [0, 8]
    c.plays("A -1 -> -1")
    assert c.group.resolutions_bytes == 4


def test_the_record_of_a_group_with_long_subscriptions_is_written_at_a_bounded_rate():
    names = tuple(f"{number:05}" + "n" * 15 for number in range(10_000))
    c = Conversation()
    for number in range(10):
        fields = JOIN | {"subscribed_topic_names": names}
        c.sends(ConsumerGroupHeartbeat, member_id=f"m{number}", **fields)
        c.now_ms += 1
    records = [o for o in c.outputs if isinstance(o, Published)]
    assert len(records) < 3, "each of them has 400 KB and more"


def test_facts_that_contradict_each_other_are_taken_one_after_the_other():
    c = Conversation().plays("T:2\nA 0 -> 2 {0 1}")
    facts = TopicFact("T", topic_id("T", 1), 1), TopicFact("T", None, 5), TopicFact("T", topic_id("T", 2), 2)
    answer = c.sends(GroupTopics, topics=facts)
    assert (answer.changed, answer.group_epoch) == (True, 3)
    c.plays("-- 1000\nA 2 -> 2 {}")
    c.lives["T"] = 2
    c.plays("A 2 own U 0 -> 3 {0 1}")


def test_an_owner_that_names_unknown_topics_is_no_owner():
    Conversation().plays("T:2\nA 0 -> 2 {0 1}\nA 2 own U 0 1 2 V 7 -> 2\n= Stable 2 2")


def test_the_record_of_a_large_group_is_written_at_a_bounded_rate():
    """200 members that join within a fifth of a second cause some records, not one each."""
    c = Conversation()
    c.counts["T"] = 2_000
    for number in range(200):
        c.sends(ConsumerGroupHeartbeat, member_id=f"m{number}", topics=(c.fact("T"),), **JOIN)
        c.now_ms += 1
    records = [o for o in c.outputs if type(o).__name__ == "Published"]
    assert len(records) < 120
