"""The partitions that a member owns, and the callbacks for each change: the contract of Kafka's rebalance listener.

    step                     eager                                      cooperative
    before it joins          revoked: all, also if that is none,        revoked: partitions that it no longer
                             but not before its first assignment        subscribes to, if any
    ... after it lost its    lost: all, if any                          lost: all, if any
        membership
    on an assignment         assigned: all, also if that is none        revoked: partitions no longer assigned, if any;
                                                                        then assigned: new ones, also if none
    it leaves                revoked: all, if any; or lost              revoked: all, if any; or lost

Revoked and lost partitions are still owned during their callback, and no longer after it. Assigned partitions are owned
before their callback.

Source: Kafka's ConsumerCoordinator, onJoinPrepare, onJoinComplete and onLeavePrepare; KIP-429.
"""

from collections.abc import Callable, Collection, Iterator
from enum import Enum
from typing import Generic, TypeVar

from msgspec import Struct

from coordinator.assignors import RebalanceProtocol

T = TypeVar("T")


class ListenerCall(Enum):
    """The callbacks for partitions, by the name of the listener's method."""

    REVOKED = "on_partitions_revoked"
    ASSIGNED = "on_partitions_assigned"
    LOST = "on_partitions_lost"


class Change(Struct, Generic[T], frozen=True):
    """One callback to make.

    Args:
        owned: The partitions that the member owns from this change on: before the callback of an assignment, after any
            other callback.
    """

    call: ListenerCall
    partitions: frozenset[T]
    owned: frozenset[T]


class OwnedPartitions(Generic[T]):
    """The partitions that one member owns. Each step yields its changes, and ends after the last callback."""

    def __init__(self, protocol: RebalanceProtocol) -> None:
        self._protocol = protocol
        self._is_in = False  # it was given an assignment since it last became a member
        self.owned: frozenset[T] = frozenset()

    @property
    def is_cooperative(self) -> bool:
        return self._protocol is RebalanceProtocol.COOPERATIVE

    def prepare(self, is_wanted: Callable[[T], bool]) -> Iterator[Change[T]]:
        """Yield the partitions to revoke before the member joins.

        Args:
            is_wanted: Returns whether the member still subscribes to a partition.
        """
        if self.is_cooperative:
            yield from self._give_up(ListenerCall.REVOKED, frozenset(p for p in self.owned if not is_wanted(p)))
        elif self._is_in:
            yield from self._give_up(ListenerCall.REVOKED, self.owned, even_if_none=True)

    def assign(self, assigned: Collection[T]) -> Iterator[Change[T]]:
        """Set the owned partitions to an assignment. Other members get the revoked ones in a following round."""
        self._is_in, now = True, frozenset(assigned)
        yield from self._give_up(ListenerCall.REVOKED, self.owned - now)
        new, self.owned = now - self.owned, now
        yield Change(ListenerCall.ASSIGNED, new, now)

    def lose(self) -> Iterator[Change[T]]:
        """Remove all owned partitions, as lost: other members may own all of them by now."""
        self._is_in = False
        yield from self._give_up(ListenerCall.LOST, self.owned)

    def leave(self) -> Iterator[Change[T]]:
        """Remove all owned partitions, as revoked: the member leaves."""
        self._is_in = False
        yield from self._give_up(ListenerCall.REVOKED, self.owned)

    def _give_up(
        self, call: ListenerCall, partitions: frozenset[T], *, even_if_none: bool = False
    ) -> Iterator[Change[T]]:
        left = self.owned - partitions
        try:
            if partitions or even_if_none:
                yield Change(call, partitions, left)
        finally:
            self.owned = left
