"""Error codes that responses carry, and two exceptions for faults of the coordinator itself.

    CoordinatorError        a bug of the coordinator or a broken checkpoint; stops the batch, never answers a client
    +-- IllegalMove         a change without a row in its table, such as `states.MOVES`
    +-- CorruptState        state bytes that no version of the codec wrote, or that fail their checksum

Source: names and numbers are those of Kafka's `org.apache.kafka.common.protocol.Errors`.
"""

from enum import Enum
from functools import cache


class ErrorCode(Enum):
    """The error of a response: `(Kafka's number, may the client retry the same request?)`."""

    UNKNOWN_SERVER_ERROR = (-1, False)
    NONE = (0, False)
    UNKNOWN_TOPIC_OR_PARTITION = (3, True)
    REQUEST_TIMED_OUT = (7, True)  # a gateway returns it to clients; the coordinator never does
    OFFSET_METADATA_TOO_LARGE = (12, False)
    COORDINATOR_LOAD_IN_PROGRESS = (14, True)
    COORDINATOR_NOT_AVAILABLE = (15, True)
    NOT_COORDINATOR = (16, True)  # another shard serves this group
    ILLEGAL_GENERATION = (22, False)  # from an older or a newer generation
    INCONSISTENT_GROUP_PROTOCOL = (23, False)
    INVALID_GROUP_ID = (24, False)
    UNKNOWN_MEMBER_ID = (25, False)  # never joined, or expired: join again
    INVALID_SESSION_TIMEOUT = (26, False)
    INVALID_COMMIT_OFFSET_SIZE = (28, False)
    REBALANCE_IN_PROGRESS = (27, False)  # commit, then join again
    TOPIC_AUTHORIZATION_FAILED = (29, False)
    GROUP_AUTHORIZATION_FAILED = (30, False)
    CLUSTER_AUTHORIZATION_FAILED = (31, False)
    UNSUPPORTED_VERSION = (35, False)
    INVALID_REQUEST = (42, False)
    INVALID_PRODUCER_EPOCH = (47, False)  # the transaction has ended
    NON_EMPTY_GROUP = (68, False)
    GROUP_ID_NOT_FOUND = (69, False)
    MEMBER_ID_REQUIRED = (79, False)  # join again with the id in this reply
    GROUP_MAX_SIZE_REACHED = (81, False)
    FENCED_INSTANCE_ID = (82, False)  # another process has joined with this instance id
    GROUP_SUBSCRIBED_TO_TOPIC = (86, False)
    UNSTABLE_OFFSET_COMMIT = (88, True)  # an offset of an open transaction is pending
    UNKNOWN_TOPIC_ID = (100, True)  # only a gateway returns it
    FENCED_MEMBER_EPOCH = (110, False)  # give up all partitions, and join again
    UNRELEASED_INSTANCE_ID = (111, False)  # a member with this instance id has not gone away
    UNSUPPORTED_ASSIGNOR = (112, False)
    STALE_MEMBER_EPOCH = (113, False)  # commit again with the epoch of the latest heartbeat
    INVALID_REGULAR_EXPRESSION = (128, False)

    def __init__(self, number: int, retriable: bool) -> None:
        self.number = number
        self.retriable = retriable


@cache
def name_of(number: int) -> str:
    """Return the name of an error number; the number itself if this module does not have it."""
    return next((error.name for error in ErrorCode if error.number == number), str(number))


class CoordinatorError(Exception):
    """The coordinator cannot continue: it has a bug, or its state cannot be trusted."""


class IllegalMove(CoordinatorError):
    """A change of a state that is not in its table of moves."""


class CorruptState(CoordinatorError):
    """State bytes that this code cannot trust."""
