"""A pair of coordinators of which A has released slots."""

from typing import Any

from coordinator.base.errors import ErrorCode
from coordinator.base.slots import slot_of
from coordinator.messages.move_requests import AdoptSlots
from tests.coordinator.moving.pair import Pair

OTHER = next(name for name in map(str, range(99)) if slot_of(name) != slot_of("g"))


def given(*names: str, at_ms: int = 60_000, **config: Any) -> tuple[Pair, AdoptSlots]:
    """Return a pair whose A has a Stable group g, and has released the slots of these names, else that of g."""
    pair = Pair.stable("c1", "c2", **config)
    pair.a.at(at_ms).heartbeat("c1").heartbeat("c2")
    pair.a.release_slots(*(names or ["g"])).hears(ErrorCode.NONE)
    pair.b.at(at_ms + 100)
    return pair, adopt_record(pair)


def adopt_record(pair: Pair) -> AdoptSlots:
    """Return the only `adopt_slots` that A has written and B has not read."""
    (record,) = (record for record in pair.a.written if isinstance(record, AdoptSlots))
    return record


def another_name(slot_of_name: str) -> str:
    """Return a name in the same slot."""
    return next(name for name in map(str, range(10_000)) if slot_of(name) == slot_of(slot_of_name))


N = another_name("g")
