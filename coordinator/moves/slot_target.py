"""The target of slots adopts them when all their names have come from all shards of the source (moving.md 4.3).

From then on it creates the groups of these slots, except for the listed names, which are `away`. It cannot refuse
slots: it adopts them, or ignores a record that is late or does not fit. An operator sees the owners of a shard's slots,
the slots that arrive, and the guests (moving.md 4.2).
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest

from coordinator.base.context import Context
from coordinator.base.limits import GUESTS_LISTED_MAX, PARTIAL_SLOT_TRANSFERS_MAX, SLOTS
from coordinator.base.slots import (
    HERE,
    PartitionRef,
    bitmap_of,
    partitions_with,
    ranges_of,
    slot_of,
    slots_at,
    slots_between,
    slots_in,
)
from coordinator.messages.move_events import SlotsAdopted, SlotsIgnored
from coordinator.messages.move_requests import AdoptSlots, DescribeSlots, Elsewhere
from coordinator.messages.outputs import Output
from coordinator.messages.responses import DescribeSlotsAnswer, OwnedSlots, Reply
from coordinator.moves.custody import MoveStore
from coordinator.state.move_state import Away, PartialSlotTransfer


def describe_slots(store: MoveStore, request: DescribeSlots, context: Context) -> Iterator[Output]:
    """Reply with the owners of the slots that have names in the shard, and with some of its guests."""
    del context
    guests = nsmallest(GUESTS_LISTED_MAX + 1, (name for name in store.moves.guests if name > request.after))
    answer = DescribeSlotsAnswer(
        request_id=request.request_id,
        owned=tuple(_owned(store)),
        arriving=ranges_of({slot for each in store.slots.partial for slot in slots_in(each.slots)}),
        guests=tuple(guests[:GUESTS_LISTED_MAX]),
        has_more=len(guests) > GUESTS_LISTED_MAX,
        peers=tuple(sorted(store.config.peers)),
    )
    yield Reply(request.reply_to, answer)


def _owned(store: MoveStore) -> Iterable[OwnedSlots]:
    """Return the slots of each owner and number. Those that have never moved are as the setting `slots` has them."""
    config = store.config
    moved = [(slots_in(each.slots), each.owner or config.prefix, each.number) for each in store.slots.owners.holdings]
    never_moved = slots_at(store.shard).difference(*(slots for slots, _, _ in moved))
    by_setting = never_moved, config.prefix if config.slots == "all" else None, 0
    return [
        OwnedSlots(slots=ranges_of(slots), owner=owner, number=number)
        for slots, owner, number in sorted((*moved, by_setting), key=_first)
        if slots
    ]


def _first(owned: tuple[frozenset[int], str | None, int]) -> int:
    return min(owned[0], default=0)


def adopt_slots(store: MoveStore, record: AdoptSlots, at_ms: int) -> Iterator[Output]:
    """Keep the record of one shard of the source, and adopt the slots of which it was the last one."""
    if (why := _why_not(store, record)) is not None:
        yield ignored(store, record, at_ms, why)
        return
    partial = _partial_of(store, record)
    if partial is None or (partial.offset, partial.partitions, partial.parts) != _sending(record):
        partial = _begin(store, record, partial)
    partial.came[record.part] = record.elsewhere
    if partial.is_complete:
        yield from _adopt(store, record.source, at_ms)


def ignored(store: MoveStore, record: AdoptSlots, at_ms: int, why: str) -> SlotsIgnored:
    """Return the event of a record about slots that changes nothing."""
    return SlotsIgnored(
        group_id=None,
        version=None,
        at_ms=at_ms,
        generation_id=None,
        source=record.source,
        from_shard=record.from_shard,
        number=record.number,
        partition=store.shard.partition,
        why=why,
    )


# -- records that are missing ------------------------------------------------------------------------------------------


def _why_not(store: MoveStore, record: AdoptSlots) -> str | None:
    """Return a sentence about a record that changes nothing; None if it is kept."""
    if store.shard != PartitionRef(record.to_shard, record.to_partitions):
        return f"it is meant for shard {record.to_shard} of {record.to_partitions}"
    if record.from_shard >= record.from_partitions or record.part > record.parts:
        return "its numbers do not fit each other"
    if not (slots := _slots_of(store, record)):
        return "none of its slots has names in both shards"
    if not _fresh(store, slots, record.number):
        return f"its slots have the number {max(map(store.slots.owners.number_of, slots))} here already"
    partial = _partial_of(store, record)
    if partial is not None and partial.offset > record.offset:
        return "a later request has sent the slots again"
    if partial is None and len(store.slots.partial) >= PARTIAL_SLOT_TRANSFERS_MAX:
        return f"{PARTIAL_SLOT_TRANSFERS_MAX} others have missing records"
    return None


def _slots_of(store: MoveStore, record: AdoptSlots) -> frozenset[int]:
    return slots_in(record.slots) & slots_between(PartitionRef(record.from_shard, record.from_partitions), store.shard)


def _fresh(store: MoveStore, slots: Iterable[int], number: int) -> frozenset[int]:
    """Return the slots whose number here is below that of a record: a late record moves no slot."""
    return frozenset(slot for slot in slots if store.slots.owners.number_of(slot) < number)


def _partial_of(store: MoveStore, record: AdoptSlots) -> PartialSlotTransfer | None:
    """Return the entry of a move of slots from one shard of the source."""
    move = record.source, record.from_shard, record.number
    return next((each for each in store.slots.partial if (each.source, each.shard, each.number) == move), None)


def _sending(record: AdoptSlots) -> tuple[int, int, int]:
    """Return what all parts of one sending have in common. The names of two sendings may be cut at other places."""
    return record.offset, record.from_partitions, record.parts


def _begin(store: MoveStore, record: AdoptSlots, before: PartialSlotTransfer | None) -> PartialSlotTransfer:
    """Return a new entry, in place of that of an earlier sending."""
    partial = PartialSlotTransfer(
        source=record.source,
        shard=record.from_shard,
        partitions=record.from_partitions,
        number=record.number,
        offset=record.offset,
        slots=bitmap_of(_fresh(store, _slots_of(store, record), record.number)),
        parts=record.parts,
    )
    store.slots.partial = [*(each for each in store.slots.partial if each is not before), partial]
    return partial


# -- slots that have come ----------------------------------------------------------------------------------------------


def _adopt(store: MoveStore, source: str, at_ms: int) -> Iterator[Output]:
    """Adopt the slots of which all shards of the source have sent all parts."""
    complete = [
        (each, slots_in(each.slots)) for each in store.slots.partial if each.source == source and each.is_complete
    ]
    ready: dict[int, set[int]] = {}
    for slot in range(SLOTS):
        those = [each for each, slots in complete if slot in slots]
        came = {each.shard for each in those}
        if those and came.issuperset(partitions_with(slot, those[-1].partitions, store.shard)):
            ready.setdefault(max(each.number for each in those), set()).add(slot)
    for number, slots in sorted(ready.items()):
        sent = sorted((each for each, those in complete if those & slots), key=_by_number)
        yield _own(store, number, slots, sent, at_ms)


def _by_number(partial: PartialSlotTransfer) -> int:
    return partial.number


def _own(
    store: MoveStore, number: int, slots: set[int], sent: Sequence[PartialSlotTransfer], at_ms: int
) -> SlotsAdopted:
    """Serve the names of slots from now on, except for those that are elsewhere.

    A name that is not listed is free: the source knows every name of its slots that is elsewhere. So an older entry of
    such a name in `away` is wrong by now.
    """
    names = (name for each in sent for part in each.came.values() for name in part)
    listed = {each.name: each for each in names if slot_of(each.name) in slots and store.is_of_this_shard(each.name)}
    moves = store.moves
    for name in [name for name in moves.away if slot_of(name) in slots and name not in listed]:
        del moves.away[name]
    for each in listed.values():
        _record(store, each, at_ms)
    for name in [name for name in moves.guests if slot_of(name) in slots]:
        del moves.guests[name]
    store.slots.owners = store.slots.owners.moved(slots, number, HERE, at_ms)
    for partial in store.slots.partial:
        partial.slots = bitmap_of(_fresh(store, slots_in(partial.slots), partial.number))
    store.slots.partial = [partial for partial in store.slots.partial if any(partial.slots)]
    return SlotsAdopted(
        group_id=None,
        version=None,
        at_ms=at_ms,
        generation_id=None,
        source=sent[0].source,
        number=number,
        partition=store.shard.partition,
        slots=ranges_of(slots),
        listed=len(listed),
    )


def _record(store: MoveStore, each: Elsewhere, at_ms: int) -> None:
    """Note where a listed name is, unless it is here or in transit, or a later move of it is known."""
    moves, name = store.moves, each.name
    if name in store.groups.stored or name in moves.guests or name in moves.sent:
        return
    if store.number_of(name) > each.number:
        return
    if each.at == store.config.prefix:
        moves.away.pop(name, None)
    else:
        moves.away[name] = Away(each.at, each.number, at_ms)
