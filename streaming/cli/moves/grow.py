"""`coordinator grow`: all groups and slots move to a new coordinator, which may have more shards."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from coordinator.base.limits import SLOTS, VERDICT_MS
from streaming.administration.growing import NotPrepared, check_empty, check_prepared, steps
from streaming.cli.moves.move import Move, ask_shards_of, move_opened_slots, opened
from streaming.config.settings import Settings
from streaming.errors import NoCoordinator, TopicMismatch
from streaming.kafka import topics
from streaming.logs import tell
from streaming.views.text import counted, escape

ALL_SLOTS = frozenset(range(SLOTS))


def grow(move: Move, shards: int | None) -> None:
    """Create the topics of a new coordinator, move all slots and groups to it, and show the result of each group.

    Args:
        shards: The number of shards of the new coordinator; None for as many as the old one has.

    Raises:
        NotPrepared: A coordinator does not run, or must be restarted with other settings.
        TopicMismatch: The topics of the new coordinator have another number of shards.
        RequestRefused: A group is refused, or the sender may not move it.
        NoAnswer: The new coordinator has not adopted the slots, or a group.
        UserError: The brokers or the old coordinator do not answer.
    """
    settings, to, of = move.settings, move.to, move.settings.topic_prefix
    grown, has_topics = _grown(settings, to, shards)
    how = steps(of, to, grown.request_partitions, settings.bootstrap_servers)
    if move.is_dry_run and not has_topics:
        tell(f"The topics of {escape(to)} would be created, with {counted(grown.request_partitions, 'shard')}.\n{how}")
        return
    topics.ensure(grown, tell)
    with opened(settings, to) as (source, target):
        with _explained(how):
            check_prepared(ask_shards_of(source), of, ask_shards_of(target), to)
        move.confirm("all groups")
        move_opened_slots(move, source, target, ALL_SLOTS)
        if move.is_dry_run:
            return
        check_empty(ask_shards_of(source), of)
    tell(_farewell(of, to))


@contextmanager
def _explained(how: str) -> Iterator[None]:
    """Print how to prepare the coordinators, if they are not."""
    try:
        yield
    except NotPrepared:
        tell(how)
        raise


def _grown(settings: Settings, to: str, shards: int | None) -> tuple[Settings, bool]:
    """Return the settings of the new coordinator, and whether it has topics.

    Raises:
        NoCoordinator: There is no old one.
        TopicMismatch: The topics of the new one have another number of shards.
    """
    grown = settings.model_copy(update={"topic_prefix": to})
    now = topics.shards(settings)
    if not now:
        raise NoCoordinator.without(settings.requests_topic, settings.bootstrap_servers)
    there = topics.shards(grown)
    if shards and there and shards != there:
        raise TopicMismatch(f"The topics of {escape(to)} have {counted(there, 'shard')}: choose another prefix.")
    return grown.model_copy(update={"request_partitions": shards or there or now}), bool(there)


def _farewell(of: str, to: str) -> str:
    """Return what remains to be done with the old coordinator."""
    until = datetime.now(UTC) + timedelta(milliseconds=VERDICT_MS)
    return (
        f"{escape(of)} has no group left. Let gateways and members use the prefix {escape(to)}, one after another, and"
        f" stop {escape(of)} then. Keep its topics and its checkpoint until {until:%Y-%m-%d}."
    )
