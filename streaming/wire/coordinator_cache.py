"""The coordinators that serve the groups which have moved, as far as redirections have named them (moving.md 3.2).

A request goes to the coordinator that the highest known number of its group names; without one, to the configured
coordinator. While the group may not have reached that one, a new request and every third try of it go to the one that
named it: it serves the group again if the move was refused or taken back. The other one may never answer.

A redirection may also name the owner of the group's slot. Its number is of another kind (4.1): it is followed if
nothing is known of the name, or if the coordinator to which the name has moved sends it, since that one has no entry of
the name.

A coordinator that refuses a name without a redirection does not know who has it: it has never owned its slot. Then the
other known coordinators are asked in turn.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from msgspec import UNSET

from coordinator.base.errors import ErrorCode
from coordinator.messages.responses import AnyAnswer, Moved

NAMES_MAX = 100_000
"""The names that are stored. Beyond it the oldest one is dropped, and its next request is redirected once more."""

ASK_SOURCE_EVERY = 3


class RetryDecision(Enum):
    """What becomes of a request once it is answered."""

    DONE = auto()  # the answer is for the sender
    SEND_NOW = auto()  # another coordinator has the group
    ASK_NEXT = auto()  # another coordinator may have the group
    SEND_LATER = auto()  # the group has not reached the coordinator that it was sent to


class CachedCoordinator(NamedTuple):
    """The coordinator of a name.

    Args:
        to: Its prefix.
        number: The highest number of a move of the name; 0 without one.
        source: The prefix of the coordinator that named it.
        is_reached: Whether the group has reached it: it has answered a request about the group.
        slot_number: The highest number of a move of the slot; 0 without one.
    """

    to: str
    number: int
    source: str
    is_reached: bool = False
    slot_number: int = 0

    @property
    def is_guess(self) -> bool:
        """True if no redirection has named the coordinator."""
        return not (self.number or self.slot_number)


class CoordinatorCache:
    """The coordinators of names.

    Args:
        home: The prefix of the configured coordinator, which has every name that nobody has redirected.
        others: The prefixes of the coordinators to ask for a name that it does not have.
    """

    def __init__(self, home: str, others: Sequence[str] = ()) -> None:
        self.home = home
        self._in_turn = [*others, home] if others else []
        self._entries: dict[str, CachedCoordinator] = {}

    def of(self, group_id: str, tries: int = 0) -> str:
        """Return the prefix of the coordinator to which a request about a group goes.

        Args:
            tries: How often the request was refused.
        """
        entry = self._entries.get(group_id)
        if entry is None:
            return self.home
        asks_source = not (tries if entry.is_guess else tries % ASK_SOURCE_EVERY)
        return entry.source if asks_source and not entry.is_reached else entry.to

    def record(self, group_id: str, by: str, answer: AnyAnswer) -> RetryDecision:
        """Store what an answer says about the place of a group. Return what becomes of its request.

        Args:
            by: The prefix of the coordinator that answered.
        """
        entry = self._entries.get(group_id)
        if answer.code == ErrorCode.NOT_COORDINATOR.number:
            if answer.moved is not UNSET and self._follow(group_id, by, answer.moved):
                return RetryDecision.SEND_NOW
            if entry is None or entry.is_guess:
                return self._guess(group_id, by, entry)
            return RetryDecision.SEND_LATER
        is_answered = answer.code != ErrorCode.COORDINATOR_NOT_AVAILABLE.number  # else the brokers did not take it
        if is_answered and entry is not None and by in (entry.source, entry.to):
            source = entry.source if by == entry.to else by
            reached = entry._replace(to=by, source=source, is_reached=True)
            if reached != entry:
                self._put(group_id, reached)
        return RetryDecision.DONE

    def knows(self, group_id: str) -> bool:
        """Return whether a redirection has named a coordinator of a group."""
        return group_id in self._entries

    def reached(self) -> set[str]:
        """Return the prefixes of the coordinators that groups have reached, without the configured one."""
        return {entry.to for entry in self._entries.values() if entry.is_reached} - {self.home}

    def is_in_transit(self, group_id: str) -> bool:
        """Return whether a redirection has named a coordinator that the group may not have reached."""
        entry = self._entries.get(group_id)
        return entry is not None and not entry.is_reached

    def _follow(self, group_id: str, by: str, moved: Moved) -> bool:
        entry = self._entries.get(group_id, CachedCoordinator("", 0, by))
        if moved.of == "slot":
            if moved.number <= entry.slot_number or (entry.number and by != entry.to):
                return False
            self._put(group_id, CachedCoordinator(moved.to, entry.number, by, slot_number=moved.number))
            return True
        if (moved.number, by == entry.to) <= (entry.number, False):
            return False
        self._put(group_id, CachedCoordinator(moved.to, moved.number, by, slot_number=entry.slot_number))
        return True

    def _guess(self, group_id: str, by: str, entry: CachedCoordinator | None) -> RetryDecision:
        """Return what becomes of a request for which no coordinator is known. Store the next one to ask."""
        if not self._in_turn:
            return RetryDecision.DONE
        if entry is None or by == entry.to:  # else another request has stored the next one already
            index = self._in_turn.index(entry.to) if entry is not None and entry.to in self._in_turn else -1
            entry = CachedCoordinator(self._in_turn[(index + 1) % len(self._in_turn)], 0, self.home)
            self._put(group_id, entry)
        return RetryDecision.SEND_LATER if entry.to == self.home else RetryDecision.ASK_NEXT

    def _put(self, group_id: str, entry: CachedCoordinator) -> None:
        self._entries.pop(group_id, None)
        self._entries[group_id] = entry
        if len(self._entries) > NAMES_MAX:
            del self._entries[next(iter(self._entries))]
