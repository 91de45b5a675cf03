"""Descriptions, listings and deletions of many groups at once."""

from typing import Any

import pytest
from kafka.protocol.admin.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest

from coordinator.errors import ErrorCode
from coordinator.outputs import DeleteGroupAnswer, DescribeGroupAnswer, ErrorAnswer, ListedGroup, ListGroupsAnswer
from coordinator.phases import Phase
from streaming.gateway.exchanges import Question
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.wiring import Place, ask

EVERYTHING = {3, 6, 8, 10, 11}
"""Read, delete, describe, describe and alter configurations: what a Kafka without an authorizer says."""


def described(group_id: str, state: Phase) -> DescribeGroupAnswer:
    return DescribeGroupAnswer(request_id="1", group_id=group_id, state=state)


def listed(*group_ids: str) -> ListGroupsAnswer:
    groups = tuple(ListedGroup(group_id, "consumer", Phase.STABLE, "classic") for group_id in group_ids)
    return ListGroupsAnswer(request_id="1", groups=groups)


# -- describing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_each_name_is_described(version: int):
    """protocol.md 11: who is named twice is described twice, though asked about once; one that fails is alone in it."""
    asking = ask(DescribeGroupsRequest(groups=["g", "h", "g"], include_authorized_operations=False), version)
    assert [request.group_id for request in asking.requests] == ["g", "h"]
    failed = ErrorAnswer(request_id="2", **ended(ErrorCode.INVALID_GROUP_ID))
    said = asking.hears(described("g", Phase.EMPTY), failed)
    found = [(group.group_id, group.error_code, group.group_state) for group in said.groups]
    assert found == [("g", 0, "Empty"), ("h", 24, ""), ("g", 0, "Empty")]


@pytest.mark.parametrize(("version", "code", "message"), [(5, 0, None), (6, 69, "Group g not found.")])
def test_a_group_that_is_not_there_is_dead(version: int, code: int, message: str | None):
    """S50: newer clients hear of it by an error as well (KIP-1043)."""
    asking = ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), version)
    (group,) = asking.hears(described("g", Phase.DEAD)).groups
    assert (group.error_code, group.error_message, group.group_state) == (code, message, "Dead")


@pytest.mark.parametrize("version", range(3, 7))
@pytest.mark.parametrize(
    ("is_asked", "answer", "allowed"),
    [
        (True, described("g", Phase.STABLE), EVERYTHING),
        (False, described("g", Phase.STABLE), None),
        (True, ErrorAnswer(request_id="1", **ended(ErrorCode.INVALID_GROUP_ID)), None),
    ],
    ids=["asked", "unasked", "failed"],
)
def test_tells_what_one_may_do_where_that_is_asked(version: int, is_asked: bool, answer: Any, allowed: set[int] | None):
    asking = ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=is_asked), version)
    assert asking.hears(answer).groups[0].authorized_operations == allowed


# -- listing -----------------------------------------------------------------------------------------------------------


def test_a_listing_asks_every_shard():
    """And tells of the groups that clients look for at this broker, so that each is listed by one."""
    asking = ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5, place=Place(shards=3))
    assert [question.shard for question in asking.exchange.questions] == [0, 1, 2]
    said = asking.hears(listed("g1", "h1"), listed(), listed("h2", "g2"))
    assert [group.group_id for group in said.groups] == ["g1", "g2"]


def test_a_listing_that_one_shard_cannot_answer_fails():
    asking = ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5, place=Place(shards=2))
    said = asking.hears(listed("g1"), ErrorAnswer(request_id="2", **ended(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
    assert (said.error_code, said.groups) == (15, [])


# -- deleting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_each_group_is_deleted_once(version: int):
    """protocol.md 11."""
    asking = ask(DeleteGroupsRequest(groups_names=["g", "h", "g"]), version)
    assert list(asking.exchange.questions) == [Question(request) for request in asking.requests]
    said = asking.hears(
        DeleteGroupAnswer(request_id="1"), DeleteGroupAnswer(request_id="2", **ended(ErrorCode.NON_EMPTY_GROUP))
    )
    assert [(result.group_id, result.error_code) for result in said.results] == [("g", 0), ("h", 68)]
