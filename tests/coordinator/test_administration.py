"""Listings of the groups of a shard, and side effects of an operator's requests; their scenarios are in `traces`.

A listing contains all groups, so its tests are here: traces are replayed beside other groups, which a listing would
contain.
"""

from typing import Any

import pytest

from coordinator.base import limits
from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase
from coordinator.messages.events import MemberExpired, RebalanceStarted
from coordinator.messages.requests import ListGroups
from coordinator.messages.responses import ListedGroup
from coordinator.shard.shard import Shard
from tests.coordinator.scenario import SECRET, Scenario


def in_group(s: Scenario, group_id: str) -> Scenario:
    s.group_id = group_id
    return s


def one_of_each() -> Scenario:
    """A scenario with a group in each phase, and one without a type, because it never had a member."""
    s = in_group(Scenario.stable("c1"), "preparing").join("c2").join("c3").is_("PreparingRebalance")
    in_group(s, "completing").join("c4").is_("CompletingRebalance")
    in_group(s, "empty").join("c5", protocol_type="connect").leave("c5").is_("Empty")
    return in_group(s, "simple").commit_from_outside("tool", {("t", 0): 1}).is_("Empty")


def listed(s: Scenario, **filters: Any) -> str:
    s.list_groups(**filters).hears(ErrorCode.NONE)
    return " ".join(g.group_id for g in s.said.groups)


ALL = "g preparing completing empty simple"


def test_a_listing_has_id_type_and_state_in_the_order_of_creation():
    """S27, S32; protocol.md 3.11: an emptied group keeps its type; a group that never had a member has the type ""."""
    s = one_of_each().list_groups().hears(ErrorCode.NONE)
    assert s.said.groups == (
        ListedGroup("g", "consumer", Phase.STABLE, "classic"),
        ListedGroup("preparing", "consumer", Phase.PREPARING, "classic"),
        ListedGroup("completing", "consumer", Phase.COMPLETING, "classic"),
        ListedGroup("empty", "connect", Phase.EMPTY, "classic"),
        ListedGroup("simple", "", Phase.EMPTY, "classic"),
    )


FILTERS = {
    # a listing that asks for ...                                       finds ...
    "nothing in particular":     ({},                                   ALL),
    "one state":                 ({"states": ("Stable",)},              "g"),
    "another case":              ({"states": ("pREPARINGrEBALANCE",)},  "preparing"),
    "blanks around it":          ({"states": (" Empty\t",)},            "empty simple"),
    "two states":                ({"states": ("stable", "Empty")},      "g empty simple"),
    "no such state":             ({"states": ("Assigning",)},           ""),
    "no such state and one":     ({"states": ("Assigning", "stable")},  "g"),
    "an empty name":             ({"states": ("",)},                    ""),
    "nobody is listed as Dead":  ({"states": ("Dead",)},                ""),
    "its type":                  ({"types": ("Classic ",)},             ALL),
    "another type":              ({"types": ("consumer",)},             ""),
    "another type and ours":     ({"types": ("share", "classic")},      ALL),
    "both, and both match":      ({"states": ("Stable",), "types": ("classic",)}, "g"),
    "both, and one does not":    ({"states": ("Stable",), "types": ("share",)},   ""),
    "both, and the other":       ({"states": ("Dead",), "types": ("classic",)},   ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FILTERS)
def test_filters_are_trimmed_ignore_case_and_must_all_match(name: str):
    """protocol.md 3.11; KIP-518, KIP-848: filters are trimmed, ignore case, and must all match."""
    filters, found = FILTERS[name]
    assert listed(one_of_each(), **filters) == found


def test_a_listing_of_a_shard_without_groups_is_empty():
    assert listed(Scenario()) == ""


def test_every_shard_lists_its_own_groups():
    """S23: every shard answers a listing itself, whatever group id it has."""
    s = Scenario()
    s.shard = s._living = Shard(3, 16, SECRET, s.config)
    s.new_shard = lambda state=None: Shard(3, 16, SECRET, s.config, state)
    assert listed(s) == ""
    s.ask("admin", ListGroups, group_id="of another shard").hears(ErrorCode.NONE, groups=())


def test_a_listing_with_too_long_a_group_id_is_refused():
    s = Scenario().ask("admin", ListGroups, group_id="x" * (limits.GROUP_ID_CHARS_MAX + 1))
    s.hears(ErrorCode.INVALID_GROUP_ID, groups=())


def test_a_listing_is_of_the_requests_time():
    """I12, I17: deadlines up to the request's time have fired before the listing; later ones have not."""
    s = in_group(Scenario.stable("c1"), "h").at(5_000).join("c2").sync("c2")
    s.at(9_999).list_groups()
    assert [(g.group_id, g.state) for g in s.said.groups] == [("g", Phase.STABLE), ("h", Phase.STABLE)]
    s.at(10_000).list_groups()
    assert [(g.group_id, g.state) for g in s.said.groups] == [("g", Phase.EMPTY), ("h", Phase.STABLE)]
    assert [(e.group_id, e.at_ms) for e in s.events(MemberExpired)] == [("g", 10_000)]
    assert s.latest[-1].answer == s.said, "the listing comes after the outputs of the deadlines"


def test_an_expired_group_is_not_listed():
    """S54: a group that expires at the listing itself is not in it."""
    s = Scenario.stable("c1").leave("c1").at(600_000)
    assert listed(s) == ""
    s.is_gone()


def test_a_listing_contains_the_changes_of_its_batch():
    """I17: a listing contains the groups that earlier requests of its batch have changed, created and deleted."""
    s = in_group(Scenario.stable("c1"), "h").commit_from_outside("tool", {("t", 0): 1})
    s.away()
    in_group(s, "g").heartbeat("c1")
    in_group(s, "k").join("c2")
    in_group(s, "h").delete()
    s.list_groups().back(0)
    assert [(g.group_id, g.state) for g in s.said.groups] == [("g", Phase.STABLE), ("k", Phase.COMPLETING)]


def test_a_rebalance_of_an_empty_or_rebalancing_group_has_no_event():
    """S52: if the group is Empty or rebalances already, the response has its state, and no event is written."""
    s = Scenario().join("p", require_known_member_id=True).rebalance().hears(ErrorCode.NONE, state=Phase.EMPTY)
    assert s.events(RebalanceStarted) == []
    s = Scenario.stable("c1", "c2").join("c1").rebalance()
    s.hears(ErrorCode.NONE, state=Phase.PREPARING, generation_id=2)
    assert [e.cause for e in s.events(RebalanceStarted)][-1] == "leader_rejoined"


def test_an_expelled_member_is_unknown_to_its_next_request():
    """I9, S04: its id is unknown to heartbeat, sync, commit and join; it may join as a new member."""
    s = Scenario.stable("c1", "c2").expel("c2", reason="test").hears(ErrorCode.NONE)
    assert s.name(s.said.member_id) == "c2"
    (event,) = s.events(MemberExpired)
    assert (s.name(event.member_id), event.why, event.reason, event.silence_ms) == ("c2", "expelled", "test", None)
    for ask in (s.heartbeat, s.sync, s.join):
        ask("c2").hears(ErrorCode.UNKNOWN_MEMBER_ID)
    s.commit("c2", {("t", 1): 5})
    assert [p.error for p in s.said.partitions] == ["UNKNOWN_MEMBER_ID"]
    s.join("c2", member_id="").is_parked()
    started = s.events(RebalanceStarted)[-1]
    named = started.cause, started.member_id, started.client_id, started.client_host, started.reason
    assert named == ("operator", s.ids["c2"], "admin", "/admin.example", "test")


def test_an_operators_rebalance_names_the_operator():
    """S09: the event has the operator, the host and the reason of the rebalance."""
    s = Scenario.stable("c1").rebalance("root", reason="new brokers")
    started = s.events(RebalanceStarted)[-1]
    named = started.cause, started.member_id, started.client_id, started.client_host, started.reason
    assert named == ("operator", "", "root", "/root.example", "new brokers")
