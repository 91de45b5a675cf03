"""What is behind a rebalance of a group that Kafka's own coordinator keeps, in words.

Kafka records neither whether a member left or expired, nor the start and the cause of a rebalance of a classic group. A
cause is inferred from the difference of two generations, and one rebalance may have several; their order is unknown. Of
any other group the epochs are recorded, in their order.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from typing import NamedTuple

from msgspec import UNSET

from coordinator.base.states import GroupType
from coordinator.messages.events import AnyEvent, MemberJoined, RebalanceCompleted, RebalanceStarted
from coordinator.messages.observed_events import (
    HistoryGap,
    MemberGone,
    OffsetsForgotten,
    OffsetsSet,
    SetOffset,
    TopicChange,
    TopicsNamed,
)
from streaming.views.history.advice import (
    ADVICE,
    DID,
    DID_OF_CONSUMERS,
    GAP,
    GONE,
    GONE_AGAIN,
    GONE_OF_CONSUMERS,
    LAST_LEFT,
    NOTHING_DIFFERS,
    NOTHING_RECORDED,
    RESTARTED,
    STATIC_GONE,
    STATIC_GONE_OF_CONSUMERS,
    Advice,
    advice_for,
    for_brokers,
)
from streaming.views.history.instability import SHORT_MEMBERSHIPS, SHORT_MEMBERSHIPS_MS
from streaming.views.history.rebalances import Rebalance
from streaming.views.state.causes import GroupKind, is_further_round
from streaming.views.state.fields import known
from streaming.views.state.group import RECORDED, GroupView
from streaming.views.text import (
    brief,
    capital,
    clock,
    counted,
    duration,
    escape,
    in_partitions,
    is_standard,
    names,
    reason_in_short,
)

# -- causes ------------------------------------------------------------------------------------------------------------


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


_NAMES_OF_FIELDS = {
    "topology_epoch": "topology epoch",
    "process_id": "process id",
    "rack_id": "client.rack",
    "client_tags": "client tags",
    "user_endpoint": "application.server",
    "client_id": "client id",
    "client_host": "host",
    "rebalance_timeout_ms": "max.poll.interval.ms",
}


def _member(event: RebalanceStarted) -> str:
    changed = [_NAMES_OF_FIELDS.get(name, escape(name)) for name in known(event.changed) or ()]
    what = f"{', '.join(changed[:-1])} and {changed[-1]}" if len(changed) > 1 else "".join(changed)
    return f"has another {what}" if what else "has changed"


DID_IN_KAFKA: Mapping[str, Callable[[RebalanceStarted], str]] = {
    "subscription_changed": _subscription,
    "assignor_changed": _assignor,
    "revocation_overdue": _overdue,
    "member_changed": _member,
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


def _configs(event: RebalanceStarted) -> str:
    changes = known(event.configs) or {}
    told = [f"{escape(name)} is {_setting(now)} now, {_setting(was)} before" for name, (was, now) in changes.items()]
    return " and ".join(told) or "the settings of the group changed"


def _setting(value: str | None) -> str:
    return "not set" if value is None else escape(value)


def _share_state(event: RebalanceStarted) -> str:
    topics = known(event.topics_added)
    of = f" of {topic_names(topics)}" if topics else ""
    return f"the share state{of} is there, and the partitions can be given to members"


SAID: Mapping[str, Callable[[RebalanceStarted], str]] = {
    "regex_resolved": _pattern,
    "assignors_tied": _tie,
    "configs_changed": _configs,
    "share_state_ready": _share_state,
}
"""Parts of sentences about causes that no member is the subject of."""


def details_in_words(event: RebalanceStarted) -> str:
    """Return what is known of a cause beside its name and its member; "" without details."""
    in_words = DID_IN_KAFKA.get(event.cause) or SAID.get(event.cause)
    details = event.topics_added, event.assignor_after, event.assignors, event.timeout_ms, event.changed, event.configs
    has_details = any(each is not UNSET for each in details)
    return in_words(event) if in_words is not None and has_details else ""


REASONS_SHOWN = 4
"""The number of reasons that a sentence names. The rest are only counted."""


class Reason(NamedTuple):
    """One of the reasons of a rebalance.

    Args:
        gone: The event of a member that is gone.
        back_ms: The time after which its client was a member again; 0 if both are in one record, None if it was not.
        topics: The changed topics; None if they are not known, or if the cause is another one.
    """

    cause: str
    event: RebalanceStarted
    advice: Advice
    gone: MemberGone | None = None
    back_ms: int | None = None
    topics: TopicsNamed | None = None

    @property
    def epoch(self) -> int | None:
        return self.event.generation_id


def what_inferred(rebalance: Rebalance, group_id: str, changed: str) -> str:
    """Return the first sentence about a rebalance whose start is not recorded.

    Args:
        changed: How many partitions changed hands, and among how many members.
    """
    to = f"{escape(group_id)} rebalanced to generation {rebalance.generation_id}"
    completed, after_ms = rebalance.completed, rebalance.not_before_ms
    began = "when it began is not recorded"
    if after_ms is not None:
        began = f"it began after {clock(after_ms)}, Kafka does not record when"
    if completed is None:
        return f"{to}, which has no members; {began}."
    return f"{to}, whose plan came at {clock(completed.at_ms)}; {began}: {changed}."


def unplanned_in_words(rebalance: Rebalance) -> list[str]:
    """Return a sentence about the rounds before a rebalance that ended without an assignment; none without such."""
    if not rebalance.unplanned_rounds:
        return []
    return [f"{counted(rebalance.unplanned_rounds, 'round')} before it ended without a plan."]


def estimate_in_words(rebalance: Rebalance) -> list[str]:
    """Return a sentence about how long a rebalance took by an estimate; none without one."""
    if rebalance.estimate is None:
        return []
    took = duration(rebalance.estimate.value)
    return [f"It took about {took}, an estimate: from the last commit before it to the plan."]


def gap_in_words(gap: HistoryGap) -> str:
    """Return the generations or group epochs that Kafka's log does not have any more, or that the number fell."""
    first, last = gap.from_generation + 1, gap.to_generation - 1
    number = "generation" if gap.group_type is UNSET else "group epoch"
    if first > last:
        fell = f"the {number} fell from {gap.from_generation} to {gap.to_generation}"
        return f"{fell}: the group was deleted and founded anew, or the log was cut"
    if first == last:
        return f"{number} {first} is not in the log any more"
    return f"{number}s {first} to {last} are not in the log any more"


def in_full(reason: Reason) -> str:
    """Return the only reason of a rebalance, as a sentence without its full stop."""
    return capital(_in_full(reason), _FIRST_WORDS)


def _in_full(reason: Reason) -> str:
    event, gone = reason.event, reason.gone
    if (whole := _whole(reason)) is not None:
        return whole
    if reason.cause == "restarted":
        return _restarted(reason)
    if reason.cause == "session_expired":
        return f"{_did_not_come_back(reason)}, most likely"
    where = f"{_name(reason)} at {escape(event.client_host)}" if event.client_host else _name(reason)
    if reason.cause == "member_left":
        return f"{where} left{_evidence(gone)}"
    if reason.cause == "member_gone":
        return f"{where} left or was expired: Kafka does not record which{facts(gone)}"
    if reason.cause == "metadata_changed" and not event.member_id:
        return f"the assignor changed: {reason_in_short(event.reason)}"
    if reason.cause in DID_IN_KAFKA:
        return f"{where} {_did(reason)}"
    said = "" if is_standard(event.reason) else f": {reason_in_short(event.reason)}"
    return f"{where} {_did(reason)}{said}"


def listed(reasons: Sequence[Reason]) -> str:
    """Return several reasons of a rebalance, as a sentence without its full stop.

    Kafka records the order of the epochs of a group of the consumer protocol, and no order of the causes of one epoch.
    """
    if reasons[0].event.how_known == RECORDED:
        return _in_order(reasons)
    shown = [_in_short(each) for each in reasons[:REASONS_SHOWN]]
    if more := len(reasons) - len(shown):
        shown.append(f"{counted(more, 'more change')} came")
    return f"{capital(', '.join(shown[:-1]), _FIRST_WORDS)} and {shown[-1]}; which came first is not recorded"


def _in_order(reasons: Sequence[Reason]) -> str:
    """Return the reasons of one epoch or of several, in the order of the epochs. One that comes again is counted."""
    epochs, times = dict[str, int | None](), Counter[str]()
    for each in reasons:
        epochs.setdefault(text := _in_short(each), each.epoch)
        times[text] += 1
    texts = list(epochs)
    sentence, before = "", None
    for text in texts[:REASONS_SHOWN]:
        joint = "" if not sentence else " and " if epochs[text] == before else ", then "
        often = f" ({times[text]} times)" if times[text] > 1 else ""
        sentence, before = f"{sentence}{joint}{text}{often}", epochs[text]
    if more := len(texts) - REASONS_SHOWN:
        sentence += f", and {counted(more, 'more change')} came" if more > 0 else ""
    return capital(sentence, _FIRST_WORDS)


_WHOLE = {
    "protocol_upgraded": "{who} joined with group.protocol=consumer, and the group became one of the new protocol",
    "protocol_downgraded": "the last member of the new protocol is gone, and the group became a classic one",
    "topics_changed": "the topics changed; which one is not known",
    "brokers_upgraded": "the brokers were upgraded from Kafka 4.0, and record the group's topics in another way since",
    "leader_rejoined": "partitions are assigned that nobody had before, most likely because a topic has more of them",
    "topology_ready": "all topics of the topology are there now",
    "topology_not_ready": "topics of the topology are missing, or have wrong numbers of partitions",
}
"""The sentences about causes that no member has, or that have their own words. Their first words are not names."""

_FIRST_WORDS = ("the ", "partitions ", "members ", "all ", "topics ", "a client ")
"""The first words of the parts of sentences that begin with no name."""


def _whole(reason: Reason) -> str | None:
    """Return a reason that has its own words, as a part of a sentence; None for any other."""
    if reason.topics is not None:
        return changed_topics(reason.topics)
    if (said := SAID.get(reason.cause)) is not None:
        return said(reason.event)
    whole = _WHOLE.get(reason.cause)
    return None if whole is None else whole.format(who=_name(reason))


def _name(reason: Reason) -> str:
    return brief(reason.event.member_id) or escape(reason.event.client_id) or "a client"


def _did(reason: Reason) -> str:
    if (did := DID_IN_KAFKA.get(reason.cause)) is not None:
        return did(reason.event)
    return DID.get(reason.cause) or DID_OF_CONSUMERS.get(reason.cause, reason.cause.replace("_", " "))


def _in_short(reason: Reason) -> str:
    if (whole := _whole(reason)) is not None:
        return whole.replace("; which", ", which")
    if reason.cause == "restarted":
        return _restarted(reason)
    if reason.cause == "session_expired":
        return _did_not_come_back(reason)
    if reason.cause == "metadata_changed" and not reason.event.member_id:
        return "the assignor changed"
    is_gone = reason.gone is not None and reason.cause not in DID_IN_KAFKA
    return f"{_name(reason)} is gone" if is_gone else f"{_name(reason)} {_did(reason)}"


def _restarted(reason: Reason) -> str:
    """Return that a client came back. Without a name of its own, the old member's id would read as the new one's."""
    name = escape(reason.event.client_id) or _name(reason)
    if reason.back_ms:
        return f"{name} was gone and joined again {duration(reason.back_ms)} later"
    return f"{name} left and came back under a new id, or lost its session"


def _did_not_come_back(reason: Reason) -> str:
    gone = reason.gone
    name = escape(gone.group_instance_id) if gone is not None and gone.group_instance_id else _name(reason)
    session_ms = gone.session_timeout_ms if gone is not None else None
    of = f" of {duration(session_ms)}" if session_ms is not None else ""
    return f"{name} did not come back within its session{of}"


def _evidence(gone: MemberGone | None) -> str:
    """Return why a member left and did not expire."""
    if gone is None or gone.last_commit_ms is None or gone.session_timeout_ms is None:
        return ""
    before, session = duration(max(0, gone.at_ms - gone.last_commit_ms)), duration(gone.session_timeout_ms)
    return f": it committed {before} before and its session is {session}, so it did not expire"


def facts(gone: MemberGone | None) -> str:
    """Return what is known of the last commit and the session of a member that is gone, as a further sentence."""
    if gone is None:
        return ""
    known = []
    if gone.last_commit_ms is not None:
        known.append(f"its last commit was {duration(max(0, gone.at_ms - gone.last_commit_ms))} before")
    if gone.session_timeout_ms is not None:
        known.append(f"its session is {duration(gone.session_timeout_ms)}")
    text = ", ".join(known)
    return f". {text[0].upper()}{text[1:]}" if text else ""


# -- offsets that were set or forgotten --------------------------------------------------------------------------------


PARTITIONS_SHOWN = 3
"""The partitions whose offsets a sentence names. The rest are only counted."""

CHANGES_SHOWN = 3
"""The times at which offsets were set or forgotten that `why` names: the last ones."""

BY_WHOM = "while the group had no members: an operator, most likely"


def offsets_set(event: OffsetsSet) -> str:
    """Return the offsets that were set in a group without members."""
    return f"offsets of {_set_topics(event)} set{_direction(event)} ({_set_partitions(event)}) {BY_WHOM}"


def offsets_forgotten(event: OffsetsForgotten) -> str:
    """Return the committed offsets that are gone, and why."""
    return f"{counted(len(event.partitions), 'offset')} forgotten ({_places(event)}): {_why_forgotten(event)}"


def _places(event: OffsetsForgotten) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in event.partitions:
        by_topic.setdefault(topic, []).append(partition)
    shown = in_partitions({topic: by_topic[topic] for topic in sorted(by_topic)[:TOPICS_SHOWN]})
    more = len(by_topic) - TOPICS_SHOWN
    return f"{shown} and {counted(more, 'more topic')}" if more > 0 else shown


def _why_forgotten(event: OffsetsForgotten) -> str:
    if event.why != "deleted":
        return escape(event.why)
    is_one = len({topic for topic, _ in event.partitions}) == 1
    them = "it" if len(event.partitions) == 1 else "them"
    return f"{'the topic was' if is_one else 'the topics were'} deleted, or an operator deleted {them}"


def offsets_in_words(group: GroupView, rebalance: Rebalance) -> list[str]:
    """Return a sentence for each time at which offsets were set or forgotten since the rebalance before, and until the
    next one."""
    found = list(_changes_of_offsets(group, rebalance))
    more = len(found) - CHANGES_SHOWN
    told = [f"Before, offsets were set or forgotten {counted(more, 'more time')}."] if more > 0 else []
    return told + [_change_of_offsets(each) for each in found[-CHANGES_SHOWN:]]


def _changes_of_offsets(group: GroupView, rebalance: Rebalance) -> Iterator[OffsetsSet | OffsetsForgotten]:
    events, ended_ms = group.events, rebalance.ended_ms
    begin = bisect_left(events, rebalance.started_ms, key=lambda event: event.at_ms)
    while begin and not isinstance(events[begin - 1], RebalanceStarted | RebalanceCompleted):
        begin -= 1
    for index in range(begin, len(events)):
        event = events[index]
        if isinstance(event, RebalanceStarted) and ended_ms is not None and event.at_ms > ended_ms:
            return
        if isinstance(event, OffsetsSet | OffsetsForgotten):
            yield event


def _change_of_offsets(event: OffsetsSet | OffsetsForgotten) -> str:
    if isinstance(event, OffsetsForgotten):
        return f"Offsets were forgotten at {clock(event.at_ms)} ({_places(event)}): {_why_forgotten(event)}."
    what = f"Offsets of {_set_topics(event)} were set{_direction(event)} at {clock(event.at_ms)}"
    return f"{what} ({_set_partitions(event)}) {BY_WHOM}."


def _set_topics(event: OffsetsSet) -> str:
    return topic_names(list(dict.fromkeys(each.topic for each in event.partitions)))


def _direction(event: OffsetsSet) -> str:
    if event.set_back == event.offsets_set:
        return " back"
    is_known = all(each.before is not None for each in event.partitions)
    return " forward" if event.set_back == 0 and is_known else ""


def _set_partitions(event: OffsetsSet) -> str:
    is_one_topic = len({each.topic for each in event.partitions}) == 1
    shown = [_set_partition(each, is_one_topic=is_one_topic) for each in event.partitions[:PARTITIONS_SHOWN]]
    if more := event.offsets_set - len(shown):
        return f"{', '.join(shown)} and {counted(more, 'more partition')}"
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]


def _set_partition(each: SetOffset, *, is_one_topic: bool) -> str:
    where = f"partition {each.partition}" if is_one_topic else f"{escape(each.topic)} {each.partition}"
    return f"{where} {'' if each.before is None else f'from {each.before:,} '}to {each.after:,}"


# -- explanations ------------------------------------------------------------------------------------------------------


TOPICS = ("topics_changed", "racks_changed")
"""The causes that lie in topics."""

OF_TOPOLOGY = ("topology_ready", "topology_not_ready")

COMES_BACK_MS = 120_000
"""A client that is gone and joins again within this time was restarted, or had lost its session."""

UNCHANGED_MS = 60_000
"""With `SHORT_MEMBERSHIPS` rebalances within this time in which nothing changed, the group rebalances without need."""


class Explained(NamedTuple):
    """The explanation of a rebalance.

    Args:
        event: The event that names the member; None if none does.
        who: A sentence.
    """

    cause: str
    event: RebalanceStarted | None
    who: str
    advice: Advice


def explain_observed(group: GroupView, rebalance: Rebalance, of_group: GroupType) -> Explained:
    """Return the explanation of a rebalance of a group that has this type at its end."""
    if rebalance.gap is not None:
        text = gap_in_words(rebalance.gap)
        return Explained("history_gap", None, f"{text[0].upper()}{text[1:]}.", GAP)
    reasons = _reasons(group, rebalance, of_group)
    if not reasons:
        return _nothing(group, rebalance, of_group)
    chosen = next((each for each in reasons if each.advice.is_avoidable), reasons[0])
    who = in_full(chosen) if len(reasons) == 1 else listed(reasons)
    session_ms = chosen.gone.session_timeout_ms if chosen.gone is not None else None
    took = "as it is set" if session_ms is None else duration(session_ms)
    is_last = chosen.cause == "member_left" and rebalance.ended_ms is not None and rebalance.completed is None
    advice = for_brokers(LAST_LEFT if is_last else chosen.advice, of_group)
    advice = advice._replace(text=advice.text.format(took=took))
    return Explained(chosen.cause, chosen.event, f"{who}{_often(group, chosen)}.", advice)


def _reasons(group: GroupView, rebalance: Rebalance, of_group: GroupType) -> list[Reason]:
    """Return the reasons of a rebalance, epoch by epoch. A client that is gone and is back is one reason, not two.

    Topics that changed in an epoch that has other causes are one more reason. If it is not known which, it says enough
    that the topology of a streams group is ready since, or not any more.
    """
    began = [each for each in rebalance.started if not is_further_round(each)] or rebalance.started
    named, reasons = topics_of(group, rebalance), list[Reason]()
    for epoch, raised in groupby(began, key=lambda each: each.generation_id):
        events, topics = list(raised), named.get(epoch or 0)
        of_epoch = [_reason(group, each, topics, of_group) for each in events]
        if topics is None and any(each.cause in OF_TOPOLOGY for each in of_epoch):
            of_epoch = [each for each in of_epoch if each.cause not in TOPICS]
        elif topics is not None and all(each.cause not in TOPICS for each in of_epoch):
            of_epoch.append(_of_topics(group, events[0], topics, of_group))
        reasons += [each for each in of_epoch if each.cause != "unknown"]
    back = {_client(each.event) for each in reasons if each.cause == "restarted"}
    return [each for each in reasons if each.cause != "member_joined" or _client(each.event) not in back]


def topics_of(group: GroupView, rebalance: Rebalance) -> dict[int, TopicsNamed]:
    """Return the changed topics of the epochs of a rebalance, as far as they are known."""
    found: dict[int, TopicsNamed] = {}
    for event in rebalance.started:
        epoch = event.generation_id or 0
        named = next((each for each in group.topics_named.get(epoch, ()) if each.at_ms >= event.at_ms), None)
        if named is not None:
            found[epoch] = named
    return found


def _of_topics(group: GroupView, event: RebalanceStarted, topics: TopicsNamed | None, of_group: GroupType) -> Reason:
    """Return that topics changed, or only the racks of their replicas."""
    is_racks = topics is not None and all(each.what == RACKS for each in topics.changes)
    cause = "racks_changed" if is_racks else "topics_changed"
    return Reason(cause, event, advice_for(cause, group.kind, of_group), topics=topics)


def _reason(group: GroupView, event: RebalanceStarted, topics: TopicsNamed | None, of_group: GroupType) -> Reason:
    has_epochs = of_group.has_epochs
    if event.cause == "topics_changed":
        return _of_topics(group, event, topics, of_group)
    if event.cause != "member_gone":
        return Reason(event.cause, event, advice_for(event.cause, GroupKind.CONSUMERS, of_group))
    gone, back_ms = _gone(group, event), _back_after(group, event)
    if gone is not None and gone.likely == "expired":
        return Reason("session_expired", event, STATIC_GONE_OF_CONSUMERS if has_epochs else STATIC_GONE, gone)
    if back_ms is not None:
        return Reason("restarted", event, RESTARTED, gone, back_ms)
    if _times_gone(group, event) >= SHORT_MEMBERSHIPS:
        return Reason("member_gone", event, GONE_AGAIN, gone)
    if gone is not None and gone.likely == "left":
        return Reason("member_left", event, ADVICE["member_left"], gone)
    return Reason("member_gone", event, GONE_OF_CONSUMERS if has_epochs else GONE, gone)


def _client(event: RebalanceStarted) -> tuple[str, str]:
    return event.client_id, event.client_host


def _gone(group: GroupView, event: RebalanceStarted) -> MemberGone | None:
    """Return the event of the member that a rebalance names."""
    told = (each for each in _from(group, event.at_ms, 0) if isinstance(each, MemberGone))
    return next((each for each in told if each.member_id == event.member_id), None)


def _from(group: GroupView, at_ms: int, within_ms: int) -> Iterator[AnyEvent]:
    return takewhile(lambda event: event.at_ms <= at_ms + within_ms, group.since(at_ms))


def _back_after(group: GroupView, gone: RebalanceStarted) -> int | None:
    """Return the milliseconds after which a client that is gone was a member again; None if it was not.

    It is 0 if both are in one record, so that the time is not known.
    """
    for event in _from(group, gone.at_ms, COMES_BACK_MS):
        is_it = isinstance(event, MemberJoined) and (event.client_id, event.client_host) == _client(gone)
        if is_it and isinstance(event, MemberJoined) and event.member_id != gone.member_id:
            return event.at_ms - gone.at_ms
    return None


def _times_gone(group: GroupView, event: RebalanceStarted) -> int:
    """Return how many rebalances of the hour before it a client is behind because it was gone."""
    times = _times(group, event.at_ms, SHORT_MEMBERSHIPS_MS)
    return len({e.at_ms for e in times if e.cause == "member_gone" and _client(e) == _client(event)})


def _times(group: GroupView, until_ms: int, within_ms: int) -> Iterator[RebalanceStarted]:
    """Yield the reasons of rebalances of some time up to a moment."""
    for event in takewhile(lambda e: e.at_ms <= until_ms, group.since(until_ms - within_ms)):
        if isinstance(event, RebalanceStarted):
            yield event


def _often(group: GroupView, reason: Reason) -> str:
    """Return how often a client was gone, if that is often."""
    if reason.event.cause != "member_gone":
        return ""
    times = _times_gone(group, reason.event)
    return f"; it is behind {times} rebalances of the last hour" if times >= SHORT_MEMBERSHIPS else ""


def _nothing(group: GroupView, rebalance: Rebalance, of_group: GroupType) -> Explained:
    """Return the explanation of a rebalance in which nothing differs from the generation before."""
    event = rebalance.started[0] if rebalance.started else None
    if of_group.has_epochs:
        who = "Nothing differs that Kafka records: no member, no subscription, no assignor and no topic."
        return Explained("unknown", event, who, NOTHING_RECORDED)
    who = "All joined again and nothing differs: what asked for it is not recorded"
    unknown = (e for e in _times(group, rebalance.started_ms, UNCHANGED_MS) if e.cause == "unknown")
    times = len({each.at_ms for each in unknown})
    if times < SHORT_MEMBERSHIPS:
        return Explained("unknown", event, f"{who}.", NOTHING_DIFFERS)
    often = f"; it is one of {times} such rebalances within {duration(UNCHANGED_MS)}"
    return Explained("unknown", event, f"{who}{often}.", NOTHING_DIFFERS._replace(is_avoidable=True))
