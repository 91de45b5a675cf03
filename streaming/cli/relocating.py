"""`coordinator move`: groups move with their members to another coordinator on the same brokers."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from coordinator.hashing import shard_of
from coordinator.outputs import GroupReleased
from coordinator.requests import ListGroups
from streaming.administration import taking_back
from streaming.administration.listing import list_groups
from streaming.administration.moving import Mover, Status
from streaming.administration.taking_back import move_in_transit
from streaming.cli.output import Column, Output
from streaming.cli.results import collected, show
from streaming.cli.showing import folded
from streaming.client.transport import COMMAND_WAIT_S, Transport
from streaming.config.settings import Settings
from streaming.errors import NoAnswer, NotFound, RequestRefused
from streaming.kafka.reader import TopicReader
from streaming.views.text import counted, escape

ANSWER_WAIT_S = 10.0
"""The time in which a released group must be adopted or refused. Without a response no further group is released."""

COLUMNS = (
    Column("GROUP", lambda result: result.group_id, is_chosen=True),
    Column("STATUS", lambda result: result.status),
    Column("WHY", lambda result: result.why or None),
)


def move_groups(
    settings: Settings,
    to: str,
    group_ids: Sequence[str] | None,
    output: Output,
    agree: Callable[[str], None],
    *,
    is_dry_run: bool,
) -> None:
    """Move groups, and show the result of each.

    Args:
        to: The prefix of the other coordinator.
        group_ids: None for all groups.

    Raises:
        RequestRefused: A group is refused, or the sender may move no groups.
        NoAnswer: A group is in transit, and the other coordinator has not answered.
        UserError: The brokers or the coordinators do not answer.
    """
    with _open(settings) as source, _open(settings.model_copy(update={"topic_prefix": to})) as target:
        names = list(dict.fromkeys(group_ids)) if group_ids is not None else _all_groups(source)
        if not is_dry_run:
            agree(f"Move {counted(len(names), 'group')} from {escape(settings.topic_prefix)} to {escape(to)}?")
        mover = Mover(_ask_of(source), _ask_of(target), to)
        found = mover.check_all(names) if is_dry_run else mover.move_all(names)
        results = collected(found, "Moving the groups", len(names))
    show(results, Status, COLUMNS, output)
    if open_ := [result for result in results if result.status is Status.IN_TRANSIT]:
        raise NoAnswer(
            f"{counted(len(open_), 'group')} of {len(names)} are in transit, and {len(names) - len(results)} were not"
            f" released. Check that the coordinator that reads {escape(to)}.requests is running. The same command"
            f" continues."
        )


def take_groups_back(
    settings: Settings,
    to: str,
    group_ids: Sequence[str],
    output: Output,
    agree: Callable[[str], None],
    *,
    is_lost: bool,
) -> None:
    """Cancel the moves of groups in transit, and show what became of each group.

    Args:
        to: The prefix of the coordinator to which they were released.
        is_lost: That coordinator will not run again.

    Raises:
        NotFound: A group is not in transit to that coordinator.
        RequestRefused: A group is refused, or the sender may not do this.
        UserError: The brokers or the coordinator do not answer.
    """
    views = folded(settings, list(group_ids))
    moves = [move_in_transit(each, views.groups[each].events if each in views.groups else []) for each in group_ids]
    if strange := next((each for each in moves if each.to != to), None):
        raise NotFound(f"The group {escape(str(strange.group_id))} is in transit to {escape(strange.to)}.")
    lost = f" {escape(to)} must not run again, because it may have adopted them." if is_lost else ""
    agree(f"Take {counted(len(moves), 'group')} back from {escape(to)}?{lost}")
    target_settings = settings.model_copy(update={"topic_prefix": to})
    with _open(settings) as source, _open(target_settings) as target:
        asks = _ask_of(source), _ask_of(target)
        results = [
            taking_back.take_back(move, *asks, partial(_log, target_settings, move), is_lost=is_lost) for move in moves
        ]
    show(results, taking_back.Status, COLUMNS, output)


def _log(target: Settings, move: GroupReleased, from_ms: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield the records of a group's partition of the target's request topic; see `taking_back.Log`."""
    mine = lambda partitions: {shard_of(str(move.group_id), partitions)}  # noqa: E731
    with TopicReader(target, [target.requests_topic], "coordinator-move", partitions=mine) as reader:
        for record in reader.backlog():
            if record.timestamp >= from_ms:
                yield record.partition, record.offset, record.value


def _open(settings: Settings) -> Transport:
    return Transport(settings.kafka_client_arguments(), settings.topic_prefix, settings.signer())


def _ask_of(transport: Transport) -> Callable[[Any], Any]:
    """Return a function that sends a request to a transport's own coordinator, and waits for the response."""
    return partial(transport.ask, timeout_s=ANSWER_WAIT_S, follows=False)


def _all_groups(transport: Transport) -> list[str]:
    listed = list_groups(transport, ListGroups(request_id="", reply_to="", group_id=""), COMMAND_WAIT_S)
    if listed.code:
        raise RequestRefused(f"The groups were not listed ({listed.error}).")
    return [group.group_id for group in listed.groups]
