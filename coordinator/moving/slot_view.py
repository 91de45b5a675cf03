"""The slots of a shard as an operator sees them: their owners, those that arrive, and the guests (moving.md 4.2)."""

from collections.abc import Iterable, Iterator
from heapq import nsmallest

from coordinator.context import Context
from coordinator.limits import GUESTS_LISTED_MAX
from coordinator.move_requests import DescribeSlots
from coordinator.moving.kept_moves import KeptMoves
from coordinator.outputs import DescribeSlotsAnswer, Output, OwnedSlots, Reply
from coordinator.slots import ranges_of, slots_at, slots_in


def describe_slots(kept: KeptMoves, request: DescribeSlots, context: Context) -> Iterator[Output]:
    """Reply with the owners of the slots that have names in the shard, and with some of its guests."""
    del context
    guests = nsmallest(GUESTS_LISTED_MAX + 1, (name for name in kept.moves.guests if name > request.after))
    answer = DescribeSlotsAnswer(
        request_id=request.request_id,
        owned=tuple(_owned(kept)),
        arriving=ranges_of({slot for each in kept.slots.gathering for slot in slots_in(each.slots)}),
        guests=tuple(guests[:GUESTS_LISTED_MAX]),
        has_more=len(guests) > GUESTS_LISTED_MAX,
        peers=tuple(sorted(kept.config.peers)),
    )
    yield Reply(request.reply_to, answer)


def _owned(kept: KeptMoves) -> Iterable[OwnedSlots]:
    """Return the slots of each owner and number. Those that have never moved are as the setting `slots` has them."""
    config = kept.config
    moved = [(slots_in(each.slots), each.owner or config.prefix, each.number) for each in kept.slots.owners.holdings]
    never_moved = slots_at(kept.place).difference(*(slots for slots, _, _ in moved))
    by_setting = never_moved, config.prefix if config.slots == "all" else None, 0
    return [
        OwnedSlots(slots=ranges_of(slots), owner=owner, number=number)
        for slots, owner, number in sorted((*moved, by_setting), key=_first)
        if slots
    ]


def _first(owned: tuple[frozenset[int], str | None, int]) -> int:
    return min(owned[0], default=0)
