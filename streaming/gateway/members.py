"""The members of the consumer protocol that use one connection: their heartbeats and what their groups know of topics.

consumer_heartbeats   holds a response until there is news
following             tells a group about changes of the topics that its members subscribe to
"""

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from coordinator.consumer_requests import ConsumerGroupHeartbeat
from coordinator.outputs import AnyAnswer, AssignmentNotice, ConsumerGroupHeartbeatAnswer
from coordinator.requests import Request
from streaming.gateway.answers import Answers
from streaming.gateway.consumer_heartbeats import MEMBERS_MAX, PATIENCE_MS, ConsumerHeartbeats, no_answer
from streaming.gateway.exchanges.consumer_groups import heartbeat_response
from streaming.gateway.exchanges.exchange import Question
from streaming.gateway.flow import Flow
from streaming.gateway.following import Follower
from streaming.gateway.heartbeats import Heartbeats
from streaming.gateway.questions import Questions
from streaming.gateway.shared import Shared
from streaming.gateway.slots import Slot
from streaming.gateway.work import Work

REPEATS_MAX = 2
"""A heartbeat is repeated so often at most with the facts that the coordinator asks for."""


class Members:
    """The members of one connection.

    Args:
        heartbeats: Knows whether the client uses the connection only for its groups.
        may_see: Returns whether the client may see a topic.
    """

    def __init__(
        self,
        shared: Shared,
        flow: Flow,
        work: Work,
        questions: Questions,
        heartbeats: Heartbeats,
        may_see: Callable[[str], bool],
    ) -> None:
        self._topics, self._following = shared.topics, shared.following
        self._flow, self._work, self._questions, self._may_see = flow, work, questions, may_see
        self._heartbeats = heartbeats
        self._interval_ms = shared.settings.group_consumer_heartbeat_interval_ms
        hold_ms_max = shared.settings.gateway_consumer_heartbeat_hold_ms
        self._holding = ConsumerHeartbeats(hold_ms_max, flow.give, self._ask)
        self._followers: dict[tuple[str, str], Follower] = {}
        self._timers: dict[Slot, asyncio.TimerHandle] = {}

    def asked(self, slot: Slot, request: ConsumerGroupHeartbeat) -> None:
        """Wait for the answer to a heartbeat of a member for a bounded time."""
        if request.member_epoch > 0:
            interval_ms = self._holding.told_ms or self._interval_ms
            patience_s = max(interval_ms - PATIENCE_MS, PATIENCE_MS) / 1_000
            self._timers[slot] = asyncio.get_running_loop().call_later(patience_s, self._give_up, slot)

    def answered(self, slot: Slot, request: ConsumerGroupHeartbeat, answer: AnyAnswer, repeats: int = 0) -> None:
        """Send the response to a heartbeat, hold it, or repeat the heartbeat with what the coordinator asks for."""
        if slot.answer is not None:
            return  # it has come too late
        if not isinstance(answer, ConsumerGroupHeartbeatAnswer):
            self._respond(slot, answer)
            return
        if answer.code and answer.ask and repeats < REPEATS_MAX:
            self._work.begin(self._repeat(slot, request, answer, repeats))
            return
        self._follow(request, answer)
        if self._may_hold(slot) and self._holding.hold(slot, request, answer):
            self._answered_in_time(slot)
            self._flow.count(slot)
        else:
            self._respond(slot, self._holding.answer_now(slot, answer))

    def tell(self, notice: AssignmentNotice) -> None:
        """Send a heartbeat on behalf of the notice's member, if the response to it is held."""
        self._holding.tell(notice)

    def release(self) -> None:
        """Send the held response, because the client has sent another request."""
        self._holding.release()

    def close(self) -> None:
        """Forget the members: the connection is closed."""
        self._holding.forget()
        for timer in self._timers.values():
            timer.cancel()
        for follower in self._followers.values():
            self._following.drop(follower)

    # -- responses -----------------------------------------------------------------------------------------------------

    def _may_hold(self, slot: Slot) -> bool:
        """Return whether the client uses the connection only for its groups, and waits for this response alone."""
        if not self._heartbeats.may_hold:
            return False
        if not self._flow.slots.is_only(slot):
            self._holding.end_early()
            return False
        return True

    def _respond(self, slot: Slot, answer: AnyAnswer) -> None:
        self._answered_in_time(slot)
        self._flow.respond(slot, heartbeat_response(answer, slot.header.version))

    def _answered_in_time(self, slot: Slot) -> None:
        if (timer := self._timers.pop(slot, None)) is not None:
            timer.cancel()

    def _give_up(self, slot: Slot) -> None:
        self._respond(slot, no_answer())

    async def _repeat(
        self, slot: Slot, request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer, repeats: int
    ) -> None:
        assert answer.ask, "the coordinator asks for something"
        await self._topics.learn(answer.ask.topics)
        facts = {fact.topic: fact for fact in (*request.topics, *self._topics.facts_of(answer.ask.topics))}
        request = replace(request, topics=tuple(facts.values()))
        self._ask(request, lambda said: self.answered(slot, request, said, repeats + 1))

    # -- requests ------------------------------------------------------------------------------------------------------

    def _ask(self, request: Request, then: Callable[[AnyAnswer], object] = lambda _: None) -> None:
        """Send a request, with a new id and the client's identity, and call `then` with its answer."""
        questions = (Question(replace(request, **self._questions.fields())),)

        def answered(answers: Sequence[AnyAnswer]) -> None:
            self._questions.answered(questions)
            then(answers[0])

        self._questions.expect(questions)
        self._questions.send(questions, Answers(1, answered, self._flow.outgoing.hold))

    # -- topics --------------------------------------------------------------------------------------------------------

    def _follow(self, request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> None:
        """Follow the topics that a member subscribes to, and tell its group what the coordinator asks for."""
        member_id = answer.member_id or request.member_id
        key = request.group_id, member_id
        before = self._followers.get(key)
        if answer.code or request.member_epoch < 0:
            if before is not None:
                self._following.drop(self._followers.pop(key))
            return
        names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
        if names is not None or pattern is not None:
            follower = Follower(
                *key,
                asker=self._questions,
                send=self._ask,
                may_see=self._may_see,
                names=before.names if before and names is None else tuple(names or ()),
                pattern=before.pattern if before and pattern is None else pattern or "",
            )
            self._followers.pop(key, None)
            self._followers[key] = follower
            self._following.subscribe(follower, request.topics, request.regex_topics)
            if len(self._followers) > MEMBERS_MAX:
                self._following.drop(self._followers.pop(next(iter(self._followers))))
        if answer.ask and (known := self._followers.get(key)) is not None:
            self._work.begin(self._following.answer(known, answer.ask))
