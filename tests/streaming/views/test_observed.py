"""What is said about groups that Kafka's own coordinator keeps: nothing that Kafka does not record is invented."""

import re

import pytest

from streaming.views import GroupView
from streaming.views.api import answers
from streaming.views.history.advice import ADVICE, OF_CONSUMERS, Advice, for_brokers
from streaming.views.sentences.observed import REASONS_TOLD
from streaming.views.sentences.observed_why import FLAPPING, UNCHANGED_MS
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


@pytest.mark.parametrize("advice", [*ADVICE.values(), *OF_CONSUMERS.values()])
def test_no_advice_for_groups_of_kafka_names_a_setting_of_this_coordinator(advice: Advice) -> None:
    assert not re.search(r"group_[a-z_]+_ms", for_brokers(advice).text)


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
    newcomers = [member_id(f"new{number}") for number in range(REASONS_TOLD + more)]
    for who in newcomers:
        observed.started(47_000, "member_joined", who).joined(47_000, who)
    answer = explained(next_generation(observed))
    assert answer.who.count("joined") == REASONS_TOLD
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
    "topics_changed": ("A subscribed topic has other partitions, was made or deleted.", False),
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
    assert explained(flapping_times(FLAPPING - 1)).is_avoidable is None
    answer = explained(flapping_times(FLAPPING))
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
    for number in range(FLAPPING):
        observed.to(4 + number).started(apart_ms * number, "unknown").completed(apart_ms * number + 1, ANA, BO)
    answer = explained(observed)
    assert answer.is_avoidable is is_avoidable
    assert answer.who.startswith("All joined again and nothing differs: what asked for it is not recorded")
