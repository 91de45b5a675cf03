"""The translation of membership requests of stock clients, where their messages are ambiguous."""

import pytest
from kafka.protocol.consumer.group import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import REASON_CHARS_MAX
from coordinator.messages.requests import LeaveGroup
from coordinator.messages.responses import JoinGroupAnswer, LeaveGroupAnswer, LeftMember
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.wiring import FakeAsker, ask


@pytest.mark.parametrize(
    ("type_", "name"), [(None, None), ("consumer", None), (None, "range")], ids=["neither", "no name", "no type"]
)
def test_a_sync_without_its_protocol_is_refused_by_the_gateway(type_: str | None, name: str | None):
    """S88: in version 5, KIP-559 made the type and the name mandatory."""
    request = {"group_id": "g", "member_id": "m", "protocol_type": type_, "protocol_name": name}
    asking = ask(SyncGroupRequest(**request), 5)
    assert (asking.requests, asking.response_to().error_code) == ([], ErrorCode.INCONSISTENT_GROUP_PROTOCOL.number)
    assert len(ask(SyncGroupRequest(**request), 4).requests) == 1


def test_an_empty_protocol_name_is_valid():
    request = SyncGroupRequest(group_id="g", member_id="m", protocol_type="", protocol_name="")
    assert ask(request, 5).requests[0].protocol_name == ""


def test_a_long_reason_is_cut():
    """Kafka's brokers accept a reason of any length. Kafka's own clients cut it (KIP-800)."""
    reason = "x" * (REASON_CHARS_MAX + 1)
    join = ask(JoinGroupRequest(group_id="g", protocols=[], reason=reason), 9)
    leave = ask(LeaveGroupRequest(group_id="g", members=[LeaveGroupRequest.MemberIdentity(reason=reason)]), 5)
    assert (join.requests[0].reason, leave.requests[0].members[0].reason) == (reason[:-1], reason[:-1])


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_failed_join_has_no_protocol(version: int, name: str | None):
    """Before version 7 the name cannot be null, and it is empty as in Kafka."""
    join = ask(JoinGroupRequest(group_id="g", protocols=[]), version)
    assert join.response_to(JoinGroupAnswer(request_id="1", **ended(ErrorCode.UNKNOWN_MEMBER_ID))).protocol_name == name


def test_a_leader_may_be_told_to_skip_the_assignment():
    """KIP-814: the field exists from version 9 on."""
    join = ask(JoinGroupRequest(group_id="g", group_instance_id="i", protocols=[]), 9)
    assert join.response_to(JoinGroupAnswer(request_id="1", skip_assignment=True)).skip_assignment is True


def test_a_leave_without_members_is_sent():
    leave = ask(LeaveGroupRequest(group_id="g", members=[]), 5)
    assert leave.requests == [LeaveGroup(request_id="1", **FakeAsker().common, group_id="g", members=())]
    assert leave.response_to(LeaveGroupAnswer(request_id="1")).members == []


@pytest.mark.parametrize("version", range(3))
def test_a_leave_of_one_member_has_its_error(version: int):
    """Before version 3, one code is the error of the request and of its only member."""
    leave = ask(LeaveGroupRequest(group_id="g", member_id="m"), version)
    gone = LeaveGroupAnswer(request_id="1", members=(LeftMember("m", None, **ended(ErrorCode.UNKNOWN_MEMBER_ID)),))
    refused = LeaveGroupAnswer(request_id="1", **ended(ErrorCode.INVALID_GROUP_ID))
    assert [leave.response_to(answer).error_code for answer in (gone, refused)] == [25, 24]
