"""Tests of the records, events and notices of a group of the consumer protocol, with all their fields."""

from typing import Any

import pytest
from msgspec import UNSET

from coordinator.base.states import Phase
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.events import (
    AssignmentChanged,
    EpochFenced,
    GroupConverted,
    GroupEmptied,
    Handover,
    MemberAway,
    MemberBack,
    MemberExpired,
    MemberFenced,
    MemberJoined,
    MemberLeft,
    PlanMade,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.messages.fields import Event
from coordinator.messages.group_records import GroupMember, GroupRecord, Published
from coordinator.messages.requests import ExpelMember, LeaveGroup, Leaving, RebalanceGroup
from coordinator.messages.responses import AssignmentNotice, RebalanceNotice, Reply
from tests.coordinator.consumer.conversation import START_MS, Conversation
from tests.coordinator.consumer.test_members import two
from tests.coordinator.consumer.test_mixed import Mixed


def latest_record(c: Conversation) -> GroupRecord:
    """Return the group's latest record, and check its place in the topic."""
    published = [output for output in c.outputs if isinstance(output, Published)][-1]
    assert isinstance(published.record, GroupRecord)
    assert published == Published("g", ("group", "g"), published.record, published.record.version)
    return published.record


def member(name: str, **fields: Any) -> GroupMember:
    """Return a member in a group's record: one without partitions, unless `fields` say otherwise."""
    usual: dict[str, Any] = {
        "group_instance_id": None,
        "session_timeout_ms": 45_000,
        "rebalance_timeout_ms": 30_000,
        "assignment": b"",
        "assigned": {},
        "rack_id": None,
        "protocol": "consumer",
        "subscribed_topics": ("T",),
        "regex": "",
        "revoking": {},
        "target": {},
    }
    client = {"client_id": f"client-{name}", "client_host": "/10.0.0.1"}
    return GroupMember(member_id=name, **client, **{**usual, **fields})


def event(kind: type[Event], version: int, after_ms: int, epoch: int, **fields: Any) -> Event:
    """Return an event of the group, some time after the start of the conversation."""
    return kind(group_id="g", version=version, at_ms=START_MS + after_ms, generation_id=epoch, **fields)


def of(name: str, instance: str | None = None) -> dict[str, Any]:
    """Return the fields of a member in an event about it."""
    return {"member_id": name, "group_instance_id": instance, **client(name)}


def client(name: str) -> dict[str, Any]:
    return {"client_id": f"client-{name}", "client_host": "/10.0.0.1"}


def latest(c: Conversation, kind: type[Event]) -> dict[str, Any]:
    """Return the fields of the latest event of a kind, without those of every event and those that are left out."""
    told = c.events(kind)[-1]
    fields = {name: getattr(told, name) for name in told.__struct_fields__ if name not in Event.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not UNSET}


# -- the record --------------------------------------------------------------------------------------------------------


def test_record_of_a_group_that_reconciles():
    c = Conversation().plays("T:4\nA(i) 0 by range -> 2 {0 1 2 3}\n-- 1000\nB 0 regex b.* = T -> 3 {}")
    c.sends(ConsumerGroupHeartbeat, member_id="A", member_epoch=2, rack_id="r")
    a, b = c.group.members.values()
    assert latest_record(c) == GroupRecord(
        group_id="g",
        state=Phase.RECONCILING,
        since_ms=START_MS + 1000,
        generation_id=3,
        protocol_type="consumer",
        protocol_name="range",
        leader=None,
        subscribed_topics=("T",),
        members=(
            member(
                "A",
                group_instance_id="i",
                fencing_token=a.fencing_token,
                rack_id="r",
                member_epoch=2,
                state="unrevoked",
                assigned={"T": [0, 1]},
                revoking={"T": [2, 3]},
                target={"T": [0, 1]},
            ),
            member(
                "B",
                fencing_token=b.fencing_token,
                member_epoch=3,
                state="unreleased",
                subscribed_topics=(),
                regex="b.*",
                target={"T": [2, 3]},
            ),
        ),
        version=c.group.version,
        type="consumer",
        assignment_epoch=3,
    )


def test_record_of_a_group_without_members():
    c = Conversation().plays("A 0 names none -> 1 {}\nA -1 -> -1")
    assert latest_record(c) == GroupRecord(
        group_id="g",
        state=Phase.EMPTY,
        since_ms=START_MS,
        generation_id=2,
        protocol_type="consumer",
        protocol_name=None,
        leader=None,
        subscribed_topics=(),
        members=(),
        version=c.group.version,
        type="consumer",
        assignment_epoch=2,
    )


def test_record_names_the_protocol_of_a_classic_member():
    c = Mixed()
    c.plays("T:1\nA 0 -> 2 {0}")
    c.joins("C")
    assert [(m.protocol, m.session_timeout_ms, m.state) for m in latest_record(c).members] == [
        ("consumer", 45_000, "stable"),
        ("classic", 10_000, "stable"),
    ]


def test_record_joins_the_partitions_of_two_topics_with_one_name():
    """A topic that was deleted and made anew: the member has to give the old partitions up, and gets the new ones."""
    c = Conversation().plays("T:2\nA 0 -> 2 {0 1}\n-- 1000\nT:2 anew")
    c.tells_topics("T")
    c.plays("A 2 -> 2 {}\nA 2 own 0 -> 3 {0 1}\n-- 1000\nT:2 anew")
    (told,) = latest_record(c).members
    assert told.assigned == {"T": [0, 1]}


# -- events of rebalances ----------------------------------------------------------------------------------------------


def test_events_of_a_new_group():
    c = Conversation().plays("T:2\nA 0 -> 2 {0 1}")
    handovers = (Handover("T", 0, None, "A"), Handover("T", 1, None, "A"))
    assert c.events(Event) == [
        event(MemberJoined, 1, 0, 1, **of("A"), reason=None),
        event(RebalanceStarted, 2, 0, 2, cause="member_joined", member_id="A", **client("A"), reason=None, members=1,
              joins_until_ms=START_MS),
        event(PlanMade, 3, 0, 2, assignor="uniform", members=1, partitions=2, moved=2, waited_ms=0),
        event(AssignmentChanged, 4, 0, 2, handovers=handovers),
        event(RebalanceCompleted, 5, 0, 2, duration_ms=0, joins_ms=0, syncs_ms=0, protocol_name="uniform", leader=None,
              members_before=(), members_after=("A",), joined=("A",), gone=(), fencing_token=c.group.token),
    ]  # fmt: skip


def test_events_of_a_rebalance_name_its_times():
    """The epoch is raised within a second of the last assignment, so the next assignment has to wait."""
    c = two().plays("""
        -- 400
        C 0 -> 3 {}
        -- 200
        B -1 -> -1
        -- 400
        A 3 -> 5
        -- 300
        C 3 -> 5 {2 3}
    """)
    assert [(e.at_ms - START_MS, e.waited_ms, e.moved, e.partitions) for e in c.events(PlanMade)][2:] == [
        (2_000, 600, 2, 4)
    ]
    assert latest(c, RebalanceCompleted) == {
        "duration_ms": 900,
        "joins_ms": 600,
        "syncs_ms": 300,
        "protocol_name": "uniform",
        "leader": None,
        "members_before": ("A", "B"),
        "members_after": ("A", "C"),
        "joined": ("C",),
        "gone": ("B",),
        "fencing_token": c.group.token,
    }


# -- events of members -------------------------------------------------------------------------------------------------


def test_event_of_a_member_that_leaves():
    c = two().plays("B -1 -> -1")
    assert latest(c, MemberLeft) == {**of("B"), "reason": None}
    assert latest(c, RebalanceStarted) == {
        "cause": "member_left",
        "member_id": "B",
        **client("B"),
        "reason": None,
        "members": 1,
        "joins_until_ms": c.now_ms,
    }


def test_event_of_a_member_that_goes_away_and_comes_back():
    c = Conversation().plays("T:2\nA(i) 0 -> 2 {0 1}\n-- 100\nA(i) -2 -> -2")
    assert latest(c, MemberAway) == {**of("A", "i"), "until_ms": START_MS + 45_000}
    fields: dict[str, Any] = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ("T",), "topic_partitions": ()}
    c.sends(ConsumerGroupHeartbeat, member_id="B", group_instance_id="i", client_host="/10.0.0.9", **fields)
    assert latest(c, MemberBack) == {**of("B", "i"), "client_host": "/10.0.0.9", "replaces": "A"}
    (back,) = c.group.members.values()
    assert (back.client_id, back.client_host) == ("client-B", "/10.0.0.9")


def test_event_of_a_fenced_member():
    c = Conversation().plays("T:2\nA(i) 0 -> 2 {0 1}\n-- 100\nA 3 -> 110")
    assert c.events(EpochFenced) == [
        event(EpochFenced, c.group.version, 100, 2, **of("A", "i"), error="FENCED_MEMBER_EPOCH", claimed_epoch=3,
              member_epoch=2),
    ]  # fmt: skip


def test_event_of_a_member_that_a_classic_one_replaces():
    c = Mixed()
    c.plays("T:2\nA(i) 0 -> 2 {0 1}\nB 0 names none -> 2 {}")
    joined = c.joins(instance="i", client_id="old", client_host="/10.0.0.9")
    replaced = c.group.members[joined.member_id]
    assert latest(c, MemberFenced) == {
        **of("A", "i"),
        "replaced_by": joined.member_id,
        "replaced_by_client_id": "old",
        "replaced_by_client_host": "/10.0.0.9",
        "fencing_token": replaced.fencing_token,
    }
    assert (replaced.client_id, replaced.client_host) == ("old", "/10.0.0.9")


@pytest.mark.parametrize("field", [{"member_id": "B"}, {"member_id": "", "group_instance_id": "i"}])
def test_events_of_an_expelled_member(field: dict[str, str]):
    """The rebalance names the operator's client, and the operator's reason."""
    c = Conversation().plays("T:2\nA 0 -> 2 {0 1}\nB(i) 0 -> 2 {}")
    operator = {"client_id": "tool", "client_host": "/10.0.0.9"}
    answer = c.sends(ExpelMember, reason="stuck", **field, **operator)
    assert (answer.code, answer.member_id) == (0, "B")
    assert latest(c, MemberExpired) == {**of("B", "i"), "why": "expelled", "silence_ms": None, "reason": "stuck"}
    assert latest(c, RebalanceStarted) == {
        "cause": "operator",
        "member_id": "B",
        **operator,
        "reason": "stuck",
        "members": 1,
        "joins_until_ms": c.now_ms,
    }


def test_event_of_an_operators_rebalance():
    c = two().plays("-- 1000")
    operator = {"client_id": "tool", "client_host": "/10.0.0.9"}
    answer = c.sends(RebalanceGroup, reason="test", **operator)
    assert (answer.state, answer.generation_id) == (Phase.ASSIGNING, 4)
    assert latest(c, RebalanceStarted) == {
        "cause": "operator",
        "member_id": "",
        **operator,
        "reason": "test",
        "members": 2,
        "joins_until_ms": c.now_ms,
    }


def test_events_of_members_that_an_administrator_removes():
    """The rebalance names the first member, with its reason."""
    c = Conversation().plays("T:2\nA 0 -> 2 {0 1}\nB(i) 0 -> 2 {}\nC 0 -> 2 {}")
    entries = (Leaving("X"), Leaving("A", "i"), Leaving("", "i", "upgrade"), Leaving("C", None, "idle"))
    answer = c.sends(LeaveGroup, members=entries)
    assert [(m.member_id, m.group_instance_id, m.error, m.code) for m in answer.members] == [
        ("X", None, "UNKNOWN_MEMBER_ID", 25),
        ("A", "i", "FENCED_INSTANCE_ID", 82),
        ("", "i", "NONE", 0),
        ("C", None, "NONE", 0),
    ]
    assert [(e.member_id, e.group_instance_id, e.reason) for e in c.events(MemberLeft)] == [
        ("B", "i", "upgrade"),
        ("C", None, "idle"),
    ]
    started = latest(c, RebalanceStarted)
    assert {name: started[name] for name in ("cause", "member_id", "client_id", "reason", "members")} == {
        "cause": "member_left",
        "member_id": "B",
        "client_id": "client-B",
        "reason": "upgrade",
        "members": 1,
    }


def test_events_of_an_empty_group():
    c = Conversation().plays("T:1\nA 0 -> 2 {0}\n-- 100\nA -1 -> -1")
    (emptied,) = c.events(GroupEmptied)
    assert (emptied.at_ms, emptied.generation_id) == (START_MS + 100, 3)
    assert c.group.since_ms == START_MS + 100


def test_event_of_a_conversion():
    c = Mixed(group_initial_rebalance_delay_ms=0)
    c.plays("T:1\nA 0 -> 2 {0}\nA -1 -> -1\n-- 100")
    c.joins()
    assert latest(c, GroupConverted) == {"group_type": "classic", "members": 0, "generation_before": 3}


# -- responses ---------------------------------------------------------------------------------------------------------


def test_response_says_what_is_pending():
    """A member that has its target waits too, while the group waits for a target assignment."""
    c = Conversation().plays("T:2\n-- 1")
    assert c.says("A 0").pending == "none"
    c.passes(1_000)
    assert c.says("B 0").pending == "waiting"
    assert c.says("A 2").pending == "revoking"
    assert c.says("A 2 own 0").pending == "none"
    assert c.says("B 3").pending == "none"
    assert c.says("C 0").pending == "waiting"


def test_response_with_an_assignment_has_the_token():
    c = Conversation().plays("T:1")
    answer = c.says("A 0")
    assert (answer.member_id, answer.heartbeat_interval_ms) == ("A", 5_000)
    assert answer.fencing_token == c.group.members["A"].fencing_token > 0
    assert c.says("A 2").fencing_token == 0
    goodbye = c.says("A -1")
    assert (goodbye.member_id, goodbye.member_epoch, goodbye.heartbeat_interval_ms) == ("A", -1, 0)


# -- notices -----------------------------------------------------------------------------------------------------------


def test_notices_name_the_member_and_the_epoch():
    c = Mixed()
    c.plays("T:4\nA 0 -> 2 {0 1 2 3}")
    c.joins("C")
    c.plays("-- 1000\n= Reconciling 3 3")
    told = [o for o in c.latest if isinstance(o, Reply) and isinstance(o.answer, AssignmentNotice | RebalanceNotice)]
    fields: dict[str, Any] = {"request_id": None, "group_id": "g"}
    assert told == [
        Reply("box-A", AssignmentNotice(member_id="A", group_epoch=3, **fields)),
        Reply("box-C", RebalanceNotice(member_id="C", generation_id=3, **fields)),
    ]


def test_a_member_that_has_to_confirm_a_release_first_is_not_told():
    c = Conversation().plays(
        "T:6\nA 0 -> 2 {0 1 2 3 4 5}\n-- 1000\nB 0 -> 3 {}\nA 2 -> 2 {0 1 2}\n-- 1000\nC 0 -> 4 {}"
    )
    assert c.noticed == ["B"]


def test_a_member_that_is_away_is_not_told():
    c = Conversation().plays("T:2\nA(i) 0 -> 2 {0 1}\nA(i) -2 -> -2\n-- 1000\nB 0 -> 3 {}")
    assert c.noticed == []
