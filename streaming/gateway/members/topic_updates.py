"""The groups of the consumer protocol whose members use this gateway, and the changes of their topics.

The coordinator gets facts about topics only from requests. So the gateway compares the facts about the topics of these
groups with the facts that it has sent, every `metadata_refresh_ms` and when the coordinator asks, and sends the
difference. It sends the request for a member: with the identity of the member's client, over its connection.

A fact counts as sent when the coordinator has confirmed it; until then it is sent again. The facts of a heartbeat do
not count: the coordinator ignores one that contradicts what it has.

Two gateways may send a group the same fact. A fact that changes nothing has no effect.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

from coordinator.base.errors import ErrorCode
from coordinator.messages.consumer_requests import GroupTopics, ResolvedPattern, TopicFact
from coordinator.messages.responses import AnyAnswer, Ask
from streaming.gateway.exchanges.exchange import Asker
from streaming.gateway.members.topics import Topics

log = logging.getLogger(__name__)

NAMES_AT_ONCE = 2_000
"""The topics of one request to a group, and those of the patterns in it. A pattern with more has its own request."""

ANSWER_WAIT_S = 30.0
"""The time after which a request without an answer counts as lost, and its facts are sent again."""

NOT_OF_CONSUMERS = ErrorCode.GROUP_ID_NOT_FOUND.number


@dataclass(eq=False)
class Follower:
    """A member over whose connection its group gets facts about topics.

    Args:
        send: Sends a request to the coordinator, and calls the function with its answer.
        may_see: Returns whether the member's client may see a topic, as far as the gateway decides it.
        describable: Returns those topics that the coordinator's rules let the client describe; None without an answer.
    """

    group_id: str
    member_id: str
    asker: Asker
    send: Callable[[GroupTopics, Callable[[AnyAnswer], object]], object]
    may_see: Callable[[str], bool]
    describable: Callable[[tuple[str, ...]], Awaitable[tuple[str, ...] | None]]
    names: tuple[str, ...] = ()
    pattern: str = ""


@dataclass(eq=False)
class Group:
    """A group, its members behind this gateway, and the facts that this gateway has sent to it.

    Args:
        confirmed: The confirmed facts, by topic.
        matched: The topics of each pattern.
        outstanding: The requests without an answer, each with the monotonic time at which it counts as lost.
    """

    members: dict[str, Follower] = field(default_factory=dict)
    confirmed: dict[str, TopicFact] = field(default_factory=dict)
    matched: dict[str, tuple[str, ...]] = field(default_factory=dict)
    outstanding: dict[object, float] = field(default_factory=dict)

    @property
    def patterns(self) -> dict[str, Follower]:
        """The members' patterns, each with the first member that has it."""
        return {member.pattern: member for member in reversed(self.members.values()) if member.pattern}

    @property
    def names(self) -> set[str]:
        """The topics that the members subscribe to."""
        names = {name for each in {member.names for member in self.members.values()} for name in each}
        return names.union(*(self.matched.get(pattern, ()) for pattern in self.patterns))

    def waits(self, now_s: float) -> bool:
        """Return whether a request has no answer yet, and is not lost."""
        for request in [each for each, until_s in self.outstanding.items() if until_s <= now_s]:
            del self.outstanding[request]
        return bool(self.outstanding)

    def forget_unused(self, names: Iterable[str]) -> None:
        """Remove everything about other topics than these, and about patterns that no member has."""
        self.confirmed = {name: self.confirmed[name] for name in names if name in self.confirmed}
        patterns = self.patterns
        self.matched = {pattern: topics for pattern, topics in self.matched.items() if pattern in patterns}


class Resolved(NamedTuple):
    """A pattern with other topics than before.

    Args:
        matched: All topics that it matches. Those that the client may not describe are not in `pattern`.
    """

    group_id: str
    pattern: ResolvedPattern
    matched: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """The facts and the patterns of one request."""

    facts: Sequence[TopicFact] = ()
    patterns: Sequence[Resolved] = ()


class TopicUpdates:
    """The groups of one gateway.

    Args:
        topics: The facts about all topics.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._groups: dict[str, Group] = {}

    # -- members -------------------------------------------------------------------------------------------------------

    def has(self, group_id: str) -> bool:
        """Return whether a member of a group uses this gateway."""
        return group_id in self._groups

    def subscribe(self, follower: Follower, matched: tuple[str, ...] | None = None) -> None:
        """Follow the topics of a member, instead of those that it subscribed to before.

        Args:
            matched: The topics of its pattern in its request.
        """
        group = self._groups.setdefault(follower.group_id, Group())
        group.members[follower.member_id] = follower
        if matched is not None:
            group.matched.setdefault(follower.pattern, matched)

    def remove(self, follower: Follower) -> None:
        """Stop following the topics of a member, which has left or whose connection is closed."""
        group = self._groups.get(follower.group_id)
        if group is not None and group.members.get(follower.member_id) is follower:
            del group.members[follower.member_id]
            if not group.members:
                del self._groups[follower.group_id]

    # -- topics --------------------------------------------------------------------------------------------------------

    async def run(self, period_s: float) -> None:
        """Send the groups the changes of their topics, for ever."""
        while True:
            await asyncio.sleep(period_s)
            try:
                await self.update()
            except Exception:
                log.exception("the topics of groups could not be compared; the next try is in %s s", period_s)

    async def update(self) -> None:
        """Request the facts about the topics of all groups, and send each group its changes."""
        resolved = await self._resolve_all()
        names = {name for group in self._groups.values() for name in group.names}
        names.update(topic for some in resolved.values() for each in some for topic in each.matched)
        if not names:
            return
        await self._topics.learn(names)
        for group_id, group in list(self._groups.items()):
            await asyncio.sleep(0)  # a group may have many topics
            changed = resolved.get(group_id, [])
            used = group.names.union(*(each.matched for each in changed))
            group.forget_unused(used)
            if not group.waits(time.monotonic()):
                self._report(group, changed, used)

    async def answer(self, follower: Follower, ask: Ask) -> None:
        """Send a group the facts for which its coordinator asks, through one of its members."""
        if ask.regexes:
            await self._topics.learn_names()
        changed = await self._resolve([(regex, follower, None) for regex in ask.regexes])
        names = {*ask.topics, *(topic for each in changed for topic in each.matched)}
        if not self._topics.are_known(names):
            await self._topics.learn(names)
        if (group := self._groups.get(follower.group_id)) is not None:
            for name in names:
                group.confirmed.pop(name, None)
            self._report(group, changed, names, follower)

    # -- patterns ------------------------------------------------------------------------------------------------------

    async def _resolve_all(self) -> dict[str, list[Resolved]]:
        """Return the patterns of each group that match other topics than the group was sent."""
        wanted = [
            (pattern, member, group.matched.get(pattern))
            for group in self._groups.values()
            for pattern, member in group.patterns.items()
        ]
        if wanted:
            await self._topics.learn_names()
        changed: dict[str, list[Resolved]] = {}
        for each in await self._resolve(wanted):
            changed.setdefault(each.group_id, []).append(each)
        return changed

    async def _resolve(self, wanted: Sequence[tuple[str, Follower, tuple[str, ...] | None]]) -> list[Resolved]:
        """Return the patterns that match other topics than before.

        As in a heartbeat, a pattern matches only topics that its member's client may describe.

        Args:
            wanted: Each pattern, its member, and the topics before.
        """
        found = await self._topics.resolve([(pattern, member.may_see) for pattern, member, _ in wanted])
        changed = [
            (pattern, member, matches.topics)
            for (pattern, member, before), matches in zip(wanted, found, strict=True)
            if matches.error is None and matches.topics != before
        ]
        seen = await asyncio.gather(*(member.describable(topics) for _, member, topics in changed))
        return [
            Resolved(member.group_id, ResolvedPattern(pattern, topics, member.member_id), matched)
            for (pattern, member, matched), topics in zip(changed, seen, strict=True)
            if topics is not None
        ]

    # -- requests ------------------------------------------------------------------------------------------------------

    def _report(
        self, group: Group, patterns: Sequence[Resolved], names: Iterable[str], by: Follower | None = None
    ) -> None:
        facts = [fact for fact in self._topics.facts_of(names) if group.confirmed.get(fact.topic) != fact]
        member = by or next(iter(group.members.values()), None)
        if member is None:
            return
        for part in _parts(facts, patterns):
            group.outstanding[part] = time.monotonic() + ANSWER_WAIT_S
            request = GroupTopics(
                **member.asker.fields(),
                group_id=member.group_id,
                topics=tuple(part.facts),
                regexes=tuple(each.pattern for each in part.patterns),
            )
            member.send(request, partial(self._handle_report, group, member, part))

    def _handle_report(self, group: Group, member: Follower, part: Part, answer: AnyAnswer) -> None:
        """Store what the coordinator has confirmed. A group that is not one of consumers is no longer followed."""
        group.outstanding.pop(part, None)
        if answer.code == NOT_OF_CONSUMERS:
            self.remove(member)
        elif not answer.code:
            group.confirmed.update((fact.topic, fact) for fact in part.facts)
            group.matched.update((each.pattern.regex, each.matched) for each in part.patterns)


def _parts(facts: Sequence[TopicFact], patterns: Sequence[Resolved]) -> Iterator[Part]:
    """Divide facts and patterns among requests, each of a bounded size."""
    of_facts = [facts[start : start + NAMES_AT_ONCE] for start in range(0, len(facts), NAMES_AT_ONCE)]
    of_patterns: list[list[Resolved]] = []
    room = 0
    for each in patterns:
        size = 2 + len(each.pattern.topics)  # a request has a thousand patterns at most
        if size > room:
            of_patterns.append([])
            room = NAMES_AT_ONCE
        room -= size
        of_patterns[-1].append(each)
    for some_facts, some_patterns in zip_longest(of_facts, of_patterns, fillvalue=()):
        yield Part(some_facts, some_patterns)
