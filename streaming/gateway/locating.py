"""FindCoordinator for groups: each group's coordinator is at a port of the gateway's own.

Where rules say who may do what, the coordinator itself is asked, so that it decides alone: for no offsets of the group,
which takes the right to describe it. What comes back tells as well that the coordinator is there.

Source: KafkaApis.handleFindCoordinatorRequest, KIP-699 (many keys).
"""

from collections.abc import Mapping
from typing import Any

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import FindCoordinatorResponse

from coordinator.errors import ErrorCode
from coordinator.outputs import AnyAnswer
from coordinator.requests import OffsetFetch
from streaming.gateway.cluster import Cluster

GROUP, TRANSACTION = 0, 1
"""Whose coordinator can be looked for."""

MANY_KEYS = 4
"""From this version on it is asked for many at once."""


def sought(message: Any) -> list[str]:
    """Name the groups whose coordinator is looked for, each once."""
    return list(dict.fromkeys(message.coordinator_keys if message.version >= MANY_KEYS else [message.key]))


def about(group_id: str, asker: Mapping[str, Any]) -> OffsetFetch:
    """Make the request whose answer tells whether its asker may know of a group."""
    return OffsetFetch(**asker, group_id=group_id, topics=())


def seen_by(answer: AnyAnswer) -> ErrorCode:
    """Take what comes of its coordinator being looked for from the answer to that request."""
    refusals = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return next((error for error in refusals if error.number == answer.code), ErrorCode.NONE)


def without_rules(message: Any, *, is_served: bool) -> ErrorCode:
    """Say what comes of it where everybody may do everything.

    Args:
        is_served: Whether the coordinator answers. Else it is COORDINATOR_NOT_AVAILABLE, to be tried again.
    """
    if message.key_type != GROUP:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if is_served else ErrorCode.COORDINATOR_NOT_AVAILABLE


def located(message: Any, cluster: Cluster, errors: Mapping[str, ErrorCode]) -> ApiMessage:
    """Answer who is looked for.

    Args:
        message: A request whose keys are group ids, or of a kind that there is none for.
        errors: By key what is said instead of an address; NONE for nothing.
    """
    keys = message.coordinator_keys if message.version >= MANY_KEYS else [message.key]
    found = [_found(key, cluster, errors[key]) for key in keys]
    if message.version < MANY_KEYS:
        return FindCoordinatorResponse(version=message.version, **found[0])
    each = FindCoordinatorResponse.Coordinator
    coordinators = [each(key=key, **fields) for key, fields in zip(keys, found, strict=True)]
    return FindCoordinatorResponse(version=message.version, coordinators=coordinators)


def _found(group_id: str, cluster: Cluster, error: ErrorCode) -> dict[str, Any]:
    node_id = cluster.coordinator_of(group_id)
    address = None if node_id is None else cluster.ours(node_id)
    if error is ErrorCode.NONE and address:
        return {"error_code": 0, "error_message": None, "node_id": node_id, **address._asdict()}
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE if error is ErrorCode.NONE else error
    return {"error_code": error.number, "error_message": error.name, "node_id": -1, "host": "", "port": -1}
