"""The members of groups of the consumer protocol that use one connection, and the facts about their topics.

The coordinator gets facts about topics only from requests. `topic_updates` sends a group the changes of the topics that
its members subscribe to, over the connection of one of them. `heartbeat_scheduler` has the members' heartbeats.
"""

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
    CheckAccessAnswer,
    ConsumerGroupHeartbeatAnswer,
    JoinGroupAnswer,
)
from streaming.gateway.connection.tasks import Work
from streaming.gateway.exchanges.exchange import CoordinatorRequest, expected, may
from streaming.gateway.exchanges.membership import topics_of
from streaming.gateway.members.mailbox import Mailbox
from streaming.gateway.members.member_state import MEMBERS_MAX, is_gone
from streaming.gateway.members.services import Shared
from streaming.gateway.members.topic_updates import Follower

RIGHTS_WAIT_S = 10.0
"""The longest wait for the rights to the topics of a pattern. Without an answer they are asked for later."""


class Members:
    """The members of one connection.

    Args:
        may_see: Returns whether the client may see a topic.
    """

    def __init__(self, shared: Shared, work: Work, mailbox: Mailbox, may_see: Callable[[str], bool]) -> None:
        self._topics, self._topic_updates = shared.topics, shared.topic_updates
        self._work, self._mailbox, self._may_see = work, mailbox, may_see
        self._has_rules = shared.settings.access == "rules"
        self._followers: dict[tuple[str, str], Follower] = {}

    def close(self) -> None:
        """Forget the members: the connection is closed."""
        for follower in self._followers.values():
            self._topic_updates.remove(follower)

    async def with_facts(self, request: ConsumerGroupHeartbeat, ask: Ask) -> ConsumerGroupHeartbeat:
        """Return a heartbeat with the facts for which the coordinator has asked, and a new id."""
        await self._topics.learn(ask.topics)
        facts = {fact.topic: fact for fact in self._topics.facts_of(ask.topics)}
        facts = facts | {fact.topic: fact for fact in request.topics if fact.topic not in facts}
        return replace(request, topics=tuple(facts.values())[:SUBSCRIBED_NAMES_MAX], **self._mailbox.fields())

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

    def follow(self, request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> None:
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

    def _send(self, request: Request, then: Callable[[AnyAnswer], object]) -> None:
        """Send a request, and call `then` with its answer."""
        self._mailbox.ask((CoordinatorRequest(request),), lambda answers: then(answers[0]))

    def _follower(self, key: tuple[str, str], names: tuple[str, ...], pattern: str = "") -> Follower:
        return Follower(
            *key,
            asker=self._mailbox,
            send=self._send,
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
