"""What is behind a rebalance of a group that Kafka's own coordinator keeps, in words."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from coordinator.messages.events import RebalanceStarted
from coordinator.messages.observed_events import HistoryGap, MemberGone, TopicsNamed
from streaming.views.history.advice import DID, DID_OF_CONSUMERS, Advice
from streaming.views.history.rebalances import Rebalance
from streaming.views.sentences.observed_causes import DID_IN_KAFKA, SAID, changed_topics
from streaming.views.state.group import RECORDED
from streaming.views.text import brief, clock, counted, duration, escape, is_standard, reason_in_short

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
    """Return the generations that Kafka's log does not have any more, or that the generation fell."""
    first, last = gap.from_generation + 1, gap.to_generation - 1
    if first > last:
        fell = f"the generation fell from {gap.from_generation} to {gap.to_generation}"
        return f"{fell}: the group was deleted and founded anew, or the log was cut"
    if first == last:
        return f"generation {first} is not in the log any more"
    return f"generations {first} to {last} are not in the log any more"


def in_full(reason: Reason) -> str:
    """Return the only reason of a rebalance, as a sentence without its full stop."""
    event, gone = reason.event, reason.gone
    if (whole := _whole(reason)) is not None:
        return _capital(whole)
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
        return f"The assignor changed: {reason_in_short(event.reason)}"
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
    return f"{_capital(', '.join(shown[:-1]))} and {shown[-1]}; which came first is not recorded"


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
    return _capital(sentence)


_WHOLE = {
    "protocol_upgraded": "{who} joined with group.protocol=consumer, and the group became one of the new protocol",
    "protocol_downgraded": "the last member of the new protocol is gone, and the group became a classic one",
    "topics_changed": "the topics changed; which one is not known",
    "brokers_upgraded": "the brokers were upgraded from Kafka 4.0, and record the group's topics in another way since",
    "leader_rejoined": "partitions are assigned that nobody had before, most likely because a topic has more of them",
}
"""The sentences about causes that no member has, or that have their own words. Their first words are not names."""

_FIRST_WORDS = ("the ", "partitions ", "members ")
"""The first words of the parts of sentences that begin with no name."""


def _whole(reason: Reason) -> str | None:
    """Return a reason that has its own words, as a part of a sentence; None for any other."""
    if reason.topics is not None:
        return changed_topics(reason.topics)
    if (said := SAID.get(reason.cause)) is not None:
        return said(reason.event)
    whole = _WHOLE.get(reason.cause)
    return None if whole is None else whole.format(who=_name(reason))


def _capital(text: str) -> str:
    """Return a sentence with a capital, unless it begins with a name."""
    return f"{text[0].upper()}{text[1:]}" if text.startswith(_FIRST_WORDS) else text


def _name(reason: Reason) -> str:
    return brief(reason.event.member_id) or escape(reason.event.client_id) or "A client"


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
