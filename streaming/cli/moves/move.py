"""`coordinator move`: groups move with their members to another coordinator on the same brokers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from coordinator.base.hashing import shard_of
from coordinator.base.slots import ranges_of, slot_of
from coordinator.messages.move_events import GroupReleased
from coordinator.messages.requests import ListGroups
from streaming.administration import take_back
from streaming.administration.move import Mover, Status, remedy_of_silence
from streaming.administration.move_slots import SlotMover, described, slots_from
from streaming.administration.shards import list_groups
from streaming.administration.take_back import move_in_transit
from streaming.cli.groups.show import folded
from streaming.cli.lib.output import Column, Output, collected, show, write
from streaming.client.transport import COMMAND_WAIT_S, Transport
from streaming.config.settings import Settings
from streaming.errors import NoAnswer, NotFound, RequestRefused
from streaming.kafka.reader import TopicReader
from streaming.logs import tell
from streaming.views.text import counted, escape

ANSWER_WAIT_S = 10.0
"""The time in which a released group must be adopted or refused. Without a response no further group is released."""

COLUMNS = (
    Column("GROUP", lambda result: result.group_id, is_chosen=True),
    Column("STATUS", lambda result: result.status),
    Column("WHY", lambda result: result.why or None),
)


class OwnedRow(NamedTuple):
    """Slots with one owner.

    Args:
        owner: None if the coordinator does not know it.
        status: "here", "elsewhere" or "arriving": some shards of their former owner have not released them yet.
        moved_ms: The number of their last move; None if they have never moved.
    """

    slots: str
    owner: str | None
    status: str
    moved_ms: int | None


SLOT_COLUMNS = (
    Column("SLOTS", lambda row: row.slots),
    Column("COORDINATOR", lambda row: row.owner),
    Column("STATUS", lambda row: row.status),
    Column("MOVED", lambda row: row.moved_ms, is_time=True),
)


class Move(NamedTuple):
    """The move that a command makes.

    Args:
        settings: Those of the coordinator that has the groups.
        to: The prefix of the coordinator that gets them.
        in_transit: How many groups are in transit at a time, at most.
        agree: Asks for the user's agreement to a sentence.
    """

    settings: Settings
    to: str
    in_transit: int
    output: Output
    agree: Callable[[str], None]
    is_dry_run: bool

    def confirm(self, what: str) -> None:
        """Require the user's agreement to the move of something, unless nothing is changed."""
        if not self.is_dry_run:
            self.agree(f"Move {what} from {escape(self.settings.topic_prefix)} to {escape(self.to)}?")


def move_groups(move: Move, group_ids: Sequence[str] | None) -> None:
    """Move groups, and show the result of each.

    Args:
        group_ids: None for all groups.

    Raises:
        RequestRefused: A group is refused, or the sender may move no groups.
        NoAnswer: A group is in transit, and the other coordinator has not answered.
        UserError: The brokers or the coordinators do not answer.
    """
    with opened(move.settings, move.to) as (source, target):
        names = list(dict.fromkeys(group_ids)) if group_ids is not None else _all_groups(source)
        move.confirm(counted(len(names), "group"))
        _finish(move, source, target, names)


def move_slots(move: Move, slots: frozenset[int]) -> None:
    """Move slots, then the groups in them, and show the result of each group.

    Raises:
        RequestRefused: A slot or a group is refused, or the sender may not move them.
        NoAnswer: The other coordinator has not adopted the slots, or a group.
        UserError: The brokers or the coordinators do not answer.
    """
    with opened(move.settings, move.to) as (source, target):
        move.confirm(f"{counted(len(slots), 'slot')} and the groups in them")
        move_opened_slots(move, source, target, slots)


def move_opened_slots(move: Move, source: Transport, target: Transport, slots: frozenset[int]) -> None:
    """Move slots and the groups in them between coordinators that are open; see `move_slots`."""
    of, to = move.settings.topic_prefix, move.to
    mover = SlotMover(ask_shards_of(source), ask_shards_of(target), of, to, slots)
    if move.is_dry_run:
        tell(f"{counted(len(mover.left()), 'slot')} of {len(slots)} would be moved.")
        names = [name for name in _all_groups(source) if slot_of(name) in slots]
    else:
        released = mover.release()
        mover.await_adoption(ANSWER_WAIT_S)
        tell(f"{counted(len(slots), 'slot')} at {escape(to)}, {len(released)} of them moved now.")
        names = list(mover.names())
    _finish(move, source, target, names)


def show_slots(settings: Settings, output: Output) -> None:
    """Show the owners of the slots, as the coordinator knows them.

    Raises:
        RequestRefused: The sender may not see them.
        UserError: The brokers or the coordinator do not answer.
    """
    owned: dict[tuple[str | None, int, str], set[int]] = {}
    with _open(settings) as transport:
        for answer in described(ask_shards_of(transport)):
            for each in answer.owned:
                status = "here" if each.owner == settings.topic_prefix else "elsewhere"
                owned.setdefault((each.owner, each.number, status), set()).update(slots_from(each.slots))
            if answer.arriving:
                owned.setdefault((settings.topic_prefix, 0, "arriving"), set()).update(slots_from(answer.arriving))
    rows = [
        OwnedRow(ranges_of(slots), owner, status, moved_ms or None)
        for (owner, moved_ms, status), slots in sorted(owned.items(), key=lambda each: min(each[1]))
    ]
    write(SLOT_COLUMNS, rows, output)


def _finish(move: Move, source: Transport, target: Transport, names: Sequence[str]) -> None:
    """Move groups, or only check them. Write the progress, and the result of each group.

    Raises:
        RequestRefused: A group is refused.
        NoAnswer: A group is in transit.
    """
    mover = Mover(_ask_of(source), _ask_of(target), move.to, move.in_transit)
    work = mover.check_all if move.is_dry_run else mover.move_all
    results = collected(work(names), "Moving the groups", len(names))
    show(results, Status, COLUMNS, move.output)
    if open_ := [result for result in results if result.status is Status.IN_TRANSIT]:
        raise NoAnswer(
            f"{counted(len(open_), 'group')} of {len(names)} are in transit, and {len(names) - len(results)} were not"
            f" released. {remedy_of_silence(move.to)}"
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
    log = partial(_log, settings.model_copy(update={"topic_prefix": to}))
    with opened(settings, to) as (source, target):
        asks = _ask_of(source), _ask_of(target)
        results = [take_back.take_back(move, *asks, partial(log, move), is_lost=is_lost) for move in moves]
    show(results, take_back.Status, COLUMNS, output)


def _log(target: Settings, move: GroupReleased, from_ms: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield the records of a group's partition of the target's request topic; see `take_back.Log`."""
    mine = lambda partitions: {shard_of(str(move.group_id), partitions)}  # noqa: E731
    with TopicReader(target, [target.requests_topic], "coordinator-move", partitions=mine) as reader:
        for record in reader.backlog():
            if record.timestamp >= from_ms:
                yield record.partition, record.offset, record.value


@contextmanager
def opened(settings: Settings, to: str) -> Iterator[tuple[Transport, Transport]]:
    """Yield the ways to a coordinator, and to the one that gets its groups."""
    with _open(settings) as source, _open(settings.model_copy(update={"topic_prefix": to})) as target:
        yield source, target


def _open(settings: Settings) -> Transport:
    return Transport(settings.kafka_client_arguments(), settings.topic_prefix, settings.signer_at)


def _ask_of(transport: Transport) -> Callable[[Any], Any]:
    """Return a function that sends a request to a transport's own coordinator, and waits for the response."""
    return partial(transport.ask, timeout_s=ANSWER_WAIT_S, follows=False)


def ask_shards_of(transport: Transport) -> Callable[[Any, Sequence[int] | None], Sequence[Any]]:
    """Return a function that sends a request to shards of a transport's own coordinator."""
    return partial(transport.ask_shards, timeout_s=ANSWER_WAIT_S)


def _all_groups(transport: Transport) -> list[str]:
    listed = list_groups(transport, ListGroups(request_id="", reply_to="", group_id=""), COMMAND_WAIT_S)
    if listed.code:
        raise RequestRefused(f"The groups were not listed ({listed.error}).")
    return [group.group_id for group in listed.groups]
