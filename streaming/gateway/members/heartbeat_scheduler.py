"""The heartbeats of one connection, of both protocols: when each is sent to the coordinator, and when it is answered.

`heartbeat_states` has the theory and the table. This module finds out which event has come, and has the actions.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kafka.protocol.consumer.group import HeartbeatRequest

from coordinator.base.errors import IllegalMove
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.heartbeats import AnyHeartbeat
from coordinator.messages.requests import Request
from coordinator.messages.responses import AnyAnswer, AssignmentNotice, ConsumerGroupHeartbeatAnswer, RebalanceNotice
from streaming.gateway.connection.flow_control import Flow, InFlightRequest
from streaming.gateway.connection.tasks import Work
from streaming.gateway.coordinator.batching import ticks_to_wait
from streaming.gateway.coordinator.outstanding import key_of
from streaming.gateway.exchanges.exchange import CoordinatorRequest
from streaming.gateway.members.heartbeat_protocols import (
    NO_ANSWER,
    REBALANCING,
    ClassicProtocol,
    ConsumerProtocol,
    PendingHeartbeat,
)
from streaming.gateway.members.heartbeat_states import HOLDS, TABLE, Event, State
from streaming.gateway.members.mailbox import Mailbox
from streaming.gateway.members.member_state import merged, store_newest
from streaming.gateway.members.members import Members
from streaming.gateway.members.reported_interval import PATIENCE_MS
from streaming.gateway.members.services import Shared
from streaming.gateway.protocol.api import BEFORE_AUTHENTICATION, Handling
from streaming.gateway.protocol.definitions import ConsumerGroupHeartbeatRequest
from streaming.gateway.protocol.messages import encode

OF_GROUPS = BEFORE_AUTHENTICATION | {Handling.SERVED, Handling.REWRITTEN}
"""The requests on a connection that a client uses only for its group's coordinator. librdkafka sends Metadata as well.

A heartbeat waits only on such a connection. Some clients have one connection to a broker for all requests, and send no
other request before they have the response.
"""

REPEATS_MAX = 2
"""How often a heartbeat is repeated at most with the facts for which the coordinator has asked."""


class HeartbeatScheduler:
    """The heartbeats of one connection.

    Args:
        authenticates_soon: Returns whether the client may authenticate again at any time.
        clock: Returns monotonic seconds.

    Attributes:
        classic: The facts about classic members.
        consumer: The facts about members of the consumer protocol.
    """

    def __init__(
        self,
        shared: Shared,
        flow: Flow,
        work: Work,
        mailbox: Mailbox,
        members: Members,
        authenticates_soon: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._batchers, self._outstanding = shared.coordinators.batchers, shared.coordinators.outstanding
        self._flow, self._work, self._mailbox, self._members = flow, work, mailbox, members
        self._authenticates_soon, self._clock = authenticates_soon, clock
        self.classic = ClassicProtocol(shared.settings.gateway_heartbeat_hold_ms)
        self.consumer = ConsumerProtocol(shared.settings, clock)
        self._late_s = shared.settings.group_consumer_heartbeat_interval_ms / 1_000
        self._is_of_groups = True
        self._waiting: PendingHeartbeat | None = None
        self._timed: set[PendingHeartbeat] = set()
        self._last: dict[tuple[str, str], PendingHeartbeat] = {}

    # -- events --------------------------------------------------------------------------------------------------------

    def came(self, in_flight: InFlightRequest, message: Any) -> PendingHeartbeat | None:
        """Return the heartbeat in a client's request; None for a request of another API.

        The client's time begins: it waits for the facts about the heartbeat's topics no longer than for an answer.
        """
        if in_flight.header.api_key == HeartbeatRequest.API_KEY:
            return PendingHeartbeat(in_flight, self.classic)
        if in_flight.header.api_key != ConsumerGroupHeartbeatRequest.API_KEY:
            return None
        heartbeat = PendingHeartbeat(in_flight, self.consumer)
        if message.member_epoch > 0:
            self._start_timer(heartbeat, self.consumer.interval.patience_ms)
        return heartbeat

    def schedule(self, heartbeat: PendingHeartbeat, request: Request) -> None:
        """Send a heartbeat to the coordinator, now or later, or answer it from the one before it.

        Args:
            request: The request to the coordinator.
        """
        assert isinstance(request, AnyHeartbeat), "the exchange of a heartbeat has one request"
        heartbeat.request, heartbeat.member_id = request, request.member_id
        self._decide(heartbeat)

    def release(self) -> None:
        """Send the heartbeat that waits, or the held response, because the client sends another request."""
        if (heartbeat := self._waiting) is not None:
            if heartbeat.protocol is self.consumer and heartbeat.state in HOLDS:
                self.consumer.interval.record_early_end()
            self._apply(heartbeat, Event.OTHER_REQUEST)

    def handle_notice(self, notice: AssignmentNotice | RebalanceNotice) -> None:
        """Handle a notice of a change. Its member is not at rest, so its next heartbeat does not wait."""
        is_classic = isinstance(notice, RebalanceNotice)
        protocol = self.classic if is_classic else self.consumer
        protocol.at_rest_s.pop(notice.member_id, None)
        heartbeat = self._waiting
        if heartbeat is not None and heartbeat.protocol is protocol and heartbeat.member_id == notice.member_id:
            event = Event.REBALANCE_NOTICE if is_classic else Event.ASSIGNMENT_NOTICE
            self._apply(heartbeat, event, REBALANCING if is_classic else NO_ANSWER)

    def close(self) -> None:
        """Forget all heartbeats, because the connection is closed. One that waits is sent at its tick all the same."""
        for heartbeat in list(self._timed):
            self._apply(heartbeat, Event.CLOSED)
        self._waiting = None

    @property
    def may_hold(self) -> bool:
        """Whether the client uses this connection only for its groups, and will not authenticate again soon."""
        return self._is_of_groups and not self._authenticates_soon()

    def record_request(self, handling: Handling) -> None:
        """Record the handling of a request. After a request that is not a group's, no heartbeat waits any more."""
        self._is_of_groups &= handling in OF_GROUPS

    def stop_holding(self) -> None:
        """Stop holding responses, because the connection ends."""
        self._is_of_groups = False

    # -- the machine ---------------------------------------------------------------------------------------------------

    def _apply(self, heartbeat: PendingHeartbeat, event: Event, answer: AnyAnswer = NO_ANSWER) -> None:
        """Move a heartbeat to its next state, and do what the table says.

        Raises:
            IllegalMove: The table has no row for the state and the event.
        """
        try:
            act, heartbeat.state = _STEPS[heartbeat.state, event]
        except KeyError:
            raise IllegalMove(f"a heartbeat in {heartbeat.state.name} when {event.value}") from None
        act(self, heartbeat, answer)

    def _nothing(self, heartbeat: PendingHeartbeat, answer: AnyAnswer) -> None:
        """Change the state only."""

    def _expire(self, heartbeat: PendingHeartbeat) -> None:
        self._stop_timer(heartbeat)
        self._apply(heartbeat, Event.TIMER)

    def _start_timer(self, heartbeat: PendingHeartbeat, wait_ms: float) -> None:
        """Start the time of a heartbeat's state, in place of the time of its state before."""
        if heartbeat.timer is not None:
            heartbeat.timer.cancel()
        loop = asyncio.get_running_loop()
        heartbeat.until_s = loop.time() + wait_ms / 1_000
        heartbeat.timer = loop.call_at(heartbeat.until_s, self._expire, heartbeat)
        self._timed.add(heartbeat)

    def _stop_timer(self, heartbeat: PendingHeartbeat) -> None:
        if heartbeat.timer is not None:
            heartbeat.timer.cancel()
            heartbeat.timer = None
            self._timed.discard(heartbeat)

    def _age_ms(self, heartbeat: PendingHeartbeat) -> float:
        return (self._clock() - heartbeat.in_flight.since_s) * 1_000

    # -- before the answer ---------------------------------------------------------------------------------------------

    def _decide(self, heartbeat: PendingHeartbeat, _: AnyAnswer = NO_ANSWER) -> None:
        event = self._obstacle(heartbeat) if heartbeat.protocol is self.consumer else None
        if event is None:
            event = Event.MAY_WAIT if self._may_wait(heartbeat) else Event.MAY_NOT_WAIT
        self._apply(heartbeat, event)

    def _obstacle(self, heartbeat: PendingHeartbeat) -> Event | None:
        """Return the reason for which a heartbeat of the consumer protocol is not sent; None if it is sent."""
        request: ConsumerGroupHeartbeat = heartbeat.request
        if self.consumer.must_be_full(request):
            return Event.MUST_BE_FULL
        key, is_member = (request.group_id, request.member_id), request.member_epoch > 0
        last = self._last.get(key)
        if last is None and is_member:
            unblock = partial(self._apply, heartbeat, Event.UNBLOCKED)
            if self._outstanding.wait(key_of(request), unblock):
                return Event.ELSEWHERE
        heartbeat.said = merged(last.said, request) if last is not None and is_member else request
        heartbeat.sent_s = self._clock()
        if last is not None and last.state in (State.LATE, State.STORED) and heartbeat.state is State.NEW and is_member:
            is_recent = heartbeat.sent_s < last.sent_s + self._late_s
            if is_recent and heartbeat.said == last.said:
                return Event.SAYS_NOTHING_NEW
        store_newest(self._last, key, heartbeat)
        return None

    def _take_over(self, heartbeat: PendingHeartbeat, _: AnyAnswer) -> None:
        """Answer a heartbeat in place of the one before it, whose answer is late. It has the newer one's time."""
        self._stop_timer(heartbeat)
        key = heartbeat.request.group_id, heartbeat.member_id
        last = self._last[key]
        store_newest(self._last, key, last)
        last.in_flight = heartbeat.in_flight
        if last.state is State.STORED:  # after an error, a client sends all fields
            last.request = heartbeat.request
        self._start_timer(last, (heartbeat.until_s - asyncio.get_running_loop().time()) * 1_000)
        self._apply(last, Event.TAKEN_OVER, last.answer)

    def _may_wait(self, heartbeat: PendingHeartbeat) -> bool:
        """Return whether a heartbeat may wait for ticks, and set their number. Its session and its client leave room.

        The session counts from the time of the heartbeat's record, up to these ticks after the client has sent it.
        """
        protocol, in_flight = heartbeat.protocol, heartbeat.in_flight
        last_s = protocol.at_rest_s.pop(heartbeat.member_id, None)
        if last_s is None or not (protocol is self.classic or heartbeat.request.is_bare):
            return False
        if not (self.may_hold and self._flow.queue.is_only(in_flight)):
            return False
        session_ms = protocol.session_ms(heartbeat.member_id)
        room_ms = session_ms - (in_flight.since_s - last_s) * 1_000
        if protocol is self.consumer:
            room_ms = min(room_ms, (heartbeat.until_s - asyncio.get_running_loop().time()) * 1_000)
        heartbeat.ticks = ticks_to_wait(self._batchers.tick_ms, session_ms, room_ms)
        return heartbeat.ticks > 0

    def _gather(self, heartbeat: PendingHeartbeat, _: AnyAnswer) -> None:
        self._waiting, heartbeat.sent_for = heartbeat, heartbeat.in_flight
        if heartbeat.protocol is self.consumer:
            heartbeat.in_flight.waited_ms = self._batchers.until_tick_ms(heartbeat.ticks)
        self._mailbox.gather(heartbeat.request, heartbeat.ticks, partial(self._answered, heartbeat))

    def _send(self, heartbeat: PendingHeartbeat, _: AnyAnswer) -> None:
        heartbeat.sent_for = heartbeat.in_flight
        if heartbeat.protocol is self.classic:
            self._mailbox.gather_prompt(heartbeat.request, partial(self._answered, heartbeat))
        else:
            self._request(heartbeat, heartbeat.request)

    def _send_now(self, heartbeat: PendingHeartbeat, _: AnyAnswer) -> None:
        """Send a heartbeat that waits for a tick. After the tick this has no effect."""
        self._waiting = None
        heartbeat.in_flight.waited_ms = min(heartbeat.in_flight.waited_ms, self._age_ms(heartbeat))
        self._mailbox.send_now(heartbeat.request)

    def _request(self, heartbeat: PendingHeartbeat, request: ConsumerGroupHeartbeat) -> None:
        self._mailbox.ask((CoordinatorRequest(request),), partial(self._answered, heartbeat))

    # -- the answer ----------------------------------------------------------------------------------------------------

    def _answered(self, heartbeat: PendingHeartbeat, answers: Sequence[AnyAnswer]) -> None:
        answer = answers[0]
        try:
            if heartbeat.protocol is self.consumer:
                answer = self.consumer.completed(heartbeat.request, answer)
            self._apply(heartbeat, Event.ANSWER, answer)
        except Exception as error:
            self._flow.fail(error)

    def _store(self, heartbeat: PendingHeartbeat, answer: AnyAnswer) -> None:
        self._forget(heartbeat)
        heartbeat.answer = answer

    def _classify(self, heartbeat: PendingHeartbeat, answer: AnyAnswer) -> None:
        """Find out whether an answer has a change, and whether its response may be held."""
        if self._waiting is heartbeat:
            self._waiting = None
        request, in_flight = heartbeat.request, heartbeat.in_flight
        heartbeat.answered_s = self._clock()
        if heartbeat.sent_for is in_flight:
            heartbeat.protocol.record_rest(request, answer, in_flight.since_s)
        if isinstance(answer, ConsumerGroupHeartbeatAnswer):
            if answer.code and answer.ask and heartbeat.repeats < REPEATS_MAX:
                self._apply(heartbeat, Event.LACKS_FACTS, answer)
                return
            self._members.follow(request, answer)
        hold_ms = 0
        if self.may_hold:
            hold_ms = heartbeat.protocol.hold_ms(heartbeat, answer, is_only=self._flow.queue.is_only(in_flight))
        heartbeat.left_ms = hold_ms - (heartbeat.answered_s - in_flight.since_s) * 1_000
        self._apply(heartbeat, Event.UNCHANGED if heartbeat.left_ms > 0 else Event.CHANGED, answer)

    def _repeat(self, heartbeat: PendingHeartbeat, answer: Any) -> None:
        heartbeat.repeats += 1
        self._work.begin(self._repeat_with_facts(heartbeat, answer))

    async def _repeat_with_facts(self, heartbeat: PendingHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> None:
        assert answer.ask, "the coordinator asks for something"
        heartbeat.request = await self._members.with_facts(heartbeat.request, answer.ask)
        self._send(heartbeat, answer)

    def _respond(self, heartbeat: PendingHeartbeat, answer: AnyAnswer) -> None:
        self._forget(heartbeat)
        self._flow.respond(heartbeat.in_flight, heartbeat.protocol.response(heartbeat, answer))

    def _give_up(self, heartbeat: PendingHeartbeat, answer: AnyAnswer) -> None:
        self.consumer.interval.record_slow()
        self._flow.respond(heartbeat.in_flight, heartbeat.protocol.response(heartbeat, answer))

    def _forget(self, heartbeat: PendingHeartbeat, _: AnyAnswer = NO_ANSWER) -> None:
        self._stop_timer(heartbeat)
        if self._waiting is heartbeat:
            self._waiting = None

    # -- the held response ---------------------------------------------------------------------------------------------

    def _hold(self, heartbeat: PendingHeartbeat, answer: AnyAnswer) -> None:
        """Hold the response to a heartbeat. The request counts as answered: it waits by the gateway's choice."""
        assert self._waiting is None, "a heartbeat comes after the response to the one before"
        self._waiting, heartbeat.answer = heartbeat, answer
        self._start_timer(heartbeat, heartbeat.left_ms)
        self._flow.count(heartbeat.in_flight)

    def _ask(self, heartbeat: PendingHeartbeat, _: AnyAnswer) -> None:
        request = ConsumerGroupHeartbeat(
            **self._mailbox.fields(),
            group_id=heartbeat.request.group_id,
            member_id=heartbeat.member_id,
            member_epoch=heartbeat.answer.member_epoch,
            again=True,
        )
        self._request(heartbeat, request)

    def _compare(self, heartbeat: PendingHeartbeat, answer: AnyAnswer) -> None:
        """Find out whether the answer to a heartbeat on the member's behalf has a change."""
        if not isinstance(answer, ConsumerGroupHeartbeatAnswer) or answer.code:
            event = Event.FAILED
        else:
            event = Event.CHANGED if self.consumer.replace_held(heartbeat, answer) else Event.UNCHANGED
        self._apply(heartbeat, event, answer)

    def _await_last(self, heartbeat: PendingHeartbeat, _: AnyAnswer) -> None:
        self._start_timer(heartbeat, max(heartbeat.limit_ms - PATIENCE_MS - self._age_ms(heartbeat), 0))

    def _release(self, heartbeat: PendingHeartbeat, _: AnyAnswer) -> None:
        self._replace(heartbeat, heartbeat.answer)

    def _replace(self, heartbeat: PendingHeartbeat, answer: AnyAnswer) -> None:
        self._forget(heartbeat)
        response = heartbeat.protocol.response(heartbeat, answer)
        self._flow.give(heartbeat.in_flight, encode(response, heartbeat.in_flight.header))

    def _fail(self, heartbeat: PendingHeartbeat, error: AnyAnswer) -> None:
        self._replace(heartbeat, self.consumer.failed(heartbeat, error))


_STEPS: dict[tuple[State, Event], tuple[Callable[[HeartbeatScheduler, PendingHeartbeat, AnyAnswer], None], State]] = {
    row: (getattr(HeartbeatScheduler, f"_{action.name.lower()}"), after) for row, (action, after) in TABLE.items()
}
"""`TABLE` with the methods of its actions."""
