"""The import of groups from an export: no coordinator releases them, and no coordinator is answered (moving.md 7).

The operator states that the coordinator that had the groups will not run again. A name is imported once from an export:
the verdict is stored as that of a move. A refusal is not stored, because no source takes the group back, and the
operator may remove its reason.
"""

from collections.abc import Iterator

from msgspec import structs

from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import LOST_GENERATIONS
from coordinator.common.refusals import refusal
from coordinator.messages.move_requests import ImportGroup
from coordinator.messages.outputs import Output
from coordinator.messages.responses import ImportGroupAnswer, Reply
from coordinator.moves import transfer
from coordinator.moves.custody import MoveStore
from coordinator.moves.resume import remove_addresses
from coordinator.moves.target import AnyGroup, Carried, Living, Refusal, gather, install, read, refusal_of
from coordinator.state.classic_group import Group, HotState
from coordinator.state.consumer_group import ConsumerGroup, ConsumerHotState
from coordinator.state.move_state import ADOPTED

ADOPTED_BEFORE, KEPT = "adopted before", "kept"


def import_group(store: MoveStore, request: ImportGroup, context: Context) -> Iterator[Output]:
    """Adopt a name from an export, or keep a part of it.

    Replies with:
        INVALID_REQUEST: the name is refused. The result is the reason, as in moving.md 2.3.
    """
    at_ms = max(context.now_ms, store.groups.not_before_ms(request.group_id))
    carried = _incoming(store, request, at_ms)
    if isinstance(carried, Refusal):
        yield refusal(ImportGroupAnswer, request, ErrorCode.INVALID_REQUEST, carried.why, result=carried.reason)
    elif isinstance(carried, str):
        yield _reply(request, carried)
    else:
        floor = max(request.token_floor, store.config.fencing_token_floor, at_ms * 1_000)
        yield from install(store, request, carried, at_ms, floor)
        yield _reply(request, ADOPTED)


def _reply(request: ImportGroup, result: str) -> Reply:
    return Reply(request.reply_to, ImportGroupAnswer(request_id=request.request_id, result=result))


def _incoming(store: MoveStore, request: ImportGroup, at_ms: int) -> Carried | Refusal | str:
    """Return the state to adopt, a refusal, or the result of a request that adopts nothing."""
    known = store.verdict_of(request.group_id, request.move_id)
    if known is not None and known.verdict == ADOPTED:
        return ADOPTED_BEFORE
    if (number := _number_of(store, request)) > request.number:
        return Refusal("older", f"the number of the name is {number} at the target")
    parts = gather(store, request, at_ms)
    if parts is None:
        return KEPT
    carried = parts if isinstance(parts, Refusal) else read(request, parts, request.drops_open_transactions)
    if isinstance(carried, Refusal):
        return carried
    return refusal_of(store, request, carried, at_ms, home=False) or _continued(store, request, carried, at_ms)


def _number_of(store: MoveStore, request: ImportGroup) -> int:
    """Return the highest number of the name that counts here."""
    if not request.replaces:
        return store.number_of(request.group_id)
    away = store.moves.away.get(request.group_id)
    return 0 if away is None else away.number


def _continued(store: MoveStore, request: ImportGroup, carried: Carried, at_ms: int) -> Carried:
    """Return a state with a generation that no client has heard of with another assignment.

    The generation continues, unless the state is not the newest one, or a removed group of that name was as far here.
    The versions begin anew, as those of a group that is created here: no reader of the topics has seen earlier ones.
    """
    removed = store.groups.removed_groups.get(request.group_id)
    before = 0 if removed is None else removed.generation_id
    if isinstance(carried, Living):
        group = carried.group
        remove_addresses(group)
        _unbind_offsets(group)
        group.version = 0
        is_lost = request.is_older or (group.generation_id <= before and bool(before))
        return Living(_emptied(group, max(group.generation_id, before), at_ms)) if is_lost else carried
    if isinstance(carried, transfer.Tombstone):
        lost = LOST_GENERATIONS if request.is_older else 0
        return transfer.Tombstone(max(carried.generation_id, before) + lost, carried.token)
    return carried


def _unbind_offsets(group: AnyGroup) -> None:
    """Remove the ids of topics: the brokers here may be others, whose topics of the same names have other ids.

    A report about the topics brings the ids that they have here.
    """
    for topic, partitions in group.offsets.items():
        group.offsets[topic] = {p: structs.replace(offset, topic_id=None) for p, offset in partitions.items()}


def _emptied(group: AnyGroup, generation_id: int, at_ms: int) -> AnyGroup:
    """Return a group with the offsets of another one, without its members, and with a generation far above."""
    now_ms, generation_id = max(group.hot_state.now_ms, at_ms), generation_id + LOST_GENERATIONS
    emptied: AnyGroup
    if isinstance(group, ConsumerGroup):
        epochs = ConsumerHotState(now_ms=now_ms, group_epoch=generation_id, assignment_epoch=generation_id)
        emptied = ConsumerGroup(hot_state=epochs, group_id=group.group_id, since_ms=now_ms)
    else:
        hot_state = HotState(now_ms=now_ms, generation_id=generation_id)
        emptied = Group(
            hot_state=hot_state, group_id=group.group_id, since_ms=now_ms, protocol_type=group.protocol_type
        )
    emptied.token, emptied.allowance = group.token, group.allowance
    emptied.offsets, emptied.offsets_count = group.offsets, group.offsets_count
    emptied.schedule_offset_expiry(now_ms)
    return emptied
