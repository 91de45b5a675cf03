"""Refusing a request as a whole: the reply of its kind, with an error and otherwise empty.

Source: Kafka's response shapes on error, AbstractRequest.getErrorResponse of each API.
"""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from coordinator.errors import ErrorCode
from coordinator.outputs import (
    AnyAnswer,
    CommittedPartition,
    DescribeGroupAnswer,
    FetchedOffset,
    HeartbeatAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    OffsetCommitAnswer,
    OffsetFetchAnswer,
    Reply,
    SyncGroupAnswer,
)
from coordinator.requests import (
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    Request,
    SyncGroup,
)

Fields = dict[str, Any]


def _every_committed(request: OffsetCommit, error: ErrorCode) -> Fields:
    return {
        "partitions": tuple(CommittedPartition(o.topic, o.partition, error.name, error.number) for o in request.offsets)
    }


def _every_fetched(request: OffsetFetch, error: ErrorCode) -> Fields:
    return {
        "partitions": tuple(
            FetchedOffset(t.topic, p, error=error.name, code=error.number)
            for t in request.topics or ()
            for p in t.partitions
        )
    }


SHAPES: dict[type, tuple[type[AnyAnswer], Callable[[Any, ErrorCode], Fields]]] = {
    # a refused ...  is answered with ...   that also says ...
    JoinGroup:       (JoinGroupAnswer,      lambda request, error: {"member_id": request.member_id}),
    SyncGroup:       (SyncGroupAnswer,      lambda request, error: {}),
    Heartbeat:       (HeartbeatAnswer,      lambda request, error: {}),
    LeaveGroup:      (LeaveGroupAnswer,     lambda request, error: {}),
    OffsetCommit:    (OffsetCommitAnswer,   _every_committed),
    OffsetFetch:     (OffsetFetchAnswer,    _every_fetched),
    DescribeGroup:   (DescribeGroupAnswer,  lambda request, error: {"group_id": request.group_id}),
}  # fmt: skip


def refuse(request: Request, error: ErrorCode, why: str | None = None) -> Reply:
    """Answer a request with an error, and with words for a person where the error's name does not say enough."""
    answer, shape = SHAPES[type(request)]
    fields = shape(request, error)
    message = UNSET if why is None else why
    return Reply(
        request.reply_to,
        answer(request_id=request.request_id, error=error.name, code=error.number, error_message=message, **fields),
    )
