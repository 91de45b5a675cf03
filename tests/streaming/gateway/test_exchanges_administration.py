"""Descriptions, listings and deletions of many groups in one request."""

from typing import Any

import pytest
from kafka.protocol.admin.groups import DescribeGroupsRequest, ListGroupsRequest
from msgspec import structs

from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase
from coordinator.messages.responses import (
    DeleteGroupAnswer,
    DescribeGroupAnswer,
    ErrorAnswer,
    ListedGroup,
    ListGroupsAnswer,
)
from streaming.gateway.coordinator.routing import ShardAddress
from streaming.gateway.protocol.definitions import DeleteGroupsRequest
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.wiring import FakeGateway, ask

EVERYTHING = {3, 6, 8, 10, 11}
"""Read, delete, describe, describe and alter configurations: the response of Kafka without an authorizer."""


def described(group_id: str, state: Phase) -> DescribeGroupAnswer:
    return DescribeGroupAnswer(request_id="1", group_id=group_id, state=state)


def listed(*group_ids: str) -> ListGroupsAnswer:
    groups = tuple(ListedGroup(group_id, "consumer", Phase.STABLE, "classic") for group_id in group_ids)
    return ListGroupsAnswer(request_id="1", groups=groups)


# -- describing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_each_name_is_described(version: int):
    """protocol.md 11: a group named twice is requested once and described twice. An error concerns only its group."""
    asking = ask(DescribeGroupsRequest(groups=["g", "h", "g"], include_authorized_operations=False), version)
    assert [request.group_id for request in asking.requests] == ["g", "h"]
    failed = ErrorAnswer(request_id="2", **ended(ErrorCode.INVALID_GROUP_ID))
    response = asking.response_to(described("g", Phase.EMPTY), failed)
    found = [(group.group_id, group.error_code, group.group_state) for group in response.groups]
    assert found == [("g", 0, "Empty"), ("h", 24, ""), ("g", 0, "Empty")]


@pytest.mark.parametrize(("version", "code", "message"), [(5, 0, None), (6, 69, "Group g not found.")])
def test_a_missing_group_is_dead(version: int, code: int, message: str | None):
    """S50: newer clients also get an error (KIP-1043)."""
    asking = ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), version)
    (group,) = asking.response_to(described("g", Phase.DEAD)).groups
    assert (group.error_code, group.error_message, group.group_state) == (code, message, "Dead")


def test_the_sentence_about_a_group_of_the_consumer_protocol_is_the_coordinators():
    sentence = "Group g is not a classic group."
    asking = ask(DescribeGroupsRequest(groups=["g"]), 6)
    (group,) = asking.response_to(structs.replace(described("g", Phase.DEAD), error_message=sentence)).groups
    assert (group.error_code, group.error_message) == (69, sentence)


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
def test_authorized_operations_are_returned_only_on_request(
    version: int, is_asked: bool, answer: Any, allowed: set[int] | None
):
    asking = ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=is_asked), version)
    assert asking.response_to(answer).groups[0].authorized_operations == allowed


# -- listing -----------------------------------------------------------------------------------------------------------


def test_a_listing_requests_the_groups_of_every_shard():
    """The response has only the groups that this broker coordinates, so each group is listed once."""
    homes = ShardAddress("A", 0), ShardAddress("A", 1), ShardAddress("B", 0)
    asking = ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5, place=FakeGateway(shard_addresses=homes))
    assert [(question.at, question.shard) for question in asking.exchange.requests] == list(homes)
    response = asking.response_to(listed("g1", "h1"), listed(), listed("h2", "g2"))
    assert [group.group_id for group in response.groups] == ["g1", "g2"]


def test_a_group_that_two_coordinators_list_is_listed_once_as_the_later_one_says():
    homes = ShardAddress("A", 0), ShardAddress("B", 0)
    asking = ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5, place=FakeGateway(shard_addresses=homes))
    arrived = structs.replace(listed("g1").groups[0], state=Phase.EMPTY)
    response = asking.response_to(listed("g1", "g2"), structs.replace(listed(), groups=(arrived,)))
    assert [(group.group_id, group.group_state) for group in response.groups] == [("g1", "Empty"), ("g2", "Stable")]


def test_a_listing_that_one_shard_cannot_answer_fails():
    homes = ShardAddress("A", 0), ShardAddress("A", 1)
    asking = ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5, place=FakeGateway(shard_addresses=homes))
    response = asking.response_to(
        listed("g1"), ErrorAnswer(request_id="2", **ended(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    )
    assert (response.error_code, response.groups) == (15, [])


# -- deleting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_each_group_is_deleted_once(version: int):
    """protocol.md 11: a group that is named twice is deleted once."""
    asking = ask(DeleteGroupsRequest(groups_names=["g", "h", "g"]), version)
    assert [request.group_id for request in asking.requests] == ["g", "h"]
    response = asking.response_to(
        DeleteGroupAnswer(request_id="1"), DeleteGroupAnswer(request_id="2", **ended(ErrorCode.NON_EMPTY_GROUP))
    )
    assert [(result.group_id, result.error_code) for result in response.results] == [("g", 0), ("h", 68)]


def test_a_group_that_is_not_deleted_has_a_message():
    """Kafka 4.4 added the message of each group in version 3."""
    refused = DeleteGroupAnswer(request_id="2", error_message="it has members", **ended(ErrorCode.NON_EMPTY_GROUP))
    asking = ask(DeleteGroupsRequest(groups_names=["g", "h"]), 3)
    response = asking.response_to(DeleteGroupAnswer(request_id="1"), refused)
    assert [result.error_message for result in response.results] == [None, "it has members"]
