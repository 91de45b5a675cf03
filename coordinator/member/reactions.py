"""A member's actions after an error in a response, by request: the client's half of the protocol's tables.

Source: the response handlers of Kafka's AbstractCoordinator and ConsumerCoordinator; KIP-345, KIP-394, KIP-447.
"""

from enum import Enum, auto

from coordinator.base.errors import ErrorCode
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import JoinGroup, OffsetCommit, OffsetFetch, SyncGroup


class ErrorAction(Enum):
    """A member's action after an error."""

    RETRY = auto()  # send the same request again, after a backoff
    REJOIN = auto()  # join again at once, with the same member id
    REJOIN_LATER = auto()  # join again with the same member id, after a backoff
    NEW_GENERATION = auto()  # reset the generation but not the member id, and join again
    NEW_MEMBER = auto()  # reset both, and join again
    ADOPT_ID = auto()  # join again at once, with the id in the response
    REPORT = auto()  # the caller decides
    STOP = auto()  # report to the owner: a retry cannot succeed


RETRY, REJOIN, REJOIN_LATER, NEW_GENERATION, NEW_MEMBER, ADOPT_ID, REPORT, STOP = ErrorAction

_TABLE: dict[ErrorCode, tuple[ErrorAction, ...]] = {
    # error                                   JoinGroup   SyncGroup       Heartbeat       OffsetCommit    OffsetFetch
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:   (STOP,        STOP,           STOP,           RETRY,          REPORT),
    ErrorCode.REQUEST_TIMED_OUT:            (STOP,        STOP,           STOP,           RETRY,          REPORT),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (RETRY,       RETRY,          RETRY,          RETRY,          RETRY),
    ErrorCode.COORDINATOR_NOT_AVAILABLE:    (RETRY,       REJOIN_LATER,   RETRY,          RETRY,          RETRY),
    ErrorCode.NOT_COORDINATOR:              (RETRY,       REJOIN_LATER,   RETRY,          RETRY,          RETRY),
    ErrorCode.ILLEGAL_GENERATION:           (STOP,        NEW_GENERATION, NEW_GENERATION, NEW_GENERATION, REPORT),
    ErrorCode.UNKNOWN_MEMBER_ID:            (NEW_MEMBER,  NEW_MEMBER,     NEW_MEMBER,     NEW_MEMBER,     REPORT),
    ErrorCode.REBALANCE_IN_PROGRESS:        (REJOIN,      REJOIN,         REJOIN,         REJOIN,         REPORT),
    ErrorCode.GROUP_ID_NOT_FOUND:           (STOP,        STOP,           STOP,           NEW_MEMBER,     REPORT),
    ErrorCode.MEMBER_ID_REQUIRED:           (ADOPT_ID,    STOP,           STOP,           REPORT,         REPORT),
    ErrorCode.FENCED_INSTANCE_ID:           (STOP,        STOP,           STOP,           STOP,           REPORT),
    ErrorCode.UNSTABLE_OFFSET_COMMIT:       (STOP,        STOP,           STOP,           REPORT,         RETRY),
}  # fmt: skip

_COLUMNS: tuple[type, ...] = (JoinGroup, SyncGroup, Heartbeat, OffsetCommit, OffsetFetch)

ON_ERROR: dict[tuple[type, int], ErrorAction] = {
    (request, error.number): action
    for error, actions in _TABLE.items()
    for request, action in zip(_COLUMNS, actions, strict=True)
}
"""The action after an error number in the response to a request of this type."""


def action(request_type: type, code: int) -> ErrorAction:
    """Return the action after an error. An error that is not in the table ends the membership."""
    return ON_ERROR.get((request_type, code), REPORT if request_type in (OffsetCommit, OffsetFetch) else STOP)
