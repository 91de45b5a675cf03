"""Tests of the translation of classic groups. The sequences are those that a broker of 4.3.1 was seen to write."""

import pytest
from msgspec import UNSET

from coordinator.base.states import Phase
from coordinator.messages.events import Estimate, RebalanceCompleted, RebalanceStarted
from coordinator.messages.observed_events import HistoryGap, MemberGone, ObservationBegan
from streaming.observe.state import REASONS_MAX
from tests.coordinator.test_connect_protocol import COMES, STATE_V0, V0
from tests.streaming.observe import vectors as v
from tests.streaming.observe.log import Log, events, groups, told
from tests.streaming.observe.test_format import CREATED, REPLACING
from tests.streaming.observe.writing import classic, commit, founded, member

FROM = "last commit of the old generation"

ALL, FIRST, LAST = {"orders": [0, 1, 2, 3]}, {"orders": [0, 1]}, {"orders": [2, 3]}


def of_ana_and_bo() -> Log:
    """Return the log of a group of two members in generation 2, whose plan came at 9,010."""
    log = Log()
    log.append(1_000, founded("g", 990)).append(4_009, classic("g", 1, 4_000, member("ana-1", ALL)))
    log.append(9_010, classic("g", 2, 9_000, member("ana-1", FIRST), member("bo-1", LAST)))
    log.read()
    return log


def causes(log: Log) -> list[tuple[str, str]]:
    """Return the causes of the rebalance of the next batch, with their members."""
    return [(each.cause, each.member_id) for each in events(log.read(), RebalanceStarted)]


def test_group_is_founded_and_gets_its_first_member() -> None:
    """The rebalance began after the founding, at the latest when the joins ended; only the plan has a time."""
    log = Log().append(1_000, founded("g", 990)).append(4_009, classic("g", 1, 4_000, member("ana-1", ALL)))
    assert told(log.read()) == [
        "!! 1000 observation_began founded=True from_offset=0",
        "=> classic Empty 0",
        "!! 4000 member_joined member_id=ana-1",
        "!! 4000 rebalance_started cause=member_joined member_id=ana-1 how_known=inferred not_before_ms=990",
        "!! 4009 rebalance_completed syncs_ms=9 joined=ana-1",
        "!! 4009 assignment_changed handovers=0:->ana-1,1:->ana-1,2:->ana-1,3:->ana-1",
        "=> classic Stable 1 ana-1 0,1,2,3",
    ]
    assert [record.version for record in groups(log.outputs)] == [2, 7]


def test_second_member_joins() -> None:
    log = Log().append(1_000, founded("g", 990)).append(4_009, classic("g", 1, 4_000, member("ana-1", ALL)))
    log.read()
    log.append(9_010, classic("g", 2, 9_000, member("ana-1", FIRST), member("bo-1", LAST)))
    assert told(log.read()) == [
        "!! 9000 member_joined member_id=bo-1",
        "!! 9000 rebalance_started cause=member_joined member_id=bo-1 how_known=inferred not_before_ms=4009",
        "!! 9010 rebalance_completed syncs_ms=10 joined=bo-1",
        "!! 9010 assignment_changed handovers=2:ana-1>bo-1,3:ana-1>bo-1",
        "=> classic Stable 2 ana-1 0,1;  bo-1 2,3",
    ]
    (started,), (completed,) = events(log.outputs[7:], RebalanceStarted), events(log.outputs[7:], RebalanceCompleted)
    assert (started.generation_id, completed.generation_id, started.joins_until_ms) == (1, 2, None)
    assert (completed.duration_ms, completed.joins_ms) == (None, None)
    assert (completed.members_before, completed.members_after) == (("ana-1",), ("ana-1", "bo-1"))


def test_record_of_a_group_has_the_fields_that_kafka_records() -> None:
    log = Log().append(1795378906951, (v.STABLE.key, v.STABLE.value))
    log.read()
    (record,) = groups(log.outputs)
    (only,) = record.members
    assert (record.group_id, record.state, record.generation_id) == ("clicks", Phase.STABLE, 1)
    assert (record.kept_by, record.type, record.since_ms) == ("kafka", "classic", 1795378906951)
    assert (record.protocol_type, record.protocol_name, record.leader) == ("consumer", "range", only.member_id)
    assert (record.subscribed_topics, only.assigned) == (("orders",), {"orders": [0, 1, 2, 3]})
    assert (only.session_timeout_ms, only.rebalance_timeout_ms) == (6_000, 300_000)
    assert (only.client_id, only.client_host) == ("ana", "/127.0.0.1")


def test_first_record_that_is_not_a_founding_tells_no_joins() -> None:
    log = Log().append(9_010, classic("g", 5, 9_000, member("ana-1", ALL)))
    assert told(log.read()) == [
        "!! 9010 observation_began from_offset=0",
        "=> classic Stable 5 ana-1 0,1,2,3",
    ]
    assert events(log.outputs, ObservationBegan)[0].founded is False


def test_members_are_in_the_order_in_which_they_were_first_seen() -> None:
    log = of_ana_and_bo()
    log.append(20_000, classic("g", 3, 19_990, member("bo-1", LAST), member("abe-1", None), member("ana-1", FIRST)))
    log.read()
    assert [each.member_id for each in groups(log.outputs)[-1].members] == ["ana-1", "bo-1", "abe-1"]


@pytest.mark.parametrize(
    ("committed_ms", "session_ms", "likely"),
    [(14_001, 6_000, "left"), (14_000, 6_000, None), (14_000, 6_001, "left"), (None, 45_000, None)],
)
def test_member_that_committed_within_its_session_has_left(
    committed_ms: int | None, session_ms: int, likely: str | None
) -> None:
    """The session is 6 s and the joins end at 20,000: a commit after 14,000 shows that it did not expire."""
    log = Log().append(1_000, classic("g", 1, 990, member("ana-1", FIRST), member("bo-1", LAST, session_ms=session_ms)))
    if committed_ms is not None:
        log.append(committed_ms, commit("g", 2, 5, committed_ms))
    log.append(20_010, classic("g", 2, 20_000, member("ana-1", ALL)))
    (event,) = events(log.read(), MemberGone)
    assert (event.member_id, event.at_ms, event.likely) == ("bo-1", 20_000, likely)
    assert (event.last_commit_ms, event.session_timeout_ms) == (committed_ms, session_ms)


def test_commits_of_partitions_of_others_say_nothing_about_a_member() -> None:
    log = of_ana_and_bo().append(19_000, commit("g", 0, 5, 19_000))
    log.append(20_010, classic("g", 3, 20_000, member("ana-1", ALL)))
    (event,) = events(log.read(), MemberGone)
    assert (event.last_commit_ms, event.likely) == (None, None)


def test_commits_count_for_the_owner_at_their_time() -> None:
    """A commit of generation 1 is ana's, also where one batch has it and the plan that gives the partition to bo."""
    log = Log().append(1_000, founded("g", 990)).append(4_009, classic("g", 1, 4_000, member("ana-1", ALL)))
    log.append(8_000, commit("g", 2, 5, 8_000))
    log.append(9_010, classic("g", 2, 9_000, member("ana-1", FIRST), member("bo-1", LAST)))
    log.append(10_010, classic("g", 3, 10_000, member("ana-1", ALL)))
    (event,) = events(log.read(), MemberGone)
    assert (event.member_id, event.last_commit_ms, event.likely) == ("bo-1", None, None)


def test_member_that_may_have_joined_too_late_is_not_told_to_have_left() -> None:
    """Its session did not expire, but the joins ended after its rebalance timeout of 300 s."""
    log = of_ana_and_bo().append(400_000, commit("g", 2, 5, 400_000))
    log.append(401_010, classic("g", 3, 401_000, member("ana-1", ALL)))
    assert events(log.read(), MemberGone)[0].likely is None


def test_static_member_that_is_gone_has_most_likely_expired() -> None:
    log = Log().append(1_000, classic("g", 1, 990, member("ana-1", FIRST), member("i-1", LAST, instance="i")))
    log.append(20_010, classic("g", 2, 20_000, member("ana-1", ALL)))
    assert events(log.read(), MemberGone)[0].likely == "expired"


def test_static_member_restarts_in_the_same_generation() -> None:
    """Recorded: the same generation under another member id, five seconds later."""
    log = Log().append(1795381412428, (v.STATIC.key, v.STATIC.value)).append(1795381417507, tuple(v.REPLACED))
    assert told(log.read())[2:] == [
        f"!! 1795381417507 member_fenced member_id={CREATED} group_instance_id=i replaced_by={REPLACING}",
        f"=> classic Stable 1 {REPLACING} refunds-0,refunds-1",
    ]


def test_static_member_restarts_and_the_group_rebalances() -> None:
    log = Log().append(1_000, classic("g", 1, 990, member("i-1", ALL, instance="i")))
    log.append(5_010, classic("g", 2, 5_000, member("i-2", ALL, instance="i")))
    assert told(log.read())[2:4] == [
        "!! 5000 member_fenced member_id=i-1 group_instance_id=i replaced_by=i-2",
        "!! 5000 rebalance_started cause=static_member_replaced member_id=i-2 how_known=inferred not_before_ms=1000",
    ]


def test_member_that_comes_back_under_a_new_id_is_gone_and_joined() -> None:
    """Recorded: a broker was away for 23 s, and one of two members was killed meanwhile."""
    log = of_ana_and_bo().append(40_010, classic("g", 3, 40_000, member("ana-2", ALL)))
    assert causes(log) == [("member_gone", "ana-1"), ("member_gone", "bo-1"), ("member_joined", "ana-2")]


def test_other_topics_of_a_member_are_a_cause() -> None:
    log = of_ana_and_bo()
    changed = member("bo-1", LAST, topics=("orders", "refunds"))
    log.append(20_010, classic("g", 3, 20_000, member("ana-1", FIRST), changed))
    assert causes(log) == [("metadata_changed", "bo-1")]


def test_other_assignor_is_a_cause() -> None:
    log = of_ana_and_bo()
    after = classic("g", 3, 20_000, member("ana-1", FIRST), member("bo-1", LAST), protocol="cooperative-sticky")
    log.append(20_010, after)
    (event,) = events(log.read(), RebalanceStarted)
    assert (event.cause, event.reason) == ("metadata_changed", "range -> cooperative-sticky")


def test_partition_that_never_was_is_a_cause() -> None:
    """Recorded: a partition more, and a generation 1.3 s after it."""
    log = of_ana_and_bo()
    log.append(20_010, classic("g", 3, 20_000, member("ana-1", {"orders": [0, 1, 4]}), member("bo-1", LAST)))
    assert causes(log) == [("leader_rejoined", "")]


def test_nothing_differs() -> None:
    log = of_ana_and_bo().append(20_010, classic("g", 3, 20_000, member("ana-1", FIRST), member("bo-1", LAST)))
    assert causes(log) == [("unknown", "")]


def test_second_round_of_a_cooperative_rebalance() -> None:
    """Recorded: bo gets nothing in generation 2, and what ana gave up in generation 3, 1.1 s later."""
    protocol = "cooperative-sticky"
    log = Log().append(1_000, founded("g", 990))
    log.append(4_000, classic("g", 1, 3_990, member("ana-1", ALL), protocol=protocol))
    log.append(9_000, classic("g", 2, 8_990, member("ana-1", LAST), member("bo-1", None), protocol=protocol))
    log.append(10_100, classic("g", 3, 10_090, member("ana-1", LAST), member("bo-1", FIRST), protocol=protocol))
    started = events(log.read(), RebalanceStarted)
    assert [each.cause for each in started] == ["member_joined", "member_joined", "cooperative_round"]
    assert "!! 9000 assignment_changed handovers=0:ana-1>-,1:ana-1>-" in told(log.outputs)
    assert "!! 10100 assignment_changed handovers=0:->bo-1,1:->bo-1" in told(log.outputs)


@pytest.mark.parametrize(
    ("protocol", "cause"), [("cooperative-sticky", "cooperative_round"), ("range", "leader_rejoined")]
)
def test_second_round_whose_first_is_not_in_the_log_is_known_by_its_assignor(protocol: str, cause: str) -> None:
    log = Log().append(9_000, classic("g", 2, 8_990, member("a", LAST), member("b", None), protocol=protocol))
    log.append(10_100, classic("g", 3, 10_090, member("a", LAST), member("b", FIRST), protocol=protocol))
    assert causes(log) == [(cause, "")]


def test_rounds_that_ended_without_a_plan_are_counted() -> None:
    """Recorded: generation 0, then 2, at the next offset."""
    log = Log().append(1_000, founded("g", 990)).append(4_000, classic("g", 2, 3_990, member("ana-1", ALL)))
    (event,) = events(log.read(), RebalanceStarted)
    assert (event.unplanned_rounds, event.cause, event.not_before_ms) == (1, "member_joined", 990)
    assert events(log.outputs, HistoryGap) == []


def test_generations_that_are_missing_from_the_log_are_a_gap() -> None:
    log = of_ana_and_bo().hole().append(90_010, classic("g", 5, 90_000, member("cy-1", ALL)))
    outputs = told(log.read())
    assert outputs == [
        "!! 90010 history_gap from_generation=2 to_generation=5 holes=True",
        "!! 90010 member_gone member_id=ana-1",
        "!! 90010 member_gone member_id=bo-1",
        "!! 90010 member_joined member_id=cy-1",
        "!! 90010 rebalance_started cause=unknown how_known=inferred",
        "!! 90010 rebalance_completed syncs_ms=10 joined=cy-1 gone=ana-1,bo-1",
        "!! 90010 assignment_changed handovers=0:ana-1>cy-1,1:ana-1>cy-1,2:bo-1>cy-1,3:bo-1>cy-1",
        "=> classic Stable 5 cy-1 0,1,2,3",
    ]


def test_hole_without_missing_generations_is_no_gap() -> None:
    """The records of other groups may be compacted away, and the end of a transaction leaves a hole as well."""
    log = of_ana_and_bo().hole().append(20_010, classic("g", 3, 20_000, member("ana-1", ALL)))
    log.read()
    assert events(log.outputs, HistoryGap) == []


def test_hole_before_the_last_record_is_no_gap() -> None:
    log = Log().append(1_000, founded("g", 990)).hole().append(2_000, classic("g", 1, 1_990, member("ana-1", ALL)))
    log.append(4_000, classic("g", 4, 3_990, member("ana-1", ALL)))
    log.read()
    assert events(log.outputs, HistoryGap) == []


def test_last_commit_is_kept_from_generation_to_generation() -> None:
    log = of_ana_and_bo().append(9_500, commit("g", 2, 5, 9_500))
    log.append(11_010, classic("g", 3, 11_000, member("ana-1", FIRST), member("bo-1", LAST), member("cy-1", None)))
    log.append(13_010, classic("g", 4, 13_000, member("ana-1", ALL)))
    gone_members = {each.member_id: each.last_commit_ms for each in events(log.read(), MemberGone)}
    assert gone_members == {"bo-1": 9_500, "cy-1": None}


@pytest.mark.parametrize(("commits", "estimate"), [(2, None), (3, 1_510)])
def test_duration_is_estimated_from_the_last_of_three_commits(commits: int, estimate: int | None) -> None:
    """The joins have ended 10 ms before the plan, which came at 20,010."""
    log = of_ana_and_bo()
    for number in range(commits):
        log.append(18_500, commit("g", 2, number, 18_500 - 1_000 * (commits - 1 - number)))
    log.append(20_010, classic("g", 3, 20_000, member("ana-1", ALL)))
    (event,) = events(log.read(), RebalanceCompleted)
    assert event.duration_ms is None
    assert event.estimate == (UNSET if estimate is None else Estimate("duration_ms", estimate, FROM))


def test_estimate_counts_commits_of_one_generation_alone() -> None:
    """Commits of several partitions in one request are one commit; the record of a generation begins the count."""
    log = of_ana_and_bo()
    for at_ms in (9_100, 9_200):
        log.append(at_ms, *(commit("g", partition, 1, at_ms) for partition in (0, 1, 2)))
    log.read()
    log.append(20_010, classic("g", 3, 20_000, member("ana-1", ALL)))
    log.append(20_100, commit("g", 0, 2, 20_100)).append(20_200, commit("g", 0, 3, 20_200))
    log.append(30_010, classic("g", 4, 30_000, member("ana-1", FIRST), member("bo-1", LAST)))
    assert [event.estimate for event in events(log.read(), RebalanceCompleted)] == [UNSET, UNSET]


def test_commits_of_nobody_tell_nothing_about_a_rebalance() -> None:
    log = of_ana_and_bo()
    for number in range(3):
        log.append(18_000, commit("g", 9, number, 18_000))
    log.append(20_010, classic("g", 3, 20_000, member("ana-1", ALL)))
    (event,) = events(log.read(), RebalanceCompleted)
    assert event.estimate is UNSET


def test_static_member_that_restarts_keeps_its_place_among_the_members() -> None:
    log = Log().append(1_000, classic("g", 1, 990, member("i-9", FIRST, instance="i")))
    log.append(2_000, classic("g", 2, 1_990, member("i-9", FIRST, instance="i"), member("ana-1", LAST)))
    log.append(3_000, classic("g", 3, 2_990, member("i-99", FIRST, instance="i"), member("ana-1", LAST)))
    log.read()
    assert [each.member_id for each in groups(log.outputs)[-1].members] == ["i-99", "ana-1"]


def test_generation_that_falls_begins_the_history_anew() -> None:
    log = of_ana_and_bo().append(90_010, classic("g", 1, 90_000, member("cy-1", ALL)))
    assert told(log.read()) == [
        "!! 90010 history_gap from_generation=2 to_generation=1",
        "=> classic Stable 1 cy-1 0,1,2,3",
    ]


def test_last_member_is_gone() -> None:
    """The group is empty since the time in its record."""
    log = of_ana_and_bo().append(20_010, classic("g", 3, 19_990))
    assert told(log.read()) == [
        "!! 19990 member_gone member_id=ana-1",
        "!! 19990 member_gone member_id=bo-1",
        "!! 19990 group_emptied",
        "=> classic Empty 3",
    ]
    assert groups(log.outputs)[-1].since_ms == 19_990


def test_groups_time_never_goes_back() -> None:
    """The clocks of two brokers differ: after a move, a record may have an earlier time."""
    log = of_ana_and_bo().append(9_005, classic("g", 3, 8_900, member("ana-1", ALL)))
    assert {each.at_ms for each in events(log.read())} == {9_010}


@pytest.mark.parametrize("members", [REASONS_MAX, REASONS_MAX + 1])
def test_reasons_of_a_rebalance_are_bounded(members: int) -> None:
    log = Log().append(1_000, founded("g", 990))
    log.append(4_000, classic("g", 1, 3_990, *(member(f"m-{n}", None) for n in range(members))))
    assert len(causes(log)) == REASONS_MAX


def test_group_of_another_type_has_members_and_no_assignments() -> None:
    """A Connect cluster: its bytes are its own."""
    worker = {**member("connect-1", None), "subscription": b"\0\1what", "assignment": b"\xff\xff"}
    log = Log().append(1_000, classic("c", 3, 990, worker, kind="connect", protocol="sessioned"))
    log.append(2_000, classic("c", 4, 1_990, {**worker, "assignment": b"\0"}, kind="connect", protocol="sessioned"))
    assert causes(log) == [("unknown", "")]
    record = groups(log.outputs)[-1]
    assert (record.subscribed_topics, record.members[0].assigned, record.members[0].assignment) == (None, None, b"\0")


def test_workers_of_kafka_connect_have_their_work() -> None:
    worker = {**member("connect-1", None), "subscription": STATE_V0, "assignment": V0}
    log = Log().append(1_000, classic("c", 3, 990, worker, kind="connect", protocol="sessioned"))
    log.read()
    (shown,) = groups(log.outputs)[-1].members
    assert (shown.assigned, shown.work) == (None, COMES)


def test_values_of_version_0_have_no_times() -> None:
    log = Log().append(1_000, tuple(v.GROUP_0))
    log.append(2_000, (v.GROUP_0.key, (v.GROUP_0.value or b"").replace(b"\0\0\0\4\0\5", b"\0\0\0\5\0\5")))
    (event,) = events(log.read(), RebalanceCompleted)
    assert (event.at_ms, event.syncs_ms) == (2_000, None)
    assert groups(log.outputs)[-1].members[0].rebalance_timeout_ms is None
