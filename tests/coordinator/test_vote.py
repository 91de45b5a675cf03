"""The choice of a protocol, and protocols that are compatible (S129; protocol.md 2.2)."""

from itertools import permutations

import pytest

from coordinator.base.errors import ErrorCode
from tests.coordinator.scenario import Scenario

BUILT_IN = ("sticky", "range", "roundrobin", "cooperative-sticky")
"""The assignors in the order that decides ties."""

RANGE_RR, RR_RANGE = ("range", "roundrobin"), ("roundrobin", "range")

ELECTIONS = [
    # offers, member by member           chosen
    ([("range",)],                       "range"),
    ([RANGE_RR, RR_RANGE, RR_RANGE],     "roundrobin"),
    ([RANGE_RR, RR_RANGE],               "range"),  # a tie
    ([RANGE_RR, ("roundrobin", "foo")],  "roundrobin"),  # the first one's preference is not offered by all
    ([("a", "b", "c"), ("c", "b"), ("b", "c")], "b"),  # a does not count: b has two votes, c one
    ([("lag-based", "beta"), ("beta", "lag-based")], "lag-based"),  # a tie between names that Kafka does not know
    ([("range", "range", "roundrobin"), ("roundrobin", "range")], "range"),  # a repeated name counts once; a tie
]  # fmt: skip


@pytest.mark.parametrize(("offers", "chosen"), ELECTIONS)
def test_the_protocol_that_all_offer_and_most_prefer(offers: list[tuple[str, ...]], chosen: str):
    """W25, S129: the chosen protocol is offered by all and preferred by most."""
    s = Scenario(delay_ms=3_000)
    for number, protocols in enumerate(offers):
        s.join(f"c{number}", protocols=protocols).is_parked()
    s.until(10_000).is_("CompletingRebalance")
    assert s.group.protocol_name == chosen


@pytest.mark.parametrize(("one", "other"), [*permutations(BUILT_IN, 2)])
def test_ties_are_decided_by_javas_order_of_the_names(one: str, other: str):
    """S129: protocol.md 2.2, sticky < range < roundrobin < cooperative-sticky.

    The order of the joins does not matter.
    """
    s = Scenario(delay_ms=3_000)
    s.join("c1", protocols=(one, other)).join("c2", protocols=(other, one)).until(10_000)
    assert s.group.protocol_name == min(one, other, key=BUILT_IN.index)


def test_a_members_own_old_offer_counts_against_its_new_one():
    """protocol.md 2.2, first quirk: A{range} and B{range, roundrobin}; A joins again with {roundrobin}."""
    s = Scenario.joined("a").join("b", protocols=RANGE_RR).join("a")
    s.join("a", protocols=("roundrobin",)).hears(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=s.ids["a"])
    assert [p.name for p in s.group.members[s.ids["a"]].protocols] == ["range"]


def test_a_preparing_group_without_members_accepts_any_name():
    """protocol.md 2.2, second quirk: PreparingRebalance without members, with a pending id."""
    s = Scenario(delay_ms=3_000)
    s.join("a", require_known_member_id=True).join("b").leave("b").is_("PreparingRebalance", members="")
    s.join("a", protocols=("foo",)).is_parked().until(10_000).hears(ErrorCode.NONE, protocol_name="foo")


def test_a_preparing_group_without_members_keeps_its_type():
    """protocol.md 2.2: only an Empty group may change its type."""
    s = Scenario(delay_ms=3_000)
    s.join("a", require_known_member_id=True).join("b").leave("b")
    s.join("a", protocol_type="connect").hears(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@pytest.mark.parametrize("fields", [{"protocol_type": ""}, {"protocols": ()}], ids=["no type", "no protocol"])
def test_a_refused_first_join_leaves_an_empty_group(fields: dict):
    """S60; protocol.md 3.2.1 row 4: the group is created first, and stays."""
    s = Scenario().join("a", **fields).hears(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id="", generation_id=-1)
    s.is_("Empty", generation=0)


def test_the_type_is_the_first_members_and_stays_when_the_group_empties():
    """S32, S45, S72: the type is the first member's, and stays when the group empties."""
    s = Scenario.stable("a", "b").join("c", protocol_type="connect").hears(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    s.leave("a", "b").is_("Empty")
    assert (s.group.protocol_type, s.group.protocol_name) == ("consumer", None)
    s.join("d", protocol_type="connect").hears(ErrorCode.NONE, protocol_type="connect")


def test_the_leader_gets_metadata_of_the_chosen_protocol():
    """S57, S89: the leader gets each member's subscription for the chosen protocol."""
    s = Scenario(delay_ms=3_000)
    s.join("a", protocols=RR_RANGE, topics=["t"]).join("b", protocols=("range",), topics=["u"]).until(10_000)
    said = s.heard("a", type(s.last_request("a", object)))
    assert [(s.name(m.member_id), m.metadata[-5:-4]) for m in said.members] == [("a", b"t"), ("b", b"u")]
