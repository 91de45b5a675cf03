"""How many bytes of answers a connection holds for its client, and all connections of a gateway together.

Bytes count from when the coordinator's answer is here, or a broker's that is read here, until the system has taken what
became of it. What a broker answers and is passed on unread is left in the broker's socket instead.
"""

from collections.abc import Callable, Collection
from typing import Protocol

from streaming.gateway.limits import ANSWER_BYTES_MAX, ANSWER_BYTES_PAUSE, ANSWERS_BYTES_MAX


class Holder(Protocol):
    """A connection."""

    @property
    def outgoing(self) -> "Outgoing":
        """What it holds."""

    def refuse(self, why: str) -> None:
        """Hang up."""


class Ledger:
    """What all connections hold.

    Args:
        holders: All connections there are.
        drop: Called for each connection that is hung up on, before that.
    """

    def __init__(self, holders: Collection[Holder], drop: Callable[[], object]) -> None:
        self.held_bytes = 0
        self._holders, self._drop = holders, drop

    def add(self, holder: Holder, more_bytes: int) -> None:
        """Count what a connection holds more, or less; hang up on it, or on whichever holds most, beyond a bound."""
        self.held_bytes += more_bytes
        if more_bytes <= 0:
            return
        if holder.outgoing.held_bytes > ANSWER_BYTES_MAX:
            self._hang_up(holder, f"it does not take {holder.outgoing.held_bytes} bytes of answers")
        while self.held_bytes > ANSWERS_BYTES_MAX:  # each turn ends one
            most = max(self._holders, key=lambda each: each.outgoing.held_bytes)
            self._hang_up(most, f"of all answers that are not taken, {most.outgoing.held_bytes} bytes are its own")

    def _hang_up(self, holder: Holder, why: str) -> None:
        self._drop()
        holder.refuse(why)
        holder.outgoing.close()


class Outgoing:
    """What one connection holds.

    Args:
        holder: The connection.
        ledger: Of all connections.
    """

    def __init__(self, holder: Holder, ledger: Ledger) -> None:
        self.held_bytes = 0
        self._holder, self._ledger = holder, ledger
        self._written = 0
        self._is_closed = False

    @property
    def is_much(self) -> bool:
        """Is it so much that no more is to be asked for?"""
        return self.held_bytes >= ANSWER_BYTES_PAUSE

    def hold(self, more_bytes: int) -> None:
        """Count bytes that are here from now on; below 0 for such as are here no longer."""
        if more_bytes and not self._is_closed:
            self.held_bytes += more_bytes
            self._ledger.add(self._holder, more_bytes)

    def written(self, waiting_bytes: int) -> None:
        """Count how much of what was written the system has not taken yet."""
        self._written, before = waiting_bytes, self._written
        self.hold(waiting_bytes - before)

    def close(self) -> None:
        """Count nothing any more: the connection is gone."""
        self.hold(-self.held_bytes)
        self._is_closed = True
