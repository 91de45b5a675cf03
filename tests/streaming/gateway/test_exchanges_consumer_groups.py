"""The translation of the consumer protocol's two requests, field by field."""

from typing import Any
from uuid import UUID

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase
from coordinator.messages import requests
from coordinator.messages.consumer_requests import ConsumerGroupDescribe, ConsumerGroupHeartbeat, OwnedPartitions
from coordinator.messages.responses import (
    AssignedTopic,
    CheckAccessAnswer,
    ConsumerGroupDescribeAnswer,
    ConsumerGroupHeartbeatAnswer,
    DescribedConsumer,
    ErrorAnswer,
)
from streaming.gateway.protocol.definitions import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from streaming.gateway.protocol.topic_ids import id_of, id_text
from tests.streaming.gateway.examples import WHO, ended
from tests.streaming.gateway.parts import fact_of
from tests.streaming.gateway.wiring import FakeGateway, SentRequest, ask

ID = UUID(int=2**128 - 2)
OWNED = ConsumerGroupHeartbeatRequest.TopicPartitions

FULL: dict[str, Any] = {
    "group_id": "g",
    "member_id": "ana",
    "member_epoch": 7,
    "instance_id": "i",
    "rack_id": "r",
    "rebalance_timeout_ms": 9_000,
    "subscribed_topic_names": ["t", "nowhere"],
    "server_assignor": "range",
    "topic_partitions": [OWNED(topic_id=ID, partitions=[2, 0])],
}


def beat(version: int = 1, place: FakeGateway | None = None, **fields: Any) -> SentRequest:
    message = ConsumerGroupHeartbeatRequest(version=version, **{"group_id": "g", "member_id": "ana", **fields})
    return ask(message, version, place=place)


# -- heartbeats --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_every_field_of_a_heartbeat_is_sent(version: int):
    regex = {"subscribed_topic_regex": "u.*"} if version else {}
    [sent] = beat(version, **FULL, **regex).requests
    assert sent == ConsumerGroupHeartbeat(
        **WHO,
        member_id="ana",
        member_epoch=7,
        group_instance_id="i",
        rack_id="r",
        rebalance_timeout_ms=9_000,
        subscribed_topic_names=("t", "nowhere"),
        subscribed_topic_regex="u.*" if version else None,
        server_assignor="range",
        topic_partitions=(OwnedPartitions(id_text(ID.bytes), (2, 0)),),
        version=version,
        topics=(fact_of("t", 3), fact_of("nowhere", None), *((fact_of("u", 3),) if version else ())),
        regex_topics=("u",) if version else None,
    )


def test_null_fields_are_sent_as_null():
    [sent] = beat(member_epoch=3).requests
    assert sent == ConsumerGroupHeartbeat(**WHO, member_id="ana", member_epoch=3)


def test_empty_fields_are_not_null():
    """An empty list or pattern ends a subscription; null leaves it as it is."""
    [sent] = beat(subscribed_topic_names=[], subscribed_topic_regex="", topic_partitions=[]).requests
    assert (sent.subscribed_topic_names, sent.subscribed_topic_regex, sent.topic_partitions) == ((), "", ())
    assert (sent.regex_topics, sent.regex_error) == (None, None)


def test_a_pattern_that_does_not_compile_is_sent_with_its_reason():
    [sent] = beat(subscribed_topic_regex="a(").requests
    assert (sent.regex_topics, sent.topics) == (None, ())
    assert "does not compile" in sent.regex_error


def test_a_topic_is_described_once():
    [sent] = beat(subscribed_topic_names=["t", "t"], subscribed_topic_regex="t").requests
    assert sent.topics == (fact_of("t", 3),)


def test_an_assignment_is_returned():
    said = ConsumerGroupHeartbeatAnswer(
        request_id="1",
        member_id="ana",
        member_epoch=4,
        heartbeat_interval_ms=5_000,
        assignment=(AssignedTopic(id_text(ID.bytes), "t", (0, 2)),),
    )
    response = beat().response_to(said)
    assert (response.error_code, response.error_message, response.member_id) == (0, None, "ana")
    assert (response.member_epoch, response.heartbeat_interval_ms) == (4, 5_000)
    [topic] = response.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (ID, [0, 2])


@pytest.mark.parametrize(("assignment", "is_null"), [(None, True), ((), False)])
def test_an_empty_assignment_is_not_null(assignment: tuple[()] | None, is_null: bool):
    response = beat().response_to(ConsumerGroupHeartbeatAnswer(request_id="1", assignment=assignment))
    assert (response.assignment is None) is is_null


@pytest.mark.parametrize("kind", [ConsumerGroupHeartbeatAnswer, ErrorAnswer])
def test_an_error_has_its_code_and_sentence(kind: Any):
    said = kind(request_id="1", **ended(ErrorCode.FENCED_MEMBER_EPOCH), error_message="the epoch is another")
    response = beat().response_to(said)
    assert (response.error_code, response.member_id, response.member_epoch) == (110, None, 0)
    assert response.error_message == "the epoch is another"


def test_ids_are_written_as_kafka_prints_them():
    assert [id_text(UUID(int=number).bytes) for number in (0, 2**128 - 1)] == ["A" * 22, "_" * 21 + "w"]
    assert id_of(id_text(ID.bytes)) == ID


# -- descriptions ------------------------------------------------------------------------------------------------------


def described(*group_ids: str, place: FakeGateway | None = None, version: int = 1, rights: bool = False) -> SentRequest:
    message = ConsumerGroupDescribeRequest(
        version=version, group_ids=list(group_ids), include_authorized_operations=rights
    )
    return ask(message, version, place=place)


MEMBER = DescribedConsumer(
    member_id="ana",
    group_instance_id="i",
    rack_id=None,
    member_epoch=4,
    client_id="c",
    client_host="/127.0.0.1",
    subscribed_topic_names=("t",),
    subscribed_topic_regex="",
    assignment=(AssignedTopic(id_text(ID.bytes), "t", (0,)),),
    target_assignment=(AssignedTopic(id_text(ID.bytes), "t", (0, 1)),),
)


def group(group_id: str = "g", **fields: Any) -> ConsumerGroupDescribeAnswer:
    return ConsumerGroupDescribeAnswer(request_id="1", group_id=group_id, **fields)


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described_with_its_members(version: int):
    asked = described("g", version=version)
    assert asked.requests == [ConsumerGroupDescribe(**WHO)]
    said = group(state=Phase.RECONCILING, group_epoch=5, assignment_epoch=4, assignor="uniform", members=(MEMBER,))
    [found] = asked.response_to(said).groups
    assert (found.error_code, found.group_id, found.group_state) == (0, "g", "Reconciling")
    assert (found.group_epoch, found.assignment_epoch, found.assignor_name) == (5, 4, "uniform")
    [member] = found.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("ana", "i", None, 4)
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "")
    assert [(t.topic_id, t.topic_name, t.partitions) for t in member.assignment.topic_partitions] == [(ID, "t", [0])]
    assert [t.partitions for t in member.target_assignment.topic_partitions] == [[0, 1]]
    assert member.member_type == (1 if version else -1)


def test_a_member_of_the_classic_protocol_has_its_type():
    """KIP-1099: the member type tells which members a migration has still to move."""
    classic = DescribedConsumer(**{**{f: getattr(MEMBER, f) for f in MEMBER.__struct_fields__}, "is_classic": True})
    [found] = described("g").response_to(group(members=(classic,))).groups
    assert found.members[0].member_type == 0


def test_groups_that_the_client_may_not_see_come_first():
    """As in Kafka."""
    asked = described("g", "gone", "hidden", "g")
    assert [request.group_id for request in asked.requests] == ["g", "gone", "hidden"]
    response = asked.response_to(
        group("g"),
        group("gone", **ended(ErrorCode.GROUP_ID_NOT_FOUND), error_message="no such group"),
        ErrorAnswer(request_id="3", **ended(ErrorCode.GROUP_AUTHORIZATION_FAILED)),
    )
    assert [(g.group_id, g.error_code, g.error_message) for g in response.groups] == [
        ("hidden", 30, None),
        ("g", 0, None),
        ("gone", 69, "no such group"),
        ("g", 0, None),
    ]


def test_the_rights_to_a_group_are_returned_if_wanted():
    assert described("g").response_to(group()).groups[0].authorized_operations is None
    all_rights = described("g", rights=True).response_to(group()).groups[0].authorized_operations
    assert all_rights == {3, 6, 8, 10, 11}
    asked = described("g", place=FakeGateway(has_rules=True), rights=True)
    assert isinstance(asked.requests[1], requests.CheckAccess)
    some = CheckAccessAnswer(request_id="2", allowed=(True, False, True, False, False))
    assert asked.response_to(group(), some).groups[0].authorized_operations == {3, 8}
