"""The response to the heartbeats of one record."""

from collections.abc import Iterator, Sequence

from coordinator.base.context import Context
from coordinator.messages.heartbeats import Heartbeats
from coordinator.messages.outputs import Output
from coordinator.messages.responses import HeartbeatsAnswer, Reply


def answer(codes: Sequence[int], request: Heartbeats, context: Context) -> Iterator[Output]:
    """Reply to the heartbeats of one record, which are handled already.

    Args:
        codes: The error number of each heartbeat, in the order of the record.
    """
    said = HeartbeatsAnswer(request_id=request.request_id, request_ids=request.request_ids, codes=tuple(codes))
    yield Reply(request.reply_to, said)
