"""Tests of the explanations of consumer groups: conversions, changes of topics, and the words of rare events."""

import pytest

from coordinator.messages.requests import LeaveGroup, Leaving
from streaming.views.history.advice import ADVICE, OF_CONSUMERS, Advice
from streaming.views.sentences.records import to_line
from streaming.views.sentences.why import Why, why
from tests.streaming.views.consumers import ConsumerTopics
from tests.streaming.views.test_views import folded, raws


def explained(world: ConsumerTopics, at_ms: int | None = None) -> Why:
    answer = why(folded(raws(world)).groups["g"], at_ms)
    assert answer is not None
    return answer


def texts_of(world: ConsumerTopics) -> list[str]:
    return [to_line(event, 0).text for event in folded(raws(world)).groups["g"].events]


# -- conversions -------------------------------------------------------------------------------------------------------


def test_a_conversion_during_a_classic_rebalance_is_explained_by_epochs() -> None:
    """next-generation.md 8.2: bo's first heartbeat converts the group while it waits for the join of another member."""
    world = ConsumerTopics(T=4)
    world.join_classic("", "T")
    world.passes(10)
    world.join_classic("", "T")
    begun_ms = world.now_ms
    world.now_ms += 100
    world.join("bo", "T")
    for answer in (explained(world), explained(world, begun_ms)):
        assert {each.cause for each in answer.epochs} >= {"member_joined"}
        assert "group_consumer_assignment_interval_ms" in answer.advice
        assert "group_initial_rebalance_delay_ms" not in answer.advice
    assert any(text.startswith("the group has the consumer protocol now, with ") for text in texts_of(world))


def test_a_conversion_to_the_classic_protocol_is_explained_by_generations() -> None:
    """next-generation.md 8.4: a cause of the other protocol has its advice all the same."""
    world = ConsumerTopics(T=2)
    world.join("ana", "T")
    world.now_ms += 2_000
    world.join_classic("dan", "T")
    world.settle()
    world.now_ms += 1_000
    world.leave("ana")
    begun_ms = world.now_ms
    world.passes(20_000)
    world.ask(LeaveGroup, "g", members=(Leaving("dan"),))
    world.passes(20_000)
    answer = explained(world, begun_ms)
    assert (answer.epochs, answer.waits, answer.details) == ([], [], [])
    assert answer.advice != "Its cause is no longer in the events topic."
    assert "the group has the classic protocol now, with 1 member" in texts_of(world)


# -- topics ------------------------------------------------------------------------------------------------------------


def grown(**counts: int) -> ConsumerTopics:
    world = ConsumerTopics(T=2, U=2)
    world.join("ana", "T", "U")
    world.now_ms += 2_000
    world.tell_topics(**counts)
    world.settle()
    return world


def test_the_partitions_of_a_topic_that_has_grown_are_named() -> None:
    """The event names no topic. The assignment shows the partitions that nobody had before."""
    answer = explained(grown(T=4))
    assert answer.cause == "topics_changed"
    assert "Partitions without an owner before: T 2-3." in answer.details


def test_the_partitions_of_a_topic_that_was_deleted_are_named() -> None:
    answer = explained(grown(U=0))
    assert answer.cause == "topics_changed"
    assert "Partitions without an owner since: U 0-1." in answer.details


def test_the_topics_of_a_pattern_are_named() -> None:
    world = ConsumerTopics(T=2, TT=1)
    world.join("ana", regex="^T+", matching=("T",))
    world.now_ms += 2_000
    world.resolve("ana", "^T+", "T", "TT")
    world.settle()
    answer = explained(world)
    assert answer.cause == "regex_resolved"
    assert "Partitions without an owner before: TT 0." in answer.details


def test_no_topic_is_named_if_members_came_too() -> None:
    """Their subscriptions may have brought the partitions."""
    world = ConsumerTopics(T=2, U=2)
    world.join("ana", "T")
    world.now_ms += 2_000
    world.tell_topics(T=3)
    world.now_ms += 10
    world.join("bo", "U")
    world.now_ms += 2_000
    world.settle()
    answer = explained(world)
    assert {"topics_changed", "member_joined"} <= {each.cause for each in answer.epochs}
    assert not any("without an owner" in text for text in answer.details)


# -- advice and words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("advice", [*ADVICE.values(), *OF_CONSUMERS.values()], ids=[*ADVICE, *OF_CONSUMERS])
def test_the_verdict_the_setting_and_the_text_agree(advice: Advice) -> None:
    assert advice.is_avoidable == (advice.setting is not None) == advice.text.startswith("Avoidable")
    assert advice.is_avoidable != advice.text.startswith("Unavoidable")
    assert advice.setting is None or advice.setting.removesuffix(".") in advice.text


def test_a_fenced_heartbeat_in_words() -> None:
    world = ConsumerTopics(T=2)
    world.join("ana", "T")
    world.members["ana"] = world.members["ana"]._replace(epoch=7)
    world.beat("ana")
    assert "heartbeat of ana refused: FENCED_MEMBER_EPOCH (epoch 7, the member's is 2)" in texts_of(world)


def test_the_time_of_a_plan_is_told_from_the_beginning_of_the_rebalance() -> None:
    """The cause of a later plan may have come at that very moment."""
    world = ConsumerTopics(T=4)
    world.join("ana", "T")
    world.now_ms += 2_000
    world.join("bo", "T")
    del world.members["ana"]
    for _ in range(10):
        world.now_ms += 4_300
        world.beat("bo")
    world.passes(0)
    world.settle()
    assert any(text.endswith(" moved, 43.0 s after the rebalance began") for text in texts_of(world)), texts_of(world)
    assert any("(last plan 43.0 s after the rebalance began, handover" in text for text in texts_of(world))
