"""What the log of Kafka's own coordinator tells of a cause, in words: assignors, subscriptions, patterns and topics."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import UNSET

from coordinator.messages.events import RebalanceStarted
from coordinator.messages.observed_events import TopicChange, TopicsNamed
from streaming.views.state.fields import known
from streaming.views.text import brief, counted, duration, escape, names

TOPICS_SHOWN = 3
"""The topics that a sentence names. The rest are only counted."""


def topic_names(topics: Sequence[str]) -> str:
    """Return names of topics, such as `a, b and 2 more topics`."""
    shown = [escape(topic) for topic in topics[:TOPICS_SHOWN]]
    if more := len(topics) - len(shown):
        shown.append(counted(more, "more topic"))
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)


_CHANGED: Mapping[str, Callable[[TopicChange], str]] = {
    "partitions": lambda c: (
        f"{escape(c.topic)} has {counted(c.partitions or 0, 'partition')} now, {c.partitions_before} before"
    ),
    "made": lambda c: f"{escape(c.topic)} was made, with {counted(c.partitions or 0, 'partition')}",
    "made_anew": lambda c: f"{escape(c.topic)} was made anew (another id)",
    "deleted": lambda c: f"{escape(c.topic)} was deleted",
}
"""What has happened to one topic."""

RACKS = "racks"


def changed_topics(named: TopicsNamed) -> str:
    """Return the changes of topics as a part of a sentence."""
    changes = [each for each in named.changes if each.what != RACKS]
    told = [_CHANGED[each.what](each) for each in changes[:TOPICS_SHOWN] if each.what in _CHANGED]
    if more := len(changes) - TOPICS_SHOWN:
        told += [f"{counted(more, 'more topic')} changed"] if more > 0 else []
    if moved := [each.topic for each in named.changes if each.what == RACKS]:
        told.append(
            f"the replicas of {topic_names(moved)} are on other racks: no partition changed, Kafka rebalances all the"
            " same"
        )
    return f"{', '.join(told[:-1])} and {told[-1]}" if len(told) > 1 else "".join(told)


def _subscription(event: RebalanceStarted) -> str:
    """Return what a member subscribes to since."""
    parts = []
    if added := known(event.topics_added):
        parts.append(f"subscribes to {topic_names(added)} as well")
    if removed := known(event.topics_removed):
        parts.append(f"does not subscribe to {topic_names(removed)} any more")
    if (pattern := known(event.pattern)) is not None:
        parts.append(f"subscribes by the pattern {escape(pattern)} now" if pattern else "has no pattern any more")
    return " and ".join(parts) or "changed its subscription"


def _assignor(event: RebalanceStarted) -> str:
    now, before = event.assignor_after, event.assignor_before
    prefers = f"the assignor {escape(now)}" if isinstance(now, str) else "no assignor"
    return f"prefers {prefers} now, {escape(before) if isinstance(before, str) else 'none'} before"


def _overdue(event: RebalanceStarted) -> str:
    timeout_ms = known(event.timeout_ms)
    of = f" of {duration(timeout_ms)}" if timeout_ms is not None else ""
    return f"did not give up partitions within its rebalance timeout (max.poll.interval.ms){of} and was dropped"


DID_IN_KAFKA: Mapping[str, Callable[[RebalanceStarted], str]] = {
    "subscription_changed": _subscription,
    "assignor_changed": _assignor,
    "revocation_overdue": _overdue,
}
"""What a member did, where the log has the details. The member is the subject."""


def _pattern(event: RebalanceStarted) -> str:
    of = brief(event.member_id) if event.member_id else "several members"
    pattern = f"the pattern {escape(known(event.pattern) or '')} of {of}"
    parts = []
    if added := known(event.topics_added):
        parts.append(f"{topic_names(added)} {'matches' if len(added) == 1 else 'match'} {pattern}")
    if removed := known(event.topics_removed):
        verb = "does not match" if len(removed) == 1 else "do not match"
        parts.append(f"{topic_names(removed)} {verb} {'it' if parts else pattern} any more")
    return " and ".join(parts) or f"{pattern} matches other topics"


def _tie(event: RebalanceStarted) -> str:
    assignors = known(event.assignors) or {}
    is_one = all(len(ids) == 1 for ids in assignors.values())
    who = "; ".join(f"{names(ids)}: {escape(assignor)}" for assignor, ids in assignors.items())
    return (
        f"members prefer different assignors, {'one each' if is_one else 'as many each'} ({who}), and Kafka 4.4.0"
        " rebalances at every heartbeat until they agree"
    )


SAID: Mapping[str, Callable[[RebalanceStarted], str]] = {
    "regex_resolved": _pattern,
    "assignors_tied": _tie,
}
"""Parts of sentences about causes that no member is the subject of."""


def details_in_words(event: RebalanceStarted) -> str:
    """Return what is known of a cause beside its name and its member; "" without details."""
    in_words = DID_IN_KAFKA.get(event.cause) or SAID.get(event.cause)
    details = event.topics_added, event.assignor_after, event.assignors, event.timeout_ms
    has_details = any(each is not UNSET for each in details)
    return in_words(event) if in_words is not None and has_details else ""
