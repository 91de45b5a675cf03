"""A member that leaves: the requests that it sends, and the end of its leave."""

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.member.effects import Left
from coordinator.member.member import MemberState
from coordinator.messages.requests import LeaveGroup
from coordinator.messages.responses import JoinGroupAnswer, LeaveGroupAnswer
from tests.coordinator.test_member import NONE, Alone, only


def test_a_leave_before_a_join_sends_no_request() -> None:
    alone = Alone()
    alone.member.subscribe()
    assert alone.member.leave("consumer closed", 0) == []
    assert (alone.member.is_leaving, alone.member.deadline_ms) == (False, NEVER_MS)


@pytest.mark.parametrize("error", [NONE, ErrorCode.REBALANCE_IN_PROGRESS])
def test_a_member_that_leaves_before_it_knows_its_id_sends_the_leave_later(error: ErrorCode) -> None:
    """Otherwise it would get partitions, and keep them from the others for a session timeout."""
    alone = Alone()
    join = alone.joining()
    assert alone.member.leave("consumer closed", 0) == []
    assert (alone.member.is_leaving, alone.member.state) == (True, MemberState.UNJOINED)
    again = alone.joining()
    answer = JoinGroupAnswer(request_id=join.request_id, error=error.name, code=error.number, member_id="me-1")
    leave = only(LeaveGroup, alone.hears(answer))
    assert [(m.member_id, m.reason) for m in leave.members] == [("me-1", "consumer closed")]
    assert alone.hears(LeaveGroupAnswer(request_id=leave.request_id)) == [Left()]
    assert (alone.member.is_leaving, alone.member.member_id) == (False, "")
    assert again.request_id != join.request_id


def test_no_leave_is_sent_after_a_refused_first_join() -> None:
    alone = Alone()
    join = alone.joining()
    alone.member.leave("consumer closed", 0)
    assert alone.refused(join, ErrorCode.INVALID_SESSION_TIMEOUT) == [Left()]


def test_an_answered_leave_is_complete() -> None:
    alone = Alone().stable()
    request = only(LeaveGroup, alone.member.leave("consumer closed", 0))
    assert request.members[0].reason == "consumer closed"
    assert alone.hears(LeaveGroupAnswer(request_id=request.request_id)) == [Left()]


def test_a_refused_leave_is_complete_too() -> None:
    """Protocol.md 6.4: a member that leaves does not retry."""
    alone = Alone().stable()
    request = only(LeaveGroup, alone.member.leave("consumer closed", 0))
    answer = LeaveGroupAnswer(request_id=request.request_id, error="COORDINATOR_NOT_AVAILABLE", code=15)
    assert alone.hears(answer) == [Left()]
