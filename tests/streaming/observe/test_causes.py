"""Tests of the causes of rebalances of groups of the consumer protocol, each as a broker of 4.4.0 was seen to write it.

Kafka records no cause. It follows from the records of the run that raises the epoch.
"""

from typing import Any

import pytest

from coordinator.messages.events import RebalanceStarted
from coordinator.messages.observed_events import MemberGone, ObservationBegan, TopicChange, TopicsNamed
from streaming.observe.inference import REVOCATION_LATE_MS
from streaming.observe.partition import HASH_CHANGES_SHOWN_MAX, Named
from streaming.observe.schemas import Kind
from streaming.observe.state import HASH_CHANGES_MAX, HashChange, from_bytes
from tests.streaming.observe.log import Log, events, groups
from tests.streaming.observe.test_consumers import ALL, FIRST, LAST, NAMED, leave, of_one, of_two
from tests.streaming.observe.writing import (
    ORDERS,
    consumer,
    current,
    epoch,
    gone,
    old_topics,
    pattern,
    target,
    target_epoch,
)

OTHER_ID = bytes(range(16))


def started(log: Log) -> list[RebalanceStarted]:
    """Return the causes of the epochs of a batch."""
    return events(log.read(NAMED), RebalanceStarted)


def causes(log: Log) -> list[tuple[str, str]]:
    return [(each.cause, each.member_id) for each in started(log)]


def open_changes(log: Log) -> list[HashChange]:
    """Return the changes of hashes that wait for the driver."""
    assert log.partition is not None
    return log.partition.hash_changes


def answered(log: Log, *answers: Named) -> list[Any]:
    """Return the events of a batch with answers of the driver."""
    assert log.partition is not None
    partition = type(log.partition)(7, log.state)
    partition.read([], changed=answers)
    log.state, log.partition = partition.to_bytes(), partition
    return events(partition.outputs)


# -- assignors ---------------------------------------------------------------------------------------------------------


def test_another_assignor_is_no_changed_topic() -> None:
    """W1: a full heartbeat with another assignor; the hash stays."""
    log = of_one().append(7_000, consumer("m", "A", assignor="range"), epoch("m", 3))
    (event,) = started(log)
    assert (event.cause, event.member_id, event.client_id) == ("assignor_changed", "A", "ana")
    assert (event.assignor_before, event.assignor_after) == (None, "range")
    assert open_changes(log) == []
    (member,) = groups(log.outputs)[-1].members
    assert member.server_assignor == "range"


@pytest.mark.parametrize("is_copied", [True, False])
def test_static_member_that_returns_with_another_assignor(is_copied: bool) -> None:
    """W1: a rolling restart of static members with another group.remote.assignor.

    Kafka writes the new member twice in one run, a copy of the old one and then its own.
    """
    log = Log().append(1_000, consumer("m", "A", instance="i"), epoch("m", 2), target("m", "A", ALL),
                       target_epoch("m", 2, 999), current("m", "A", 2, ALL))  # fmt: skip
    log.append(5_000, current("m", "A", -2, ALL))
    log.read(NAMED)
    copy = [consumer("m", "B", instance="i"), current("m", "B", 0, ALL)] if is_copied else []
    log.append(8_000, *leave("A"), *copy, consumer("m", "B", instance="i", assignor="range"), epoch("m", 3),
               current("m", "B", 2, ALL))  # fmt: skip
    (event,) = started(log)
    assert (event.cause, event.member_id, event.assignor_after) == ("assignor_changed", "B", "range")


def test_assignor_that_few_members_prefer_is_not_the_cause_of_a_join() -> None:
    """Kafka raises the epoch for an assignor only if most members prefer another one since."""
    log = Log().append(1_000, *(consumer("m", name, assignor="range") for name in "ABC"), epoch("m", 2))
    log.append(7_000, consumer("m", "A", assignor="uniform"))
    log.read(NAMED)
    log.append(8_000, consumer("m", "D", assignor="range", client_id="dan"), consumer("m", "B", assignor="uniform"),
               consumer("m", "A", assignor="range"), epoch("m", 3))  # fmt: skip
    assert causes(log) == [("member_joined", "D")]


def tie(*assignors: str | None) -> Log:
    """Return the log of a group whose members prefer these assignors, and whose epoch is raised without a change."""
    log = Log().append(1_000, *(consumer("m", f"m{n}", assignor=each) for n, each in enumerate(assignors)),
                       epoch("m", 2))  # fmt: skip
    log.read(NAMED)
    return log.append(7_000, epoch("m", 3))


@pytest.mark.parametrize(
    ("assignors", "cause"),
    [
        (["range", "uniform"], "assignors_tied"),
        (["range", "uniform", None], "assignors_tied"),
        (["range", "range"], "unknown"),
        (["range", "uniform", "uniform"], "unknown"),
        ([None, None], "unknown"),
    ],
)
def test_tie_of_assignors_raises_the_epoch_without_end(assignors: list[str | None], cause: str) -> None:
    """W2: Kafka 4.4.0 raises the epoch at each heartbeat of one of the two; the hash stays, and no member changes."""
    log = tie(*assignors)
    assert [each for each, _ in causes(log)] == [cause]
    assert open_changes(log) == []


def test_tie_of_assignors_names_the_members_of_each() -> None:
    (event,) = started(tie("range", "uniform", None))
    assert event.assignors == {"range": ("m0",), "uniform": ("m1",)}


# -- topics ------------------------------------------------------------------------------------------------------------


def test_unchanged_hash_is_never_a_changed_topic() -> None:
    log = of_one().append(7_000, epoch("m", 3))
    assert causes(log) == [("unknown", "")]
    assert open_changes(log) == []


def test_driver_names_the_topic_of_another_hash() -> None:
    """W4: the change waits until it is answered; the answer is an event of its own, once."""
    log = of_one().append(7_000, epoch("m", 3, metadata_hash=8))
    assert causes(log) == [("topics_changed", "")]
    assert open_changes(log) == [HashChange("m", 3, 7, 8, ["orders"], ["orders"])]
    grown = TopicChange("orders", "partitions", 4, 6)
    assert answered(log, Named("m", 3, 9, (grown,))) == [], "the answer is about another hash"
    assert answered(log, Named("other", 3, 8, (grown,))) == []
    (event,) = answered(log, Named("m", 3, 8, (grown,)))
    assert isinstance(event, TopicsNamed)
    assert (event.generation_id, event.at_ms, event.changes) == (3, 7_000, (grown,))
    assert open_changes(log) == []
    assert answered(log, Named("m", 3, 8, (grown,))) == [], "the answer is repeated"


def test_topics_that_nobody_can_name_have_no_event() -> None:
    log = of_one().append(7_000, epoch("m", 3, metadata_hash=8))
    log.read()
    assert answered(log, Named("m", 3, 8, ())) == []
    assert open_changes(log) == []


def test_join_does_not_hide_a_changed_topic() -> None:
    """W5: one epoch for both. The subscribed names are the same, and the hash is another one."""
    log = of_one().append(7_000, consumer("m", "B", client_id="bo"), epoch("m", 3, metadata_hash=8))
    assert causes(log) == [("member_joined", "B"), ("topics_changed", "")]
    log.append(9_000, *leave("B"), epoch("m", 4, metadata_hash=9))
    assert causes(log) == [("member_gone", "B"), ("topics_changed", "")]
    assert [(each.group_epoch, each.hash_before, each.hash) for each in open_changes(log)] == [(3, 7, 8), (4, 8, 9)]


def test_driver_decides_if_other_topics_are_subscribed() -> None:
    """Other names give another hash in any case: only the driver can tell whether a topic has changed as well."""
    log = of_one().append(7_000, consumer("m", "A", topics=("orders", "refunds")), epoch("m", 3, metadata_hash=8))
    assert causes(log) == [("subscription_changed", "A")]
    assert open_changes(log) == [HashChange("m", 3, 7, 8, ["orders"], ["orders", "refunds"])]


def test_first_hash_is_no_change() -> None:
    """Neither of a new group, nor of one whose topics are all others, nor after it was empty."""
    log = of_one()
    assert open_changes(log) == []
    log.append(7_000, *leave("A"), epoch("m", 3, metadata_hash=None))
    log.append(8_000, consumer("m", "C"), epoch("m", 4, metadata_hash=9))
    log.append(9_000, consumer("m", "C", topics=("refunds",)), epoch("m", 5, metadata_hash=10))
    assert causes(log) == [("member_joined", "C"), ("subscription_changed", "C")]
    assert open_changes(log) == []


def test_topics_of_new_epochs_are_named_for_the_driver() -> None:
    log = of_one()
    assert log.partition is not None
    assert log.partition.topics == ["orders"]
    log.append(7_000, current("m", "A", 2, FIRST)).read()
    assert log.partition.topics == []


def test_changes_of_hashes_are_bounded() -> None:
    log = of_one()
    for number in range(HASH_CHANGES_MAX + 1):
        log.append(7_000 + number, epoch("m", 3 + number, metadata_hash=8 + number))
    log.read()
    stored = from_bytes(log.state).hash_changes
    assert (len(stored), stored[0].group_epoch, stored[-1].group_epoch) == (HASH_CHANGES_MAX, 4, HASH_CHANGES_MAX + 3)
    assert open_changes(log) == stored[:HASH_CHANGES_SHOWN_MAX]


def test_end_of_a_group_ends_its_changes() -> None:
    log = of_one().append(7_000, epoch("m", 3, metadata_hash=8)).append(8_000, *leave("A"), epoch("m", 4))
    log.append(9_000, *(gone(kind, "m") for kind in (Kind.TARGET_EPOCH, Kind.EPOCH)))
    log.read()
    assert open_changes(log) == []
    assert answered(log, Named("m", 3, 8, (TopicChange("orders", "deleted", 4),))) == []


# -- brokers before 4.1 ------------------------------------------------------------------------------------------------


def of_4_0() -> Log:
    topics = old_topics("m", ("orders", ORDERS, 4), ("tb", OTHER_ID, 2))
    log = Log().append(1_000, consumer("m", "A", topics=("orders", "tb")), topics, epoch("m", 1, metadata_hash=None))
    log.append(1_001, target_epoch("m", 1), current("m", "A", 1, ALL))
    log.read(NAMED)
    return log


@pytest.mark.parametrize(
    ("topics", "changes"),
    [
        ([("orders", ORDERS, 6), ("tb", OTHER_ID, 2)], [TopicChange("orders", "partitions", 4, 6)]),
        ([("orders", ORDERS, 4)], [TopicChange("tb", "deleted", 2)]),
        ([("orders", ORDERS, 4), ("tb", ORDERS, 2)], [TopicChange("tb", "made_anew", 2, 2)]),
        ([("orders", ORDERS, 6), ("tb", OTHER_ID, 3)],
         [TopicChange("orders", "partitions", 4, 6), TopicChange("tb", "partitions", 2, 3)]),
    ],
)  # fmt: skip
def test_brokers_before_4_1_record_the_topics(topics: list[tuple[str, bytes, int]], changes: list[TopicChange]) -> None:
    """Their epochs have no hash."""
    log = of_4_0().append(7_000, old_topics("m", *topics), epoch("m", 2, metadata_hash=None))
    read = log.read(NAMED)
    assert [each.cause for each in events(read, RebalanceStarted)] == ["topics_changed"]
    (event,) = events(read, TopicsNamed)
    assert (event.generation_id, event.changes) == (2, tuple(changes))


def test_other_racks_of_brokers_before_4_1() -> None:
    topics = old_topics("m", ("orders", ORDERS, 4), ("tb", OTHER_ID, 2), rack="b")
    log = of_4_0().append(7_000, topics, epoch("m", 2, metadata_hash=None))
    (event,) = events(log.read(NAMED), TopicsNamed)
    assert [each.what for each in event.changes] == ["racks", "racks"]


def test_upgrade_of_the_brokers_is_no_changed_topic() -> None:
    """The first epoch with a hash comes with the tombstone of the record that it replaces."""
    log = of_4_0().append(7_000, gone(Kind.OLD_TOPICS, "m"), epoch("m", 2, metadata_hash=8))
    assert causes(log) == [("brokers_upgraded", "")]
    assert open_changes(log) == []
    log.append(8_000, epoch("m", 3, metadata_hash=9))
    assert causes(log) == [("topics_changed", "")]


def test_first_topic_of_a_group_was_made() -> None:
    """W4: the hash before is 0 also because no subscribed topic existed."""
    log = Log().append(1_000, consumer("m", "A"), epoch("m", 2, metadata_hash=None))
    log.read(NAMED)
    log.append(7_000, epoch("m", 3, metadata_hash=8))
    assert causes(log) == [("topics_changed", "")]
    assert open_changes(log) == [HashChange("m", 3, 0, 8, ["orders"], ["orders"])]


# -- subscriptions and patterns ----------------------------------------------------------------------------------------


def test_changed_subscription_has_what_was_added_and_taken_away() -> None:
    """W10: nobody joins again in the consumer protocol."""
    log = of_one().append(7_000, consumer("m", "A", topics=("refunds", "bills")), epoch("m", 3))
    (event,) = started(log)
    assert (event.topics_added, event.topics_removed) == (("bills", "refunds"), ("orders",))


def of_pattern(*names: str) -> Log:
    """Return the log of members with a pattern that one topic matches."""
    members = [consumer("m", name, topics=(), regex="pt-.*", client_id="dan") for name in names]
    log = Log().append(1_000, *members, current("m", names[0], 1))
    log.append(1_500, pattern("m", "pt-.*", ["pt-1"]), epoch("m", 2))
    log.append(1_600, target_epoch("m", 2), current("m", names[0], 2, ALL))
    log.read(NAMED)
    return log


@pytest.mark.parametrize(("names", "who"), [("D", "D"), ("DE", "")])
def test_new_topic_of_a_pattern(names: str, who: str) -> None:
    """W6: the member did nothing. Record 16 has the topics before and after."""
    log = of_pattern(*names).append(9_000, pattern("m", "pt-.*", ["pt-1", "pt-2"]), epoch("m", 3, metadata_hash=8))
    (event,) = started(log)
    assert (event.cause, event.member_id) == ("regex_resolved", who)
    assert (event.pattern, event.topics_added, event.topics_removed) == ("pt-.*", ("pt-2",), ())


def test_pattern_of_no_member_is_no_cause() -> None:
    log = of_pattern("D").append(8_000, consumer("m", "D", topics=("pt-1",)), epoch("m", 3))
    log.read()
    log.append(9_000, pattern("m", "pt-.*", ["pt-1", "pt-2"])).append(9_100, epoch("m", 4, metadata_hash=8))
    assert causes(log) == [("topics_changed", "")]


def test_group_founded_by_a_pattern_is_new() -> None:
    """M4: its first run has no epoch yet."""
    (began,) = events(of_pattern("D").outputs, ObservationBegan)
    assert began.founded
    log = Log().append(1_000, consumer("m", "D", topics=(), regex="pt-.*"), current("m", "D", 9)).hole()
    assert not events(log.read(), ObservationBegan)[0].founded


# -- rebalance timeouts ------------------------------------------------------------------------------------------------


def unrevoked(gone_after_ms: int, *, state: int = 1) -> Log:
    """Return the log of a member that has partitions to give up within 10 s, and is gone after some time."""
    log = Log().append(1_000, consumer("m", "A", rebalance_ms=10_000), epoch("m", 2), target("m", "A", ALL),
                       target_epoch("m", 2, 1_000), current("m", "A", 2, ALL))  # fmt: skip
    log.append(3_000, consumer("m", "B", client_id="bo"), epoch("m", 3), target("m", "A", FIRST),
               target("m", "B", LAST), target_epoch("m", 3, 3_001), current("m", "B", 3, state=2))  # fmt: skip
    log.append(4_000, current("m", "A", 2, FIRST, LAST, state=state, previous=2))
    log.read(NAMED)
    return log.append(4_000 + gone_after_ms, *leave("A"), epoch("m", 4))


@pytest.mark.parametrize("after_ms", [10_000, 10_003, 10_000 + REVOCATION_LATE_MS])
def test_member_that_gave_nothing_up_in_time_was_dropped(after_ms: int) -> None:
    """W7: it sent heartbeats to the end, and its session is longer."""
    log = unrevoked(after_ms)
    read = log.read(NAMED)
    (event,) = events(read, RebalanceStarted)
    assert (event.cause, event.member_id, event.timeout_ms) == ("revocation_overdue", "A", 10_000)
    assert [each.likely for each in events(read, MemberGone)] == ["revocation_overdue"]


@pytest.mark.parametrize(("after_ms", "state"), [(9_999, 1), (10_001 + REVOCATION_LATE_MS, 1), (10_000, 2)])
def test_member_that_is_gone_at_another_time_has_no_certain_cause(after_ms: int, state: int) -> None:
    assert causes(unrevoked(after_ms, state=state)) == [("member_gone", "A")]


def test_each_record_of_what_to_give_up_begins_the_timeout_anew() -> None:
    log = unrevoked(0)
    log.rows, log.next_offset = [], log.next_offset - 4
    log.append(12_000, current("m", "A", 2, [0], [1, 2, 3], state=1, previous=2))
    log.append(14_000, consumer("m", "A", rebalance_ms=10_000, client_id="ann"))
    log.append(22_004, *leave("A"), epoch("m", 4))
    assert causes(log) == [("revocation_overdue", "A")]


# -- the last members --------------------------------------------------------------------------------------------------


def test_epoch_of_the_last_leave_has_its_cause() -> None:
    """W10: two leaves, the second before the rebalance of the first is complete."""
    log = of_two().append(7_000, *leave("B"), epoch("m", 4)).append(8_000, *leave("A"), epoch("m", 5))
    assert [(each.generation_id, each.member_id) for each in started(log)] == [(4, "B"), (5, "A")]
