"""Tests of the translation of groups of the consumer protocol, and of the change between the protocols.

The sequences are those that a broker of 4.3.1 was seen to write.
"""

import pytest

from coordinator.base.states import Phase
from coordinator.messages.events import GroupEmptied, MemberAway, MemberBack, RebalanceCompleted, RebalanceStarted
from coordinator.messages.observed_events import HistoryGap, MemberGone
from streaming.observe.publishing import PUBLISH_EVERY_MS, PUBLISHED_MEMBERS_FREE
from streaming.observe.schemas import Kind
from streaming.observe.state import REASONS_MAX
from tests.streaming.observe.log import Log, events, groups, told
from tests.streaming.observe.writing import (
    ORDERS_TEXT,
    Written,
    commit,
    consumer,
    current,
    epoch,
    forgotten,
    gone,
    pattern,
    target,
    target_epoch,
)

NAMED = (ORDERS_TEXT, "orders")
ALL, FIRST, LAST = [0, 1, 2, 3], [0, 1], [2, 3]


def founding() -> list[Written]:
    """Return the run of a new group's first member."""
    return [consumer("m", "A"), epoch("m", 2), target("m", "A", ALL), target_epoch("m", 2, 1_000),
            current("m", "A", 2, ALL)]  # fmt: skip


def of_one() -> Log:
    log = Log().append(1_000, *founding())
    log.read(NAMED)
    return log


def of_bo(log: Log) -> None:
    """Append the records of a second member, until the rebalance is complete."""
    log.append(3_000, consumer("m", "B", client_id="bo"), epoch("m", 3), target("m", "A", FIRST),
               target("m", "B", LAST), target_epoch("m", 3, 3_001), current("m", "B", 3, state=2))  # fmt: skip
    log.append(4_000, current("m", "A", 2, FIRST, LAST, state=1, previous=2))
    log.append(5_000, current("m", "A", 3, FIRST, previous=2)).append(6_000, current("m", "B", 3, LAST))


def of_two() -> Log:
    """Return the log of a group of two members in epoch 3, which is complete."""
    log = of_one()
    of_bo(log)
    log.read()
    return log


def leave(name: str) -> list[Written]:
    return [gone(kind, "m", name) for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER)]


def test_new_group_has_its_founding_and_its_first_member() -> None:
    log = of_one()
    assert told(log.outputs) == [
        "!! 1000 observation_began founded=True from_offset=0",
        "!! 1000 member_joined member_id=A",
        "!! 1000 rebalance_started cause=member_joined member_id=A how_known=recorded",
        "!! 1000 assignment_changed handovers=0:->A,1:->A,2:->A,3:->A",
        "!! 1000 rebalance_completed duration_ms=0 joins_ms=0 syncs_ms=0 joined=A",
        "=> consumer Stable 2 A 0,1,2,3",
    ]
    (record,) = groups(log.outputs)
    (only,) = record.members
    assert (record.kept_by, record.type, record.assignment_epoch) == ("kafka", "consumer", 2)
    assert (record.protocol_type, record.protocol_name, record.leader) == ("consumer", None, None)
    assert (record.subscribed_topics, only.subscribed_topics) == (("orders",), ("orders",))
    assert (only.assigned, only.target, only.revoking) == ({"orders": ALL}, {"orders": ALL}, {})
    assert (only.member_epoch, only.state, only.protocol, only.regex) == (2, "stable", "consumer", "")
    assert (only.session_timeout_ms, only.rebalance_timeout_ms, only.assignment) == (None, 300_000, b"")


def test_second_member_gets_its_partitions_step_by_step() -> None:
    """The rebalance begins with the epoch and is complete with the last step; a partition is nobody's in between."""
    log = of_two()
    assert told(log.outputs[6:]) == [
        "!! 3000 member_joined member_id=B",
        "!! 3000 rebalance_started cause=member_joined member_id=B how_known=recorded",
        "=> consumer Reconciling 3 A 0,1,2,3;  B nothing",
        "=> consumer Reconciling 3 A 0,1,2,3;  B nothing",
        "!! 5000 assignment_changed handovers=2:A>-,3:A>-",
        "=> consumer Reconciling 3 A 0,1;  B nothing",
        "!! 6000 assignment_changed handovers=2:->B,3:->B",
        "!! 6000 rebalance_completed duration_ms=3000 joins_ms=1 syncs_ms=2999 joined=B",
        "=> consumer Stable 3 A 0,1;  B 2,3",
    ]
    started, completed = events(log.outputs, RebalanceStarted)[-1], events(log.outputs, RebalanceCompleted)[-1]
    assert (started.generation_id, started.joins_until_ms, started.members) == (3, 3_000, 2)
    assert (completed.generation_id, completed.members_before, completed.leader) == (3, ("A",), None)
    to_revoke = groups(log.outputs)[2].members[0]
    assert (to_revoke.state, to_revoke.revoking, to_revoke.assigned) == ("unrevoked", {"orders": LAST}, {"orders": ALL})


def test_partition_goes_to_its_next_owner_without_the_record_that_gave_it_up() -> None:
    """A compaction has removed the record by which A gave up the last partitions before B has them (KAFKA-19862)."""
    log = of_one()
    log.append(3_000, consumer("m", "B", client_id="bo"), epoch("m", 3), target("m", "A", FIRST),
               target("m", "B", LAST), target_epoch("m", 3, 3_001), current("m", "B", 3, state=2))  # fmt: skip
    log.append(5_000, current("m", "B", 3, LAST))
    log.read()
    log.append(6_000, current("m", "A", 3, FIRST, previous=2))
    log.read()
    assert [line for line in told(log.outputs) if "assignment_changed" in line or "B 2,3" in line][1:] == [
        "!! 5000 assignment_changed handovers=2:A>B,3:A>B",
        "=> consumer Reconciling 3 A 0,1;  B 2,3",
        "=> consumer Stable 3 A 0,1;  B 2,3",
    ]


def test_member_leaves_and_the_plan_follows_with_the_next_heartbeat() -> None:
    """Recorded: 2.2 s later."""
    log = of_two().append(7_000, *leave("B"), epoch("m", 4))
    assert told(log.read()) == [
        "!! 7000 member_gone member_id=B",
        "!! 7000 rebalance_started cause=member_gone member_id=B how_known=recorded",
        "!! 7000 assignment_changed handovers=2:B>-,3:B>-",
        "=> consumer Assigning 4 A 0,1",
    ]
    log.append(9_200, target("m", "A", ALL), target_epoch("m", 4, 9_199), current("m", "A", 4, ALL))
    assert told(log.read()) == [
        "!! 9200 assignment_changed handovers=2:->A,3:->A",
        "!! 9200 rebalance_completed duration_ms=2200 joins_ms=2199 syncs_ms=1 gone=B",
        "=> consumer Stable 4 A 0,1,2,3",
    ]


def test_plan_without_a_time_of_its_own_has_the_time_of_its_record() -> None:
    """Brokers before 4.3 do not write the time at which a target assignment was made."""
    log = of_two().append(7_000, *leave("B"), epoch("m", 4))
    log.append(9_200, target("m", "A", ALL), target_epoch("m", 4)).append(9_700, current("m", "A", 4, ALL))
    (completed,) = events(log.read(), RebalanceCompleted)
    assert (completed.duration_ms, completed.joins_ms, completed.syncs_ms) == (2_700, 2_200, 500)


def test_left_or_expired_is_not_known() -> None:
    """The session timeout is a setting of the broker: a late commit proves nothing."""
    log = of_two().append(6_900, commit("m", 2, 5, 6_900)).append(7_000, *leave("B"), epoch("m", 4))
    (event,) = events(log.read(), MemberGone)
    assert (event.likely, event.last_commit_ms, event.session_timeout_ms) == (None, 6_900, None)


def test_last_member_is_gone() -> None:
    log = of_one().append(7_000, *leave("A"), epoch("m", 3, metadata_hash=None))
    assert told(log.read()) == [
        "!! 7000 member_gone member_id=A",
        "!! 7000 assignment_changed handovers=0:A>-,1:A>-,2:A>-,3:A>-",
        "!! 7000 group_emptied",
        "=> consumer Empty 3",
    ]


def test_other_topics_of_a_member_are_a_cause() -> None:
    log = of_one().append(7_000, consumer("m", "A", topics=("orders", "refunds")), epoch("m", 3))
    (started,) = events(log.read(), RebalanceStarted)
    assert (started.cause, started.member_id) == ("subscription_changed", "A")


def test_epoch_without_a_change_of_members_means_other_topics() -> None:
    """Recorded: the epoch alone, with another hash."""
    log = of_one().append(7_000, epoch("m", 3, metadata_hash=8))
    assert [each.cause for each in events(log.read(), RebalanceStarted)] == ["topics_changed"]


def test_second_epoch_before_the_first_rebalance_is_complete() -> None:
    log = of_one().append(7_000, epoch("m", 3)).append(8_000, epoch("m", 4))
    log.append(9_000, target_epoch("m", 4, 8_900), current("m", "A", 4, ALL))
    log.read()
    (completed,) = events(log.outputs[6:], RebalanceCompleted)
    assert len(events(log.outputs[6:], RebalanceStarted)) == 2
    assert (completed.duration_ms, completed.joins_ms, completed.generation_id) == (2_000, 1_900, 4)


def test_member_with_a_pattern_joins_before_its_pattern_is_resolved() -> None:
    """Recorded: the member and its state, then the pattern with the epoch."""
    log = Log().append(1_000, consumer("m", "A", topics=(), regex="^ord.*"), current("m", "A", 1, previous=0))
    assert told(log.read(NAMED)) == ["!! 1000 observation_began founded=True from_offset=0"]
    log.append(1_500, pattern("m", "^ord.*", ["orders"]), epoch("m", 2))
    log.append(1_600, target("m", "A", ALL), target_epoch("m", 2, 1_590), current("m", "A", 2, ALL))
    outputs = told(log.read())
    assert outputs[:2] == [
        "!! 1500 member_joined member_id=A",
        "!! 1500 rebalance_started cause=member_joined member_id=A how_known=recorded",
    ]
    assert "!! 1600 assignment_changed handovers=0:->A,1:->A,2:->A,3:->A" in outputs
    assert groups(log.outputs)[-1].subscribed_topics == ("orders",)


def test_pattern_that_means_other_topics_is_a_cause() -> None:
    log = Log().append(1_000, consumer("m", "A", topics=(), regex="^ord.*"), epoch("m", 2))
    log.append(1_500, pattern("m", "^ord.*", ["orders"])).append(2_000, target_epoch("m", 2), current("m", "A", 2, ALL))
    log.read(NAMED)
    log.append(9_000, pattern("m", "^ord.*", ["orders", "ordinary"]), epoch("m", 3))
    (started,) = events(log.read(), RebalanceStarted)
    assert (started.cause, started.member_id) == ("regex_resolved", "A")
    log.append(9_500, gone(Kind.PATTERN, "m", "^ord.*"))
    log.read()
    assert groups(log.outputs)[-1].subscribed_topics == ()


def test_static_member_goes_away_and_comes_back_under_a_new_id() -> None:
    log = Log().append(1_000, consumer("m", "A", instance="i"), epoch("m", 2), target("m", "A", ALL),
                       target_epoch("m", 2, 999), current("m", "A", 2, ALL))  # fmt: skip
    log.read(NAMED)
    log.append(5_000, current("m", "A", -2, ALL))
    assert told(log.read()) == [
        "!! 5000 member_away member_id=A group_instance_id=i",
        "=> consumer Reconciling 2 A 0,1,2,3",
    ]
    log.append(8_000, *leave("A"), consumer("m", "B", instance="i"), target("m", "B", ALL),
               current("m", "B", 0, ALL), current("m", "B", 2, ALL))  # fmt: skip
    assert told(log.read()) == [
        "!! 8000 member_back member_id=B group_instance_id=i replaces=A",
        "!! 8000 assignment_changed handovers=0:A>B,1:A>B,2:A>B,3:A>B",
        "=> consumer Stable 2 B 0,1,2,3",
    ]
    assert events(log.outputs, MemberAway)[0].until_ms is None
    assert len(events(log.outputs, MemberBack)) == 1


@pytest.mark.parametrize(("is_away", "likely"), [(True, "expired"), (False, None)])
def test_static_member_that_was_away_has_most_likely_expired(is_away: bool, likely: str | None) -> None:
    log = Log().append(1_000, consumer("m", "A", instance="i"), epoch("m", 2), current("m", "A", 2, ALL))
    if is_away:
        log.append(5_000, current("m", "A", -2, ALL))
    log.append(50_000, *leave("A"), epoch("m", 3))
    assert events(log.read(NAMED), MemberGone)[0].likely == likely


def test_end_of_a_group() -> None:
    log = of_one().append(1_500, commit("m", 0, 5, 1_500)).append(7_000, *leave("A"), epoch("m", 3))
    log.read()
    of_group = Kind.TARGET_EPOCH, Kind.OLD_TOPICS, Kind.EPOCH
    log.append(9_000, forgotten("m", 0), *(gone(kind, "m") for kind in of_group))
    assert told(log.read()) == [
        "=> orders/0 forgotten",
        "!! 9000 offsets_forgotten partitions=orders,0 why=expired or deleted",
        "!! 9000 group_deleted why=expired or deleted",
        "=> group forgotten",
    ]


# -- the first records of a log that was compacted ---------------------------------------------------------------------


def test_group_in_a_compacted_log_is_known_from_its_epoch_on() -> None:
    """Behind the cleaner's point, only the last record of each key is there: they tell no joins and no handovers."""
    log = Log().hole(5).append(1_000, consumer("m", "A")).hole().append(3_000, consumer("m", "B")).hole(9)
    log.append(7_000, epoch("m", 9)).hole().append(8_000, current("m", "A", 9, FIRST)).hole()
    log.append(9_000, target_epoch("m", 9), current("m", "B", 9, LAST))
    assert told(log.read(NAMED)) == [
        "!! 1000 observation_began from_offset=5",
        "=> consumer Assigning 9 A nothing;  B nothing",
        "=> consumer Assigning 9 A 0,1;  B nothing",
        "=> consumer Stable 9 A 0,1;  B 2,3",
    ]
    log.append(9_500, current("m", "A", 9, [0]))
    assert told(log.read())[0] == "!! 9500 assignment_changed handovers=1:A>-"


def test_first_epochs_with_a_hole_before_them_are_no_founding() -> None:
    log = Log().append(1_000, consumer("m", "A")).hole().append(2_000, epoch("m", 2))
    log.read(NAMED)
    assert [each.founded for each in events(log.outputs)] == [False]


def test_epochs_that_are_missing_from_the_log_are_a_gap() -> None:
    log = of_two().hole().append(90_000, epoch("m", 7))
    (gap,) = events(log.read(), HistoryGap)
    assert (gap.from_generation, gap.to_generation, gap.holes) == (3, 7, True)


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [REASONS_MAX, REASONS_MAX + 1])
def test_reasons_of_a_rebalance_are_bounded(members: int) -> None:
    log = of_one().append(3_000, *(consumer("m", f"m{n:03}") for n in range(members)), epoch("m", 3))
    assert len(events(log.read(), RebalanceStarted)) == REASONS_MAX


@pytest.mark.parametrize("extra", [0, 1])
def test_large_group_is_published_at_a_bounded_rate(extra: int) -> None:
    """Each step of a member of a small group is published; of a large one every second, and when it is stable."""
    names = [f"m{n:03}" for n in range(PUBLISHED_MEMBERS_FREE + extra)]
    log = Log().append(1_000, *(consumer("m", name) for name in names), epoch("m", 2))
    log.append(2_000, target_epoch("m", 2))
    log.read(NAMED)
    for n, name in enumerate(names):
        log.append(2_010 + n, current("m", name, 2, [n]))
    published = groups(log.read())
    assert len(published) == (1 if extra else len(names))
    assert (published[-1].state, published[-1].members[-2].assigned) == (Phase.STABLE, {"orders": [len(names) - 2]})


def test_large_group_is_published_again_after_a_second() -> None:
    names = [f"m{n:03}" for n in range(PUBLISHED_MEMBERS_FREE + 1)]
    log = Log().append(1_000, *(consumer("m", name) for name in names), epoch("m", 2))
    log.append(2_000, target_epoch("m", 2))
    log.append(2_000 + PUBLISH_EVERY_MS - 1, current("m", names[0], 2, [0]))
    log.read(NAMED)
    assert groups(log.outputs)[-1].members[0].assigned == {}
    log.append(2_000 + PUBLISH_EVERY_MS, current("m", names[1], 2, [1]))
    assert [each.assigned for each in groups(log.read())[0].members[:2]] == [{"orders": [0]}, {"orders": [1]}]


def test_last_member_of_all_is_told_once() -> None:
    log = of_two().append(7_000, *leave("A"), epoch("m", 4)).append(8_000, *leave("B"), epoch("m", 5))
    assert len(events(log.read(), GroupEmptied)) == 1
