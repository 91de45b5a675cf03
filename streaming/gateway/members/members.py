"""The members of the consumer protocol that use one connection: their heartbeats, and the facts about their topics.

consumer_heartbeats   holds a response until the member's assignment changes
idle                  lets a member's heartbeat wait for the next tick, while its assignment does not change
topic_updates         sends a group the changes of the topics that its members subscribe to
"""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import compress
from typing import Any

from msgspec.structs import replace

from coordinator.base.access import Operation, Resource
from coordinator.base.limits import SUBSCRIBED_NAMES_MAX
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.requests import Request
from coordinator.messages.responses import (
    AnyAnswer,
    Ask,
    AssignmentNotice,
    CheckAccessAnswer,
    ConsumerGroupHeartbeatAnswer,
    JoinGroupAnswer,
)
from streaming.gateway.connection.flow_control import Flow, InFlightRequest
from streaming.gateway.connection.tasks import Work
from streaming.gateway.coordinator.outstanding import key_of
from streaming.gateway.exchanges.consumer_groups import heartbeat_response
from streaming.gateway.exchanges.exchange import CoordinatorRequest, expected, may
from streaming.gateway.exchanges.membership import topics_of
from streaming.gateway.members.consumer_heartbeats import (
    MEMBERS_MAX,
    PATIENCE_MS,
    ConsumerHeartbeatHolds,
    is_gone,
    no_answer,
)
from streaming.gateway.members.heartbeat_holds import HeartbeatHolds
from streaming.gateway.members.idle import IdleMembers
from streaming.gateway.members.late_responses import LateResponses
from streaming.gateway.members.mailbox import Mailbox
from streaming.gateway.members.services import Shared
from streaming.gateway.members.topic_updates import Follower

RIGHTS_WAIT_S = 10.0
"""The longest wait for the rights to the topics of a pattern. Without an answer they are asked for later."""

REPEATS_MAX = 2
"""How often a heartbeat is repeated at most with the facts for which the coordinator has asked."""


class Members:
    """The members of one connection.

    Args:
        holds: The holder of classic heartbeats; its `may_hold` applies to these heartbeats too.
        may_see: Returns whether the client may see a topic.
    """

    def __init__(
        self,
        shared: Shared,
        flow: Flow,
        work: Work,
        mailbox: Mailbox,
        holds: HeartbeatHolds,
        may_see: Callable[[str], bool],
    ) -> None:
        self._topics, self._topic_updates = shared.topics, shared.topic_updates
        self._outstanding = shared.coordinators.outstanding
        self._flow, self._work, self._mailbox, self._may_see = flow, work, mailbox, may_see
        self._holds = holds
        self._has_rules = shared.settings.access == "rules"
        self._interval_ms = shared.settings.group_consumer_heartbeat_interval_ms
        hold_ms_max = shared.settings.gateway_consumer_heartbeat_hold_ms
        self._holding = ConsumerHeartbeatHolds(hold_ms_max, flow.give, self._ask)
        session_ms = shared.settings.group_consumer_session_timeout_ms
        self._idle = IdleMembers(shared.coordinators.batchers, session_ms, self._interval_ms, mailbox.send_now)
        self._late = LateResponses(self._interval_ms / 1_000)
        self._is_closed = False
        self._followers: dict[tuple[str, str], Follower] = {}
        self._timers: dict[InFlightRequest, asyncio.TimerHandle] = {}

    def came(self, in_flight: InFlightRequest, member_epoch: int) -> None:
        """Wait for the answer to a heartbeat of a member for a bounded time."""
        if member_epoch > 0:
            interval_ms = self._holding.reported_ms or self._interval_ms
            patience_s = max(interval_ms - PATIENCE_MS, PATIENCE_MS) / 1_000
            self._timers[in_flight] = asyncio.get_running_loop().call_later(patience_s, self._give_up, in_flight)

    def take_over(
        self, in_flight: InFlightRequest, request: ConsumerGroupHeartbeat, later: Callable[[], object]
    ) -> bool:
        """Return whether a heartbeat is not sent now.

        The client must send a full one first, or the answer to an earlier one answers it too, or an earlier one over
        another connection has no answer yet. In the last case `later` is called after that answer.
        """
        if self._holding.is_behind(request):
            self._respond(in_flight, no_answer())
            return True
        is_elsewhere = request.member_epoch > 0 and not self._late.knows(request)
        if is_elsewhere and self._outstanding.wait(key_of(request), lambda: self._is_open(in_flight) and later()):
            return True
        if not self._late.take_over(in_flight, request):
            return False
        if (answer := self._late.answer_to(request)) is not None:
            self._react(in_flight, request, answer, repeats=0)
        return True

    def ticks_to_wait(self, in_flight: InFlightRequest, request: ConsumerGroupHeartbeat, *, is_only: bool) -> int:
        """Return for how many ticks a heartbeat may wait; 0 for none: see `idle`.

        Args:
            is_only: No other request of the connection waits for a response.
        """
        patience_ms, timer = 0.0, self._timers.get(in_flight)
        if timer is not None and self._holds.may_hold and is_only:
            patience_ms = (timer.when() - asyncio.get_running_loop().time()) * 1_000
        return self._idle.ticks_to_wait(in_flight, request, patience_ms)

    def _is_open(self, in_flight: InFlightRequest) -> bool:
        """Return whether the client waits for a response."""
        return in_flight.answer is None and not self._is_closed

    def answered(
        self, in_flight: InFlightRequest, request: ConsumerGroupHeartbeat, answer: AnyAnswer, repeats: int = 0
    ) -> None:
        """Send the response to a heartbeat, hold it, or repeat the heartbeat with the facts that it lacks."""
        answer = self._idle.complete(request, answer)
        waiting = self._late.deliver(in_flight, request, answer)
        if waiting is in_flight:
            self._idle.record(in_flight, request, answer)
        if waiting is not None:
            self._react(waiting, request, answer, repeats)

    def _react(
        self, in_flight: InFlightRequest, request: ConsumerGroupHeartbeat, answer: AnyAnswer, repeats: int
    ) -> None:
        if not isinstance(answer, ConsumerGroupHeartbeatAnswer):
            self._respond(in_flight, answer)
            return
        if answer.code and answer.ask and repeats < REPEATS_MAX:
            self._work.begin(self._repeat(in_flight, request, answer, repeats))
            return
        self._follow(request, answer)
        if self._may_hold(in_flight) and self._holding.hold(in_flight, request, answer):
            self._answered_in_time(in_flight)
            self._flow.count(in_flight)
        else:
            self._respond(in_flight, self._holding.answer_now(in_flight, answer))

    def tell(self, notice: AssignmentNotice) -> None:
        """Send a heartbeat on behalf of the notice's member, if the response to it is held; else the one that waits."""
        self._idle.tell(notice)
        self._holding.tell(notice)

    def release(self) -> None:
        """Send the held response, or the heartbeat that waits, because the client has sent another request."""
        self._idle.release()
        self._holding.release()

    def close(self) -> None:
        """Forget the members: the connection is closed."""
        self._is_closed = True
        self._holding.forget()
        for timer in self._timers.values():
            timer.cancel()
        for follower in self._followers.values():
            self._topic_updates.remove(follower)

    # -- responses -----------------------------------------------------------------------------------------------------

    def _may_hold(self, in_flight: InFlightRequest) -> bool:
        """Return whether the client uses the connection only for its groups, and waits for this response alone."""
        if not (self._holding.is_on and self._holds.may_hold):
            return False
        if not self._flow.queue.is_only(in_flight):
            self._holding.end_early()
            return False
        return True

    def _respond(self, in_flight: InFlightRequest, answer: AnyAnswer) -> None:
        self._answered_in_time(in_flight)
        self._flow.respond(in_flight, heartbeat_response(answer, in_flight.header.version))

    def _answered_in_time(self, in_flight: InFlightRequest) -> None:
        if (timer := self._timers.pop(in_flight, None)) is not None:
            timer.cancel()

    def _give_up(self, in_flight: InFlightRequest) -> None:
        if in_flight.answer is None:
            self._holding.record_slow()
            self._respond(in_flight, no_answer())

    async def _repeat(
        self,
        in_flight: InFlightRequest,
        request: ConsumerGroupHeartbeat,
        answer: ConsumerGroupHeartbeatAnswer,
        repeats: int,
    ) -> None:
        assert answer.ask, "the coordinator asks for something"
        await self._topics.learn(answer.ask.topics)
        facts = {fact.topic: fact for fact in self._topics.facts_of(answer.ask.topics)}
        facts = facts | {fact.topic: fact for fact in request.topics if fact.topic not in facts}
        request = replace(request, topics=tuple(facts.values())[:SUBSCRIBED_NAMES_MAX])
        self._ask(request, lambda said: self.answered(in_flight, request, said, repeats + 1))

    # -- requests ------------------------------------------------------------------------------------------------------

    def _ask(self, request: Request, then: Callable[[AnyAnswer], object] = lambda _: None) -> None:
        """Send a request, with a new id and the client's identity, and call `then` with its answer."""
        question = CoordinatorRequest(replace(request, **self._mailbox.fields()))
        self._mailbox.ask((question,), lambda answers: then(answers[0]))

    # -- topics --------------------------------------------------------------------------------------------------------

    def joined(self, request: Any, answer: JoinGroupAnswer) -> None:
        """Follow the topics of a classic member, if its group is one of the consumer protocol: it has no leader then.

        Args:
            request: The client's JoinGroup.
        """
        key = request.group_id, answer.member_id
        if answer.leader:
            self._forget(key)
            return
        follower = self._follower(key, topics_of(request))
        self._add(key, follower, None)
        self._work.begin(self._topic_updates.answer(follower, Ask(follower.names)))

    def left(self, group_id: str, member_id: str) -> None:
        """Stop following the topics of a classic member."""
        self._forget((group_id, member_id))

    def _follow(self, request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> None:
        """Follow the topics that a member subscribes to, and send its group the facts in the `ask` of the answer."""
        key = request.group_id, answer.member_id or request.member_id
        if is_gone(request, answer):
            self._forget(key)
        if answer.code or request.member_epoch < 0:
            return
        before, names, pattern = (
            self._followers.get(key),
            request.subscribed_topic_names,
            request.subscribed_topic_regex,
        )
        if names is not None or pattern is not None:
            names_now = before.names if before and names is None else tuple(names or ())
            pattern_now = before.pattern if before and pattern is None else pattern or ""
            self._add(key, self._follower(key, names_now, pattern_now), request.regex_topics)
        if answer.ask and (known := self._followers.get(key)) is not None:
            self._work.begin(self._topic_updates.answer(known, answer.ask))

    def _follower(self, key: tuple[str, str], names: tuple[str, ...], pattern: str = "") -> Follower:
        return Follower(
            *key,
            asker=self._mailbox,
            send=self._ask,
            may_see=self._may_see,
            describable=partial(self._describable, key[0]),
            names=names,
            pattern=pattern,
        )

    def _add(self, key: tuple[str, str], follower: Follower, matched: tuple[str, ...] | None) -> None:
        self._followers.pop(key, None)
        self._followers[key] = follower
        self._topic_updates.subscribe(follower, matched)
        if len(self._followers) > MEMBERS_MAX:
            self._forget(next(iter(self._followers)))

    def _forget(self, key: tuple[str, str]) -> None:
        if (follower := self._followers.pop(key, None)) is not None:
            self._topic_updates.remove(follower)

    async def _describable(self, group_id: str, topics: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return those topics that the rules let the client describe; None if the coordinator does not answer."""
        if not (self._has_rules and topics):
            return topics
        question = may(self._mailbox, group_id, [(Operation.DESCRIBE, Resource.TOPIC, topic) for topic in topics])
        try:
            answer = expected(await self._mailbox.answer_to(question, RIGHTS_WAIT_S), CheckAccessAnswer)
        except TimeoutError:
            return None
        return None if answer.code else tuple(compress(topics, answer.allowed))
