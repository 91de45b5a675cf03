"""Tests of the waits of consumer groups: a wait exists while the owner of a partition is not its planned owner."""

from typing import Any

from coordinator.state.consumer_group import AWAY_EPOCH
from streaming.views import GroupView, Views
from streaming.views.api import answers
from streaming.views.sentences.records import to_line
from streaming.views.sentences.why import Why, why
from tests.streaming.views.consumers import REVOKING_MS, ConsumerTopics, Member, life_at
from tests.streaming.views.test_views import folded, raws


def group_of(world: ConsumerTopics) -> GroupView:
    return folded(raws(world)).groups["g"]


def detail_of(world: ConsumerTopics) -> Any:
    return answers.detail(group_of(world), {}, world.now_ms)


def explained(world: ConsumerTopics, now_ms: int | None = None) -> Why:
    answer = why(group_of(world), None, now_ms)
    assert answer is not None
    return answer


def with_a_dead_owner(group_id: str = "g") -> ConsumerTopics:
    """Return a group whose only member was silent when another one joined, 2 s after it and 20 s ago."""
    world = ConsumerTopics(group_id, T=4)
    world.join("ana", "T")
    world.now_ms += 2_000
    world.join("bo", "T")
    del world.members["ana"]
    for _ in range(4):
        world.now_ms += 5_000
        world.beat("bo")
    return world


# -- waits that last ---------------------------------------------------------------------------------------------------


def test_a_dead_owner_is_awaited_before_it_expires() -> None:
    """ana was never told to give anything up: its partitions are still in `assigned`."""
    world = with_a_dead_owner()
    detail = detail_of(world)
    assert [row.revoking for row in detail.members] == [{}, {}]
    assert detail.awaited == ["ana"]
    (wait,) = detail.waits
    assert (wait.member_id, wait.partitions, wait.next_ids, wait.wait_ms) == ("ana", {"T": [2, 3]}, ["bo"], None)
    assert wait.since_ms == world.now_ms - 20_000
    assert explained(world).waits == detail.waits


def test_the_duration_of_a_wait_that_lasts_is_told() -> None:
    world = with_a_dead_owner()
    begun = "00:16:42.000"
    assert f"ana has not given up T 2-3 yet, since {begun}; next: bo." in _in_utc(explained(world).details)
    assert "ana has not given up T 2-3 yet, for 20.0 s; next: bo." in explained(world, world.now_ms).details
    group = life_at(REVOKING_MS).groups["g"]
    (wait,) = answers.detail(group, {}, REVOKING_MS).waits
    assert (wait.since_ms, wait.until_ms, wait.is_away) == (1_002_000, None, False)


def _in_utc(details: list[str]) -> list[str]:
    """Return the sentences with the time of the beginning of the world plus 2 s as UTC shows it."""
    from streaming.views.text import clock

    return [text.replace(clock(1_002_000), "00:16:42.000") for text in details]


def test_an_eager_classic_owner_is_awaited_until_it_joins_again() -> None:
    """next-generation.md 8.3: its partitions stay in `assigned` until its next join, to which it brings none."""
    world = ConsumerTopics(T=4)
    world.join("ana", "T")
    world.now_ms += 2_000
    world.join_classic("dan", "T")
    world.settle()
    for name in ("bo", "cy"):
        world.now_ms += 2_000
        world.join(name, "T")
    for name in ("ana", "ana", "bo", "cy"):
        world.now_ms += 100
        world.beat(name)
    (wait,) = detail_of(world).waits
    assert (wait.member_id, wait.next_ids, wait.wait_ms) == ("dan", ["cy"], None)
    assert [row.revoking for row in detail_of(world).members] == [{}] * 4
    world.now_ms += 5_000
    world.classic["dan"] = Member(world.classic["dan"].epoch, {})
    world.join_classic("dan", "T")
    world.beat("cy")
    assert detail_of(world).awaited == []
    over = {wait.member_id: wait for wait in explained(world).waits}
    assert (over["dan"].next_ids, over["dan"].wait_ms, over["dan"].ended) == (["cy"], 5_400, "given_up")


def test_nobody_is_awaited_in_a_stable_group() -> None:
    detail = detail_of(expired())
    assert (detail.awaited, detail.waits) == ([], [])


# -- waits that are over -----------------------------------------------------------------------------------------------


def expired(group_id: str = "g") -> ConsumerTopics:
    """Return the group after ana's session has expired, 43 s after the plan that moved two of its partitions."""
    world = with_a_dead_owner(group_id)
    for _ in range(5):
        world.now_ms += 4_600
        world.beat("bo")
    world.passes(0)
    world.settle()
    return world


def test_a_member_that_expires_after_a_plan_is_the_cause() -> None:
    """Its next owners waited for it, so it is named before the member that began the rebalance."""
    answer = explained(expired())
    assert (answer.cause, answer.member_id) == ("session_expired", "ana")
    assert (answer.is_avoidable, answer.setting) == (True, "group_consumer_session_timeout_ms")
    assert answer.who == "ana at /ana was silent for 45.0 s and was dropped; the first cause: bo at /bo joined."
    assert [(w.member_id, w.partitions, w.next_ids, w.wait_ms, w.ended) for w in answer.waits] == [
        ("ana", {"T": [2, 3]}, ["bo"], 43_000, "session_expired")
    ]
    assert "ana had T 2-3 for 43.0 s after the plan, and was dropped before bo got it." in answer.details


def test_without_the_records_of_that_time_no_wait_for_a_member_that_expired_is_told() -> None:
    """Compaction may have removed the records that show which partitions a plan had moved."""
    world = expired()
    world.compact(len(world.topics["groups"]))
    answer = explained(world)
    assert (answer.cause, answer.waits) == ("member_joined", [])


def test_nobody_waits_for_a_dead_member_whose_partitions_no_plan_moved() -> None:
    """cy gets a partition of bo; ana keeps its own, and its session expires meanwhile."""
    world = ConsumerTopics(T=4)
    world.join("ana", "T")
    world.now_ms += 2_000
    world.join("bo", "T")
    world.settle()
    world.now_ms += 2_000
    world.join("cy", "T")
    del world.members["ana"]
    for _ in range(10):
        world.now_ms += 5_000
        for name in ("bo", "cy"):
            world.beat(name)
    world.settle()
    answer = explained(world)
    assert [each.cause for each in answer.epochs] == ["member_joined", "session_expired"]
    assert (answer.cause, [wait.member_id for wait in answer.waits]) == ("member_joined", ["bo"])


def test_a_member_that_leaves_with_partitions_of_others_was_waited_for() -> None:
    """It is not late: it has left by itself."""
    world = with_a_dead_owner()
    world.leave("ana")
    world.now_ms += 1_000
    world.settle()
    answer = explained(world)
    assert answer.cause == "member_joined"
    assert [(w.member_id, w.partitions, w.wait_ms, w.ended) for w in answer.waits] == [
        ("ana", {"T": [2, 3]}, 20_000, "member_left")
    ]
    assert "ana had T 2-3 for 20.0 s after the plan, and left before bo got it." in answer.details


def test_only_the_moved_partitions_of_an_overdue_member_were_waited_for() -> None:
    """The partitions that it might have kept are not among them."""
    world = ConsumerTopics(T=4)
    world.join("ana", "T")
    world.now_ms += 2_000
    world.join("bo", "T")
    for _ in range(5):
        world.now_ms += 10_000
        for name in list(world.members):
            world.beat(name, owns=False)
    (wait,) = explained(world).waits
    assert (wait.member_id, wait.partitions, wait.ended) == ("ana", {"T": [2, 3]}, "revocation_overdue")


def test_the_waits_do_not_depend_on_the_order_of_the_topics() -> None:
    records = raws(expired())
    first, second = (folded(sorted(records, key=lambda raw: raw.topic, reverse=r)).groups["g"] for r in (False, True))
    assert why(first) == why(second)
    assert why(first) is not None


# -- a static member that is away --------------------------------------------------------------------------------------


def away() -> ConsumerTopics:
    world = ConsumerTopics(T=2)
    world.join("one", "T", group_instance_id="desk")
    world.now_ms += 2_000
    world.leave("one", AWAY_EPOCH, group_instance_id="desk")
    return world


def test_a_static_member_that_is_away_is_awaited() -> None:
    """next-generation.md 2.5: the group is Reconciling until the member is back or its session ends."""
    world = away()
    detail = detail_of(world)
    assert [row.state for row in detail.members] == ["away"]
    assert detail.awaited == ["one"]
    (wait,) = detail.waits
    assert (wait.is_away, wait.partitions, wait.since_ms, wait.until_ms) == (True, {}, 1_002_000, 1_045_000)


def test_the_wait_for_a_member_that_is_away_has_no_end_without_its_event() -> None:
    """The history may be lost, or unread."""
    views = Views(is_live=True)
    for raw in raws(away()):
        if raw.topic == "groups":
            views.fold(raw, 0)
    (wait,) = answers.detail(views.groups["g"], {}, 0).waits
    assert (wait.is_away, wait.since_ms, wait.until_ms) == (True, None, None)


def test_a_member_that_is_away_is_told_among_the_waits_of_a_rebalance() -> None:
    world = away()
    world.now_ms += 1_500
    world.join("bo", "T")
    details = explained(world, world.now_ms + 2_500).details
    assert any("one is away, for 2.5 s, at the latest until" in text for text in details), details
    assert any("it has not given up T 1." in text for text in details), details


def test_events_of_members_that_go_away_and_come_back_in_words() -> None:
    world = away()
    world.now_ms += 1_000
    world.join("two", "T", group_instance_id="desk")
    world.leave("two", AWAY_EPOCH, group_instance_id="desk")
    world.join("two", "T", group_instance_id="desk")
    texts = [to_line(event, 0).text for event in group_of(world).events]
    assert any(text.startswith("one is away for a while, at the latest until ") for text in texts), texts
    assert "two is back in place of one" in texts
    assert "two is back" in texts
    record = group_of(away()).record
    assert record is not None
    assert "one away: T 0-1" in to_line(record, 0).text
