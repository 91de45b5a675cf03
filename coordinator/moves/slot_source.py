"""The owner of slots releases them: it creates no groups of them any more, and keeps their names (moving.md 4.3).

Each shard of the owner writes to each shard of the target that has names of these slots. The records list the names
that the shard has an entry of: the target must create no group of such a name, and redirects its requests.
"""

from collections.abc import Iterable, Iterator

import msgspec

from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.base.limits import ELSEWHERE_MAX, MOVE_PART_BYTES, MOVE_PARTS_MAX, SLOTS_AGAIN_MS, SLOTS_AHEAD_MS
from coordinator.base.slots import (
    Holding,
    PartitionRef,
    bitmap_of,
    ranges_of,
    slot_of,
    slots_at,
    slots_between,
    slots_in,
)
from coordinator.common.refusals import refusal
from coordinator.messages.move_events import SlotsReleased
from coordinator.messages.move_requests import AdoptSlots, Elsewhere, ReleaseSlots
from coordinator.messages.outputs import Output, ToPeer
from coordinator.messages.responses import ReleaseSlotsAnswer, Reply
from coordinator.moves.custody import Custody, MoveStore, moved_slot
from coordinator.state.move_state import Away, SentSlots

FOREIGN = "another coordinator owns one of these slots"

_encode = msgspec.json.Encoder().encode


def release_slots(store: MoveStore, request: ReleaseSlots, context: Context) -> Iterator[Output]:
    """Release slots to another coordinator, which cannot refuse them. An earlier number sends its slots again.

    Replies with:
        NOT_COORDINATOR: another coordinator owns one of the slots.
        INVALID_REQUEST: the slots cannot be released, or not now.
    """
    slots, now_ms = slots_in(request.slots) & slots_at(store.shard), context.now_ms
    released = _release_of(store, request, slots)
    if (refused := _refusal(store, request, slots, released, now_ms)) is not None:
        yield refused
        return
    sent = SentSlots(
        to=request.to,
        partitions=store.config.peer_partitions[request.to],
        number=request.made_ms,
        offset=context.offset,
        slots=bitmap_of(slots),
        elsewhere=tuple(_known(store, slots)),
    )
    if (parts := _most_parts(sent)) > MOVE_PARTS_MAX:
        why = f"the names of these slots take {parts} parts, and {MOVE_PARTS_MAX} are allowed; release fewer at once"
        yield refusal(ReleaseSlotsAnswer, request, ErrorCode.INVALID_REQUEST, why)
        return
    if slots and released is None:
        yield _release(store, sent, now_ms)
    if slots:
        store.slots.sent[sent.number] = sent
    answer = ReleaseSlotsAnswer(request_id=request.request_id, slots=len(slots), listed=len(sent.elsewhere))
    yield Reply(request.reply_to, answer)


def _known(store: MoveStore, slots: frozenset[int]) -> Iterator[Elsewhere]:
    """Yield the names of slots that the shard has an entry of, with the coordinator of each one.

    A name in transit is listed as one that is here: no other coordinator can have adopted it before it owns the slot.
    """
    moves, groups = store.moves, store.groups
    entries = groups.stored, groups.removed_groups, moves.sent, moves.away, moves.guests, moves.verdicts
    for name in sorted({name for each in entries for name in each if slot_of(name) in slots}):
        custody = store.custody_of(name)
        if custody is Custody.AWAY:
            yield Elsewhere(name, moves.away[name].number, moves.away[name].to)
        elif custody is Custody.IN_TRANSIT:
            yield Elsewhere(name, moves.sent[name].number, store.config.prefix)
        elif custody is Custody.HERE:
            yield Elsewhere(name, store.number_of(name), store.config.prefix)


def _release(store: MoveStore, sent: SentSlots, now_ms: int) -> SlotsReleased:
    """Release slots. The names that are here become guests, and the retention time of those that are away begins."""
    for name, number, at in map(msgspec.structs.astuple, sent.elsewhere):
        if at == store.config.prefix:
            store.moves.guests[name] = number
        else:
            store.moves.away[name] = Away(at, number, now_ms)
    slots = slots_in(sent.slots)
    store.slots.owners = store.slots.owners.moved(slots, sent.number, sent.to, now_ms)
    return SlotsReleased(
        group_id=None,
        version=None,
        at_ms=now_ms,
        generation_id=None,
        to=sent.to,
        number=sent.number,
        partition=store.shard.partition,
        slots=ranges_of(slots),
        listed=len(sent.elsewhere),
    )


# -- refusals ----------------------------------------------------------------------------------------------------------


def _refusal(
    store: MoveStore, request: ReleaseSlots, slots: frozenset[int], released: Holding | None, now_ms: int
) -> Reply | None:
    """Return the refusal of a request; None if its slots are released, or sent again."""
    if (why := _why_never(store, request, now_ms)) is None:
        foreign = min((slot for slot in slots if not store.owns_slot(slot)), default=None)
        if released is not None:
            why = _why_not_again(released, now_ms)
        elif foreign is not None:
            moved = moved_slot(store.slots.owners.of(foreign))
            fields = {} if moved is None else {"moved": moved}
            return refusal(ReleaseSlotsAnswer, request, ErrorCode.NOT_COORDINATOR, FOREIGN, **fields)
        else:
            why = _why_not_now(store, request.made_ms, slots)
    return None if why is None else refusal(ReleaseSlotsAnswer, request, ErrorCode.INVALID_REQUEST, why)


def _why_never(store: MoveStore, request: ReleaseSlots, now_ms: int) -> str | None:
    """Return a sentence about a request that does not fit this coordinator; None if it does."""
    config = store.config
    if request.to == config.prefix:
        return f"{request.to} is this coordinator itself"
    if request.to not in config.peers:
        return f"{request.to} is no peer of this coordinator"
    if request.to not in config.peer_partitions:
        return f"the number of request partitions of {request.to} is not known"
    if request.made_ms > now_ms + SLOTS_AHEAD_MS:
        return f"made_ms is {request.made_ms}, which is in the future: it is {now_ms} now"
    return None if slots_in(request.slots) else "the request names no slot"


def _release_of(store: MoveStore, request: ReleaseSlots, slots: frozenset[int]) -> Holding | None:
    """Return the earlier release of exactly these slots with this number to the same coordinator; None without one."""
    move = request.made_ms, request.to, bitmap_of(slots)
    return next((each for each in store.slots.owners.holdings if (each.number, each.owner, each.slots) == move), None)


def _why_not_again(released: Holding, now_ms: int) -> str | None:
    """Return a sentence about slots that cannot be sent again; None if they can."""
    since_ms = released.since_ms
    if since_ms + SLOTS_AGAIN_MS > now_ms:
        return None
    return f"the slots were released at {since_ms}, and names that were elsewhere then may be forgotten"


def _why_not_now(store: MoveStore, made_ms: int, slots: frozenset[int]) -> str | None:
    """Return a sentence about own slots that cannot be released at this time; None if they can."""
    owners = store.slots.owners
    number = max((owners.number_of(slot) for slot in slots), default=0)
    if made_ms <= number:
        return f"made_ms is {made_ms}, and these slots have the number {number} already"
    if any(each.number == made_ms for each in owners.holdings):
        return f"other slots have moved with the number {made_ms}"
    in_transit = min((name for name in store.moves.sent if slot_of(name) in slots), default=None)
    return None if in_transit is None else f"{in_transit} is in transit to {store.moves.sent[in_transit].to}"


# -- records -----------------------------------------------------------------------------------------------------------


def unwritten(store: MoveStore) -> Iterator[ToPeer]:
    """Yield the records about released slots that are not written yet, and note that they are."""
    for number in store.unwritten_slots:
        sent = store.slots.sent[number]
        records = list(_records(store, sent))
        for record in records[sent.written :]:
            sent.written += 1
            if sent.written == len(records):
                del store.slots.sent[number]
            yield record


def _records(store: MoveStore, sent: SentSlots) -> Iterator[ToPeer]:
    slots = slots_in(sent.slots)
    for target, elsewhere in _by_target(sent):
        those = slots & slots_between(store.shard, target)
        if not those:
            continue
        parts = list(_cut(elsewhere))
        for part, names in enumerate(parts, 1):
            record = AdoptSlots(
                source=store.config.prefix,
                to=sent.to,
                number=sent.number,
                offset=sent.offset,
                slots=bitmap_of(those),
                from_shard=store.shard.partition,
                from_partitions=store.shard.partitions,
                to_shard=target.partition,
                to_partitions=target.partitions,
                part=part,
                parts=len(parts),
                elsewhere=names,
            )
            yield ToPeer(record, target.partition)


def _by_target(sent: SentSlots) -> Iterator[tuple[PartitionRef, list[Elsewhere]]]:
    """Yield each shard of the target, with the listed names that are in it."""
    names: list[list[Elsewhere]] = [[] for _ in range(sent.partitions)]
    for each in sent.elsewhere:
        names[shard_of(each.name, sent.partitions)].append(each)
    for partition, elsewhere in enumerate(names):
        yield PartitionRef(partition, sent.partitions), elsewhere


def _cut(elsewhere: Iterable[Elsewhere]) -> Iterator[tuple[Elsewhere, ...]]:
    """Yield names in parts within their bounds. Without names, one part is empty."""
    part, size = list[Elsewhere](), 0
    for each in elsewhere:
        added = len(_encode(each)) + 1
        if part and (len(part) == ELSEWHERE_MAX or size + added > MOVE_PART_BYTES):
            yield tuple(part)
            part, size = [], 0
        part.append(each)
        size += added
    yield tuple(part)


def _most_parts(sent: SentSlots) -> int:
    """Return the largest number of parts for one shard of the target."""
    return max((sum(1 for _ in _cut(elsewhere)) for _, elsewhere in _by_target(sent)), default=0)
