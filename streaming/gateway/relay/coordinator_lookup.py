"""FindCoordinator for groups: each group's coordinator is at one of the gateway's own ports.

If access rules apply, the coordinator decides alone: it gets a request for no offsets of the group, which requires the
right to describe the group. Its answer also shows that the coordinator is available.

Source: KafkaApis.handleFindCoordinatorRequest, KIP-699 (many keys).
"""

from collections.abc import Mapping
from typing import Any

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import FindCoordinatorResponse

from coordinator.base.errors import ErrorCode
from coordinator.messages.requests import OffsetFetch
from coordinator.messages.responses import AnyAnswer
from streaming.gateway.relay.metadata import Cluster

GROUP, TRANSACTION = 0, 1
"""The key types of FindCoordinator."""

MANY_KEYS = 4
"""From this version on, a request contains many keys."""


def sought(message: Any) -> list[str]:
    """Return the group ids of a request, each once."""
    return list(dict.fromkeys(message.coordinator_keys if message.version >= MANY_KEYS else [message.key]))


def about(group_id: str, asker: Mapping[str, Any]) -> OffsetFetch:
    """Return the request whose answer shows whether the client may see a group."""
    return OffsetFetch(**asker, group_id=group_id, topics=())


def seen_by(answer: AnyAnswer) -> ErrorCode:
    """Return the error of a FindCoordinator response from the coordinator's answer to that request."""
    refusals = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return next((error for error in refusals if error.number == answer.code), ErrorCode.NONE)


def without_rules(message: Any, *, is_served: bool) -> ErrorCode:
    """Return the error of a FindCoordinator response if no access rules apply.

    Args:
        is_served: Whether the coordinator answers. If not, the error is COORDINATOR_NOT_AVAILABLE, which clients retry.
    """
    if message.key_type != GROUP:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if is_served else ErrorCode.COORDINATOR_NOT_AVAILABLE


def located(message: Any, cluster: Cluster, errors: Mapping[str, ErrorCode]) -> ApiMessage:
    """Return a FindCoordinator response.

    Args:
        message: A request whose keys are group ids, or of a key type without a coordinator.
        errors: By key, the error that replaces the address; NONE for no error.
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
