"""How groups that Kafka's own coordinator keeps are shown: owners, the timeline, the texts of events, and the state."""

import pytest

from coordinator.base.states import Phase
from coordinator.messages.events import GroupDeleted
from streaming.cli.groups.history import show_owner, timeline_lines
from streaming.cli.lib.output import Output, OutputFormat
from streaming.views.api import answers
from streaming.views.sentences.records import to_line
from streaming.views.sentences.why import why
from streaming.views.text import clock
from tests.streaming.views.observing import Observed, T, member_id
from tests.streaming.views.test_observed import ANA, BO, CY, CY_2, group_of, running

# -- owners ------------------------------------------------------------------------------------------------------------


def owner_line(observed: Observed, at_ms: int, capsys: pytest.CaptureFixture[str]) -> str:
    views = observed.views()
    to = Output(OutputFormat.table)
    show_owner(views, views.groups["clicks"], "orders", 2, T + at_ms, T + 100_000, to)
    return capsys.readouterr().out


def test_a_member_that_is_gone_owns_until_the_joins_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Walkthrough 6."""
    observed = Observed().begins(30_000).to(3).record(39_990, {ANA: [0], BO: [1], CY: [2]})
    observed.to(4).started(47_000, "member_gone", CY).gone(47_000, CY, 34_200)
    observed.completed(47_076, ANA, BO, gone=(CY,), p2=(CY, ANA)).record(47_076, {ANA: [0, 2], BO: [1]})
    assert "(gone; its last commit was at " in owner_line(observed, 46_999, capsys)
    assert f": {ANA}, client ana at /127.0.0.1, from " in owner_line(observed, 47_076, capsys)
    assert ": nobody; before: cy-477b" in owner_line(observed, 47_050, capsys)
    assert ": not known: the history begins at " in owner_line(observed, 29_999, capsys)
    assert observed.views().known_from_ms(group_of(observed)) == T + 30_000


def test_a_group_that_was_founded_under_observation_is_known_from_the_beginning() -> None:
    assert group_of(Observed().begins(30_000, founded=True)).known_from_ms == 0


# -- the timeline ------------------------------------------------------------------------------------------------------


def lines(observed: Observed) -> list[str]:
    return [
        f"{line.event}  {line.text}" for line in timeline_lines(answers.timeline(observed.views(), group_of(observed)))
    ]


def test_the_timeline_shows_when_an_inferred_rebalance_began_at_the_earliest() -> None:
    """Walkthrough 3; nowhere is a duration of the joins."""
    observed = Observed().begins().to(2).started(5_000, "member_joined", BO, after_ms=1_000).joined(5_000, BO)
    observed.completed(5_004, ANA, BO, joined=(BO,), p0=(ANA, BO), p1=(ANA, BO))
    told = lines(observed)
    assert told[0] == "observation_began  the history begins here"
    assert told[1] == (
        f"rebalance  member joined, bo-4b20 at /127.0.0.1; began after {clock(T + 1_000)}, not recorded when; plan"
        " 4 ms; 2 members, led by ana-1111; joined bo-4b20; 2 partitions changed hands"
    )
    assert not any("joins" in line for line in told)


def test_a_static_member_that_came_back_is_no_rebalance() -> None:
    """Walkthrough 7."""
    observed = (
        Observed().begins().to(1).fenced(5_000, member_id("till-1", "8647"), member_id("till-1", "98a0"), "till-1")
    )
    assert lines(observed)[-1] == (
        "member_fenced  till-1 restarted at /127.0.0.1: till-1-98a0 goes on as till-1 in place of till-1-8647"
    )
    assert why(group_of(observed)) is None


FACTS = ". Its last commit was 8.0 s before, its session is 6.0 s"
EVENTS = {
    "member_gone": (
        Observed().gone(9_000, CY, 1_000),
        f"cy-477b is gone: left or expired, Kafka does not record which{FACTS}",
    ),
    "left": (
        Observed().gone(9_000, CY, 8_000, "left"),
        "cy-477b is gone: it left, most likely. Its last commit was 1.0 s before, its session is 6.0 s",
    ),
    "history_gap": (Observed().gap(9_000, 4, 9), "generations 5 to 8 are not in the log any more"),
    "offsets_forgotten": (
        Observed().forgotten(1, "expired or deleted"),
        "1 offset forgotten (orders 0): expired or deleted",
    ),
    "an offset deleted": (
        Observed().forgotten(1, "deleted"),
        "1 offset forgotten (orders 0): the topic was deleted, or an operator deleted it",
    ),
    "offsets deleted": (
        Observed().forgotten(1, "deleted", *((f"t{n}", p) for n in range(5) for p in range(2))),
        ("10 offsets forgotten (t0 0-1, t1 0-1, t2 0-1 and 2 more topics): the topics were deleted, or an operator"
        " deleted them"),
    ),
    "group deleted": (Observed().add(GroupDeleted, 1, why="deleted"), "group deleted on request"),
    "group expired": (
        Observed().add(GroupDeleted, 1, why="expired, most likely"),
        "group deleted: its offsets expired, most likely",
    ),
    "group expired or deleted": (
        Observed().add(GroupDeleted, 1, why="expired or deleted"),
        "group deleted: its offsets expired, or it was deleted on request",
    ),
    "group unused": (
        Observed().add(GroupDeleted, 1, why="no member and no offset left"),
        "group deleted: no member and no offset left",
    ),
    "our group deleted": (Observed().add(GroupDeleted, 1, why="deleted on request"), "group deleted on request"),
    "set back": (
        Observed().set(1, ("sin", 0, 4_241, 100)),
        ("offsets of sin set back (partition 0 from 4,241 to 100) while the group had no members: an operator, most"
        " likely"),
    ),
    "set forward": (
        Observed().set(1, ("sin", 0, 1, 9), ("sin", 1, 1, 9)),
        ("offsets of sin set forward (partition 0 from 1 to 9 and partition 1 from 1 to 9) while the group had no"
        " members: an operator, most likely"),
    ),
    "set": (
        Observed().set(1, ("sin", 0, None, 0), ("tan", 1, 9, 1)),
        ("offsets of sin and tan set (sin 0 to 0 and tan 1 from 9 to 1) while the group had no members: an operator,"
        " most likely"),
    ),
    "many set": (
        Observed().set(1, *(("sin", n, None, n) for n in range(5)), more=7),
        ("offsets of sin set (partition 0 to 0, partition 1 to 1, partition 2 to 2 and 9 more partitions) while the"
        " group had no members: an operator, most likely"),
    ),
    "rebalance_started": (
        Observed().started(5_000, "member_joined", BO, after_ms=1_000),
        f"rebalance: member joined, bo-4b20 at /127.0.0.1; began after {clock(T + 1_000)}, not recorded when",
    ),
    "rebalance_completed": (Observed().completed(5_000, ANA, BO), "rebalanced (plan 4 ms), 2 members"),
}  # fmt: skip


@pytest.mark.parametrize(("observed", "text"), EVENTS.values(), ids=EVENTS)
def test_each_event_has_its_text(observed: Observed, text: str) -> None:
    (event,) = observed.events
    assert to_line(event, event.at_ms).text == text


# -- the state ---------------------------------------------------------------------------------------------------------


def test_a_group_says_who_keeps_it() -> None:
    observed = running()
    assert answers.summary(group_of(observed), {}, T).kept_by == "kafka"
    assert group_of(Observed().record(0, {ANA: [0]})).kept_by == "kafka", "also by its record alone"


def test_who_committed_is_not_recorded() -> None:
    observed = running().commits(50_000, 0, 17).commits(51_000, 0, 19, stands_for=250)
    (row, *_) = answers.offsets(group_of(observed), {})
    assert (row.committed_offset, row.committed_by, row.commit_generation_id) == (19, None, None)
    assert group_of(observed).tallied.commits == 251


@pytest.mark.parametrize("kind", ["share", "streams"])
def test_share_and_streams_groups_are_listed_by_name_and_kind(kind: str) -> None:
    observed = Observed("queue", kind=kind).begins().to(4).record(1_000, {}, state=Phase.STABLE, protocol_type=None)
    summary = answers.summary(group_of(observed), {}, T)
    assert (summary.type.value, summary.state.value, summary.generation_id) == (kind, "Stable", 4)
    assert answers.detail(group_of(observed), {}, T).moves == []


def test_sessions_that_are_not_recorded_are_null() -> None:
    observed = Observed(session_ms=None).begins().to(1).record(0, {ANA: [0]})
    (row,) = answers.members(group_of(observed))
    assert row.session_timeout_ms is None


def test_observed_history_counts_members_that_are_gone_by_what_they_likely_did() -> None:
    observed = running().gone(1, BO).gone(2, CY, 1, "left").gone(3, CY_2, None, "expired")
    assert group_of(observed).tallied.gone == {"unknown": 1, "left": 1, "expired": 1}
