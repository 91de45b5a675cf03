"""Tests of groups that change between the classic protocol and the consumer protocol, as a broker was seen to do it."""

from coordinator.messages.events import GroupConverted, GroupDeleted, RebalanceCompleted, RebalanceStarted
from coordinator.messages.observed_events import ObservationBegan
from streaming.observe.schemas import Kind
from tests.streaming.observe.log import Log, events, groups, told
from tests.streaming.observe.test_consumers import FIRST, LAST, NAMED
from tests.streaming.observe.writing import (
    Written,
    classic,
    commit,
    consumer,
    current,
    epoch,
    founded,
    gone,
    member,
    target,
    target_epoch,
)


def classic_of_two() -> Log:
    log = Log().append(1_000, founded("m", 990))
    both = member("c1", {"orders": FIRST}), member("c2", {"orders": LAST})
    log.append(4_000, classic("m", 1, 3_990, *both)).append(4_500, commit("m", 0, 1, 4_500))
    log.read()
    return log


def upgrade() -> list[Written]:
    """Return the batch of 15 records that a member of the consumer protocol causes by its join."""
    return [
        gone(Kind.CLASSIC_GROUP, "m"),
        consumer("m", "c1", classic_session_ms=6_000), consumer("m", "c2", classic_session_ms=6_000), epoch("m", 1),
        target("m", "c1", FIRST), target("m", "c2", LAST), target_epoch("m", 1),
        current("m", "c1", 1, FIRST), current("m", "c2", 1, LAST),
        consumer("m", "c3"), epoch("m", 2),
        target("m", "c1", [0]), target("m", "c3", [1]), target_epoch("m", 2, 9_000), current("m", "c3", 2, state=2),
    ]  # fmt: skip


def test_upgrade_is_no_end_of_the_group() -> None:
    log = classic_of_two().append(9_000, *upgrade())
    assert told(log.read()) == [
        "!! 9000 group_converted group_type=consumer generation_before=1",
        "!! 9000 member_joined member_id=c3",
        "!! 9000 rebalance_started cause=protocol_upgraded member_id=c3 how_known=recorded",
        "=> consumer Reconciling 2 c1 0,1;  c2 2,3;  c3 nothing",
    ]
    (first, _, new) = groups(log.outputs)[-1].members
    assert (first.protocol, first.session_timeout_ms, new.protocol) == ("classic", 6_000, "consumer")
    log.append(10_000, current("m", "c1", 2, [0])).append(11_000, current("m", "c2", 2, LAST))
    log.append(14_000, current("m", "c3", 2, [1]))
    log.read()
    (completed,) = events(log.outputs, RebalanceCompleted)[1:]
    assert (completed.duration_ms, completed.joined) == (5_000, ("c3",))


def test_owners_are_not_compared_while_a_topic_of_an_upgrade_has_no_name() -> None:
    """The classic group names its topics, the other one has only ids: the partitions did not change hands."""
    log = Log().append(4_000, classic("m", 1, 3_990, member("c1", {"orders": FIRST}), member("c2", {"orders": LAST})))
    log.append(9_000, *upgrade())
    assert not [line for line in told(log.read()) if "assignment_changed" in line]


def test_upgrade_of_a_group_that_is_not_known_is_no_founding() -> None:
    log = Log().append(9_000, *upgrade())
    log.read(NAMED)
    assert [each.founded for each in events(log.outputs, ObservationBegan)] == [False]
    assert len(events(log.outputs)) == 1


def test_downgrade_is_no_end_of_the_group() -> None:
    """Recorded: the last member of the consumer protocol leaves, and the classic ones rebalance 15 ms later."""
    log = classic_of_two().append(9_000, *upgrade())
    log.append(10_000, current("m", "c1", 2, [0])).append(
        14_000, current("m", "c2", 2, LAST), current("m", "c3", 2, [1])
    )
    log.read()
    tombstones = [gone(kind, "m", name) for kind in (Kind.CURRENT, Kind.TARGET) for name in ("c1", "c2", "c3")]
    tombstones += [gone(Kind.TARGET_EPOCH, "m"), *(gone(Kind.MEMBER, "m", name) for name in ("c1", "c2", "c3"))]
    tombstones += [gone(Kind.OLD_TOPICS, "m"), gone(Kind.EPOCH, "m")]
    rest = member("c1", {"orders": [0]}), member("c2", {"orders": LAST})
    log.append(20_000, *tombstones, classic("m", 2, 20_000, *rest))
    log.append(20_015, classic("m", 3, 20_010, member("c1", {"orders": FIRST}), member("c2", {"orders": LAST})))
    assert told(log.read()) == [
        "!! 20000 member_gone member_id=c3",
        "!! 20000 group_converted group_type=classic generation_before=2",
        "!! 20000 assignment_changed handovers=1:c3>-",
        "=> classic Stable 2 c1 0;  c2 2,3",
        "!! 20010 rebalance_started cause=protocol_downgraded how_known=inferred not_before_ms=20000",
        "!! 20010 rebalance_started cause=cooperative_round how_known=inferred not_before_ms=20000",
        "!! 20015 rebalance_completed syncs_ms=5",
        "!! 20015 assignment_changed handovers=1:->c1",
        "=> classic Stable 3 c1 0,1;  c2 2,3",
    ]
    assert [each.group_type for each in events(log.outputs, GroupConverted)] == ["consumer", "classic"]
    assert events(log.outputs, GroupDeleted) == []


def test_group_that_is_empty_after_a_downgrade_has_no_cause_left() -> None:
    log = classic_of_two().append(9_000, *upgrade())
    log.append(20_000, gone(Kind.MEMBER, "m", "c3"), gone(Kind.EPOCH, "m"), classic("m", 2, 20_000, member("c1", {})))
    log.append(30_000, classic("m", 3, 29_990)).append(40_000, classic("m", 4, 39_990, member("c9", {})))
    log.read()
    assert [each.cause for each in events(log.outputs, RebalanceStarted)][-1:] == ["member_joined"]
    assert "protocol_downgraded" not in [each.cause for each in events(log.outputs, RebalanceStarted)]
