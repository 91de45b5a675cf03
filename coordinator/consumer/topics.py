"""The facts about topics that a group has, and the topics of its patterns.

Records bring all of them, so a replay computes the same assignments.

    a heartbeat   brings facts about the topics of its subscription, from the sender's metadata
    group_topics  brings changes, and the facts for which the coordinator has asked; it is authoritative

A group has facts only about topics to which some member subscribes. Kafka's coordinator reads the cluster's metadata
instead, and resolves patterns itself.

Source: Kafka's ConsumerGroup.subscriptionMetadata and ResolvedRegularExpression; KIP-848.
"""

from collections.abc import Collection, Container, Iterable, Sequence
from itertools import accumulate

from msgspec import UNSET, UnsetType

from coordinator.base.limits import ASK_BYTES_MAX
from coordinator.messages.consumer_requests import ResolvedPattern, TopicFact
from coordinator.messages.responses import Ask
from coordinator.state.consumer_group import ConsumerGroup, Resolution, Topic
from coordinator.state.consumer_member import ConsumerMember, names_bytes

# -- topics ------------------------------------------------------------------------------------------------------------


def learn(group: ConsumerGroup, facts: Collection[TopicFact], names: Container[str], *, is_authoritative: bool) -> bool:
    """Store facts of topics. Return whether a topic of `names` has changed.

    A topic for which the group has no fact yet counts as one that does not exist.

    Args:
        names: The topics to which the members subscribe. The group has no use for facts about further ones.
    """
    has_changed = False
    for name, topic in reported_topics(group, facts, is_authoritative=is_authoritative).items():
        before = group.topics.get(name)
        if name in names or before is not None:
            group.set_topic(name, topic)
            has_changed = has_changed or (name in names and topic != (before or Topic()))
    return has_changed


def reported_topics(group: ConsumerGroup, facts: Collection[TopicFact], *, is_authoritative: bool) -> dict[str, Topic]:
    """Return the topics of some facts, each as the group would have it after them. The group does not change.

    A fact is ignored if it takes partitions away from a topic, because Kafka cannot do that: it is old. A fact that is
    not authoritative does not change a topic's id. A fact with the id of another topic is ignored, because the group
    identifies partitions by the ids.
    """
    after: dict[str, Topic] = {}
    names_by_id = dict(group.names_by_id) if facts else {}
    for fact in facts:
        before = after.get(fact.topic) or group.topics.get(fact.topic)
        topic = Topic(fact.topic_id, fact.partitions if fact.topic_id is not None else 0)
        if before is not None:
            is_same = topic.topic_id == before.topic_id
            if (is_same and topic.partitions <= before.partitions) or not (is_same or is_authoritative):
                continue
        if topic.topic_id is not None and names_by_id.setdefault(topic.topic_id, fact.topic) != fact.topic:
            continue
        if before is not None and before.topic_id is not None and before.topic_id != topic.topic_id:
            names_by_id.pop(before.topic_id, None)
        after[fact.topic] = topic
    return after


def forget_unused(group: ConsumerGroup) -> None:
    """Remove patterns that no member subscribes to, and topics that no member subscribes to or has partitions of."""
    patterns = group.regexes
    for pattern in [p for p in group.patterns if p not in patterns]:
        group.set_pattern(pattern, None)
    held = (group.names_by_id.get(topic_id) for topic_id, holders in group.holders.items() if holders)
    names = group.subscribed.union(filter(None, held))
    for name in [name for name in group.topics if name not in names]:
        group.set_topic(name, None)
    for topic_id in [each for each in group.gone_topics if not group.holders.get(each)]:
        del group.gone_topics[topic_id]


def unknown(group: ConsumerGroup, member: ConsumerMember) -> Ask | UnsetType:
    """Return the topics and the pattern of a member's subscription that no record has described; UNSET for none."""
    names = sorted(name for name in group.names_of(member) if name not in group.topics)
    patterns = (member.regex,) if member.regex and is_orphaned(group, member.regex) else ()
    return Ask(_first(names), patterns) if names or patterns else UNSET


def _first(names: Sequence[str]) -> tuple[str, ...]:
    """Return the first names, as many as one response may ask for. The next response asks for the others."""
    sizes = accumulate(names_bytes((name,)) for name in names)
    return tuple(name for name, size in zip(names, sizes, strict=True) if size <= ASK_BYTES_MAX)


def has_orphans(group: ConsumerGroup) -> bool:
    """Return whether the group asks for the topics of a pattern."""
    return any(is_orphaned(group, pattern) for pattern in group.patterns)


def has_unknown_names(group: ConsumerGroup) -> bool:
    """Return whether the group asks for facts about a topic."""
    return any(name not in group.topics for name in group.subscribed)


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
        group.set_pattern(pattern, Resolution(member_id, _sorted(topics)))
        return topics is not None
    may_change = is_authoritative or before.member_id == member_id or is_orphaned(group, pattern)
    if topics is None or not may_change:
        return False
    group.set_pattern(pattern, Resolution(member_id, _sorted(topics)))
    return group.patterns[pattern].topics != before.topics


def is_reported_by_member(group: ConsumerGroup, resolved: ResolvedPattern) -> bool:
    """Return whether the member for which a pattern was resolved has the pattern."""
    member = group.members.get(resolved.member_id)
    return member is not None and member.regex == resolved.regex


def is_unresolved(group: ConsumerGroup, pattern: str) -> bool:
    """Return whether no record has listed the topics that a pattern matches."""
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
