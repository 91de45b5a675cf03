"""Tests of what views show of policies: vacant seats, their takers, rebalances that are held, and advice."""

from typing import Any

import pytest
from msgspec import UNSET, structs

from coordinator.messages.events import AnyEvent, GroupEmptied, MemberFenced
from coordinator.messages.policy_events import QuarantineEnded
from streaming.views import Views
from streaming.views.api import answers
from streaming.views.history.owners import spans_of_owners, token_at
from streaming.views.history.vacancies import SeatHistory, hold_now
from streaming.views.sentences.rebalances import hold_in_words, quarantine_in_words, vacancy_in_words
from streaming.views.sentences.why import Why, why
from streaming.views.text import clock
from tests.streaming.views.deploy import (
    DEPLOY,
    FOUNDED,
    HOLD,
    NOON_MS,
    NOW_MS,
    RECORD,
    S,
    completed,
    deploy_views,
    event,
    expired,
    held,
    joined,
    left,
    started,
    taken,
    vacated,
    view,
)

# -- owners ------------------------------------------------------------------------------------------------------------


def test_nobody_owns_a_partition_while_its_seat_is_vacant() -> None:
    """policies.md 3.4: from `seat_vacated` to `seat_taken`, in one generation."""
    spans = spans_of_owners(deploy_views().groups["deploy"])
    told = {
        place[1]: [
            (s.member_id, ((s.from_ms or 0) - NOON_MS), s.to_ms and s.to_ms - NOON_MS, s.seat_of, s.how) for s in each
        ]
        for place, each in spans.items()
    }
    assert told == {
        0: [("c1", 1 * S, 30 * S, None, None), ("d1", 30_300, None, "c1", "passed")],
        1: [("c2", 1 * S, 10 * S, None, None), ("d2", 14 * S, 115 * S, "c2", "took")],
        2: [("c3", 1 * S, 40 * S, None, None), ("d1", 100_100, None, "c3", "adopted")],
    }
    assert {s.generation_id for each in spans.values() for s in each} == {2}


@pytest.mark.parametrize(("after_ms", "owner", "kept_for", "token"), [
    (9_999, "c2", None, 1),
    (10_000, None, "c2", None),
    (13_999, None, "c2", None),
    (14_000, "d2", None, 14_000),
    (115_000, None, "d2", None),
])  # fmt: skip
def test_the_owner_of_a_partition_at_a_time(after_ms: int, owner: str | None, kept_for: str | None, token: Any) -> None:
    """policies.md 3.4: nobody, for whom the seat was kept, and the token of its taker."""
    views = deploy_views()
    answer = answers.owner(views, views.groups["deploy"], "t", 1, NOON_MS + after_ms, NOW_MS)
    assert (answer.owner and answer.owner.member_id, answer.seat and answer.seat.member_id) == (owner, kept_for)
    assert (answer.is_known, answer.fencing_token) == (True, token)


def test_a_seat_from_before_the_history_has_its_owner_before() -> None:
    """The events before the last one have expired."""
    group = view(taken(14 * S, "d2", "took", "c2", 4 * S, 1))
    (spans,) = spans_of_owners(group).values()
    assert [(s.member_id, s.from_ms, s.to_ms) for s in spans] == [
        ("c2", None, NOON_MS + 10 * S),
        ("d2", NOON_MS + 14 * S, None),
    ]
    (seat,) = SeatHistory(group.events).seats
    assert (seat.vacated_ms, seat.taken_by, seat.policy) == (NOON_MS + 10 * S, "d2", None)


def test_added_partitions_have_no_owner_before() -> None:
    group = view(*FOUNDED, vacated(5 * S, "", 65 * S, 3, policy="freeze", cause="partitions_added"),
                 taken(66 * S, "c1", "adopted", "", 61 * S, 3))  # fmt: skip
    (span,) = spans_of_owners(group)["t", 3]
    assert (span.member_id, span.seat_of, span.how) == ("c1", None, "adopted")
    assert token_at(group, "c1", NOON_MS + 66 * S) == 66 * S


# -- holds -------------------------------------------------------------------------------------------------------------


def periods(*events: AnyEvent) -> list[tuple[int, int | None, list[str], int, str | None]]:
    history = SeatHistory(events)
    return [
        (p.from_ms - NOON_MS, p.to_ms and p.to_ms - NOON_MS, p.policies, len(p.causes), p.ended)
        for p in history.periods
    ]


def test_a_rebalance_is_held_until_its_causes_are_gone() -> None:
    """policies.md 1.1: a hold ends with its last pending hold, without a rebalance."""
    assert periods(*FOUNDED, *DEPLOY) == [
        (10 * S, 14 * S, ["succession"], 1, "taken"),
        (20 * S, 30_300, ["succession"], 2, "taken"),
        (40 * S, 100_100, ["freeze"], 1, "taken"),
        (112 * S, None, ["freeze"], 2, None),
    ]


def test_a_rebalance_ends_all_debts() -> None:
    events = [
        vacated(10 * S, "c2", 40 * S, 1),
        held(12 * S, "d1", 20 * S, "settle"),
        started(20 * S, "member_left", "c2"),
    ]
    assert periods(*events) == [(10 * S, 20 * S, ["succession", "settle"], 2, "rebalanced")]
    history = SeatHistory(events)
    assert (history.vacant, history.standing_by) == ([], {})
    assert (history.seats[0].ended, history.seats[0].taken_by) == ("rebalanced", None)


def test_a_newcomer_that_goes_away_is_no_cause_any_more() -> None:
    assert periods(held(1, "d1", 9), left(3, "d1")) == [(1, 3, ["succession"], 1, "taken")]
    assert periods(held(1, "d1", 9), held(2, "d2", 9), expired(3, "d1")) == [(1, None, ["succession"], 2, None)]
    assert periods(vacated(1, "c1", 9, 0), event(GroupEmptied, 2)) == [(1, 2, ["succession"], 1, "emptied")]


def test_a_static_member_keeps_its_standing_over_a_restart() -> None:
    fenced = event(MemberFenced, 5, "d1", replaced_by="d9", replaced_by_client_id="d", replaced_by_client_host="/d9")
    quarantined = next(e for e in DEPLOY if type(e).__name__ == "MemberQuarantined")
    history = SeatHistory([held(1, "d1", 9), structs.replace(quarantined, member_id="d1"), fenced])
    assert [*history.standing_by] == [*history.quarantined] == ["d9"]
    ended = SeatHistory([quarantined, event(QuarantineEnded, 7, "f1", identity="f/f1", why="over")])
    assert ended.quarantined == {}


def test_the_effect_of_policies_now() -> None:
    """policies.md 3.4: since when, until when, which seats, who stands by and who is in quarantine."""
    hold = hold_now(deploy_views().groups["deploy"])
    assert hold is not None
    assert (hold.since_ms, hold.until_ms, hold.frozen_until_ms) == (HOLD.since_ms, HOLD.until_ms, HOLD.frozen_until_ms)
    assert [(seat.member_id, seat.partitions) for seat in hold.seats] == [("d2", {"t": [1]})]
    assert [(each.member_id, each.policy) for each in hold.standing_by] == [("g1", "freeze")]
    assert [(each.member_id, each.flaps, each.times) for each in hold.quarantined] == [("f1", 3, 2)]
    assert hold_in_words(hold, NOW_MS) == (
        f"for 12.0 s, until {clock(HOLD.until_ms)} at the latest: 1 seat vacant (d2, 1 partition), 1 member standing by"
    )
    (quarantine,) = hold.quarantined
    assert (
        quarantine_in_words(quarantine) == f"f1 until {clock(NOON_MS + 300 * S)}: 3 memberships of f/f1 ended too soon"
    )


def test_the_record_alone_shows_the_effect_of_policies() -> None:
    """The events may have expired, or be read later than the record."""
    hold = hold_now(view(record=RECORD))
    assert hold is not None
    assert (hold.vacant, hold.seats, hold.standing_by[0].policy, hold.quarantined[0].until_ms) == (1, [], None, None)
    assert (hold_in_words(hold, NOW_MS) or "").endswith("at the latest: 1 seat vacant, 1 member standing by")
    assert quarantine_in_words(hold.quarantined[0]) == "f1"
    frozen = structs.replace(RECORD, hold=structs.replace(HOLD, since_ms=None, until_ms=None, vacant=0), members=())
    assert hold_in_words(hold_now(view(record=frozen)) or hold, NOW_MS) is None
    assert hold_now(view(record=structs.replace(RECORD, hold=UNSET))) is None


def test_a_timeline_has_seats_and_holds_of_its_period() -> None:
    views = deploy_views()
    whole = answers.timeline(views, views.groups["deploy"])
    assert ([s.member_id for s in whole.seats], len(whole.holds)) == (["c2", "c1", "c3", "d2"], 4)
    part = answers.timeline(views, views.groups["deploy"], NOON_MS + 31 * S, NOON_MS + 110 * S)
    assert ([s.member_id for s in part.seats], len(part.holds)) == (["c3"], 1)
    assert {m.member_id: m.standing for m in answers.members(views.groups["deploy"])} == {
        "d1": None, "f1": "quarantined", "g1": "standing_by",
    }  # fmt: skip


@pytest.mark.parametrize(("index", "text"), [
    (0, (f"nobody from {clock(NOON_MS + 10 * S)} to {clock(NOON_MS + 14 * S)}: the seat of c2 (member left) was kept"
         f" by succession until {clock(NOON_MS + 40 * S)} at the latest; d2 took it")),
    (3, (f"nobody since {clock(NOON_MS + 115 * S)}: the seat of d2 (member left) is kept by"
         f" freeze until {clock(NOON_MS + 175 * S)} at the latest")),
])  # fmt: skip
def test_a_vacancy_in_words(index: int, text: str) -> None:
    assert vacancy_in_words(SeatHistory(DEPLOY).seats[index]) == text


def test_a_vacancy_that_nobody_ended_in_words() -> None:
    for end, text in ((started(9, "member_left", "c2"), "then the group rebalanced"),
                      (event(GroupEmptied, 9), "then the group had no members")):  # fmt: skip
        (seat,) = SeatHistory([vacated(5, "", 40, 1), end]).seats
        told = vacancy_in_words(seat)
        assert "the seat of added partitions" in told
        assert told.endswith(text)


# -- why ---------------------------------------------------------------------------------------------------------------


def explained(*events: AnyEvent, at_ms: int | None = None) -> Why:
    answer = why(view(*events), at_ms)
    assert answer is not None
    return answer


def test_why_counts_the_seats_that_passed_on() -> None:
    """policies.md 3.4: restarts, rebalances, and the longest time without an owner."""
    told = explained(*FOUNDED, *DEPLOY)
    assert told.seats is not None
    assert (told.seats.vacated, told.seats.taken, told.seats.rebalances, told.seats.unowned_max_ms) == (4, 3, 0, 60_100)
    (sentence,) = told.policies
    assert sentence == (
        "Within a day, 4 departures became 0 rebalances: 3 seats passed on, the longest 1.0 min without an owner"
        " (freeze, succession)."
    )
    assert explained(*FOUNDED, *DEPLOY, at_ms=NOON_MS + 5 * S).seats is None


def test_why_names_what_was_held_and_for_how_long() -> None:
    """policies.md 3.4: of a rebalance, which pending hold, and how long it was held."""
    causes = [left(10 * S, "c2"), vacated(10 * S, "c2", 40 * S, 1), held(20 * S, "d1", 50 * S, "settle")]
    told = explained(*FOUNDED, *causes, started(40 * S, "member_left", "c2", held_ms=30 * S))
    assert told.held is not None
    assert (told.held.held_ms, told.held.vacant, told.spared_by) == (30 * S, ["c2"], None)
    assert told.policies == [
        "It was held for 30.0 s by succession and settle, for 2 causes; nobody took the seat of c2.",
        "Within a day, 1 departure became 1 rebalance: no seat passed on (succession).",
    ]
    (row,) = answers.timeline(Views(), view(started(5, "operator", "", held_ms=4))).rebalances
    assert row.held_ms == 4


SPARED = {
    "leave first": ([left(10 * S, "c2"), started(10 * S, "member_left", "c2"), joined(14 * S, "c9")],
                    "succession", "c9 joined 4.0 s after c2 was gone"),
    "surge first": ([joined(10 * S, "c9"), started(10 * S, "member_joined", "c9"), left(15 * S, "c2")],
                    "succession", "c9 joined 5.0 s before c2 was gone"),
    "the second rebalance of leave first": (
        [left(10 * S, "c2"), started(10 * S, "member_left", "c2"),
         completed(12 * S, 2, "c1", "c3", before=("c1", "c2")), joined(14 * S, "c9"),
         started(14 * S, "member_joined", "c9")],
        "succession", "c9 joined 4.0 s after c2 was gone"),
    "expired": ([expired(10 * S, "c2"), started(10 * S, "session_expired", "c2"), joined(39 * S, "c9")],
                "succession", "c9 joined 29.0 s after c2 was gone"),
    "too late": ([left(100 * S, "c2"), started(100 * S, "member_left", "c2"), joined(131 * S, "c9")], None, ""),
    "another client": ([left(100 * S, "c2"), started(100 * S, "member_left", "c2"), joined(101 * S, "d9")], None, ""),
    "other topics": ([left(100 * S, "c2"), started(100 * S, "metadata_changed", "c2")], None, ""),
    "newcomers": (
        [e for n, at in enumerate((100, 102, 105)) for e in (
            joined(at * S, f"n{n}"), started(at * S, "member_joined", f"n{n}"),
            completed(at * S + 900, 2, "c1", before=("c1",)))],
        "settle", "one of these 3 rebalances"),
    "newcomers far apart": (
        [e for n, at in enumerate((100, 104)) for e in (
            joined(at * S, f"n{n}"), started(at * S, "member_joined", f"n{n}"),
            completed(at * S + 900, 2, "c1", before=("c1",)))],
        None, ""),
    "a crash loop": (
        [*(structs.replace(expired(at * S, f"x{at}"), client_host="/x") for at in (100, 300, 500)),
         structs.replace(started(700 * S, "session_expired", "x700"), client_host="/x")],
        "quarantine", "x at /x was dropped 3 times in 15.0 min before it"),
    "under a policy": (
        [vacated(5 * S, "c3", 9 * S, 2), left(10 * S, "c2"), started(10 * S, "member_left", "c2"),
         joined(14 * S, "c9")],
        None, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", SPARED)
def test_why_names_the_policy_that_would_have_spared_the_rebalance(case: str) -> None:
    """policies.md 3.4: without a policy, by client ids."""
    events, policy, text = SPARED[case]
    told = explained(*FOUNDED, *events)
    assert told.spared_by == policy
    assert text in " ".join(told.policies)


def test_the_first_rebalance_of_a_group_is_not_spared() -> None:
    """A hold needs a group that is Stable."""
    told = explained(*FOUNDED, left(5 * S, "c2"), at_ms=NOON_MS + 1 * S)
    assert (told.spared_by, told.policies) == (None, [])
