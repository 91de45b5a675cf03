"""DescribeGroups, ListGroups and DeleteGroups. They concern many groups, so each makes several questions.

Source: KafkaApis.handleDescribeGroupsRequest, handleListGroupsRequest and handleDeleteGroupsRequest;
GroupMetadataManager.describeGroups; AclEntry.supportedOperations.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, NamedTuple

from kafka.protocol.admin.groups import DescribeGroupsResponse, ListGroupsResponse
from kafka.protocol.api_message import ApiMessage

from coordinator.base.access import Operation, Resource
from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase
from coordinator.messages import requests
from coordinator.messages.consumer_requests import ConsumerGroupDescribe
from coordinator.messages.responses import (
    AnyAnswer,
    CheckAccessAnswer,
    DeleteGroupAnswer,
    DescribeGroupAnswer,
    ListGroupsAnswer,
)
from streaming.gateway.exchanges.exchange import Asker, CoordinatorRequest, Exchange, ListenerData, expected, may
from streaming.gateway.protocol.definitions import DeleteGroupsResponse

MISSING_GROUP = 6
"""From this version on, DescribeGroups reports a missing group also with an error (KIP-1043)."""

DELETED_MESSAGE = 3
"""From this version on, DeleteGroups has a message for each group."""

OPERATIONS = {
    Operation.READ: 3,
    Operation.DELETE: 6,
    Operation.DESCRIBE: 8,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
}
"""The operations on a group, with Kafka's numbers. Without rules every client may perform all of them."""

ALLOWED = frozenset(OPERATIONS.values())

# -- describing --------------------------------------------------------------------------------------------------------

_GROUP = DescribeGroupsResponse.DescribedGroup
_MEMBER = _GROUP.DescribedGroupMember


def describe(message: Any, asker: Asker, metadata: ListenerData) -> Exchange:
    """Describe groups, with one question for each group. The response has a group as often as the request names it."""

    def respond(named: Sequence[Named]) -> ApiMessage:
        groups = [_described(each.group_id, each.answer, message.version, each.rights) for each in named]
        return DescribeGroupsResponse(version=message.version, groups=groups)

    return describing(message, message.groups, requests.DescribeGroup, (asker, metadata), respond)


class Named(NamedTuple):
    """A group that a request names, with the answer about it.

    Args:
        rights: The operations that the client may do, if the request asks for them.
    """

    group_id: str
    answer: AnyAnswer
    rights: frozenset[int] | None


def describing(
    message: Any,
    group_ids: Sequence[str],
    kind: type[requests.DescribeGroup] | type[ConsumerGroupDescribe],
    sender: tuple[Asker, ListenerData],
    respond: Callable[[Sequence[Named]], ApiMessage],
) -> Exchange:
    """Describe groups, with one question for each group, and one for its rights if the request asks for them.

    Args:
        respond: Makes the response from the named groups, each as often as the request names it.
    """
    asker, metadata = sender
    requested = tuple(dict.fromkeys(group_ids))
    coordinator_requests = [CoordinatorRequest(kind(**asker.fields(), group_id=group_id)) for group_id in requested]
    tells_rights = message.include_authorized_operations
    if tells_rights and metadata.has_rules:
        coordinator_requests += [
            may(asker, each, [(what, Resource.GROUP, each) for what in OPERATIONS]) for each in requested
        ]

    def described(answers: Sequence[AnyAnswer]) -> ApiMessage:
        named = dict(zip(requested, answers, strict=False))
        rights = dict(zip(requested, map(rights_of, answers[len(requested) :]), strict=False))
        return respond(
            [Named(each, named[each], rights.get(each, ALLOWED) if tells_rights else None) for each in group_ids]
        )

    return Exchange(tuple(coordinator_requests), described)


def rights_of(answer: AnyAnswer) -> frozenset[int]:
    """Return the operations that the client may perform, with Kafka's numbers."""
    return frozenset(compress(OPERATIONS.values(), expected(answer, CheckAccessAnswer).allowed))


def _described(group_id: str, answer: AnyAnswer, version: int, allowed: frozenset[int] | None) -> Any:
    said = expected(answer, DescribeGroupAnswer, group_id=group_id)
    if said.code:
        return _GROUP(group_id=group_id, error_code=said.code)
    if said.state is Phase.DEAD and version >= MISSING_GROUP:
        return _GROUP(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND.number,
            error_message=said.error_message or f"Group {group_id} not found.",
            group_state=said.state.value,
        )
    return _GROUP(
        group_id=group_id,
        group_state=said.state.value,
        protocol_type=said.protocol_type,
        protocol_data=said.protocol_name,
        members=[
            _MEMBER(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                member_metadata=m.metadata,
                member_assignment=m.assignment,
            )
            for m in said.members
        ],
        authorized_operations=allowed,
    )


# -- listing -----------------------------------------------------------------------------------------------------------

_LISTED = ListGroupsResponse.ListedGroup


def list_groups(message: Any, asker: Asker, metadata: ListenerData) -> Exchange:
    """List the groups of one broker, so that a client that asks all brokers gets each group once.

    While a group moves, two coordinators may list it. What the later one says counts.
    """
    states, types = tuple(message.states_filter), tuple(message.types_filter)
    coordinator_requests = tuple(
        CoordinatorRequest(requests.ListGroups(**asker.fields(), states=states, types=types), home.shard, home.prefix)
        for home in metadata.shard_addresses
    )
    return Exchange(coordinator_requests, lambda answers: _listed(answers, message.version, metadata))


def _listed(answers: Sequence[AnyAnswer], version: int, metadata: ListenerData) -> ApiMessage:
    said = [expected(answer, ListGroupsAnswer) for answer in answers]
    if error := next((answer.code for answer in said if answer.code), ErrorCode.NONE.number):
        return ListGroupsResponse(version=version, error_code=error)
    by_name = {g.group_id: g for answer in said for g in answer.groups if metadata.coordinates(g.group_id)}
    groups = [
        _LISTED(group_id=g.group_id, protocol_type=g.protocol_type, group_state=g.state.value, group_type=g.type)
        for g in by_name.values()
    ]
    return ListGroupsResponse(version=version, groups=groups)


# -- deleting ----------------------------------------------------------------------------------------------------------


def delete(message: Any, asker: Asker, metadata: ListenerData) -> Exchange:
    """Delete groups, with one question for each group."""
    version, group_ids = message.version, tuple(dict.fromkeys(message.groups_names))
    coordinator_requests = tuple(
        CoordinatorRequest(requests.DeleteGroup(**asker.fields(), group_id=group_id)) for group_id in group_ids
    )

    def deleted(answers: Sequence[AnyAnswer]) -> ApiMessage:
        results = [
            _deleted(group_id, expected(answer, DeleteGroupAnswer), version)
            for group_id, answer in zip(group_ids, answers, strict=True)
        ]
        return DeleteGroupsResponse(version=version, results=results)

    return Exchange(coordinator_requests, deleted)


def _deleted(group_id: str, said: DeleteGroupAnswer, version: int) -> Any:
    why = {"error_message": said.error_message or None} if version >= DELETED_MESSAGE else {}
    return DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=said.code, **why)
