"""The state of a shard about groups and slots that move between coordinators (moving.md 2.1)."""

from msgspec import Struct, field

from coordinator.base.slots import Owners
from coordinator.messages.move_requests import Elsewhere, ReleaseGroup
from coordinator.state.classic_group import Parked

ADOPTED = "adopted"
"""The verdict of a move that was adopted. Every other verdict is the reason of a refusal."""


class Draining(Struct, array_like=True, frozen=True):
    """A name that is released when the open transactions of its group have ended.

    Args:
        request: The parked request of the operator.
        offset: Its offset in the shard's log.
        until_ms: The time at which the request is refused.
    """

    request: ReleaseGroup
    offset: int
    until_ms: int


class Sent(Struct, array_like=True, kw_only=True):
    """A name that was released and is not answered.

    Args:
        to: The prefix of the target.
        state: The whole state that the target gets.
        operator: The parked request of the operator that has released it.
        unwritten: The first part that is not written yet, from 1 on; 0 if all are.
    """

    to: str
    move_id: str
    number: int
    released_ms: int
    state: bytes
    operator: Parked
    unwritten: int = 1


class Away(Struct, array_like=True, frozen=True):
    """A name that another coordinator has adopted.

    Args:
        since_ms: The time at which that was known here, later than all records of the group under this prefix.
    """

    to: str
    number: int
    since_ms: int


class Verdict(Struct, array_like=True, frozen=True):
    """The decision about a move to this coordinator: `ADOPTED`, or the reason of the refusal.

    Args:
        at_ms: The time of the decision.
        kept_since_ms: The time from which the retention time of the verdict counts.
    """

    number: int
    verdict: str
    why: str
    at_ms: int
    kept_since_ms: int


class Arrived(Struct, array_like=True):
    """The move by which a group that lives here has come, or by which it left in vain and was taken back.

    Args:
        lacks_addresses: The mailboxes of members are missing that have sent no request since.
    """

    move_id: str
    number: int
    at_ms: int
    lacks_addresses: bool = True


class PartialTransfer(Struct, array_like=True):
    """A move with missing parts: the parts that came, by their numbers."""

    group_id: str
    number: int
    released_ms: int
    parts: dict[int, bytes] = field(default_factory=dict)


class Moves(Struct, array_like=True):
    """All of it. Verdicts are by name and `move_id`, moves with missing parts by `move_id`, everything else by name.

    Args:
        looked_ms: When verdicts that were kept long enough were dropped last.
    """

    sent: dict[str, Sent] = field(default_factory=dict)
    away: dict[str, Away] = field(default_factory=dict)
    guests: dict[str, int] = field(default_factory=dict)
    verdicts: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    arrived: dict[str, Arrived] = field(default_factory=dict)
    partial: dict[str, PartialTransfer] = field(default_factory=dict)
    looked_ms: int = 0

    @property
    def is_blank(self) -> bool:
        """True if nothing has moved."""
        return not any((self.sent, self.away, self.guests, self.verdicts, self.arrived, self.partial))


class SentSlots(Struct, array_like=True, kw_only=True):
    """Slots that were released, with records that are not written yet.

    Args:
        to: The prefix of the target.
        partitions: The number of the target's shards.
        number: The number of the slots.
        offset: The offset of the request.
        slots: A bitmap.
        elsewhere: The names of these slots that the shard has an entry of.
        written: How many of the records are written.
    """

    to: str
    partitions: int
    number: int
    offset: int
    slots: bytes
    elsewhere: tuple[Elsewhere, ...]
    written: int = 0


class PartialSlotTransfer(Struct, array_like=True, kw_only=True):
    """Slots that one shard of another coordinator has released, and that are not adopted yet.

    They are adopted when all parts have come from all shards with names of the slot.

    Args:
        source: The prefix of the other coordinator.
        shard, partitions: Its shard, and the number of its shards.
        number: The number of the slots.
        offset: The offset of the request, in the log of that shard.
        slots: A bitmap.
        came: The names of each part that came.
    """

    source: str
    shard: int
    partitions: int
    number: int
    offset: int
    slots: bytes
    parts: int
    came: dict[int, tuple[Elsewhere, ...]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """True if all parts of the shard have come."""
        return len(self.came) == self.parts


class SlotMoves(Struct, array_like=True):
    """All of it about slots.

    Args:
        owners: The owners of the shard's slots.
        sent: Released slots with records that are not written yet, by their number.
        partial: Slots that are not adopted yet.
    """

    owners: Owners = Owners()
    sent: dict[int, SentSlots] = field(default_factory=dict)
    partial: list[PartialSlotTransfer] = field(default_factory=list)

    @property
    def is_blank(self) -> bool:
        """True if no slot has moved."""
        return not (self.owners.holdings or self.sent or self.partial)
