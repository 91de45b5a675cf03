"""What a member owns, and what its owner is told as that changes: Kafka's listener contract, without the listener.

    step                     eager                                      cooperative
    before it joins          revoked: all, also if that is none,        revoked: what it no longer asks for, if any
                             but not before it has ever been in
    ... having lost its      lost: all, if any                          lost: all, if any
        membership
    the plan has come        assigned: all, also if that is none        revoked: what the plan takes away, if any;
                                                                        then assigned: what is new, also if none
    it leaves                revoked: all, if any; or lost              revoked: all, if any; or lost

What is revoked or lost is still owned while that is told, and no longer afterwards; what is assigned is owned already.

Source: Kafka's ConsumerCoordinator, onJoinPrepare, onJoinComplete and onLeavePrepare; KIP-429.
"""

from collections.abc import Callable, Collection, Iterator
from enum import Enum
from typing import Generic, TypeVar

from msgspec import Struct

from coordinator.assignors import RebalanceProtocol

T = TypeVar("T")


class Told(Enum):
    """What becomes of partitions, by the name of the listener's method for it."""

    REVOKED = "on_partitions_revoked"
    ASSIGNED = "on_partitions_assigned"
    LOST = "on_partitions_lost"


class Change(Struct, Generic[T], frozen=True):
    """One thing to tell.

    Args:
        owned: What the member owns from this change on: before an assignment is told, after anything else.
    """

    told: Told
    partitions: frozenset[T]
    owned: frozenset[T]


class Holding(Generic[T]):
    """What one member owns. Each step yields its changes, and is over when the last one has been told."""

    def __init__(self, protocol: RebalanceProtocol) -> None:
        self._protocol = protocol
        self._is_in = False  # it has had a plan since it last came in from nowhere
        self.owned: frozenset[T] = frozenset()

    @property
    def is_cooperative(self) -> bool:
        return self._protocol is RebalanceProtocol.COOPERATIVE

    def prepare(self, is_wanted: Callable[[T], bool]) -> Iterator[Change[T]]:
        """Give up what has to be given up before joining.

        Args:
            is_wanted: Tells whether a partition is still of this member's subscription.
        """
        if self.is_cooperative:
            yield from self._give_up(Told.REVOKED, frozenset(p for p in self.owned if not is_wanted(p)))
        elif self._is_in:
            yield from self._give_up(Told.REVOKED, self.owned, even_if_none=True)

    def take(self, assigned: Collection[T]) -> Iterator[Change[T]]:
        """Own what the plan says. What it takes away others are to have, in a round that follows."""
        self._is_in, now = True, frozenset(assigned)
        yield from self._give_up(Told.REVOKED, self.owned - now)
        new, self.owned = now - self.owned, now
        yield Change(Told.ASSIGNED, new, now)

    def lose(self) -> Iterator[Change[T]]:
        """Own nothing any more, as others may own all of it by now."""
        self._is_in = False
        yield from self._give_up(Told.LOST, self.owned)

    def leave(self) -> Iterator[Change[T]]:
        """Give up everything, as a member that goes."""
        self._is_in = False
        yield from self._give_up(Told.REVOKED, self.owned)

    def _give_up(self, told: Told, partitions: frozenset[T], *, even_if_none: bool = False) -> Iterator[Change[T]]:
        left = self.owned - partitions
        try:
            if partitions or even_if_none:
                yield Change(told, partitions, left)
        finally:
            self.owned = left
