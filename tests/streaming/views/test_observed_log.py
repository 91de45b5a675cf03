"""From the records that Kafka writes to what is said: the translation and the views together."""

import pytest

from streaming.cli.groups.history import timeline_lines
from streaming.views import GroupView, Raw, Views
from streaming.views.api import answers
from streaming.views.sentences.why import Why, why
from streaming.views.text import clock
from streaming.wire.records import OutputTopics, to_row
from tests.streaming.observe.log import Log
from tests.streaming.observe.test_consumers import NAMED, founding, of_bo, of_two
from tests.streaming.observe.writing import classic, commit, founded, member
from tests.streaming.views.observing import member_id

TOPICS = OutputTopics("replies", "groups", "events", "requests")
ANA, BO, BO_2, CY = member_id("ana"), member_id("bo", "4b20"), member_id("bo", "77aa"), member_id("cy", "477b")
T = 1_795_378_900_000
ALL, FIRST, LAST = {"orders": [0, 1, 2, 3]}, {"orders": [0, 1]}, {"orders": [2, 3]}


def views_of(log: Log) -> Views:
    log.read()
    views, offsets = Views(is_live=True), {"groups": 0, "events": 0}
    for output in log.outputs:
        row = to_row(output, TOPICS, 0)
        headers = {name: int(value) for name, value in row.headers or ()}
        at = headers.get("version"), headers.get("at_ms")
        views.fold(Raw(row.topic, 0, offsets[row.topic], T, row.key, row.value, *at), now_ms=0)  # type: ignore[arg-type]
        offsets[row.topic] += 1
    assert not views.alarms
    return views


def group_of(log: Log) -> GroupView:
    return views_of(log).groups["clicks"]


def explained(log: Log) -> Why:
    answer = why(group_of(log))
    assert answer is not None
    return answer


@pytest.fixture
def log() -> Log:
    """Ana founds the group and commits; bo joins."""
    log = (
        Log().append(T, founded("clicks", T - 10)).append(T + 3_009, classic("clicks", 1, T + 3_000, member(ANA, ALL)))
    )
    log.append(T + 8_000, commit("clicks", 0, 5, T + 8_000))
    return log.append(T + 9_004, classic("clicks", 2, T + 9_000, member(ANA, FIRST), member(BO, LAST)))


def test_a_second_member_joins(log: Log) -> None:
    """Walkthroughs 1 to 3."""
    answer = explained(log)
    assert answer.what == (
        f"clicks rebalanced to generation 2, whose plan came at {clock(T + 9_004)}; it began after {clock(T + 3_009)},"
        " Kafka does not record when: 2 partitions changed hands among 2 members."
    )
    assert (answer.who, answer.is_avoidable) == ("bo-4b20 at /127.0.0.1 joined.", False)
    assert answer.advice.startswith("Unavoidable: ")
    lines = [line.text for line in timeline_lines(answers.timeline(views_of(log), group_of(log)))]
    assert lines[0] == "the history begins here: the group is new"
    assert (
        f"member joined, bo-4b20 at /127.0.0.1; began after {clock(T + 3_009)}, not recorded when; plan 4 ms;"
        " 2 members, led by ana-1111; joined bo-4b20; 2 partitions changed hands"
    ) in lines


def test_a_member_that_committed_just_before_left(log: Log) -> None:
    """Walkthrough 4."""
    log.append(T + 19_700, commit("clicks", 2, 9, T + 19_700))
    log.append(T + 20_005, classic("clicks", 3, T + 20_000, member(ANA, ALL)))
    assert explained(log).who == (
        "bo-4b20 at /127.0.0.1 left: it committed 300 ms before and its session is 6.0 s, so it did not expire."
    )


def test_a_member_that_was_killed_may_have_left(log: Log) -> None:
    """Walkthrough 5."""
    log.append(T + 10_000, commit("clicks", 2, 9, T + 10_000))
    log.append(T + 22_805, classic("clicks", 3, T + 22_800, member(ANA, ALL)))
    answer = explained(log)
    assert answer.who == (
        "bo-4b20 at /127.0.0.1 left or was expired: Kafka does not record which. Its last commit was 12.8 s before, its"
        " session is 6.0 s."
    )
    assert answer.is_avoidable is None


def test_owners_before_between_and_after(log: Log) -> None:
    """Walkthrough 6."""
    log.append(T + 10_000, commit("clicks", 3, 9, T + 10_000))
    log.append(T + 22_805, classic("clicks", 3, T + 22_800, member(ANA, ALL)))
    views = views_of(log)
    owners = [
        answers.owner(views, views.groups["clicks"], "orders", 3, T + at_ms) for at_ms in (22_799, 22_802, 22_805)
    ]
    assert [each.owner and each.owner.member_id for each in owners] == [BO, None, ANA]
    first = owners[0].owner
    assert first is not None
    assert (first.because, first.to_ms, first.last_commit_ms) == ("gone", T + 22_800, T + 10_000)


def test_a_busy_group_has_an_estimate_of_the_duration(log: Log) -> None:
    """Members that commit often stop when a rebalance begins. The estimate is in words and in JSON, and no figure."""
    for at_ms in (17_000, 18_000, 19_600):
        log.append(T + at_ms, commit("clicks", 0, 9, T + at_ms))
    log.append(T + 20_005, classic("clicks", 3, T + 20_000, member(ANA, ALL)))
    assert explained(log).details == ["It took about 405 ms, an estimate: from the last commit before it to the plan."]
    row = answers.timeline(views_of(log), group_of(log)).rebalances[-1]
    assert (row.duration_ms, row.estimate and row.estimate.value) == (None, 405)


def test_a_group_of_the_consumer_protocol_has_a_real_duration_and_its_epochs() -> None:
    """Walkthrough 9."""
    answer = why(views_of(of_two()).groups["m"])
    assert answer is not None
    assert (
        answer.what
        == f"m rebalanced at {clock(3_000)} for 3.0 s, to group epoch 3: 2 partitions changed hands among 2 members."
    )
    assert answer.details[0] == f"Group epoch 3 at {clock(3_000)}: member joined (B)."
    assert [each.group_epoch for each in answer.epochs] == [3]


def test_names_of_topics_that_come_late_move_no_partition() -> None:
    """Before, the events have the id of the topic. All that is shown has the name."""
    log = Log().append(1_000, *founding())
    log.read()
    of_bo(log)
    log.read(NAMED)
    views = views_of(log)
    group = views.groups["m"]
    answer = why(group)
    assert answer is not None
    assert answer.what.endswith(": 2 partitions changed hands among 2 members.")
    owners = [answers.owner(views, group, "orders", 2, at_ms).owner for at_ms in (2_000, 7_000)]
    assert [each and each.member_id for each in owners] == ["A", "B"]
    assert owners[0] is not None
    assert (owners[0].from_ms, owners[0].to_ms) == (1_000, 5_000)


def test_a_restart_in_one_record_has_no_time(log: Log) -> None:
    log.append(T + 30_005, classic("clicks", 3, T + 30_000, member(ANA, FIRST), member(BO_2, LAST)))
    answer = explained(log)
    assert (answer.cause, answer.who) == ("restarted", "bo left and came back under a new id, or lost its session.")


def test_a_static_restart_is_no_rebalance() -> None:
    """Walkthrough 7."""
    old, new = member_id("till-1", "8647"), member_id("till-1", "98a0")
    log = Log().append(T, classic("clicks", 1, T, member(old, ALL, instance="till-1")))
    log.append(T + 5_000, classic("clicks", 1, T + 10, member(new, ALL, instance="till-1")))
    group = group_of(log)
    assert why(group) is None
    assert timeline_lines(answers.timeline(views_of(log), group))[-1].text == (
        "till-1 restarted at /127.0.0.1: till-1-98a0 goes on as till-1 in place of till-1-8647"
    )


def test_a_cooperative_rebalance_has_two_generations() -> None:
    """Walkthrough 8."""
    sticky = {"protocol": "cooperative-sticky"}
    log = Log().append(T, classic("clicks", 1, T, member(ANA, ALL), **sticky))  # type: ignore[arg-type]
    log.append(T + 2_000, classic("clicks", 2, T + 1_990, member(ANA, LAST), member(BO, None), **sticky))  # type: ignore[arg-type]
    log.append(T + 3_100, classic("clicks", 3, T + 3_090, member(ANA, LAST), member(BO, FIRST), **sticky))  # type: ignore[arg-type]
    answer = explained(log)
    assert (answer.cause, answer.generation_id) == ("member_joined", 3)
    assert answer.details == ["It went on: 2 partitions that ana-1111 gave up were given to bo-4b20."]
    assert answers.summary(group_of(log), {}, T + 4_000).rebalances_1h == 1
    between = answers.owner(views_of(log), group_of(log), "orders", 0, T + 2_500)
    assert (between.is_known, between.owner) == (True, None)


def test_rounds_without_a_plan_and_generations_that_are_gone(log: Log) -> None:
    third = member(BO, {"orders": [2]}), member(CY, {"orders": [3]})
    log.append(T + 20_005, classic("clicks", 4, T + 20_000, member(ANA, FIRST), *third))
    assert explained(log).details == ["1 round before it ended without a plan."]
    log.hole().append(T + 30_000, classic("clicks", 9, T + 29_990, member(ANA, ALL)))
    assert explained(log).who == "Generations 5 to 8 are not in the log any more."
