"""The target of a move: a name is adopted or refused, once and for all (moving.md 2.3)."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from coordinator.base.config import Config
from coordinator.base.context import Context
from coordinator.base.errors import CorruptState, ErrorCode
from coordinator.base.hashing import crc32c
from coordinator.base.limits import MOVE_AGE_MS, MOVE_CLOCK_MS, MOVE_PART_BYTES, MOVE_PARTS_MAX, PARTIAL_TRANSFERS_MAX
from coordinator.classic.describe import publish
from coordinator.common.events import event
from coordinator.common.offsets import publish_offset
from coordinator.common.refusals import refusal
from coordinator.consumer.publish import publish as publish_consumers
from coordinator.messages.move_events import GroupArrived
from coordinator.messages.move_requests import (
    AdoptGroup,
    AdoptionRefused,
    CancelMove,
    CheckAdoption,
    GroupAdopted,
    ImportGroup,
)
from coordinator.messages.outputs import Output, ToPeer
from coordinator.messages.responses import CancelMoveAnswer, CheckAdoptionAnswer, Reply
from coordinator.moves import transfer
from coordinator.moves.custody import Custody, MoveStore
from coordinator.moves.resume import lacks_addresses, resume
from coordinator.moves.validate import problem_of
from coordinator.state.classic_group import Group
from coordinator.state.codec import VERSION
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.move_state import ADOPTED, Arrived, PartialTransfer, Verdict

AnyGroup = Group | ConsumerGroup
Incoming = AdoptGroup | ImportGroup
"""A part of a state: from another coordinator, or from an export."""


class Refusal(NamedTuple):
    """The reason of a refusal, and a sentence about it."""

    reason: str
    why: str


LIVES_HERE = Refusal("lives_here", "a group of that name lives at the target")
IN_TRANSIT = Refusal("in_transit", "the target has released a group of that name itself, and is not answered yet")
NOT_HOME = Refusal("not_home", "neither the source nor the target owns the slot of the name")
CANCELLED = Refusal("cancelled", "an operator has cancelled the move")


def adopt(store: MoveStore, record: AdoptGroup, at_ms: int) -> Iterator[Output]:
    """Adopt or refuse a name, or keep a part of it. The table of moving.md 2.3 has the order of the checks."""
    group_id = record.group_id
    if record.released_ms + MOVE_AGE_MS <= at_ms:
        yield from store.ignored(record, at_ms, "the copy is too old")
        return
    if (known := store.verdict_of(group_id, record.move_id)) is not None:
        yield _answer(store, record, known)
        return
    if (number := store.number_of(group_id)) > record.number:
        yield _refuse(store, record, Refusal("older", f"the number of the name is {number} at the target"), at_ms)
        return
    parts = gather(store, record, record.released_ms)
    if isinstance(parts, Refusal):
        yield _refuse(store, record, parts, at_ms)
    elif parts is not None:
        carried = read(record, parts)
        if isinstance(carried, Refusal):
            yield _refuse(store, record, carried, at_ms)
        elif (refused := refusal_of(store, record, carried, at_ms, home=record.home)) is not None:
            yield _refuse(store, record, refused, at_ms)
        else:
            yield from install(store, record, carried, at_ms, store.config.fencing_token_floor)
            yield _answer(store, record, Verdict(record.number, ADOPTED, "", at_ms, at_ms))


def gather(store: MoveStore, record: Incoming, begun_ms: int) -> dict[int, bytes] | Refusal | None:
    """Return all parts of a move; None while parts are missing.

    Args:
        begun_ms: The time from which the retention time of the parts counts.
    """
    partial = store.moves.partial
    if record.parts == 1:
        return {1: record.state}
    entry = partial.get(record.move_id)
    if entry is None:
        if len(partial) >= PARTIAL_TRANSFERS_MAX:
            return Refusal("busy", f"{PARTIAL_TRANSFERS_MAX} other moves to this shard have missing parts")
        entry = partial[record.move_id] = PartialTransfer(record.group_id, record.number, begun_ms)
    entry.parts[record.part] = record.state
    if len(entry.parts) < record.parts:
        return None
    return partial.pop(record.move_id).parts


class Living(NamedTuple):
    """A group that has come."""

    group: AnyGroup


Carried = Living | transfer.Tombstone | transfer.Nothing


def read(record: Incoming, parts: dict[int, bytes], drops_open_transactions: bool = False) -> Carried | Refusal:
    """Return the state of a name from all of its parts."""
    state = transfer.joined(parts)
    if len(state) != record.bytes or crc32c(state) != record.crc:
        return Refusal("damaged", "the size or the checksum of the state is wrong")
    if record.codec != VERSION:
        return _codec_refusal(record.codec)
    try:
        carried = transfer.read(state)
        if not isinstance(carried, transfer.Living):
            return carried
        if transfer.is_too_large(carried):
            return Refusal("unsound", "the state inflates to too many bytes")
        group = transfer.group_of(carried)
        if drops_open_transactions:
            group.pending_commits = {}
        problem = problem_of(group, record.group_id)
    except (CorruptState, KeyError):
        return Refusal("unsound", "the state cannot be read")
    return Living(group) if problem is None else Refusal("unsound", problem)


def refusal_of(store: MoveStore, record: Incoming, carried: Carried, at_ms: int, *, home: bool) -> Refusal | None:
    """Return the refusal of a state that can be read; None if it is adopted.

    Args:
        home: The source owns the slot of the name.
    """
    if isinstance(carried, Living):
        members = len(carried.group.members)
        if (too_large := _too_large(carried.group, members, store.config)) is not None:
            return too_large
        if (ahead_ms := carried.group.hot_state.now_ms - at_ms) > MOVE_CLOCK_MS:
            return Refusal("clock", f"the time of the group is {ahead_ms} ms ahead of the target's")
    return _name_in_use(store, record.group_id) or _not_home(store, record.group_id, home=home)


def _not_home(store: MoveStore, group_id: str, *, home: bool) -> Refusal | None:
    return None if home or store.owns(group_id) else NOT_HOME


def _codec_refusal(codec: int) -> Refusal:
    return Refusal("codec", f"the target reads {VERSION}, this one is {codec}")


def _name_in_use(store: MoveStore, group_id: str) -> Refusal | None:
    """Return the refusal of a name that this shard has already; None if it does not have it."""
    if store.groups.open(group_id) is not None:
        return LIVES_HERE
    return IN_TRANSIT if store.custody_of(group_id) is Custody.IN_TRANSIT else None


def _too_large(group: AnyGroup, members: int, config: Config) -> Refusal | None:
    size_max = config.group_consumer_max_size if isinstance(group, ConsumerGroup) else config.group_max_size
    if members <= size_max:
        return None
    return Refusal("too_large", f"the group has {members} members, and {size_max} are allowed at the target")


def install(store: MoveStore, record: Incoming, carried: Carried, at_ms: int, floor: int) -> Iterator[Output]:
    """Serve a name from now on, and store the verdict about its move.

    Args:
        floor: The fencing token of the group is not below it.
    """
    group_id = record.group_id
    store.groups.remove(group_id)
    store.moves.away.pop(group_id, None)
    if not store.owns(group_id):
        store.moves.guests[group_id] = record.number
    if isinstance(carried, Living):
        group = carried.group
        group.token = max(group.token, record.number, floor)
        resume(group, at_ms, store.noticed_ms, store.config)
        store.groups.put(group)
        store.moves.arrived[group_id] = Arrived(record.move_id, record.number, at_ms, lacks_addresses(group))
        yield from _publish(group, record)
    else:
        if isinstance(carried, transfer.Tombstone):
            store.groups.add_tombstone(group_id, carried.generation_id, max(carried.token, record.number, floor), at_ms)
        store.remember(group_id, record.move_id, Verdict(record.number, ADOPTED, "", at_ms, at_ms))


def _publish(group: AnyGroup, record: Incoming) -> Iterator[Output]:
    """Yield the event of a group that has arrived, and its records under this coordinator's prefix."""
    before = group.version
    yield event(
        GroupArrived,
        group,
        group.hot_state.now_ms,
        source=record.source,
        move_id=record.move_id,
        number=record.number,
        version_before=before,
    )
    yield publish_consumers(group) if isinstance(group, ConsumerGroup) else publish(group)
    for topic, partition, offset in group.all_offsets():
        yield publish_offset(group, topic, partition, offset)


# -- verdicts ----------------------------------------------------------------------------------------------------------


def _refuse(store: MoveStore, record: AdoptGroup | GroupAdopted, refused: Refusal, at_ms: int) -> ToPeer:
    """Store the verdict about a move that is refused, and return the answer to its source."""
    store.moves.partial.pop(record.move_id, None)
    verdict = Verdict(record.number, refused.reason, refused.why, at_ms, at_ms)
    store.remember(record.group_id, record.move_id, verdict)
    return _answer(store, record, verdict)


def _answer(store: MoveStore, record: AdoptGroup | GroupAdopted, verdict: Verdict) -> ToPeer:
    """Return the answer to the source of a move. All answers about one move are equal."""
    fields: dict[str, Any] = {
        "group_id": record.group_id,
        "move_id": record.move_id,
        "number": verdict.number,
        "source": store.config.prefix,
        "to": record.source,
        "adopted_ms": verdict.at_ms,
    }
    if verdict.verdict == ADOPTED:
        return ToPeer(GroupAdopted(**fields))
    return ToPeer(AdoptionRefused(**fields, reason=verdict.verdict, why=verdict.why))


# -- requests of operators ---------------------------------------------------------------------------------------------


def cancel(store: MoveStore, request: CancelMove, context: Context) -> Iterator[Output]:
    """Refuse a move, unless there is a verdict about it. Its source gets the verdict once more.

    Replies with:
        INVALID_REQUEST: no peer of this coordinator has given that `move_id`.
    """
    source = request.move_id.rsplit("/", 2)[0]
    if source not in store.config.peers:
        why = f"{source} is no peer of this coordinator"
        yield refusal(CancelMoveAnswer, request, ErrorCode.INVALID_REQUEST, why)
        return
    record = GroupAdopted(
        group_id=request.group_id,
        move_id=request.move_id,
        number=request.number,
        source=source,
        to=store.config.prefix,
        adopted_ms=context.now_ms,
    )
    known = store.verdict_of(request.group_id, request.move_id)
    answer = _answer(store, record, known) if known is not None else _refuse(store, record, CANCELLED, context.now_ms)
    yield answer
    verdict = known.verdict if known is not None else CANCELLED.reason
    why = f"{verdict} before" if known is not None else CANCELLED.why
    reply = CancelMoveAnswer(request_id=request.request_id, verdict=verdict, error_message=why)
    yield Reply(request.reply_to, reply)


def check(store: MoveStore, request: CheckAdoption, context: Context) -> Iterator[Output]:
    """Reply with the reason for which a move of a name would be refused now."""
    refused: Refusal | None = None
    group_id, config = request.group_id, store.config
    if request.codec != VERSION:
        refused = _codec_refusal(request.codec)
    elif request.bytes > MOVE_PART_BYTES * MOVE_PARTS_MAX:
        refused = Refusal("unsound", f"a state of {request.bytes} bytes takes more than {MOVE_PARTS_MAX} parts")
    elif request.members > (size_max := max(config.group_max_size, config.group_consumer_max_size)):
        refused = Refusal("too_large", f"the group has {request.members} members, and {size_max} are allowed")
    else:
        refused = _name_in_use(store, group_id) or _not_home(store, group_id, home=request.home)
    answer = CheckAdoptionAnswer(
        request_id=request.request_id,
        reason=None if refused is None else refused.reason,
        why=None if refused is None else refused.why,
    )
    yield Reply(request.reply_to, answer)
