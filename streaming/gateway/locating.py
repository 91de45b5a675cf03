"""FindCoordinator for groups: each group's coordinator is at a port of the gateway's own.

Source: KafkaApis.handleFindCoordinatorRequest, KIP-699 (many keys).
"""

from typing import Any

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import FindCoordinatorResponse

from coordinator.errors import ErrorCode
from streaming.gateway.cluster import Cluster

GROUP, TRANSACTION = 0, 1
"""Whose coordinator can be looked for."""

MANY_KEYS = 4
"""From this version on it is asked for many at once."""


def located(message: Any, cluster: Cluster, *, is_served: bool) -> ApiMessage:
    """Answer who is looked for.

    Args:
        message: A request whose keys are group ids, or of a kind that there is none for.
        is_served: Whether the coordinator answers. Else it is COORDINATOR_NOT_AVAILABLE, to be tried again.
    """
    keys = message.coordinator_keys if message.version >= MANY_KEYS else [message.key]
    found = [_found(key, cluster, _error(message, is_served)) for key in keys]
    if message.version < MANY_KEYS:
        return FindCoordinatorResponse(version=message.version, **found[0])
    each = FindCoordinatorResponse.Coordinator
    coordinators = [each(key=key, **fields) for key, fields in zip(keys, found, strict=True)]
    return FindCoordinatorResponse(version=message.version, coordinators=coordinators)


def _error(message: Any, is_served: bool) -> ErrorCode:
    if message.key_type != GROUP:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if is_served else ErrorCode.COORDINATOR_NOT_AVAILABLE


def _found(group_id: str, cluster: Cluster, error: ErrorCode) -> dict[str, Any]:
    node_id = cluster.coordinator_of(group_id)
    address = None if node_id is None else cluster.ours(node_id)
    if error is ErrorCode.NONE and address:
        return {"error_code": 0, "error_message": None, "node_id": node_id, **address._asdict()}
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE if error is ErrorCode.NONE else error
    return {"error_code": error.number, "error_message": error.name, "node_id": -1, "host": "", "port": -1}
