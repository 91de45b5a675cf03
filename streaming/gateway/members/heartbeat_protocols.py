"""A pending heartbeat, and the differences between the protocols: members at rest, the longest hold, the response.

Both protocols have `at_rest_s`, `session_ms`, `record_rest`, `hold_ms` and `response`, for one connection's members.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.api_message import ApiMessage
from msgspec.structs import replace

from coordinator.base.errors import ErrorCode
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.responses import AnyAnswer, ConsumerGroupHeartbeatAnswer, ErrorAnswer, HeartbeatAnswer
from streaming.config.settings import Settings
from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.exchanges import consumer_groups, membership
from streaming.gateway.members.heartbeat_states import State
from streaming.gateway.members.member_state import PASSING, Acknowledgements, store_newest
from streaming.gateway.members.reported_interval import MARGIN_MS, ReportedInterval

SESSIONS_PART = 3
"""A classic response is held for a third of the session timeout at most: a client that gets none acts on its own."""

_AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE

NO_ANSWER = ErrorAnswer(request_id=None, error=_AWAY.name, code=_AWAY.number)
"""The error for a heartbeat that the coordinator has not answered in time. With it, clients look for the coordinator,
keep their connection and their partitions, and then send a full request. It makes up for an answer that comes too late.
"""

_REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS

REBALANCING = HeartbeatAnswer(request_id=None, error=_REBALANCE.name, code=_REBALANCE.number)
"""The answer that a notice gives to a classic heartbeat."""


@dataclass(slots=True, eq=False)
class PendingHeartbeat:
    """A heartbeat of a client, until nothing waits for it any more.

    Args:
        in_flight: The client's request that gets the answer.
        until_s: The time of the event loop at which the state's time is over.
        repeats: How often it was sent again with the facts for which the coordinator has asked.
        answer: The last answer that has not become a response yet.
        request: The request to the coordinator, of the kind of the protocol.
        said: All that its member has said, in this heartbeat and before.
        sent_s: The time at which it was sent, in monotonic seconds.
        sent_for: The client's request for which it was sent. Later `in_flight` may be the one of the next heartbeat.
        ticks: The ticks for which it waits.
        answered_s: The time of the coordinator's answer, in monotonic seconds.
        left_ms: For how long the response may be held.
        limit_ms: How long the client waits for the response that is held.
    """

    in_flight: InFlightRequest
    protocol: "ClassicProtocol | ConsumerProtocol"
    state: State = State.NEW
    timer: asyncio.TimerHandle | None = None
    until_s: float = float("inf")
    repeats: int = 0
    answer: Any = NO_ANSWER
    request: Any = field(init=False)
    member_id: str = field(init=False)
    said: ConsumerGroupHeartbeat = field(init=False)
    sent_s: float = field(init=False)
    sent_for: InFlightRequest = field(init=False)
    ticks: int = field(init=False)
    answered_s: float = field(init=False)
    left_ms: float = field(init=False)
    limit_ms: int = field(init=False)

    @property
    def answer_ms(self) -> float:
        """How long the coordinator took for the answer, without the time for which the heartbeat waited for a tick."""
        return (self.answered_s - self.in_flight.since_s) * 1_000 - self.in_flight.waited_ms


class ClassicProtocol:
    """Classic heartbeats: an answer is a code. A heartbeat may wait if its member has joined over this connection.

    Attributes:
        at_rest_s: The time of the last heartbeat of each member at rest, in monotonic seconds.
    """

    def __init__(self, hold_ms_max: int) -> None:
        self._hold_ms_max = hold_ms_max
        self._session_ms: dict[str, int] = {}
        self.at_rest_s: dict[str, float] = {}

    def joined(self, member_id: str, session_timeout_ms: int) -> None:
        """Register a member that has joined on this connection, so that responses to it may be held."""
        store_newest(self._session_ms, member_id, session_timeout_ms)
        self.at_rest_s.pop(member_id, None)

    def session_ms(self, member_id: str) -> int:
        """Return a member's session timeout; 0 if it has not joined on this connection."""
        return self._session_ms.get(member_id, 0)

    def record_rest(self, request: Heartbeat, answer: AnyAnswer, since_s: float) -> None:
        """Record that a member is at rest, if the answer to its heartbeat is no error."""
        if not answer.code:
            store_newest(self.at_rest_s, request.member_id, since_s)

    def hold_ms(self, heartbeat: PendingHeartbeat, answer: AnyAnswer, *, is_only: bool) -> int:
        """Return for how long after its arrival the response to a heartbeat may be held; 0 for not at all."""
        if answer.code or not is_only:
            return 0
        return min(self._hold_ms_max, self.session_ms(heartbeat.member_id) // SESSIONS_PART)

    def response(self, heartbeat: PendingHeartbeat, answer: AnyAnswer) -> ApiMessage:
        """Return the response that is made from an answer."""
        return membership.heartbeat_response(answer, heartbeat.in_flight.header.version)


class ConsumerProtocol:
    """Heartbeats of the consumer protocol: an answer may have an assignment, and names the interval.

    Args:
        clock: Returns monotonic seconds.

    Attributes:
        at_rest_s: The time of the last heartbeat of each member at rest, in monotonic seconds.
        interval: The interval that the client is told.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self._hold_ms_max = settings.gateway_consumer_heartbeat_hold_ms
        self._session_ms = settings.group_consumer_session_timeout_ms
        self._interval_ms = settings.group_consumer_heartbeat_interval_ms
        self.interval = ReportedInterval(self._interval_ms, clock)
        self._acknowledgements = Acknowledgements()
        self.at_rest_s: dict[str, float] = {}
        self._member_to_be_full: str | None = None

    def session_ms(self, member_id: str) -> int:
        """Return a member's session timeout."""
        return self._session_ms

    def must_be_full(self, request: ConsumerGroupHeartbeat) -> bool:
        """Return once whether the response to a member's join lacks what a heartbeat on its behalf may have changed.

        With an error it sends a full request, whose answer has all of that. A join does so by itself.
        """
        if request.member_id != self._member_to_be_full:
            return False
        self._member_to_be_full = None
        return request.member_epoch > 0 and not request.is_full

    def record_rest(self, request: ConsumerGroupHeartbeat, answer: AnyAnswer, since_s: float) -> None:
        """Record that a member is at rest, if the answer to its heartbeat has no change."""
        if not isinstance(answer, ConsumerGroupHeartbeatAnswer) or answer.code or request.member_epoch <= 0:
            return
        self._interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is None and answer.pending == "none" and not answer.ask:
            store_newest(self.at_rest_s, request.member_id, since_s)

    def completed(self, request: ConsumerGroupHeartbeat, answer: AnyAnswer) -> AnyAnswer:
        """Return an answer. If the coordinator has answered by a code alone, as in a record of many, add all else."""
        if not isinstance(answer, HeartbeatAnswer) or answer.code:
            return answer
        return ConsumerGroupHeartbeatAnswer(
            request_id=request.request_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=self._interval_ms,
        )

    def hold_ms(self, heartbeat: PendingHeartbeat, answer: AnyAnswer, *, is_only: bool) -> int:
        """Return for how long after its arrival the response to a heartbeat may be held; 0 or less for not at all."""
        if not self._hold_ms_max or not isinstance(answer, ConsumerGroupHeartbeatAnswer):
            return 0
        if not is_only:
            self.interval.record_early_end()
            return 0
        self._acknowledgements.record(heartbeat.request, answer)
        if not self._acknowledgements.may_hold(heartbeat.request, answer):
            return 0
        heartbeat.member_id = answer.member_id or heartbeat.member_id
        heartbeat.limit_ms = self.interval.limit_ms(answer)
        return min(self._hold_ms_max, heartbeat.limit_ms - MARGIN_MS)

    def replace_held(self, heartbeat: PendingHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> bool:
        """Replace the answer of a held response by a newer one without an error. Return whether it has a change."""
        held = heartbeat.answer
        newer = answer if answer.assignment is not None else replace(answer, assignment=held.assignment)
        heartbeat.answer = newer
        self._acknowledgements.record_assignment(heartbeat.member_id, newer)
        has_ended = held.pending == "waiting" and answer.pending != "waiting"
        return has_ended or answer.assignment is not None or answer.pending == "revoking"

    def failed(self, heartbeat: PendingHeartbeat, error: AnyAnswer) -> AnyAnswer:
        """Return the answer to a held heartbeat after an error: the error, unless a new member would join again.

        A static member that joins again is refused for good, because its instance id has an owner: itself.
        """
        if heartbeat.request.member_epoch == 0 and error.code in PASSING:
            self._member_to_be_full = heartbeat.member_id
            error = heartbeat.answer
        return error

    def response(self, heartbeat: PendingHeartbeat, answer: AnyAnswer) -> ApiMessage:
        """Return the response that is made from an answer, with the interval for the client."""
        if isinstance(answer, ConsumerGroupHeartbeatAnswer):
            answer = self.interval.reported(answer, heartbeat.answer_ms)
        return consumer_groups.heartbeat_response(answer, heartbeat.in_flight.header.version)
