"""Refusing a request as a whole: the reply of its kind, with an error and otherwise empty.

Source: Kafka's response shapes on error, AbstractRequest.getErrorResponse of each API.
"""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from coordinator.errors import ErrorCode
from coordinator.outputs import (
    AnyAnswer,
    CheckAccessAnswer,
    CommittedPartition,
    DeleteGroupAnswer,
    DescribeAccessAnswer,
    DescribeGroupAnswer,
    ExpelMemberAnswer,
    FetchedOffset,
    HeartbeatAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    ListGroupsAnswer,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    RebalanceGroupAnswer,
    Reply,
    RepublishGroupAnswer,
    SetAccessAnswer,
    SyncGroupAnswer,
)
from coordinator.requests import (
    CheckAccess,
    DeleteGroup,
    DescribeAccess,
    DescribeGroup,
    ExpelMember,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    RebalanceGroup,
    RepublishGroup,
    Request,
    SetAccess,
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


def _refused_member(request: JoinGroup, error: ErrorCode) -> Fields:
    return {"member_id": "" if error in FORGETS_THE_ID else request.member_id}


def _nothing(request: Request, error: ErrorCode) -> Fields:
    return {}


FORGETS_THE_ID = (ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Errors after which a join's reply does not repeat the member id."""

SHAPES: dict[type, tuple[type[AnyAnswer], Callable[[Any, ErrorCode], Fields]]] = {
    # a refused ...  is answered with ...   that also says ...
    JoinGroup:       (JoinGroupAnswer,      _refused_member),
    SyncGroup:       (SyncGroupAnswer,      _nothing),
    Heartbeat:       (HeartbeatAnswer,      _nothing),
    LeaveGroup:      (LeaveGroupAnswer,     _nothing),
    OffsetCommit:    (OffsetCommitAnswer,   _every_committed),
    OffsetFetch:     (OffsetFetchAnswer,    _every_fetched),
    DescribeGroup:   (DescribeGroupAnswer,  lambda request, error: {"group_id": request.group_id}),
    ListGroups:      (ListGroupsAnswer,     _nothing),
    OffsetDelete:    (OffsetDeleteAnswer,   _nothing),
    DeleteGroup:     (DeleteGroupAnswer,    _nothing),
    RebalanceGroup:  (RebalanceGroupAnswer, _nothing),
    RepublishGroup:  (RepublishGroupAnswer, _nothing),
    ExpelMember:     (ExpelMemberAnswer,    _nothing),
    SetAccess:       (SetAccessAnswer,      _nothing),
    DescribeAccess:  (DescribeAccessAnswer, _nothing),
    CheckAccess:     (CheckAccessAnswer,    _nothing),
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
