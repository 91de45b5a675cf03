"""What a member's owner may rely on, one checker a promise, written from protocol.md 6.5 and not from the code.

A checker is told what happens as it happens, and raises AssertionError at the first thing that breaks its promise.
"""

from collections.abc import Callable
from typing import Any

from coordinator.holding import Told

Partitions = frozenset[Any]


class CallbacksInOrder:
    """S121, S122: what one listener is told, call by call, and what is owned meanwhile."""

    def __init__(self, *, is_cooperative: bool, is_wanted: Callable[[Any], bool], owned: Callable[[], Any]) -> None:
        self._is_cooperative, self._is_wanted, self._owned = is_cooperative, is_wanted, owned
        self._has: Partitions = frozenset()
        self._may_be_assigned = True
        self._awaits_assigned = self._has_resubscribed = False

    def told(self, told: Told, partitions: Partitions) -> None:
        """Note a call; what is revoked or lost is still owned while that is told, what is assigned is owned already."""
        assert partitions <= self._owned(), f"{told} {partitions} while {self._owned()} is owned"
        if told is Told.ASSIGNED:
            self._assigned(partitions)
        elif told is Told.LOST:
            self._lost(partitions)
        else:
            self._revoked(partitions)

    def over(self) -> None:
        """Note that all calls of one step have been made."""
        assert not self._awaits_assigned, "a plan took partitions away, and did not say what it gave"
        assert self._owned() == self._has, f"{self._owned()} is owned, and {self._has} was told"

    def _assigned(self, partitions: Partitions) -> None:
        if self._is_cooperative:
            assert not partitions & self._has, f"assigned again: {partitions & self._has}"
        else:
            assert self._may_be_assigned, "assigned twice, and neither revoked nor lost in between"
            assert not self._has, f"assigned {partitions} on top of {self._has}"
        self._has |= partitions
        self._may_be_assigned = self._awaits_assigned = self._has_resubscribed = False

    def _lost(self, partitions: Partitions) -> None:
        assert partitions, "nothing cannot be lost"
        assert partitions == self._has, f"lost {partitions} of {self._has}"
        self._has, self._may_be_assigned = frozenset(), True

    def _revoked(self, partitions: Partitions) -> None:
        if self._is_cooperative:
            assert partitions, "nothing is revoked by name"
            assert partitions <= self._has, f"revoked {partitions - self._has}, which was not owned"
            self._awaits_assigned = partitions != self._has and any(map(self._is_wanted, partitions))
        else:
            assert not self._may_be_assigned or self._has_resubscribed, "revoked before anything was assigned"
            assert partitions == self._has, f"revoked {partitions} of {self._has}"
        self._has -= partitions
        self._may_be_assigned = True

    def resubscribed(self) -> None:
        """Note another subscription: a plan for the one before is passed over, and nothing is revoked once more."""
        self._has_resubscribed = True

    def left(self) -> None:
        """Note that the member has left, or has lost its membership: whatever comes next is a first assignment."""
        self._may_be_assigned, self._awaits_assigned = True, False


class OneOwnerAGeneration:
    """I5: what plans of one generation give, they give once."""

    def __init__(self) -> None:
        self._owners: dict[tuple[int, Any], str] = {}

    def takes(self, who: str, generation_id: int, partitions: Partitions) -> None:
        """Note what a member was given; a static member and its successor are one."""
        for partition in partitions:
            owner = self._owners.setdefault((generation_id, partition), who)
            assert owner == who, f"{partition} is {owner}'s and {who}'s in generation {generation_id}"


class OneOwnerAToken:
    """I2 for stores: no two processes ever show one token for a partition, not even those of one static member."""

    def __init__(self) -> None:
        self._owners: dict[tuple[int, Any], str] = {}

    def takes(self, process: str, token: int, partitions: Partitions) -> None:
        """Note what a process was given, and the token that it shows for it."""
        for partition in partitions:
            owner = self._owners.setdefault((token, partition), process)
            assert owner == process, f"{partition} is {owner}'s and {process}'s with token {token}"
