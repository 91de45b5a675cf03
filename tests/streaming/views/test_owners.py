"""Tests of a partition's owners, if the history is incomplete."""

from typing import Any

import pytest
from msgspec import structs

from coordinator.base.states import Phase
from coordinator.messages.events import (
    AnyEvent,
    AssignmentChanged,
    Handover,
    MemberExpired,
    MemberFenced,
    RebalanceCompleted,
)
from coordinator.messages.group_records import GroupMember, GroupRecord
from streaming.views import GroupView, Views
from streaming.views.api import answers
from streaming.views.history.owners import spans_of_owners, token_at

T = 1_700_000_000_000
HOUR_MS = 3_600_000
MOVED_MS = T + HOUR_MS


def event(kind: Any, at_ms: int, **fields: Any) -> Any:
    return kind(group_id="g", version=1, at_ms=at_ms, generation_id=1, **fields)


def moved(before: str | None, after: str | None, at_ms: int = MOVED_MS) -> AssignmentChanged:
    return event(AssignmentChanged, at_ms, handovers=(Handover("t", 0, before, after),))  # type: ignore[no-any-return]


def fenced(at_ms: int, old: str, new: str) -> MemberFenced:
    return event(  # type: ignore[no-any-return]
        MemberFenced, at_ms, member_id=old, group_instance_id="desk", client_id="c", client_host=f"/{old}",
        replaced_by=new, replaced_by_client_id="c", replaced_by_client_host=f"/{new}",
    )  # fmt: skip


def owned_by(member_id: str) -> GroupRecord:
    member = GroupMember(
        member_id=member_id, group_instance_id="desk", client_id="c", client_host=f"/{member_id}",
        session_timeout_ms=6_000, rebalance_timeout_ms=6_000, assignment=b"", assigned={"t": [0]},
    )  # fmt: skip
    return GroupRecord(
        group_id="g", state=Phase.STABLE, since_ms=T, generation_id=1, protocol_type="consumer", protocol_name="range",
        leader=member_id, subscribed_topics=("t",), members=(member,), version=9,
    )  # fmt: skip


def owners_at(group: GroupView, at_ms: int, known_from_ms: int = 0) -> tuple[bool, str | None, str | None, str | None]:
    """Return whether the owner is known, and the owners at a time, before it and after it."""
    group.known_from_ms = known_from_ms
    answer = answers.owner(Views(), group, "t", 0, at_ms, now_ms=T + 9 * HOUR_MS)
    owner, before, after = (s.member_id if s else None for s in (answer.owner, answer.before, answer.after))
    return answer.is_known, owner, before, after


def test_end_of_a_former_owner_ends_nothing_of_the_next_one() -> None:
    """`ana` gives up what `bo` owns already."""
    group = GroupView("g", 0, events=[moved("ana", "bo", T), moved("ana", None, T + 1), moved("bo", None, T + 2)])
    spans = spans_of_owners(group)["t", 0]
    assert [(span.member_id, span.to_ms) for span in spans] == [("ana", T), ("bo", T + 2)]


# -- unknown owners ----------------------------------------------------------------------------------------------------


def test_an_owner_before_the_history_is_unknown() -> None:
    """S10: for a time before the history only the later owner is known."""
    group = GroupView("g", 0, events=[moved("ana", "bo")])
    assert owners_at(group, T - 1, known_from_ms=T) == (False, None, None, "ana")
    assert owners_at(group, T, known_from_ms=T) == (True, "ana", None, None)


def test_a_whole_history_begins_with_the_group() -> None:
    group = GroupView("g", 0, events=[moved("ana", "bo")])
    assert owners_at(group, MOVED_MS - 1) == (False, None, None, "ana")
    never_moved = GroupView("g", 0, record=owned_by("ana"))
    assert owners_at(never_moved, T - 1) == (False, None, None, "ana")
    assert owners_at(never_moved, T) == (True, "ana", None, None)


def test_a_future_owner_is_unknown() -> None:
    """S10: for a future time the present owner is the owner before."""
    group = GroupView("g", 0, events=[moved("ana", "bo")])
    assert owners_at(group, T + 9 * HOUR_MS) == (True, "bo", None, None)
    assert owners_at(group, T + 9 * HOUR_MS + 1) == (False, None, "bo", None)
    group.events.append(moved("bo", None, T + 2 * HOUR_MS))
    assert owners_at(group, T + 9 * HOUR_MS + 1) == (False, None, "bo", None)


def test_an_owner_with_a_known_beginning_is_known() -> None:
    group = GroupView("g", 0, events=[moved(None, "bo")])
    assert owners_at(group, MOVED_MS, known_from_ms=MOVED_MS + 5) == (True, "bo", None, None)


# -- static members ----------------------------------------------------------------------------------------------------

FENCES = [fenced(T + 1_000, "one", "two"), fenced(T + 2_000, "two", "three")]
PROCESSES = [("one", None, T + 1_000), ("two", T + 1_000, T + 2_000)]


@pytest.mark.parametrize(
    ("group", "last"),
    [
        (GroupView("g", 0, events=[*FENCES], record=owned_by("three")), ("three", T + 2_000, None)),
        (GroupView("g", 0, events=[*FENCES, moved("three", None)]), ("three", T + 2_000, MOVED_MS)),
    ],
    ids=["it never moved", "it moved later"],
)
def test_a_fenced_member_owned_its_partitions_until_it_was_replaced(group: GroupView, last: Any) -> None:
    """S10: the event with the assignment has expired; each of the member's processes owned the partition in turn."""
    (spans,) = spans_of_owners(group).values()
    assert [(s.member_id, s.from_ms, s.to_ms) for s in spans] == [*PROCESSES, last]
    assert {s.because for s in spans[:-1]} == {"came back as another process"}
    assert [s.client_host for s in spans] == ["/one", "/two", "/three"]
    assert owners_at(group, T + 999, known_from_ms=T) == (True, "one", None, None)


def test_members_that_replace_each_other_in_a_circle_do_not_loop() -> None:
    """No coordinator writes such events; a reader of them must not read for ever."""
    group = GroupView("g", 0, events=[fenced(T, "a", "b"), fenced(T + 1, "b", "a")], record=owned_by("a"))
    assert spans_of_owners(group)


def test_a_replaced_member_owns_its_partitions_until_it_is_dropped() -> None:
    gone = event(MemberExpired, T + 5_000, member_id="three", group_instance_id="desk", client_id="c", client_host="/x",
                 why="session_expired", silence_ms=1, reason=None)  # fmt: skip
    (spans,) = spans_of_owners(GroupView("g", 0, events=[*FENCES, gone, moved("three", "bo")])).values()
    assert [(s.member_id, s.to_ms, s.because) for s in spans[-2:]] == [
        ("three", T + 5_000, "expired"),
        ("bo", None, None),
    ]


# -- fencing tokens ----------------------------------------------------------------------------------------------------


def completed(at_ms: int, token: int, *members: str) -> RebalanceCompleted:
    return event(  # type: ignore[no-any-return]
        RebalanceCompleted, at_ms, duration_ms=0, joins_ms=0, syncs_ms=0, protocol_name="range", leader=members[0],
        members_before=(), members_after=members, joined=(), gone=(), fencing_token=token,
    )  # fmt: skip


def test_an_owner_has_the_fencing_token_of_that_time() -> None:
    """design.md 17: each new assignment has a new token; a restarted static member alone gets a new one as well."""
    replaced = fenced(T + 4, "ana", "ana-2")
    events: list[AnyEvent] = [
        completed(T + 1, 11, "ana", "bo"),
        completed(T + 2, 12, "ana", "bo"),
        structs.replace(replaced, fencing_token=13),
    ]
    group = GroupView("g", 0, record=owned_by("ana-2"), events=[*events])
    assert [token_at(group, "ana", T + after) for after in (0, 1, 2, 4)] == [None, 11, 12, 12]
    assert [token_at(group, "ana-2", T + after) for after in (3, 4)] == [None, 13]
    assert token_at(group, "bo", T + 4) == 12
    answer = answers.owner(Views(), group, "t", 0, T + 5, now_ms=T + 9)
    assert (answer.owner and answer.owner.member_id, answer.fencing_token) == ("ana-2", 13)


def test_a_token_from_before_the_history_is_read_from_the_record() -> None:
    record = owned_by("ana")
    members = (structs.replace(record.members[0], fencing_token=7),)
    group = GroupView("g", 0, record=structs.replace(record, members=members))
    assert token_at(group, "ana", T) == 7
    assert answers.members(group)[0].fencing_token == 7


def test_records_of_an_older_coordinator_have_no_token() -> None:
    group = GroupView("g", 0, record=owned_by("ana"), events=[completed(T, 0, "ana")])
    assert token_at(group, "ana", T) is None
    assert answers.members(group)[0].fencing_token is None
