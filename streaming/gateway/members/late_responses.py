"""Answers of the coordinator that come after the client has heard an error.

A client that was told a short interval gets an error soon, and repeats its heartbeat. If the coordinator is slower than
that, each answer would come too late, and the client would get errors only. So a heartbeat that contains nothing new is
not sent: its response is made from the answer to the heartbeat before it, which comes later or has come already. For
the coordinator and the client this is one heartbeat with a late response.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.responses import AnyAnswer
from streaming.gateway.connection.flow_control import InFlightRequest

MEMBERS_MAX = 100
"""The members of one connection whose heartbeats are stored; beyond it the oldest is dropped. A client has one."""

_OPTIONAL = (
    "group_instance_id",
    "rack_id",
    "subscribed_topic_names",
    "subscribed_topic_regex",
    "server_assignor",
    "topic_partitions",
)


@dataclass(eq=False)
class _Outstanding:
    """The last heartbeat of a member that was sent to the coordinator.

    Args:
        said: All that the member has said, in this heartbeat and before.
        in_flight: The client's request that gets the answer.
        is_open: Whether no request of the client got the answer.
        answer: The answer, if it came when the client had a response already.
    """

    request: ConsumerGroupHeartbeat
    said: ConsumerGroupHeartbeat
    in_flight: InFlightRequest
    since_s: float
    is_open: bool = True
    answer: AnyAnswer | None = None


class LateResponses:
    """The last heartbeats of the members of one connection.

    Args:
        wait_s: The time after which an answer counts as lost, in seconds. The next heartbeat is sent then.
        clock: Returns monotonic seconds.
    """

    def __init__(self, wait_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._wait_s, self._clock = wait_s, clock
        self._outstanding: dict[tuple[str, str], _Outstanding] = {}

    def take_over(self, in_flight: InFlightRequest, request: ConsumerGroupHeartbeat) -> bool:
        """Return whether the answer to the member's last heartbeat answers this one too, so that it is not sent."""
        key = request.group_id, request.member_id
        last = self._outstanding.pop(key, None)
        said = request if last is None or request.member_epoch <= 0 else _merged(last.said, request)
        is_repeated = last is not None and said == last.said and request.member_epoch > 0 and in_flight.answer is None
        if last is not None and is_repeated and self._is_open(last):
            self._outstanding[key], last.in_flight = last, in_flight
            return True
        self._outstanding[key] = _Outstanding(request, said, in_flight, self._clock())
        if len(self._outstanding) > MEMBERS_MAX:
            del self._outstanding[next(iter(self._outstanding))]
        return False

    def _is_open(self, last: _Outstanding) -> bool:
        return last.is_open and last.in_flight.answer is not None and self._clock() < last.since_s + self._wait_s

    def knows(self, request: ConsumerGroupHeartbeat) -> bool:
        """Return whether the last heartbeat of a request's member came over this connection."""
        return (request.group_id, request.member_id) in self._outstanding

    def answer_to(self, request: ConsumerGroupHeartbeat) -> AnyAnswer | None:
        """Remove and return the answer to the last heartbeat of a request's member, if it is here already."""
        last = self._outstanding[request.group_id, request.member_id]
        answer, last.answer = last.answer, None
        last.is_open = answer is None
        return answer

    def deliver(
        self, in_flight: InFlightRequest, request: ConsumerGroupHeartbeat, answer: AnyAnswer
    ) -> InFlightRequest | None:
        """Return the client's request that gets an answer; None if the answer is late. It is stored then.

        Args:
            in_flight: The client's request for which the heartbeat was sent.
        """
        last = self._outstanding.get((request.group_id, request.member_id))
        is_last = last is not None and last.request is request and last.is_open
        if last is None or not is_last:
            return in_flight if in_flight.answer is None else None
        if last.in_flight.answer is not None:
            last.answer = answer
            return None
        last.is_open = False
        return last.in_flight


def _merged(said: ConsumerGroupHeartbeat, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeat:
    """Return all that a member has said. A field that is null is as it was before."""
    changes = {name: value for name in _OPTIONAL if (value := getattr(request, name)) is not None}
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.member_epoch != said.member_epoch:
        changes["member_epoch"] = request.member_epoch
    return replace(said, **changes) if changes else said
