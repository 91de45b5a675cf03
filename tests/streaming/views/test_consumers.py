"""Tests of the views of groups of the consumer protocol, over records that a real shard has written."""

import inspect
import re
from typing import Any

import pytest
from msgspec import Struct

from coordinator.base.states import GroupType, Phase
from coordinator.consumer import admin, classic_members, deadlines, describe, heartbeat, leave
from coordinator.messages.group_records import GroupRecord
from coordinator.messages.requests import LeaveGroup, Leaving
from coordinator.shard import converting
from coordinator.state.consumer_group import AWAY_EPOCH
from streaming.views import GroupView, Views
from streaming.views.api import answers
from streaming.views.history.advice import OF_CONSUMERS
from streaming.views.history.owners import owner_at, spans_of_owners, token_at
from streaming.views.history.rebalances import rebalances
from streaming.views.sentences.records import to_line
from streaming.views.sentences.why import Why, why
from tests.streaming.views.consumers import (
    ENDED_MS,
    GIVES_UP_AFTER_MS,
    REBALANCE_TIMEOUT_MS,
    REVOKING_MS,
    ConsumerTopics,
    life_at,
)
from tests.streaming.views.test_views import folded, raws

JOINED_MS = 1_002_000
"""The time at which bo joins in `life`."""


def group_of(world: ConsumerTopics) -> GroupView:
    return folded(raws(world)).groups["g"]


def explained(group: GroupView, at_ms: int | None = None) -> Why:
    answer = why(group, at_ms)
    assert answer is not None
    return answer


def owners(group: GroupView, topic: str, partition: int) -> list[tuple[str, int | None, int | None, str | None]]:
    """Return the owners of a partition, with the times in milliseconds since the beginning of the life."""
    spans = spans_of_owners(group)[topic, partition]
    return [(s.member_id, _since(s.from_ms), _since(s.to_ms), s.because) for s in spans]


def _since(at_ms: int | None) -> int | None:
    return None if at_ms is None else at_ms - 1_000_000


# -- the present state -------------------------------------------------------------------------------------------------


def test_a_member_shows_what_it_has_gives_up_and_should_have() -> None:
    """next-generation.md 2.2, 10.4: assigned, revoking and target, the epochs, and the subscription."""
    group = life_at(REVOKING_MS).groups["g"]
    ana, bo = answers.members(group)
    assert (ana.assigned, ana.revoking, ana.target) == ({"T": [0, 1]}, {"T": [2, 3]}, {"T": [0, 1]})
    assert (ana.member_epoch, ana.state, ana.partitions) == (2, "unrevoked", 4)
    assert (bo.assigned, bo.target, bo.member_epoch, bo.state) == ({}, {"T": [2, 3]}, 3, "unreleased")
    summary = answers.summary(group, {}, REVOKING_MS)
    assert (summary.type, summary.generation_id, summary.assignment_epoch) == (GroupType.CONSUMER, 3, 3)
    detail = answers.detail(group, {}, REVOKING_MS)
    assert (detail.awaited, detail.moves, detail.leader) == (["ana"], [], None)


def test_a_partition_belongs_to_the_member_that_gives_it_up_until_it_is_free() -> None:
    """next-generation.md 2: a partition is free if no member has it in assigned or revoking."""
    rows = {row.partition: row for row in answers.offsets(life_at(REVOKING_MS).groups["g"], {})}
    assert {n: (row.member_id, row.next_member_id) for n, row in rows.items()} == {
        0: ("ana", None), 1: ("ana", None), 2: ("ana", "bo"), 3: ("ana", "bo"),
    }  # fmt: skip


def test_a_free_partition_shows_the_member_that_gets_it() -> None:
    group = life_at(JOINED_MS + GIVES_UP_AFTER_MS).groups["g"]
    rows = {row.partition: (row.member_id, row.next_member_id) for row in answers.offsets(group, {})}
    assert rows[2] == (None, "bo")


def test_a_pattern_and_a_rack_are_shown() -> None:
    members = {row.member_id: row for row in answers.members(life_at(1_012_000).groups["g"])}
    assert (members["cy"].subscribed_topics, members["cy"].regex, members["cy"].rack_id) == ([], "^U.*", "rack-1")
    assert (members["ana"].subscribed_topics, members["ana"].regex) == (["T"], "")


def test_a_classic_member_of_a_mixed_group_is_shown() -> None:
    """next-generation.md 8, 10.4."""
    group = life_at(ENDED_MS).groups["g"]
    assert [row.protocol for row in answers.members(group)] == ["consumer", "consumer", "classic"]


# -- the history -------------------------------------------------------------------------------------------------------


def test_owners_over_a_whole_life() -> None:
    """S10: nobody owns a partition between the member that gave it up and the next one."""
    group = life_at(ENDED_MS).groups["g"]
    assert owners(group, "T", 0) == [("ana", 0, None, None)]
    assert owners(group, "T", 2) == [
        ("ana", 0, 5_200, "given up"),
        ("bo", 5_300, 61_200, "expired"),
        ("dan", 64_400, None, None),
    ]
    assert owner_at(spans_of_owners(group)["T", 2], 1_005_250) is None


def test_why_names_the_cause_of_each_epoch_and_whom_a_partition_waited_for() -> None:
    group = life_at(ENDED_MS).groups["g"]
    answer = explained(group, JOINED_MS)
    assert [(each.group_epoch, each.cause, each.member_id) for each in answer.epochs] == [(3, "member_joined", "bo")]
    assert [(each.member_id, each.partitions, each.next_ids, each.wait_ms) for each in answer.waits] == [
        ("ana", {"T": [2, 3]}, ["bo"], GIVES_UP_AFTER_MS)
    ]
    assert "ana took 3.2 s to give up T 2-3 before bo got it." in answer.details
    assert "to group epoch 3: 2 partitions changed hands among 2 members" in answer.what


def test_a_wait_without_an_end_is_told() -> None:
    answer = explained(life_at(REVOKING_MS).groups["g"])
    assert [(each.member_id, each.next_ids, each.wait_ms) for each in answer.waits] == [("ana", ["bo"], None)]
    assert answer.what.endswith("and still rebalances.")


def test_nobody_waits_for_a_member_that_expires_while_no_partition_moves() -> None:
    """The group was Stable: no plan had given its partitions to another member."""
    answer = explained(life_at(ENDED_MS).groups["g"])
    assert (answer.cause, answer.setting, answer.waits) == ("session_expired", "group_consumer_session_timeout_ms", [])
    assert "45.0 s" in answer.advice


def test_nobody_waits_for_a_member_that_leaves_while_partitions_move() -> None:
    """No plan had given a partition of ana to another member: its partitions were free at once."""
    world = ConsumerTopics(T=4)
    world.join("ana", "T")
    world.now_ms += 2_000
    world.join("bo", "T")
    world.settle()
    world.now_ms += 2_000
    world.join("cy", "T")
    world.now_ms += 1_000
    world.leave("ana")
    world.now_ms += 1_000
    world.settle()
    group = group_of(world)
    (_, _, last) = rebalances(group.events, group.waiting_partitions)
    assert [each.cause for each in last.started] == ["member_joined", "member_left"]
    assert "ana" not in {wait.member_id for wait in last.waits.values()}
    assert [each.before for each in last.handovers if each.before == "ana"] != []


def test_a_member_that_does_not_give_up_is_named_before_the_one_that_began_it() -> None:
    """next-generation.md 3.7: bo waits for ana for the whole rebalance timeout; ana is dropped."""
    world = ConsumerTopics(T=2)
    world.join("ana", "T")
    world.now_ms += 2_000
    world.join("bo", "T")
    world.now_ms += 1_000
    world.beat("ana", owns=False)
    for _ in range(REBALANCE_TIMEOUT_MS // 10_000 + 1):
        world.now_ms += 10_000
        for name in list(world.members):
            world.beat(name, owns=False)
    answer = explained(group_of(world))
    assert (answer.cause, answer.member_id, answer.setting) == ("revocation_overdue", "ana", "max.poll.interval.ms")
    assert answer.who == (
        "ana at /ana did not give up partitions, and their next owners waited 31.0 s for it;"
        " the first cause: bo at /bo joined."
    )
    assert [each.cause for each in answer.epochs] == ["member_joined", "revocation_overdue"]
    assert [(each.member_id, each.wait_ms) for each in answer.waits] == [("ana", 31_000)]


def test_a_second_plan_does_not_lengthen_the_wait_for_the_first_one() -> None:
    """A member that has followed one plan is waited for from the next plan on."""
    world = ConsumerTopics(T=6)
    world.join("ana", "T")
    world.now_ms += 2_000
    world.join("bo", "T")
    world.beat("ana", owns=False)
    world.now_ms += 4_000
    world.join("cy", "T")
    world.now_ms += 1_000
    world.beat("ana")
    world.now_ms += 2_000
    world.beat("ana")
    waits = rebalances(group_of(world).events)[-1].waits.values()
    assert {wait.wait_ms for wait in waits} == {3_000, 5_000}


def test_a_static_member_owns_its_partitions_while_it_is_away() -> None:
    """next-generation.md 3.5: its next process has them from the moment at which it is back."""
    world = ConsumerTopics(T=2)
    world.join("one", "T", group_instance_id="desk")
    world.now_ms += 2_000
    world.leave("one", AWAY_EPOCH, group_instance_id="desk")
    away = folded(raws(world)).groups["g"]
    assert [row.member_epoch for row in answers.members(away)] == [AWAY_EPOCH]
    world.now_ms += 3_000
    world.join("two", "T", group_instance_id="desk")
    group = group_of(world)
    assert owners(group, "T", 0) == [("one", 0, 5_000, "came back as another process"), ("two", 5_000, None, None)]
    world.leave("two", AWAY_EPOCH, group_instance_id="desk")
    world.now_ms += 1_000
    world.join("two", "T", group_instance_id="desk")
    assert [name for name, *_ in owners(group_of(world), "T", 0)] == ["one", "two"]


def test_a_converted_group_keeps_its_owners() -> None:
    """next-generation.md 8.4: dan is the last member, so the group has the classic protocol."""
    world = ConsumerTopics(T=2)
    world.join("ana", "T")
    world.now_ms += 2_000
    world.join_classic("dan", "T")
    world.settle()
    world.now_ms += 1_000
    converted_ms = world.now_ms
    world.leave("ana")
    group = group_of(world)
    assert (group.type, group.type_at(converted_ms - 1)) == (GroupType.CLASSIC, GroupType.CONSUMER)
    assert group.type_at(converted_ms) is GroupType.CLASSIC
    assert answers.summary(group, {}, world.now_ms).assignment_epoch is None
    assert [(name, because) for name, _, _, because in owners(group, "T", 0)] == [("ana", "left")]
    assert owners(group, "T", 1)[-1][0] == "dan"
    world.ask(LeaveGroup, "g", members=(Leaving("dan"),))
    world.passes(20_000)
    assert explained(group_of(world), converted_ms).cause in OF_CONSUMERS


def test_a_group_whose_last_member_leaves_has_no_owner_and_no_nameless_topic() -> None:
    """The events of that moment do not name the topics; the member that left owns nothing any more."""
    world = ConsumerTopics(T=2, U=1)
    world.join("ana", "T", "U")
    world.now_ms += 2_000
    world.leave("ana")
    group = group_of(world)
    assert {place: [s.because for s in spans] for place, spans in spans_of_owners(group).items()} == {
        ("T", 0): ["left"], ("T", 1): ["left"], ("U", 0): ["left"],
    }  # fmt: skip
    assert answers.summary(group, {}, world.now_ms).state is Phase.EMPTY
    assert [each.cause for each in explained(group).epochs] == ["member_left"]
    assert all(topic for last in rebalances(group.events) for topic, _ in last.moves)


def test_records_of_a_consumer_group_in_words() -> None:
    """`watch` prints these lines."""
    record = life_at(REVOKING_MS).groups["g"].record
    assert record is not None
    assert to_line(record, 0).text == (
        "Reconciling, group epoch 3, assignment epoch 3 by uniform | ana at 2: T 0-1, gives up T 2-3"
        " | bo at 3: nothing, waits for more"
    )
    texts = [to_line(event, 0).text for event in life_at(ENDED_MS).groups["g"].events]
    assert "rebalance: session expired, bo at /bo" in texts
    assert (
        "rebalanced in 3.3 s (last plan 0 ms after the rebalance began, handover 3.3 s), 2 members; joined bo" in texts
    )


def test_the_token_of_a_member_is_known_from_its_last_partition_on() -> None:
    """A rebalance of the consumer protocol gives no token to all its members."""
    group = life_at(ENDED_MS).groups["g"]
    tokens = {member.member_id: member.fencing_token for member in group.members}
    assert token_at(group, "ana", 1_000_000) == tokens["ana"] == token_at(group, "ana", ENDED_MS)
    assert token_at(group, "dan", 1_064_400) == tokens["dan"] > tokens["ana"]
    assert token_at(group, "dan", 1_064_399) is None


def test_the_protocol_of_a_group_is_known_if_its_conversions_are_forgotten() -> None:
    """The record has the present protocol, and the oldest conversion that is known shows the one before it."""
    world = ConsumerTopics(T=2)
    for _ in range(2):
        world.join("ana", "T")
        world.leave("ana")
        world.now_ms += 1_000
        world.join_classic("", "T")
        world.passes(1_000)
        world.ask(LeaveGroup, "g", members=tuple(Leaving(each.member_id) for each in world.records[-1].members))
        world.passes(20_000)
    group = group_of(world)
    assert [each.group_type for each in group.conversions] == ["classic", "consumer", "classic"]
    assert group.type_at(group.events[0].at_ms) is GroupType.CONSUMER
    group.forget(len(group.events) // 3)
    assert [each.group_type for each in group.conversions] == ["classic"]
    assert group.type_at(group.events[0].at_ms) is GroupType.CONSUMER
    group.forget(1)
    assert (group.conversions, group.type_at(world.now_ms)) == ([], GroupType.CLASSIC)


def test_every_cause_of_the_coordinator_has_its_advice() -> None:
    modules = (admin, classic_members, deadlines, describe, heartbeat, leave, converting)
    source = "".join(map(inspect.getsource, modules))
    named = set(
        re.findall(r'(?:member_cause\(.+?, |RebalanceCause\(\s*|cause = (?:cause or )?|return )"([a-z_]+)"', source)
    )
    named |= {{"joins_overdue": "join_overdue", "syncs_overdue": "sync_overdue"}.get(w, w) for w in _overdue()}
    assert {"member_joined", "subscription_changed", "topics_changed", "regex_resolved", "operator"} <= named
    assert named <= OF_CONSUMERS.keys()


def _overdue() -> set[str]:
    return set(deadlines.OVERDUE.values())


def test_the_views_do_not_depend_on_the_order_of_the_topics() -> None:
    """The groups topic may be read before the events, and the other way round."""
    world = ConsumerTopics(T=4)
    world.join("ana", "T")
    world.now_ms += 2_000
    world.join("bo", "T")
    world.settle()
    records = raws(world)
    first: Any = folded(sorted(records, key=lambda raw: raw.topic))
    second: Any = folded(sorted(records, key=lambda raw: raw.topic, reverse=True))
    assert _told(first) == _told(second)


def _told(views: Views) -> list[Struct | None]:
    group = views.groups["g"]
    assert isinstance(group.record, GroupRecord)
    return [answers.detail(group, {}, 0), answers.timeline(views, group)]


@pytest.mark.parametrize("at_ms", range(1_000_000, ENDED_MS, 1_300))
def test_owners_of_the_record_and_of_the_events_agree(at_ms: int) -> None:
    """At each moment of the life, the owners that follow from the events are those of the group's record."""
    group = life_at(at_ms).groups["g"]
    open_spans = {place: spans[-1] for place, spans in spans_of_owners(group).items() if spans[-1].to_ms is None}
    assert {place: s.member_id for place, s in open_spans.items()} == {
        place: member.member_id for place, member in group.owned().items()
    }
