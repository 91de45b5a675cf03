"""Access rules: the additional access checks, and no response reveals a topic to a client without rights to it."""

from typing import Any

import pytest
from kafka.protocol.admin.groups import DescribeGroupsRequest

from coordinator.base.access import Operation, Resource
from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase
from coordinator.messages.requests import Action, CheckAccess, OffsetCommit
from coordinator.messages.responses import (
    CheckAccessAnswer,
    CommittedPartition,
    DescribeGroupAnswer,
    ErrorAnswer,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
)
from tests.streaming.gateway.test_exchanges_offsets import codes, commit, forget
from tests.streaming.gateway.wiring import FakeGateway, ask

GUARDED = FakeGateway(has_rules=True)
READ_GROUP = Action(Operation.READ, Resource.GROUP, "g")


def may_read(topic: str) -> Action:
    return Action(Operation.READ, Resource.TOPIC, topic)


def allowed(*answers: bool) -> CheckAccessAnswer:
    return CheckAccessAnswer(request_id="2", allowed=answers)


DONE = CommittedPartition("t", 0, "NONE", 0)


@pytest.mark.parametrize("version", [2, 8, 9])
def test_missing_topics_are_reported_only_to_clients_that_may_read_them(version: int):
    asking = ask(commit(("none", [0]), ("t", [0, 9]), ("gone", [0])), version, place=GUARDED)
    stored, check = asking.requests
    assert isinstance(stored, OffsetCommit)
    assert [(o.topic, o.partition) for o in stored.offsets] == [("t", 0)]
    assert isinstance(check, CheckAccess)
    assert check.actions == (READ_GROUP, *map(may_read, ("none", "t", "gone")))
    assert (check.group_id, check.principal) == ("g", "User:ana")
    response = asking.response_to(
        OffsetCommitAnswer(request_id="1", partitions=(DONE,)), allowed(True, True, True, False)
    )
    assert codes(response.topics) == [("none", [(0, 3)]), ("t", [(0, 0), (9, 3)]), ("gone", [(0, 29)])]


def test_without_the_right_to_the_group_every_partition_has_its_error():
    """The coordinator refuses the commit to existing topics, and a missing topic must have the same error."""
    asking = ask(commit(("none", [0]), ("t", [0])), 8, place=GUARDED)
    refused = OffsetCommitAnswer(
        request_id="1", error="", code=30, partitions=(CommittedPartition("t", 0, "GROUP_AUTHORIZATION_FAILED", 30),)
    )
    assert codes(asking.response_to(refused, allowed(False, True)).topics) == [("none", [(0, 30)]), ("t", [(0, 30)])]


def test_a_commit_to_missing_topics_alone_checks_access():
    asking = ask(commit(("none", [0])), 8, place=GUARDED)
    (check,) = asking.requests
    assert isinstance(check, CheckAccess)
    assert codes(asking.response_to(allowed(False, False)).topics) == [("none", [(0, 30)])]
    assert codes(asking.response_to(allowed(True, False)).topics) == [("none", [(0, 29)])]
    assert codes(asking.response_to(allowed(True, True)).topics) == [("none", [(0, 3)])]
    down = ErrorAnswer(request_id="1", error="COORDINATOR_NOT_AVAILABLE", code=15)
    assert codes(asking.response_to(down).topics) == [("none", [(0, 15)])]


def test_too_long_names_are_cut_in_access_checks():
    long: Any = commit(("n" * 300, [0]))
    long.group_id = "g" * 300
    (check,) = ask(long, 8, place=GUARDED).requests
    assert isinstance(check, CheckAccess)
    assert [len(action.name) for action in check.actions] == [249, 249]
    assert len(check.group_id) == 249


def test_offsets_of_missing_topics_are_deleted_with_the_right_to_read():
    asking = ask(forget(("none", [0]), ("gone", [0])), 0, place=GUARDED)
    check = asking.requests[1]
    assert isinstance(check, CheckAccess)
    assert check.actions == (Action(Operation.DELETE, Resource.GROUP, "g"), may_read("none"), may_read("gone"))
    heard = asking.response_to(OffsetDeleteAnswer(request_id="1"), allowed(True, False, True))
    assert codes(heard.topics) == [("none", [(0, 29)]), ("gone", [(0, 3)])]
    whole = asking.response_to(OffsetDeleteAnswer(request_id="1", error="", code=30), allowed(False, False, True))
    assert (whole.error_code, list(whole.topics)) == (30, [])


def test_existing_topics_need_no_access_check():
    assert len(ask(commit(("t", [0])), 8, place=GUARDED).requests) == 1
    assert len(ask(forget(("t", [0])), 0, place=GUARDED).requests) == 1
    assert len(ask(commit(("none", [0]), ("t", [0])), 8).requests) == 1, "without rules there is no check either"


@pytest.mark.parametrize(("rights", "bits"), [
    ((True, True, True, True, True), {3, 6, 8, 10, 11}),
    ((True, False, True, False, False), {3, 8}),
])  # fmt: skip
def test_authorized_operations_are_returned_on_request(rights: tuple[bool, ...], bits: set[int]):
    """KIP-430: the response has the operations that the client may perform."""
    request = DescribeGroupsRequest(groups=["g", "h"], include_authorized_operations=True)
    asking = ask(request, 5, place=GUARDED)
    checks = [request for request in asking.requests if isinstance(request, CheckAccess)]
    operations = [action.operation.value for action in checks[0].actions]
    assert operations == ["READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"]
    assert [(check.group_id, check.actions[0].name) for check in checks] == [("g", "g"), ("h", "h")]
    described = DescribeGroupAnswer(request_id="1", group_id="g", state=Phase.EMPTY)
    refused = DescribeGroupAnswer(request_id="2", group_id="h", error="", code=30)
    response = asking.response_to(described, refused, allowed(*rights), allowed(*rights))
    assert [(group.error_code, group.authorized_operations) for group in response.groups] == [(0, bits), (30, None)]


def test_without_an_access_answer_no_operation_is_returned():
    asking = ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), 5, place=GUARDED)
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answers = (
        DescribeGroupAnswer(request_id="1", group_id="g", state=Phase.EMPTY),
        ErrorAnswer(request_id="2", error=error.name, code=error.number),
    )
    assert asking.response_to(*answers).groups[0].authorized_operations == set()
