"""Reports of how transactions have ended, as the driver makes them, from the places of commits."""

from collections.abc import Iterable
from typing import Any

from coordinator.messages.requests import EndedTransaction, OpenTransaction
from coordinator.shard.shard import Shard


def report(
    shard: Shard,
    before: int,
    committed: Iterable[int] = (),
    still: Iterable[int] = (),
    topic_id: str = "a topic",
    settled_from: int = 0,
    replaces: str | None = None,
) -> dict[str, Any]:
    """Return the fields of a report: each commit before a place was alone in its transaction, and ended at once.

    Args:
        committed: The places that were committed. The others are aborted.
        still: The places whose transactions are open.
    """
    groups = filter(None, (shard.group(each) or shard.consumer_group(each) for each in shard.group_ids))
    producers = {place: commit.producer_id for group in groups for place, commit in group.pending_commits.items()}
    is_committed = {**dict.fromkeys(producers, False), **dict.fromkeys(committed, True)}
    return {
        "group_id": "",
        "topic_id": topic_id,
        "replaces": shard.settled.topic_id if replaces is None else replaces,
        "settled_from": settled_from,
        "settled_before": before,
        "ended": tuple(
            EndedTransaction(producers.get(place, place), place, place, commits)
            for place, commits in sorted(is_committed.items())
            if settled_from <= place < before and place not in still
        ),
        "open": tuple(OpenTransaction(producers[place], place) for place in still),
    }
