"""What is said about groups that Kafka's own coordinator keeps: nothing that Kafka does not record is invented."""

import re
from typing import Any

import pytest

from coordinator.base.states import GroupType
from coordinator.messages.events import RebalanceStarted
from coordinator.messages.observed_events import HistoryGap, ObservedCause, TopicChange, TopicsNamed
from streaming.views import GroupView
from streaming.views.api import answers
from streaming.views.history.advice import ADVICE, OF_CONSUMERS, OF_SHARE_GROUPS, OF_STREAMS_GROUPS, for_brokers
from streaming.views.sentences.observed import REASONS_SHOWN, SHORT_MEMBERSHIPS, UNCHANGED_MS
from streaming.views.sentences.records import to_line
from streaming.views.sentences.why import Why, why
from streaming.views.text import clock
from tests.streaming.views.observing import Observed, T, member_id

ANA, BO, DORA = member_id("ana"), member_id("bo", "4b20"), member_id("dora", "11aa")
CY, CY_2 = member_id("cy", "477b"), member_id("cy", "99aa")
NOT_KNOWN = (
    "Not known: if it still runs, look at session.timeout.ms and max.poll.interval.ms; if somebody stopped it, nothing"
    " is wrong."
)


def group_of(observed: Observed) -> GroupView:
    return observed.views().groups[observed.group_id]


def explained(observed: Observed, at_ms: int | None = None) -> Why:
    answer = why(group_of(observed), None if at_ms is None else T + at_ms)
    assert answer is not None
    return answer


def running() -> Observed:
    """Return the records of a group of ana, bo and cy, in its third generation."""
    observed = Observed().begins(founded=True).to(3)
    return observed.record(39_990, {ANA: [0], BO: [1], CY: [2]})


def next_generation(observed: Observed, at_ms: int = 47_000, **fields: object) -> Observed:
    """Write the end of the next generation, with bo and ana."""
    return observed.to(observed.generation_id + 1).completed(at_ms + 76, ANA, BO, p2=(CY, ANA))


# -- the first sentence ------------------------------------------------------------------------------------------------


def test_the_start_of_an_inferred_rebalance_is_not_recorded() -> None:
    observed = running().to(4).started(47_000, "member_gone", CY, after_ms=39_997).gone(47_000, CY)
    answer = explained(observed.completed(47_076, ANA, BO, gone=(CY,), p2=(CY, ANA)))
    assert answer.what == (
        f"clicks rebalanced to generation 4, whose plan came at {clock(T + 47_076)};"
        f" it began after {clock(T + 39_997)}, Kafka does not record when: 1 partition changed hands among 2 members."
    )


def test_an_inferred_rebalance_has_neither_a_start_nor_a_duration() -> None:
    observed = running().to(4).started(47_000, "member_joined", DORA).joined(47_000, DORA)
    observed.completed(47_076, ANA, DORA, joined=(DORA,))
    (row,) = answers.timeline(observed.views(), group_of(observed)).rebalances
    assert (row.duration_ms, row.ended_ms, row.how_known, row.not_before_ms) == (None, T + 47_076, "inferred", None)
    assert "; when it began is not recorded: no partition changed hands" in row.why.what
    tallied = observed.views().groups["clicks"].tallied
    assert (sum(tallied.durations), tallied.duration_ms, tallied.syncs_ms) == (0, 0, 4)


def test_a_rebalance_of_the_new_protocol_has_a_duration() -> None:
    observed = Observed("modern", kind="consumer", session_ms=None).begins().to(2)
    who = "B00WiDjmTFKJurcyAuofRg"
    observed.record(0, {who: [0]}, clients={who: "ana"})
    observed.to(3).started(1_000, "member_joined", who, is_inferred=False, client_id="ana").joined(
        1_000, who, client_id="ana"
    )
    answer = explained(observed.completed(6_000, who, took_ms=5_000, p0=(None, who)))
    assert answer.what == (
        f"modern rebalanced at {clock(T + 1_000)} for 5.0 s, to group epoch 3: 1 partition changed hands among"
        " 1 member."
    )
    assert answer.who == "ana-B00W at /127.0.0.1 joined."


# -- the table of 3.5 --------------------------------------------------------------------------------------------------


def test_a_member_that_committed_lately_left() -> None:
    observed = running().to(4).started(47_000, "member_gone", CY).gone(47_000, CY, 46_600, "left")
    answer = explained(next_generation(observed))
    assert answer.who == (
        "cy-477b at /127.0.0.1 left: it committed 400 ms before and its session is 6.0 s, so it did not expire."
    )
    assert (answer.cause, answer.is_avoidable, answer.advice) == (
        "member_left", False, "Unavoidable: the partitions of a member that left go to other members.",
    )  # fmt: skip


def test_whether_a_member_left_or_expired_is_not_recorded() -> None:
    observed = running().to(4).started(47_000, "member_gone", CY).gone(47_000, CY, 34_200)
    answer = explained(next_generation(observed))
    assert answer.who == (
        "cy-477b at /127.0.0.1 left or was expired: Kafka does not record which. Its last commit was 12.8 s before, its"
        " session is 6.0 s."
    )
    assert (answer.cause, answer.is_avoidable, answer.setting, answer.advice) == ("member_gone", None, None, NOT_KNOWN)


def test_nothing_is_said_of_a_commit_and_a_session_that_are_not_recorded() -> None:
    observed = running()
    observed.session_ms = None
    observed.to(4).started(47_000, "member_gone", CY).gone(47_000, CY)
    assert explained(next_generation(observed)).who == (
        "cy-477b at /127.0.0.1 left or was expired: Kafka does not record which."
    )


def test_a_static_member_did_not_come_back() -> None:
    observed = running().to(4).started(47_000, "member_gone", CY).gone(47_000, CY, None, "expired", instance="till-2")
    answer = explained(next_generation(observed))
    assert answer.who == "till-2 did not come back within its session of 6.0 s, most likely."
    assert (answer.cause, answer.is_avoidable) == ("session_expired", None)


def test_a_client_that_came_back_in_the_same_record_has_no_time() -> None:
    observed = running().to(4).started(47_000, "member_gone", CY).started(47_000, "member_joined", CY_2)
    observed.gone(47_000, CY).joined(47_000, CY_2)
    answer = explained(next_generation(observed))
    assert answer.who == "cy left and came back under a new id, or lost its session."
    assert (answer.cause, answer.is_avoidable, answer.setting) == ("restarted", True, "group.instance.id")
    assert answer.advice == (
        "Avoidable: with a group.instance.id, and a session.timeout.ms that is longer than a restart, the group does"
        " not rebalance."
    )


def test_a_client_that_came_back_in_a_later_record_has_the_time_between() -> None:
    observed = running().to(4).started(47_000, "member_gone", CY).gone(47_000, CY)
    next_generation(observed)
    observed.to(5).started(50_000, "member_joined", CY_2).joined(50_000, CY_2).completed(50_010, ANA, BO, CY_2)
    answer = explained(observed, 48_000)
    assert (answer.cause, answer.who) == ("restarted", "cy was gone and joined again 3.0 s later.")


def test_a_member_that_joined_is_named() -> None:
    observed = running().to(4).started(47_000, "member_joined", DORA).joined(47_000, DORA)
    answer = explained(next_generation(observed))
    assert (answer.who, answer.is_avoidable) == ("dora-11aa at /127.0.0.1 joined.", False)


@pytest.mark.parametrize(
    ("kind", "setting"),
    [("classic", "group.initial.rebalance.delay.ms"), ("consumer", "group.consumer.assignment.interval.ms")],
)
def test_advice_names_the_settings_of_the_brokers(kind: str, setting: str) -> None:
    """This coordinator's own settings have no effect on the groups of Kafka's."""
    observed = Observed(kind=kind).begins().to(1).record(0, {ANA: [0]})
    observed.to(2).started(1_000, "member_joined", BO, is_inferred=kind == "classic").joined(1_000, BO)
    advice = explained(observed.completed(1_010, ANA, BO)).advice
    assert f"{setting} of the brokers" in advice
    assert "coordinator" not in advice


TABLES = {
    GroupType.CLASSIC: ADVICE,
    GroupType.CONSUMER: OF_CONSUMERS,
    GroupType.STREAMS: OF_STREAMS_GROUPS,
    GroupType.SHARE: OF_SHARE_GROUPS,
}


@pytest.mark.parametrize(("of_group", "cause"), [(kind, cause) for kind, table in TABLES.items() for cause in table])
def test_advice_for_groups_of_kafka_names_settings_of_the_brokers_for_their_type(
    of_group: GroupType, cause: str
) -> None:
    text = for_brokers(TABLES[of_group][cause], of_group).text
    assert not re.search(r"group_[a-z_]+_ms", text)
    assert set(re.findall(r"group\.(consumer|streams|share)\.", text)) <= {of_group.value}


def test_the_order_of_several_changes_is_not_recorded() -> None:
    observed = running().to(4).started(47_000, "member_gone", CY).started(47_000, "member_joined", DORA)
    observed.gone(47_000, CY).joined(47_000, DORA)
    answer = explained(next_generation(observed))
    assert answer.who == "cy-477b is gone and dora-11aa joined; which came first is not recorded."
    assert (answer.cause, answer.is_avoidable) == ("member_gone", None), "the first, as none is avoidable"


def test_of_several_changes_the_avoidable_one_counts() -> None:
    observed = running().to(4).started(47_000, "member_joined", DORA).started(47_000, "member_gone", CY)
    observed.started(47_000, "member_joined", CY_2).joined(47_000, DORA).gone(47_000, CY).joined(47_000, CY_2)
    answer = explained(next_generation(observed))
    assert (answer.cause, answer.is_avoidable) == ("restarted", True)
    assert answer.who == (
        "dora-11aa joined and cy left and came back under a new id, or lost its session; which came first is not"
        " recorded."
    )


@pytest.mark.parametrize(("more", "told"), [(0, ""), (1, " and 1 more change came"), (3, " and 3 more changes came")])
def test_only_some_of_many_changes_are_named(more: int, told: str) -> None:
    observed = running().to(4)
    newcomers = [member_id(f"new{number}") for number in range(REASONS_SHOWN + more)]
    for who in newcomers:
        observed.started(47_000, "member_joined", who).joined(47_000, who)
    answer = explained(next_generation(observed))
    assert answer.who.count("joined") == REASONS_SHOWN
    assert answer.who.endswith(f"{told or ' and new3-1111 joined'}; which came first is not recorded.")


def test_a_cooperative_round_is_part_of_the_rebalance_before_it() -> None:
    """Walkthrough 8: one rebalance, two generations; while it lasts, nobody owns the partitions."""
    observed = Observed("coop").begins(founded=True).to(1).record(0, {ANA: [0, 1, 2, 3]})
    observed.to(2).started(1_000, "member_joined", BO).joined(1_000, BO)
    observed.completed(1_010, ANA, BO, joined=(BO,), p0=(ANA, None), p1=(ANA, None))
    between = why(group_of(observed))
    assert between is not None
    assert between.generation_id == 2
    observed.to(3).started(2_100, "cooperative_round", ANA)
    observed.completed(2_110, ANA, BO, p0=(None, BO), p1=(None, BO)).record(2_110, {ANA: [2, 3], BO: [0, 1]})
    answer = explained(observed)
    assert (answer.cause, answer.is_avoidable, answer.generation_id) == ("member_joined", False, 3)
    assert answer.who == "bo-4b20 at /127.0.0.1 joined."
    assert answer.details == ["It went on: 2 partitions that ana-1111 gave up were given to bo-4b20."]
    (row,) = answers.timeline(observed.views(), group_of(observed)).rebalances
    assert (row.generations, row.moved, row.joined) == ([2, 3], 2, [BO])
    asked = answers.owner(observed.views(), group_of(observed), "orders", 0, T + 1_500)
    assert (asked.is_known, asked.owner) == (True, None)


WHOLE = {
    "protocol_upgraded": (
        "c3-1111 joined with group.protocol=consumer, and the group became one of the new protocol.", False,
    ),
    "protocol_downgraded": ("The last member of the new protocol is gone, and the group became a classic one.", False),
    "topics_changed": ("The topics changed; which one is not known.", False),
    "unknown": ("All joined again and nothing differs: what asked for it is not recorded.", None),
}  # fmt: skip


@pytest.mark.parametrize(("cause", "who", "is_avoidable"), [(cause, *told) for cause, told in WHOLE.items()])
def test_causes_that_are_no_members_act_have_their_sentences(cause: str, who: str, is_avoidable: bool | None) -> None:
    named = member_id("c3") if cause == "protocol_upgraded" else ""
    answer = explained(next_generation(running().to(4).started(47_000, cause, named)))
    assert (answer.cause, answer.who, answer.is_avoidable) == (cause, who, is_avoidable)
    assert answer.advice.startswith("Not known" if is_avoidable is None else "Unavoidable")


def test_another_assignor_is_named() -> None:
    reason = "range -> cooperative-sticky"
    answer = explained(next_generation(running().to(4).started(47_000, "metadata_changed", reason=reason)))
    assert answer.who == "The assignor changed: range -> cooperative-sticky."


@pytest.mark.parametrize(("rounds", "told"), [(1, "1 round before"), (2, "2 rounds before")])
def test_rounds_without_a_plan_are_counted(rounds: int, told: str) -> None:
    observed = running().to(6).started(47_000, "member_joined", DORA, unplanned_rounds=rounds).joined(47_000, DORA)
    assert explained(next_generation(observed)).details == [f"{told} it ended without a plan."]


def test_generations_that_the_log_does_not_have_are_named() -> None:
    observed = running().to(9).gap(47_000, 4, 9).started(47_000, "unknown")
    answer = explained(next_generation(observed))
    assert (answer.cause, answer.who, answer.is_avoidable) == (
        "history_gap", "Generations 5 to 8 are not in the log any more.", None,
    )  # fmt: skip
    assert group_of(observed).known_from_ms == T + 47_000


def test_one_generation_that_the_log_does_not_have_is_named() -> None:
    answer = explained(next_generation(running().to(6).gap(47_000, 4, 6).started(47_000, "unknown")))
    assert answer.who == "Generation 5 is not in the log any more."


def test_a_generation_that_fell_explains_no_later_rebalance() -> None:
    observed = running().to(2).gap(47_000, 9, 2).started(60_000, "member_joined", DORA).joined(60_000, DORA)
    assert explained(next_generation(observed, 60_010)).cause == "member_joined"
    (event,) = Observed().gap(1, 9, 2).events
    assert to_line(event, 1).text == (
        "the generation fell from 9 to 2: the group was deleted and founded anew, or the log was cut"
    )


def test_more_partitions_are_an_inference() -> None:
    answer = explained(next_generation(running().to(4).started(47_000, "leader_rejoined")))
    assert answer.who == (
        "Partitions are assigned that nobody had before, most likely because a topic has more of them."
    )


# -- flapping ----------------------------------------------------------------------------------------------------------


def flapping_times(times: int) -> Observed:
    observed = running()
    for number in range(times):
        at_ms = 100_000 + number * 200_000
        observed.to(4 + number).started(at_ms, "member_gone", CY).gone(at_ms, CY)
        observed.completed(at_ms + 10, ANA, BO)
    return observed


def test_a_client_that_is_gone_again_and_again_is_avoidable() -> None:
    """One record cannot tell; three within an hour do."""
    assert explained(flapping_times(SHORT_MEMBERSHIPS - 1)).is_avoidable is None
    answer = explained(flapping_times(SHORT_MEMBERSHIPS))
    assert (answer.is_avoidable, answer.flapping, answer.setting) == (True, True, "session.timeout.ms")
    assert answer.who.endswith("; it is behind 3 rebalances of the last hour.")


def test_a_client_that_is_gone_and_back_in_one_record_counts_once() -> None:
    observed = running().to(4).started(47_000, "member_gone", CY).started(47_000, "member_joined", CY_2)
    observed.gone(47_000, CY).joined(47_000, CY_2)
    detail = answers.detail(group_of(next_generation(observed)), {}, T + 60_000)
    assert [(each.client_id, each.rebalances) for each in detail.flapping] == [("cy", 1)]


@pytest.mark.parametrize(("apart_ms", "is_avoidable"), [(UNCHANGED_MS // 2, True), (UNCHANGED_MS // 2 + 1, None)])
def test_rebalances_without_any_change_are_avoidable_if_they_are_many(apart_ms: int, is_avoidable: bool | None) -> None:
    observed = running()
    for number in range(SHORT_MEMBERSHIPS):
        observed.to(4 + number).started(apart_ms * number, "unknown").completed(apart_ms * number + 1, ANA, BO)
    answer = explained(observed)
    assert answer.is_avoidable is is_avoidable
    assert answer.who.startswith("All joined again and nothing differs: what asked for it is not recorded")


# -- causes of groups of the consumer protocol -------------------------------------------------------------------------

DAN = "D00WiDjmTFKJurcyAuofRg"


def modern() -> Observed:
    """Return the records of a group of the consumer protocol, in its epoch 3."""
    observed = Observed("modern", kind="consumer", session_ms=None).begins(founded=True).to(3)
    return observed.record(0, {DAN: [0]}, clients={DAN: "dan"})


def raised(observed: Observed, epoch: int, at_ms: int, cause: str, who: str = "", **fields: Any) -> Observed:
    """Write a cause of an epoch."""
    named = {"client_id": "dan"} if who == DAN else {}
    return observed.to(epoch).started(at_ms, cause, who, is_inferred=False, **named, **fields)


def ended(observed: Observed, at_ms: int = 9_000) -> Why:
    return explained(observed.completed(at_ms, DAN, took_ms=1_000))


def named_topics(observed: Observed, epoch: int, at_ms: int, *changes: TopicChange) -> Observed:
    now = observed.generation_id
    return observed.to(epoch).add(TopicsNamed, at_ms, changes=changes).to(now)


SENTENCES: list[tuple[str, str, dict[str, Any], str, bool | None]] = [
    ("assignor_changed", DAN, {"assignor_before": None, "assignor_after": "range"},
     "dan-D00W at /127.0.0.1 prefers the assignor range now, none before.", True),
    ("assignor_changed", DAN, {"assignor_before": "range", "assignor_after": None},
     "dan-D00W at /127.0.0.1 prefers no assignor now, range before.", True),
    ("assignors_tied", "", {"assignors": {"range": (DAN,), "uniform": (BO,)}},
     ("Members prefer different assignors, one each (dan-D00W: range; bo-4b20: uniform), and Kafka 4.4.0 rebalances at"
     " every heartbeat until they agree."), True),
    ("assignors_tied", "", {"assignors": {"range": (ANA, CY), "uniform": (BO, CY_2)}},
     ("Members prefer different assignors, as many each (ana-1111, cy-477b: range; bo-4b20, cy-99aa: uniform), and"
     " Kafka 4.4.0 rebalances at every heartbeat until they agree."), True),
    ("subscription_changed", DAN, {"topics_added": ("tc",), "topics_removed": ()},
     "dan-D00W at /127.0.0.1 subscribes to tc as well.", False),
    ("subscription_changed", DAN, {"topics_added": ("a", "b", "c", "d"), "topics_removed": ("x", "y")},
     ("dan-D00W at /127.0.0.1 subscribes to a, b, c and 1 more topic as well and does not subscribe to x and y any"
     " more."), False),
    ("subscription_changed", DAN, {"topics_removed": ("x",), "pattern": "pt-.*"},
     "dan-D00W at /127.0.0.1 does not subscribe to x any more and subscribes by the pattern pt-.* now.", False),
    ("subscription_changed", DAN, {"pattern": ""}, "dan-D00W at /127.0.0.1 has no pattern any more.", False),
    ("regex_resolved", DAN, {"pattern": "pt-.*", "topics_added": ("pt-2",), "topics_removed": ()},
     "pt-2 matches the pattern pt-.* of dan-D00W.", False),
    ("regex_resolved", "", {"pattern": "pt-.*", "topics_added": ("pt-2", "pt-3"), "topics_removed": ("pt-1",)},
     "pt-2 and pt-3 match the pattern pt-.* of several members and pt-1 does not match it any more.", False),
    ("revocation_overdue", DAN, {"timeout_ms": 10_000},
     ("dan-D00W at /127.0.0.1 did not give up partitions within its rebalance timeout (max.poll.interval.ms) of 10.0 s"
     " and was dropped."), True),
    ("topics_changed", "", {}, "The topics changed; which one is not known.", False),
    ("brokers_upgraded", "", {},
     "The brokers were upgraded from Kafka 4.0, and record the group's topics in another way since.", False),
    ("unknown", "", {},
     "Nothing differs that Kafka records: no member, no subscription, no assignor and no topic.", None),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "who", "fields", "sentence", "is_avoidable"), SENTENCES)
def test_each_cause_of_an_epoch_has_its_sentence(
    cause: str, who: str, fields: dict[str, Any], sentence: str, is_avoidable: bool | None
) -> None:
    observed = raised(modern(), 4, 8_000, cause, who, **fields)
    answer = ended(observed)
    assert (answer.cause, answer.who, answer.is_avoidable) == (cause, sentence, is_avoidable)
    (line,) = [each for each in observed.events if isinstance(each, RebalanceStarted)]
    assert to_line(line, 1).text.startswith(f"rebalance: {cause.replace('_', ' ')}")


CHANGED: list[tuple[list[TopicChange], str, str]] = [
    ([TopicChange("orders", "partitions", 8, 12)], "orders has 12 partitions now, 8 before.", "topics_changed"),
    ([TopicChange("orders", "deleted", 8)], "orders was deleted.", "topics_changed"),
    ([TopicChange("orders", "made", None, 1)], "orders was made, with 1 partition.", "topics_changed"),
    ([TopicChange("orders", "made_anew", 8, 8)], "orders was made anew (another id).", "topics_changed"),
    ([TopicChange("orders", "racks", 8, 8)],
     "The replicas of orders are on other racks: no partition changed, Kafka rebalances all the same.",
     "racks_changed"),
    ([TopicChange("ta", "partitions", 4, 6), TopicChange("tb", "deleted", 4), TopicChange("tc", "racks", 4, 4)],
     ("ta has 6 partitions now, 4 before, tb was deleted and the replicas of tc are on other racks: no partition"
     " changed, Kafka rebalances all the same."), "topics_changed"),
    ([TopicChange(f"t{n}", "deleted", 4) for n in range(5)],
     "t0 was deleted, t1 was deleted, t2 was deleted and 2 more topics changed.", "topics_changed"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "sentence", "cause"), CHANGED)
def test_changed_topics_are_named(changes: list[TopicChange], sentence: str, cause: str) -> None:
    """The names come later than the end of the rebalance."""
    observed = raised(modern(), 4, 8_000, "topics_changed").completed(9_000, DAN, took_ms=1_000)
    answer = explained(named_topics(observed, 4, 9_500, *changes))
    assert (answer.who, answer.cause, answer.is_avoidable) == (sentence, cause, False)
    assert [each.topics for each in answer.epochs] == [[each.topic for each in changes]]
    told = to_line(observed.events[-1], 1).text
    assert told.lower() == f"changed topics of group epoch 4: {sentence[:-1]}".lower()


def test_names_belong_to_their_epoch() -> None:
    """A group that was deleted and founded again has the same epochs once more."""
    observed = named_topics(modern(), 4, 7_000, TopicChange("old", "deleted", 4))
    assert ended(raised(observed, 4, 8_000, "topics_changed")).who == "The topics changed; which one is not known."


def test_names_are_dropped_with_their_events() -> None:
    observed = raised(modern(), 4, 8_000, "topics_changed")
    group = group_of(named_topics(observed, 4, 8_000, TopicChange("ta", "deleted", 4)).completed(9_000, DAN))
    assert group.topics_named[4]
    group.forget(0)
    assert not group.topics_named[4]


def test_join_and_changed_topic_of_one_epoch_are_both_named() -> None:
    """W5: also if only the driver could tell that a topic has changed."""
    for is_recorded in True, False:
        observed = raised(modern(), 4, 8_000, "member_joined", CY)
        if is_recorded:
            observed = raised(observed, 4, 8_000, "topics_changed")
        answer = ended(named_topics(observed, 4, 8_500, TopicChange("tc", "partitions", 4, 6)))
        assert answer.who == "cy-477b joined and tc has 6 partitions now, 4 before."


def test_order_of_epochs_is_recorded() -> None:
    observed = raised(modern(), 4, 8_000, "member_joined", CY)
    observed = raised(observed, 5, 8_500, "topics_changed")
    assert ended(observed).who == "cy-477b joined, then the topics changed, which one is not known."


def test_cause_of_many_epochs_is_named_once() -> None:
    """W2: the tie of Kafka 4.4.0."""
    observed = modern()
    for number in range(7):
        raised(observed, 4 + number, 1_000 * number, "assignors_tied", assignors={"range": (DAN,), "uniform": (BO,)})
    answer = ended(observed)
    assert answer.who.count("Members prefer") == 1
    assert answer.who.endswith(" rebalances at every heartbeat until they agree (7 times).")
    assert answer.details[0] == f"Group epochs 4 to 10, {clock(T)} to {clock(T + 6_000)}: assignors tied."


def test_partitions_of_a_deleted_topic_are_no_fault() -> None:
    observed = raised(modern(), 4, 8_000, "topics_changed")
    named_topics(observed, 4, 8_000, TopicChange("orders", "deleted", 4))
    answer = explained(observed.completed(9_000, DAN, took_ms=1_000, p0=(DAN, None)))
    assert not any("without an owner since" in each for each in answer.details)


def test_static_member_of_the_consumer_protocol_that_stays_away() -> None:
    """W10: its session timeout is a setting of the brokers, and it leaves when it is closed."""
    observed = modern()
    observed.to(4).gone(8_000, DAN, None, "expired", instance="till-2")
    answer = ended(raised(observed, 4, 8_000, "member_gone", DAN))
    assert answer.cause == "session_expired"
    assert "group.consumer.session.timeout.ms of the brokers" in answer.advice
    assert "{" not in answer.advice


def test_no_advice_has_a_placeholder() -> None:
    observed = running().to(4).started(47_000, "member_gone", CY).gone(47_000, CY, None, "expired", instance="till-2")
    assert "session.timeout.ms (6.0 s) must" in explained(next_generation(observed)).advice


def test_deleted_group_of_the_consumer_protocol_has_epochs() -> None:
    """W10: the record of the group is gone, its history is not."""
    group = group_of(raised(modern(), 4, 8_000, "member_joined", CY).completed(9_000, DAN, took_ms=1_000))
    group.record = None
    answer = why(group)
    assert answer is not None
    assert "to group epoch 4:" in answer.what
    assert answer.details[0].startswith("Group epoch 4 at ")


def test_epoch_of_the_last_leave_has_its_cause() -> None:
    """W10: two leaves, the second before the rebalance of the first is complete."""
    observed = raised(modern(), 7, 8_000, "member_gone", BO).gone(8_000, BO)
    observed = raised(observed, 8, 8_300, "member_gone", CY).gone(8_300, CY)
    answer = explained(observed.emptied(8_300))
    assert "to group epoch 8, which has no members." in answer.what
    assert answer.who == "bo-4b20 is gone, then cy-477b is gone."
    assert [each.group_epoch for each in answer.epochs] == [7, 8]


def test_group_with_only_offsets_is_kept_by_kafka() -> None:
    """M5: commands that do not read events show it as well."""
    views = Observed("simple").commits(0, 0, 5, stands_for=1).views()
    assert views.groups["simple"].kept_by == "kafka"
    assert Observed("ours").commits(0, 0, 5).views().groups["ours"].kept_by is None


def joined_again(*sets: int) -> Observed:
    """Return the records of a group whose offsets were set at these times while it was empty, and that has members."""
    observed = running().to(4).gone(45_000, CY).emptied(45_000)
    for at_ms in sets:
        observed.set(at_ms, ("sin", 0, 4_241, 100))
    return observed.to(5).started(70_000, "member_joined", ANA).joined(70_000, ANA).completed(70_010, ANA)


def set_at(at_ms: int) -> str:
    return (
        f"Offsets of sin were set back at {clock(T + at_ms)} (partition 0 from 4,241 to 100) while the group had no"
        " members: an operator, most likely."
    )


def test_why_names_the_offsets_that_were_set_before_a_rebalance() -> None:
    observed = joined_again(50_000, 60_000)
    assert explained(observed).details == [set_at(50_000), set_at(60_000)]
    observed.emptied(80_000)
    assert explained(observed.set(85_000, ("sin", 0, 4_241, 100))).details[2:] == [set_at(85_000)]
    observed.to(6).started(90_000, "member_joined", BO).joined(90_000, BO).completed(90_010, BO)
    assert explained(observed).details == [set_at(85_000)]
    assert explained(observed, 75_000).details == [set_at(50_000), set_at(60_000), set_at(85_000)]


def test_why_names_only_the_last_offsets_that_were_set() -> None:
    details = explained(joined_again(*range(50_000, 50_006))).details
    assert details[0] == "Before, offsets were set or forgotten 3 more times."
    assert details[1:] == [set_at(each) for each in (50_003, 50_004, 50_005)]


def test_why_names_the_offsets_that_were_forgotten() -> None:
    """The topic is deleted before, during or after the rebalance that follows."""
    observed = running().forgotten(46_000, "deleted").to(4).started(47_000, "member_gone", CY).gone(47_000, CY)
    observed.forgotten(47_050, "expired or deleted", ("a", 0), ("a", 1)).completed(47_076, ANA, BO)
    assert explained(observed).details == [
        f"Offsets were forgotten at {clock(T + 46_000)} (orders 0): the topic was deleted, or an operator deleted it.",
        f"Offsets were forgotten at {clock(T + 47_050)} (a 0-1): expired or deleted.",
    ]


# -- the form of all sentences -----------------------------------------------------------------------------------------

NAMES = r"Kafka\b"
"""The words with a capital that may stand in the middle of a sentence."""

NO_NAME = re.compile(r"(?:a client|the|partitions|members|generations?|group epochs?|[0-9]+ rounds?) ")
"""The beginnings of sentences that need a capital."""


def check_form(answer: Why, *, is_consumer: bool) -> None:
    """W10: no placeholder is left, no sentence begins in another one, and epochs are no generations."""
    for sentence in (answer.what, answer.who, *answer.details, answer.advice):
        assert sentence[-1] == "."
        assert not re.search(r"[{}]|  | ,|\.\.", sentence), sentence
        assert not re.search(rf"(?:[,;:]| and| then) (?!{NAMES})[A-Z]", sentence), sentence
        assert not NO_NAME.match(sentence), sentence
        assert not (is_consumer and "generation" in sentence), sentence


ALL_CAUSES = [each.value for each in ObservedCause]
FEW = ("member_joined", "member_gone", "metadata_changed", "topics_changed", "assignors_tied", "regex_resolved")


@pytest.mark.parametrize("who", [(CY, ""), ("", BO)])
@pytest.mark.parametrize("second", FEW)
@pytest.mark.parametrize("first", ALL_CAUSES)
def test_sentences_have_their_form(first: str, second: str, who: tuple[str, str]) -> None:
    """Also about a cause whose member is not known."""
    for kind in ("classic", "consumer"):
        is_consumer = kind == "consumer"
        for causes in ([first], [first, second]):
            observed = Observed(kind=kind).begins().to(3).record(0, {ANA: [0]})
            for number, (cause, member) in enumerate(zip(causes, who, strict=False)):
                epoch = 4 + number if is_consumer else 4
                fields = {"pattern": "a.*"} if cause == "regex_resolved" else {}
                observed.to(epoch).started(8_000 + number, cause, member, is_inferred=not is_consumer, **fields)
            took_ms = 900 if is_consumer else None
            check_form(explained(observed.completed(9_000, ANA, took_ms=took_ms)), is_consumer=is_consumer)


@pytest.mark.parametrize(("epochs", "begins"), [(6, "1 earlier epoch; group epoch 5 at "), (5, "Group epoch 4 at ")])
def test_earlier_epochs_are_counted(epochs: int, begins: str) -> None:
    observed = modern()
    for number in range(epochs):
        raised(observed, 4 + number, 8_000 + number, FEW[number], DAN)
    answer = ended(observed)
    assert answer.details[0].startswith(begins)
    check_form(answer, is_consumer=True)


def test_missing_epochs_are_no_generations() -> None:
    epochs = {"from_generation": 3, "to_generation": 9, "group_type": "consumer"}
    observed = modern().to(9).add(HistoryGap, 7_000, **epochs, holes=True)
    answer = ended(raised(observed, 9, 7_000, "member_joined", DAN))
    assert answer.who == "Group epochs 4 to 8 are not in the log any more."
    check_form(answer, is_consumer=True)


def test_last_member_that_left_gives_its_partitions_to_nobody() -> None:
    observed = raised(modern(), 4, 8_000, "member_gone", DAN).gone(8_000, DAN, 7_900, "left")
    answer = explained(observed.emptied(8_000))
    assert answer.advice == "Unavoidable: the last member left. Nobody owns the partitions until a member joins."
