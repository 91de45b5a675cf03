"""The groups of the consumer protocol whose members use this gateway, and the changes of their topics.

The coordinator knows of topics only what requests tell it. So the gateway compares the facts about the topics of these
groups with what the groups were told, regularly and when the coordinator asks, and tells them the difference. It speaks
for a member: the request has the identity of the member's client, and comes from its connection.

Two gateways may tell a group the same fact. A fact that changes nothing has no effect.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from coordinator.consumer_requests import GroupTopics, ResolvedPattern, TopicFact
from coordinator.limits import PATTERNS_MAX, SUBSCRIBED_NAMES_MAX
from coordinator.outputs import Ask
from streaming.gateway.exchanges.exchange import Asker
from streaming.gateway.topics import Topics
from streaming.kafka.patterns import Matches

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Follower:
    """A member whose connection tells its group about topics.

    Args:
        send: Sends a request to the coordinator. Nobody waits for its answer.
        may_see: Returns whether the member's client may see a topic.
    """

    group_id: str
    member_id: str
    asker: Asker
    send: Callable[[GroupTopics], object]
    may_see: Callable[[str], bool]
    names: tuple[str, ...] = ()
    pattern: str = ""


@dataclass(eq=False)
class Group:
    """A group, its members behind this gateway, and what it was told through this gateway.

    Args:
        told: The facts, by topic.
        matched: The topics of each pattern.
    """

    members: dict[str, Follower] = field(default_factory=dict)
    told: dict[str, TopicFact] = field(default_factory=dict)
    matched: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def patterns(self) -> dict[str, Follower]:
        """The members' patterns, each with the first member that has it."""
        return {member.pattern: member for member in reversed(self.members.values()) if member.pattern}

    @property
    def names(self) -> set[str]:
        """The topics that the members subscribe to."""
        names = {name for each in {member.names for member in self.members.values()} for name in each}
        return names.union(*(self.matched.get(pattern, ()) for pattern in self.patterns))


class Following:
    """The groups of one gateway.

    Args:
        topics: Has the facts.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._groups: dict[str, Group] = {}

    # -- members -------------------------------------------------------------------------------------------------------

    def subscribe(self, follower: Follower, told: Iterable[TopicFact], matched: tuple[str, ...] | None) -> None:
        """Follow the topics of a member, instead of those that it subscribed to before.

        Args:
            told: The facts that were in the member's request.
            matched: The topics of its pattern in that request.
        """
        group = self._groups.setdefault(follower.group_id, Group())
        group.members[follower.member_id] = follower
        group.told.update((fact.topic, fact) for fact in told)
        if matched is not None:
            group.matched.setdefault(follower.pattern, matched)

    def drop(self, follower: Follower) -> None:
        """Stop to follow the topics of a member: it has left, or its connection is closed."""
        group = self._groups.get(follower.group_id)
        if group is not None and group.members.get(follower.member_id) is follower:
            del group.members[follower.member_id]
            if not group.members:
                del self._groups[follower.group_id]

    # -- topics --------------------------------------------------------------------------------------------------------

    async def keep(self, period_s: float) -> None:
        """Send the groups the changes of their topics, for ever."""
        while True:
            await asyncio.sleep(period_s)
            try:
                await self.look()
            except Exception:
                log.exception("the topics of groups could not be compared; the next try is in %s s", period_s)

    async def look(self) -> None:
        """Request the facts about all topics, and send each group what has changed."""
        if any(group.patterns for group in self._groups.values()):
            await self._topics.learn_names()
        resolved = {group_id: self._resolved(group) for group_id, group in list(self._groups.items())}
        names = {name for group in self._groups.values() for name in group.names}
        if not names:
            return
        await self._topics.learn(names)
        for group_id, group in list(self._groups.items()):
            self._tell(group, resolved.get(group_id, {}), group.names)

    async def answer(self, follower: Follower, ask: Ask) -> None:
        """Send a group what its coordinator asks for, through one of its members."""
        if ask.regexes:
            await self._topics.learn_names()
        matches = {regex: self._topics.matching(regex, follower.may_see) for regex in ask.regexes}
        names = {*ask.topics, *(name for found in matches.values() for name in found.topics)}
        await self._topics.learn(names)
        if (group := self._groups.get(follower.group_id)) is not None:
            for name in names:
                group.told.pop(name, None)
            self._tell(group, _patterns(matches, follower), names, follower)

    def _resolved(self, group: Group) -> dict[str, ResolvedPattern]:
        """Return the patterns of a group that match other topics than before, and store what they match."""
        patterns = group.patterns
        matches = {pattern: self._topics.matching(pattern, member.may_see) for pattern, member in patterns.items()}
        changed = {
            pattern: ResolvedPattern(pattern, found.topics, patterns[pattern].member_id)
            for pattern, found in matches.items()
            if found.error is None and found.topics != group.matched.get(pattern)
        }
        group.matched = {pattern: found.topics for pattern, found in matches.items()}
        return changed

    def _tell(
        self, group: Group, patterns: Mapping[str, ResolvedPattern], names: Iterable[str], by: Follower | None = None
    ) -> None:
        facts = [fact for fact in self._topics.facts_of(names) if group.told.get(fact.topic) != fact]
        member = by or next(iter(group.members.values()), None)
        if member is None or not (facts or patterns):
            return
        group.told.update((fact.topic, fact) for fact in facts)
        request = GroupTopics(
            **member.asker.fields(),
            group_id=member.group_id,
            topics=tuple(facts[:SUBSCRIBED_NAMES_MAX]),
            regexes=tuple(patterns.values())[:PATTERNS_MAX],
        )
        member.send(request)


def _patterns(matches: Mapping[str, Matches], follower: Follower) -> dict[str, ResolvedPattern]:
    return {
        regex: ResolvedPattern(regex, found.topics, follower.member_id)
        for regex, found in matches.items()
        if found.error is None
    }
