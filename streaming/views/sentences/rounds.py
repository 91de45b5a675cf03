"""The further rounds of a cooperative rebalance, in words."""

from streaming.views.history.rebalances import Passed, Rebalance
from streaming.views.state.causes import GroupKind
from streaming.views.text import brief, counted

PAIRS_SHOWN = 3
"""The maximum number of pairs of members of which a sentence names both."""


def rounds_in_words(rebalance: Rebalance, kind: GroupKind) -> list[str]:
    """Return a sentence about the partitions that members gave up in one round and others got in a later one.

    No sentence if the rebalance had one round, which is the rule. The events of workers of Kafka Connect do not name
    their connectors and tasks.
    """
    if not rebalance.rounds:
        return []
    if kind is GroupKind.CONNECT:
        return ["It went on: connectors and tasks that workers gave up were given to other workers."]
    passed = rebalance.passed
    given = [_given(each) for each in passed if each.after is not None]
    kept = [_kept(each) for each in passed if each.after is None]
    if rebalance.ended_ms is None:
        return [f"It goes on: {_listed(kept)}."] if kept else ["It goes on with a further round."]
    if given:
        return [f"It went on: {_listed(given)}."]
    return ["It went on with a further round, in which no partition got another owner."]


def _given(passed: Passed) -> str:
    were = "was" if passed.partitions == 1 else "were"
    number = counted(passed.partitions, "partition")
    return f"{number} that {brief(passed.before)} gave up {were} given to {brief(passed.after)}"


def _kept(passed: Passed) -> str:
    return f"{brief(passed.before)} gave up {counted(passed.partitions, 'partition')}, and joined again"


def _listed(texts: list[str]) -> str:
    more = len(texts) - PAIRS_SHOWN
    return "; ".join(texts[:PAIRS_SHOWN]) + (f"; and {more} more such changes" if more > 0 else "")
