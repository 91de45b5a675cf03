"""What a group knows of topics and of patterns. It was told all of it by records, so that a replay plans the same.

    a heartbeat   tells of the topics that it subscribes to, as the sender's metadata have them
    group_topics  tells of changes, and answers what the coordinator asks for; it is authoritative

A group knows only topics that some member subscribes to. Kafka's coordinator reads the cluster's metadata instead, and
resolves patterns itself.

Source: Kafka's ConsumerGroup.subscriptionMetadata and ResolvedRegularExpression; KIP-848.
"""

from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from coordinator.consumer_group import ConsumerGroup, Resolution, Topic
from coordinator.consumer_member import ConsumerMember
from coordinator.consumer_requests import TopicFact
from coordinator.outputs import Ask

# -- topics ------------------------------------------------------------------------------------------------------------


def learn(group: ConsumerGroup, facts: Iterable[TopicFact], *, is_authoritative: bool) -> bool:
    """Store facts of topics. Return whether a topic of the group has changed.

    A topic for which the group has no fact yet counts as one that does not exist.

    A fact is ignored if it takes partitions away from a topic, because Kafka cannot do that: it is old. A fact that is
    not authoritative does not change a topic's id.
    """
    has_changed = False
    for fact in facts:
        before = group.topics.get(fact.topic)
        topic = Topic(fact.topic_id, fact.partitions if fact.topic_id is not None else 0)
        if before is not None:
            is_same = topic.topic_id == before.topic_id
            if (is_same and topic.partitions <= before.partitions) or not (is_same or is_authoritative):
                continue
        group.set_topic(fact.topic, topic)
        has_changed = has_changed or topic != (before or Topic())
    return has_changed


def subscribed_names(group: ConsumerGroup) -> set[str]:
    """Return the names of all topics that some member subscribes to, by name or by its pattern."""
    names = {name for member_names in {m.names for m in group.members.values()} for name in member_names}
    for resolution in group.patterns.values():
        names.update(resolution.topics or ())
    return names


def forget_unused(group: ConsumerGroup) -> None:
    """Remove patterns that no member subscribes to, and topics that no member subscribes to or has partitions of."""
    patterns = {member.regex for member in group.members.values()}
    for pattern in [p for p in group.patterns if p not in patterns]:
        del group.patterns[pattern]
    held = (group.names_by_id.get(topic_id) for topic_id, holders in group.holders.items() if holders)
    names = subscribed_names(group).union(filter(None, held))
    for name in [name for name in group.topics if name not in names]:
        group.set_topic(name, None)
    for topic_id in [each for each in group.gone_topics if not group.holders.get(each)]:
        del group.gone_topics[topic_id]


def unknown(group: ConsumerGroup, member: ConsumerMember) -> Ask | UnsetType:
    """Return what the group needs to know for a member, and was never told."""
    names = tuple(sorted(name for name in group.names_of(member) if name not in group.topics))
    patterns = (member.regex,) if member.regex and is_orphaned(group, member.regex) else ()
    return Ask(names, patterns) if names or patterns else UNSET


def has_orphans(group: ConsumerGroup) -> bool:
    """Return whether the group asks for the topics of a pattern."""
    return any(is_orphaned(group, pattern) for pattern in group.patterns)


def has_unknown_names(group: ConsumerGroup) -> bool:
    """Return whether the group asks for facts about a topic."""
    return any(name not in group.topics for name in subscribed_names(group))


# -- patterns ----------------------------------------------------------------------------------------------------------


def resolve(
    group: ConsumerGroup, pattern: str, member_id: str, topics: Iterable[str] | None, *, is_authoritative: bool
) -> bool:
    """Store the topics that a pattern matches. Return whether they differ from those before.

    The topics depend on the rights of the member that resolves the pattern. So a resolution that is not authoritative
    changes only one of the same member, or of a member that has left or has dropped the pattern.

    Args:
        topics: None if the sender has not resolved the pattern.
    """
    before = group.patterns.get(pattern)
    if before is None:
        group.patterns[pattern] = Resolution(member_id, _sorted(topics))
        return topics is not None
    may_change = is_authoritative or before.member_id == member_id or is_orphaned(group, pattern)
    if topics is None or not may_change:
        return False
    group.patterns[pattern] = Resolution(member_id, _sorted(topics))
    return group.patterns[pattern].topics != before.topics


def is_unresolved(group: ConsumerGroup, pattern: str) -> bool:
    """Return whether nobody has said yet which topics a pattern matches."""
    resolution = group.patterns.get(pattern)
    return bool(pattern) and (resolution is None or resolution.topics is None)


def is_orphaned(group: ConsumerGroup, pattern: str) -> bool:
    """Return whether a pattern waits for a resolution, or its resolver does not have it any more."""
    resolution = group.patterns.get(pattern)
    if resolution is None or resolution.topics is None:
        return True
    resolver = group.members.get(resolution.member_id)
    return resolver is None or resolver.regex != pattern


def _sorted(topics: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if topics is None else tuple(sorted(set(topics)))
