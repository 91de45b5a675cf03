"""Refusals: responses with an error and without other data.

Source: Kafka's response shapes on error, AbstractRequest.getErrorResponse of each API.
"""

from typing import Any

from msgspec import UNSET

from coordinator.base.errors import ErrorCode
from coordinator.messages.events import Rejected
from coordinator.messages.requests import (
    DescribeGroup,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    Received,
    Request,
    TxnOffsetCommit,
    Unreadable,
)
from coordinator.messages.responses import AnyAnswer, CommittedPartition, ErrorAnswer, FetchedOffset, Reply

Fields = dict[str, Any]

FORGETS_THE_ID = (ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Errors with which the response to a join does not repeat the member id."""


def refusal(
    answer: type[AnyAnswer], request: Request, error: ErrorCode, why: str | None = None, **fields: Any
) -> Reply:
    """Return the reply that refuses a request.

    Args:
        answer: The type of the answer.
        why: A sentence for a person, if the error's name is not enough.
        fields: The other fields of the answer.
    """
    message = UNSET if why is None else why
    return Reply(
        request.reply_to,
        answer(request_id=request.request_id, error=error.name, code=error.number, error_message=message, **fields),
    )


def reject(received: Received, record: Unreadable, partition: int) -> Reply | Rejected:
    """Return the reply to a record that is no valid request, or an event if nobody can be answered.

    Args:
        partition: The partition of the request topic that has the record.
    """
    if record.request_id is not None and record.reply_to is not None:
        error = ErrorCode.INVALID_REQUEST
        answer = ErrorAnswer(
            request_id=record.request_id, error=error.name, code=error.number, error_message=record.why
        )
        return Reply(record.reply_to, answer)
    return Rejected(
        group_id=None,
        version=None,
        at_ms=received.at_ms,
        generation_id=None,
        partition=partition,
        offset=received.offset,
        why=record.why,
    )


# -- the other fields --------------------------------------------------------------------------------------------------


def no_fields(request: Request, error: ErrorCode) -> Fields:
    """Return no fields: the error is the whole answer."""
    return {}


def every_commit(request: OffsetCommit | TxnOffsetCommit, error: ErrorCode) -> Fields:
    """Return the error for each partition of a commit."""
    return {
        "partitions": tuple(CommittedPartition(o.topic, o.partition, error.name, error.number) for o in request.offsets)
    }


def every_offset(request: OffsetFetch, error: ErrorCode) -> Fields:
    """Return the error for each partition of a fetch; no entries if the fetch requested all partitions."""
    return {
        "partitions": tuple(
            FetchedOffset(t.topic, p, error=error.name, code=error.number)
            for t in request.topics or ()
            for p in t.partitions
        )
    }


def member_id(request: JoinGroup, error: ErrorCode) -> Fields:
    """Return the member id of a join; an empty one for the errors in `FORGETS_THE_ID`."""
    return {"member_id": "" if error in FORGETS_THE_ID else request.member_id}


def group_id(request: DescribeGroup, error: ErrorCode) -> Fields:
    """Return the group id."""
    return {"group_id": request.group_id}
