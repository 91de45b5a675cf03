"""Checkers of the guarantees for a member's owner, one for each, written from protocol.md 6.5 and not from the code.

A checker gets each event when it happens, and raises AssertionError at the first event that breaks its guarantee.
"""

from collections.abc import Callable
from typing import Any

from coordinator.member.owned_partitions import ListenerCall

Partitions = frozenset[Any]


class CallbacksInOrder:
    """S121, S122: the calls of one listener, and the partitions that are owned during each call."""

    def __init__(self, *, is_cooperative: bool, is_wanted: Callable[[Any], bool], owned: Callable[[], Any]) -> None:
        self._is_cooperative, self._is_wanted, self._owned = is_cooperative, is_wanted, owned
        self._has: Partitions = frozenset()
        self._may_be_assigned = True
        self._awaits_assigned = self._has_resubscribed = False

    def called(self, kind: ListenerCall, partitions: Partitions) -> None:
        """Check a call: revoked or lost partitions are still owned during it, assigned partitions are owned already."""
        assert partitions <= self._owned(), f"{kind} {partitions} while {self._owned()} is owned"
        if kind is ListenerCall.ASSIGNED:
            self._assigned(partitions)
        elif kind is ListenerCall.LOST:
            self._lost(partitions)
        else:
            self._revoked(partitions)

    def step_ended(self) -> None:
        """Check the state after all calls of one step."""
        assert not self._awaits_assigned, "partitions were revoked, and no call of assigned followed"
        assert self._owned() == self._has, f"{self._owned()} is owned, and the listener knows {self._has}"

    def _assigned(self, partitions: Partitions) -> None:
        if self._is_cooperative:
            assert not partitions & self._has, f"assigned again: {partitions & self._has}"
        else:
            assert self._may_be_assigned, "assigned twice without revoked or lost in between"
            assert not self._has, f"assigned {partitions} while {self._has} is owned"
        self._has |= partitions
        self._may_be_assigned = self._awaits_assigned = self._has_resubscribed = False

    def _lost(self, partitions: Partitions) -> None:
        assert partitions, "lost was called without partitions"
        assert partitions == self._has, f"lost {partitions} of {self._has}"
        self._has, self._may_be_assigned = frozenset(), True

    def _revoked(self, partitions: Partitions) -> None:
        if self._is_cooperative:
            assert partitions, "revoked was called without partitions"
            assert partitions <= self._has, f"revoked {partitions - self._has}, which was not owned"
            self._awaits_assigned = partitions != self._has and any(map(self._is_wanted, partitions))
        else:
            assert not self._may_be_assigned or self._has_resubscribed, "revoked before anything was assigned"
            assert partitions == self._has, f"revoked {partitions} of {self._has}"
        self._has -= partitions
        self._may_be_assigned = True

    def resubscribed(self) -> None:
        """Note a new subscription: an assignment for the earlier one is ignored, and an empty revoked may follow."""
        self._has_resubscribed = True

    def left(self) -> None:
        """Note that the member has left, or has lost its membership: the next call is a first assignment."""
        self._may_be_assigned, self._awaits_assigned = True, False


class OneOwnerAGeneration:
    """I5: within a generation each partition is assigned to one member."""

    def __init__(self) -> None:
        self._owners: dict[tuple[int, Any], str] = {}

    def takes(self, who: str, generation_id: int, partitions: Partitions) -> None:
        """Check a member's assignment; a static member and its successor count as one member."""
        for partition in partitions:
            owner = self._owners.setdefault((generation_id, partition), who)
            assert owner == who, f"{partition} is assigned to {owner} and to {who} in generation {generation_id}"


class OneOwnerAToken:
    """I2 for stores: two processes never have the same token for a partition, also two processes of a static member."""

    def __init__(self) -> None:
        self._owners: dict[tuple[int, Any], str] = {}

    def takes(self, process: str, token: int, partitions: Partitions) -> None:
        """Check a process's assignment, and the fencing token that belongs to it."""
        for partition in partitions:
            owner = self._owners.setdefault((token, partition), process)
            assert owner == process, f"{partition} is assigned to {owner} and to {process} with token {token}"
