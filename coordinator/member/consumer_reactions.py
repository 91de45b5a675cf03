"""A member's action after an error in the response to its heartbeat.

Source: Kafka's ConsumerHeartbeatRequestManager and AbstractHeartbeatRequestManager.onErrorResponse; KIP-848.
"""

from enum import Enum, auto

from coordinator.base.errors import ErrorCode


class ErrorAction(Enum):
    """A member's action after an error."""

    RETRY = auto()  # send all fields again, after a backoff
    REJOIN = auto()  # give up all partitions as lost, and join with epoch 0
    REPORT = auto()  # raise the error in `poll`, and continue
    STOP = auto()  # report to the owner: a retry cannot succeed


_ACTS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE:    ErrorAction.RETRY,
    ErrorCode.NOT_COORDINATOR:              ErrorAction.RETRY,
    ErrorCode.UNKNOWN_MEMBER_ID:            ErrorAction.REJOIN,
    ErrorCode.FENCED_MEMBER_EPOCH:          ErrorAction.REJOIN,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED:   ErrorAction.REPORT,
}  # fmt: skip

_BY_NUMBER = {error.number: act for error, act in _ACTS.items()}


def reaction(code: int, epoch: int) -> ErrorAction:
    """Return the action after an error in the response to a heartbeat. An error without a row stops the member.

    GROUP_ID_NOT_FOUND for a member with an epoch means that the group does not exist any more. The member then creates
    the group again. Kafka's clients stop. Without an epoch the error means that the group's members use the classic
    protocol, and may not be mixed.
    """
    if code == ErrorCode.GROUP_ID_NOT_FOUND.number and epoch > 0:
        return ErrorAction.REJOIN
    return _BY_NUMBER.get(code, ErrorAction.STOP)
