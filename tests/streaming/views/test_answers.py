"""Tests of the answers of the views, from records that a real shard has written."""

from coordinator.base.states import Phase
from streaming.dashboard.live import LiveViews
from streaming.views import GroupView, Views
from streaming.views.api import answers
from streaming.views.api.rows import GroupDetail, GroupSummary
from streaming.views.history.rebalances import rebalances
from tests.streaming.dashboard.stage import Stage

T = 1_790_000_000_000


def staged() -> Stage:
    return Stage(LiveViews(now_ms=lambda: T), T - 600_000).begins()


def group(stage: Stage) -> GroupView:
    return stage.live.views.groups["pay"]


def summary(stage: Stage) -> GroupSummary:
    return answers.summary(group(stage), {}, stage.now_ms)


def detail(stage: Stage) -> GroupDetail:
    return answers.detail(group(stage), {}, stage.now_ms)


# -- the list ----------------------------------------------------------------------------------------------------------


def test_a_rebalance_that_ended_without_members_is_counted() -> None:
    """S14: a member that joins and leaves twice causes four rebalances."""
    stage = staged()
    for _ in range(2):
        (ana,) = stage.joins("pay", "ana")
        stage.shares("pay", [("orders", 0)])
        stage.leaves("pay", ana)
    assert summary(stage).rebalances_1h == len(rebalances(group(stage).events)) == 4


def test_the_list_and_why_agree_on_a_rebalance_with_two_causes() -> None:
    """S14: both name the first cause."""
    stage = staged()
    _, bo = stage.joins("pay", "ana", "bo")
    stage.shares("pay", [("orders", 0)])
    before = len(rebalances(group(stage).events))
    stage.joins("pay", "cy")
    stage.leaves("pay", bo)
    last, why = summary(stage), detail(stage).why
    assert len(rebalances(group(stage).events)) == before + 1
    assert why is not None
    assert (last.last_cause, last.last_rebalance_ms) == (why.cause, why.at_ms) == ("member_joined", why.at_ms)


# -- awaited members ---------------------------------------------------------------------------------------------------


def test_members_of_the_last_generation_are_awaited_in_the_join_phase() -> None:
    """S43, S47: neither the new member, which has joined, nor a member that has left is awaited."""
    stage = staged()
    ana, bo, cy = stage.joins("pay", "ana", "bo", "cy")
    stage.shares("pay", [("orders", 0)])
    assert detail(stage).awaited == []
    stage.world.join("pay", client_id="di")
    stage.passes(10)
    assert detail(stage).awaited == [ana, bo, cy]
    stage.leaves("pay", bo)
    assert detail(stage).awaited == [ana, cy]


def test_the_leader_is_awaited_until_it_sends_the_assignments() -> None:
    """S43: the leader's sync is awaited."""
    stage = staged()
    stage.joins("pay", "ana", "bo")
    answer = detail(stage)
    assert (answer.summary.state, answer.awaited) == (Phase.COMPLETING, [answer.leader])


# -- long histories ----------------------------------------------------------------------------------------------------


def restless(times: int) -> tuple[Views, GroupView]:
    stage = staged()
    stage.joins("pay", "ana")
    stage.shares("pay", [("orders", 0)])
    for _ in range(times):
        (bo,) = stage.joins("pay", "bo")
        stage.shares("pay", [("orders", 0), ("orders", 1)])
        stage.leaves("pay", bo)
        stage.joins("pay")
        stage.shares("pay", [("orders", 0), ("orders", 1)])
    return stage.live.views, group(stage)


def test_a_long_history_is_cut_to_its_latest_part() -> None:
    """S12: a request with an earlier end gets the earlier part."""
    views, pay = restless(10)
    whole, short = answers.timeline(views, pay), answers.timeline(views, pay, weight_max=20)
    assert whole.known_from_ms == 0
    assert 20 - 5 <= len(short.events) <= 20 + 5
    assert short.events == whole.events[-len(short.events) :]
    left_out = whole.events[-len(short.events) - 1]
    assert short.known_from_ms == left_out.at_ms + 1
    assert short.rebalances == [r for r in whole.rebalances if r.ended_ms is None or r.ended_ms > left_out.at_ms]
    assert all(s.to_ms is None or s.to_ms > left_out.at_ms for lane in short.lanes for s in lane.spans)
    earlier = answers.timeline(views, pay, to_ms=left_out.at_ms, weight_max=20)
    assert earlier.events[-1].at_ms == left_out.at_ms


def test_the_latest_events_are_returned_at_any_weight() -> None:
    """An example is an assignment that moves thousands of partitions, with the rebalance that it ended."""
    views, pay = restless(1)
    answer = answers.timeline(views, pay, weight_max=0)
    assert [event.event for event in answer.events] == ["rebalance_completed", "assignment_changed"]
    assert len(answer.rebalances) == 1
    assert answers.timeline(views, pay, weight_max=pay.weight) == answers.timeline(views, pay)
