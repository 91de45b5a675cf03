"""Held responses to heartbeats of the consumer protocol: a member gets a change of its assignment at once.

With Kafka, each step of a rebalance waits for a member's next heartbeat, every five seconds. Here a heartbeat counts
when it arrives, but a response without a change is held until shortly before the client would give up. When a notice
for the member comes, the gateway sends a heartbeat on the member's behalf, and the held response becomes its answer.

A response is held only if it assigns nothing and the member owes no acknowledgement, because a client sends that only
after the response. Its epoch may be newer than the member's: a commit with the older epoch is accepted.
A held response is sent as soon as the client sends any other request: responses keep the order of the requests. The
next heartbeat then comes an interval after the one before, and a change waits for it. A client that commits often would
have no held response most of the time, so the responses to it have a short interval.

Source: KIP-848; the bounds of clients are those that librdkafka and Java's consumer were seen to have.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from coordinator.base.errors import ErrorCode
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, OwnedPartitions
from coordinator.messages.responses import (
    AnyAnswer,
    AssignedTopic,
    AssignmentNotice,
    ConsumerGroupHeartbeatAnswer,
    ErrorAnswer,
)
from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.exchanges.consumer_groups import heartbeat_response
from streaming.gateway.protocol.messages import encode

MARGIN_MS = 1_000
"""A response is held until this long before the client's next heartbeat at most: librdkafka waits no longer for it."""

PATIENCE_MS = 500
"""A heartbeat without an answer of the coordinator is answered with an error this long before the next one."""

SHORT_INTERVAL_MS = 2_000
"""The interval for a client whose commits end held responses: its next heartbeat comes sooner. It is not shorter,
because librdkafka waits no longer for a response than the interval."""

SHORT_FOR_S = 30.0
"""Responses have the short interval until this long after a request has last ended a held response."""

PROMPT_MS = 1_000
"""If the coordinator has not answered a heartbeat for longer, the response has the usual interval: a client with the
short one would soon give up, and would add to the load."""

MEMBERS_MAX = 100
"""The members of one connection whose partitions are stored; beyond it the oldest is dropped. A client has one."""

Owned = frozenset[tuple[str, tuple[int, ...]]]
"""Partitions, by the ids of their topics."""

AskAgain = Callable[[ConsumerGroupHeartbeat, Callable[[AnyAnswer], object]], object]
"""Sends a heartbeat with a new request id, and calls the function with the answer."""

PASSING = frozenset(
    error.number
    for error in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
)
"""Errors after which a client remains a member, and keeps its partitions."""

NO_ANSWER = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""With this error, clients look for the coordinator, keep their connection and their partitions, and then send a full
request. It makes up for an answer that comes too late."""


@dataclass(eq=False)
class _Held:
    """A held response.

    Args:
        answer: The coordinator's answer, from which the response is made.
        is_asking: Whether a heartbeat on the member's behalf has no answer yet.
        limit_ms: How long the client waits for the response: the interval of the response before.
        is_prompt: Whether the coordinator's answer came soon.
        is_over: Whether the response must be sent as soon as that answer has come.
    """

    in_flight: InFlightRequest
    request: ConsumerGroupHeartbeat
    answer: ConsumerGroupHeartbeatAnswer
    limit_ms: int
    is_prompt: bool
    timer: asyncio.TimerHandle | None = None
    is_asking: bool = False
    is_over: bool = False


class ConsumerHeartbeatHolds:
    """The heartbeats of the consumer protocol on one connection. The response to the last one may be held.

    Args:
        hold_ms_max: The longest time that a response is held; 0 for never.
        give: Called with a held response that must be sent.
        ask_again: Sends a heartbeat on a member's behalf.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        hold_ms_max: int,
        give: Callable[[InFlightRequest, bytes], None],
        ask_again: AskAgain,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hold_ms_max, self._give, self._ask_again, self._clock = hold_ms_max, give, ask_again, clock
        self._member_behind: str | None = None
        self._owned: dict[str, Owned] = {}
        self._given: dict[str, Owned] = {}
        self._held: _Held | None = None
        self._reported_ms: int | None = None
        self._ended_s: float | None = None
        self._slow_s = float("-inf")

    @property
    def is_on(self) -> bool:
        """Whether responses may be held. Without it, the client is answered as by Kafka."""
        return self._hold_ms_max > 0

    @property
    def reported_ms(self) -> int | None:
        """The interval of the last response, for which the client waits for the next one; None before a response."""
        return self._reported_ms

    def answer_now(
        self, in_flight: InFlightRequest, answer: ConsumerGroupHeartbeatAnswer
    ) -> ConsumerGroupHeartbeatAnswer:
        """Return an answer that is not held, with the interval for the client."""
        return self._with_interval(answer, self._is_prompt(in_flight))

    def end_early(self) -> None:
        """Record that the client sends other requests between its heartbeats: its responses get the short interval."""
        self._ended_s = self._clock()

    def record_slow(self) -> None:
        """Record that a client had no answer of the coordinator in time: it is told the usual interval for a while."""
        self._slow_s = self._clock()

    def is_behind(self, request: ConsumerGroupHeartbeat) -> bool:
        """Return once whether the response to a member's join lacks what a heartbeat on its behalf may have changed.

        With an error it sends a full request, whose answer has all of that. A join does so by itself.
        """
        if request.member_id != self._member_behind:
            return False
        self._member_behind = None
        return request.member_epoch > 0 and not request.is_full

    def hold(
        self, in_flight: InFlightRequest, request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer
    ) -> bool:
        """Hold a response and return True; return False if it must be sent now."""
        self._record(request, answer)
        if not self._is_without_news(request, answer):
            return False
        limit_ms = min(answer.heartbeat_interval_ms, self._reported_ms or answer.heartbeat_interval_ms)
        hold_ms = min(self._hold_ms_max, limit_ms - MARGIN_MS) - self._age_ms(in_flight)
        if hold_ms <= 0:
            return False
        assert self._held is None, "a heartbeat comes after the response to the one before"
        self._held = _Held(in_flight, request, answer, limit_ms, self._is_prompt(in_flight))
        self._wait(self._held, hold_ms, self._end_hold)
        return True

    def tell(self, notice: AssignmentNotice) -> None:
        """Send a heartbeat on behalf of the notice's member, if the response to it is held."""
        held = self._held
        if held is not None and held.answer.member_id == notice.member_id and not held.is_asking:
            held.is_asking = True
            request = ConsumerGroupHeartbeat(
                request_id=held.request.request_id,
                reply_to=held.request.reply_to,
                client_id=held.request.client_id,
                client_host=held.request.client_host,
                principal=held.request.principal,
                group_id=held.request.group_id,
                member_id=notice.member_id,
                member_epoch=held.answer.member_epoch,
                again=True,
            )
            self._ask_again(request, lambda answer: self._handle(held, answer))

    def release(self) -> None:
        """Send the held response, because the client has sent another request."""
        if self._held is not None:
            self.end_early()
        self._end_hold()

    def forget(self) -> None:
        """Discard the held response."""
        if self._held is not None and self._held.timer is not None:
            self._held.timer.cancel()
        self._held = None

    # -- the member's partitions ---------------------------------------------------------------------------------------

    def _record(self, request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> None:
        """Store the partitions that the member owns, and those that the answer assigns to it."""
        member_id = answer.member_id or request.member_id
        if is_gone(request, answer):
            self._owned.pop(member_id, None)
            self._given.pop(member_id, None)
            return
        if request.topic_partitions is not None:
            _put(self._owned, member_id, _partitions(request.topic_partitions))
        if answer.assignment is not None:
            _put(self._given, member_id, _partitions(answer.assignment))

    def _is_without_news(self, request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> bool:
        if answer.code or request.member_epoch < 0:
            return False
        if request.member_epoch == 0:
            return answer.assignment == () and answer.pending == "waiting"
        is_at_rest = answer.assignment is None and answer.pending != "revoking"
        return is_at_rest and not self._owes_acknowledgement(request.member_id)

    def _owes_acknowledgement(self, member_id: str) -> bool:
        return self._given.get(member_id, Owned()) != self._owned.get(member_id, Owned())

    # -- the held response ---------------------------------------------------------------------------------------------

    def _end_hold(self) -> None:
        """Send the held response; wait for the answer to the heartbeat on the member's behalf, if there is one."""
        held = self._held
        if held is None or held.is_over:
            return
        if held.is_asking:
            held.is_over = True
            patience_ms = held.limit_ms - PATIENCE_MS - self._age_ms(held.in_flight)
            self._wait(held, max(patience_ms, 0), self._give_up)
        else:
            self._send(held)

    def _handle(self, held: _Held, answer: AnyAnswer) -> None:
        """Handle the answer to the heartbeat on the member's behalf: send the response if it has a change."""
        if held is not self._held:
            return
        held.is_asking = False
        if not isinstance(answer, ConsumerGroupHeartbeatAnswer) or answer.code:
            self._fail(held, answer)
            return
        before = held.answer
        held.answer = answer if answer.assignment is not None else replace(answer, assignment=before.assignment)
        self._record(replace(held.request, topic_partitions=None), held.answer)
        is_over = held.is_over or (before.pending == "waiting" and answer.pending != "waiting")
        if is_over or answer.assignment is not None or answer.pending == "revoking":
            self._send(held)

    def _send(self, held: _Held) -> None:
        self._finish(held, self._with_interval(held.answer, held.is_prompt))

    def _give_up(self) -> None:
        if self._held is not None:
            self._fail(self._held, no_answer())

    def _fail(self, held: _Held, error: AnyAnswer) -> None:
        """Send an error in place of the held response, unless a new member would join again after it.

        A static member that joins again is refused for good, because its instance id has an owner: itself.
        """
        if held.request.member_epoch == 0 and error.code in PASSING:
            self._member_behind = held.answer.member_id
            self._send(held)
        else:
            self._finish(held, error)

    def _finish(self, held: _Held, answer: AnyAnswer) -> None:
        self.forget()
        self._give(
            held.in_flight, encode(heartbeat_response(answer, held.in_flight.header.version), held.in_flight.header)
        )

    def _wait(self, held: _Held, wait_ms: float, then: Callable[[], None]) -> None:
        if held.timer is not None:
            held.timer.cancel()
        held.timer = asyncio.get_running_loop().call_later(wait_ms / 1_000, then)

    # -- the interval --------------------------------------------------------------------------------------------------

    def _with_interval(self, answer: ConsumerGroupHeartbeatAnswer, is_prompt: bool) -> ConsumerGroupHeartbeatAnswer:
        if answer.heartbeat_interval_ms == 0:
            return answer
        now_s = self._clock()
        if not is_prompt:
            self.record_slow()
        is_short = self._ended_s is not None and self._slow_s + SHORT_FOR_S <= now_s < self._ended_s + SHORT_FOR_S
        usual_ms = answer.heartbeat_interval_ms
        self._reported_ms = min(usual_ms, SHORT_INTERVAL_MS) if is_short else usual_ms
        return replace(answer, heartbeat_interval_ms=self._reported_ms)

    def _is_prompt(self, in_flight: InFlightRequest) -> bool:
        return self._age_ms(in_flight) - in_flight.waited_ms <= PROMPT_MS

    def _age_ms(self, in_flight: InFlightRequest) -> float:
        return (self._clock() - in_flight.since_s) * 1_000


def is_gone(request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> bool:
    """Return whether the client is no member any more after an answer, or begins anew."""
    return request.member_epoch < 0 or (answer.code != 0 and answer.code not in PASSING)


def no_answer() -> ErrorAnswer:
    """Return the error for a heartbeat that the coordinator has not answered in time."""
    return ErrorAnswer(request_id=None, error=NO_ANSWER.name, code=NO_ANSWER.number)


def _partitions(topics: Iterable[OwnedPartitions | AssignedTopic]) -> Owned:
    return frozenset((each.topic_id, tuple(sorted(each.partitions))) for each in topics if each.partitions)


def _put(stored: dict[str, Owned], member_id: str, partitions: Owned) -> None:
    stored.pop(member_id, None)
    stored[member_id] = partitions
    if len(stored) > MEMBERS_MAX:
        del stored[next(iter(stored))]
