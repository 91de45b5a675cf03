"""The moves that a shard keeps, and the custody of names that follows from them (moving.md 2.1, 4.1).

A request for a name that another coordinator serves is answered with a redirection. A name that is in transit has no
server. A name without an entry is served by the owner of its slot. Without peers and without an entry a shard has no
`MoveStore` at all.
"""

from collections.abc import Iterator
from enum import Enum, auto

from msgspec import structs

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import CONSUMERS
from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import crc32c, shard_of
from coordinator.base.limits import MOVE_AGE_MS, VERDICT_MS, VERDICTS_DROPPED_EVERY_MS
from coordinator.base.slots import HERE, Holding, PartitionRef, slot_of
from coordinator.base.states import GroupType, Phase
from coordinator.common.handler import RequestSpec
from coordinator.messages.move_events import MoveIgnored
from coordinator.messages.move_requests import AdoptGroup, MoveRecord
from coordinator.messages.outputs import Output, ToPeer
from coordinator.messages.requests import Request
from coordinator.messages.responses import Moved, Reply
from coordinator.moves import transfer
from coordinator.moves.resume import lacks_addresses
from coordinator.state.classic_group import Group
from coordinator.state.codec import VERSION
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.move_state import ADOPTED, Draining, Moves, SlotMoves, Verdict
from coordinator.state.store import GroupStore

FOREIGN = "another coordinator serves this group"


class Custody(Enum):
    """The relation of a shard to a name."""

    HERE = auto()  # it serves the group, and creates one if none exists
    IN_TRANSIT = auto()  # it has released the name, and there is no answer yet
    AWAY = auto()  # another coordinator has adopted the name
    FOREIGN = auto()  # the name was never here, and another coordinator owns its slot


class MoveStore:
    """The moves of a shard.

    Args:
        moves: The entries of the shard's state about names.
        slots: Those about slots.
        draining: The releases that wait for open transactions, by name.
        groups: The groups of the shard.
        shard: The shard.
    """

    def __init__(
        self,
        config: Config,
        moves: Moves,
        slots: SlotMoves,
        draining: dict[str, Draining],
        groups: GroupStore,
        shard: PartitionRef,
    ) -> None:
        self.config, self.moves, self.slots, self.draining = config, moves, slots, draining
        self.groups, self.shard = groups, shard
        self.noticed_ms = 0
        """The present time of the coordinator in this step."""

    @property
    def written(self) -> Moves | None:
        """The entries about names, for the shard's state; None if there are none."""
        return None if self.moves.is_blank else self.moves

    @property
    def written_slots(self) -> SlotMoves | None:
        """The entries about slots, for the shard's state; None if there are none."""
        return None if self.slots.is_blank else self.slots

    # -- custody -------------------------------------------------------------------------------------------------------

    def owns(self, group_id: str) -> bool:
        """Return whether the slot of a name is this coordinator's own."""
        return self._owned_by(self._holding_of(group_id))

    def owns_slot(self, slot: int) -> bool:
        """Return whether a slot is this coordinator's own."""
        return self._owned_by(self.slots.owners.of(slot))

    def _owned_by(self, holding: Holding | None) -> bool:
        return self.config.slots == "all" if holding is None else holding.owner == HERE

    def _holding_of(self, group_id: str) -> Holding | None:
        owners = self.slots.owners
        return owners.of(slot_of(group_id)) if owners.holdings else None

    def is_of_this_shard(self, group_id: str) -> bool:
        """Return whether a name belongs to this shard."""
        return shard_of(group_id, self.shard.partitions) == self.shard.partition

    def custody_of(self, group_id: str) -> Custody:
        """Return the relation of the shard to a name."""
        if group_id in self.moves.sent:
            return Custody.IN_TRANSIT
        if group_id in self.moves.away:
            return Custody.AWAY
        if self.owns(group_id) or group_id in self.moves.guests:
            return Custody.HERE
        return Custody.FOREIGN

    def number_of(self, group_id: str) -> int:
        """Return the highest number that is known of a name: of its group, its tombstone and its moves."""
        moves, group = self.moves, self.groups.open(group_id)
        removed = self.groups.removed_groups.get(group_id)
        away = moves.away.get(group_id)
        adopted = (each.number for each in moves.verdicts.get(group_id, {}).values() if each.verdict == ADOPTED)
        return max(
            group.token if group is not None else 0,
            removed.token if removed is not None else 0,
            away.number if away is not None else 0,
            moves.guests.get(group_id, 0),
            *adopted,
            0,
        )

    def moved(self, group_id: str) -> Moved | None:
        """Return where a name is that is not served here, or where its slot is; None if that is not known."""
        if (sent := self.moves.sent.get(group_id)) is not None:
            return Moved(sent.to, sent.number)
        if (away := self.moves.away.get(group_id)) is not None:
            return Moved(away.to, away.number)
        return moved_slot(self._holding_of(group_id))

    def refuse(self, spec: RequestSpec, request: Request) -> Reply | None:
        """Return the redirection of a request whose name is not served here; None if it is."""
        group_id = request.group_id
        if self.custody_of(group_id) is Custody.HERE:
            return None
        return self.redirected(spec.refuse(request, ErrorCode.NOT_COORDINATOR, FOREIGN), group_id)

    def redirected(self, reply: Reply, group_id: str) -> Reply:
        """Return a refusal with the coordinator that has the name, if that is known."""
        moved = self.moved(group_id)
        return reply if moved is None else Reply(reply.to, structs.replace(reply.answer, moved=moved))

    def listed(self) -> Iterator[tuple[str, str, Phase, GroupType]]:
        """Yield the id, protocol type, phase and type of each group in transit."""
        for group_id, sent in self.moves.sent.items():
            carried = transfer.read(sent.state)
            if isinstance(carried, transfer.Living):
                group = transfer.group_of(carried)
                is_consumer = isinstance(group, ConsumerGroup)
                protocol_type = CONSUMERS if isinstance(group, ConsumerGroup) else group.protocol_type or ""
                yield group_id, protocol_type, group.phase, GroupType.CONSUMER if is_consumer else GroupType.CLASSIC

    # -- verdicts ------------------------------------------------------------------------------------------------------

    def verdict_of(self, group_id: str, move_id: str) -> Verdict | None:
        """Return the verdict about a move; None if there is none."""
        arrived = self.moves.arrived.get(group_id)
        if arrived is not None and arrived.move_id == move_id:
            return Verdict(arrived.number, ADOPTED, "", arrived.at_ms, arrived.at_ms)
        return self.moves.verdicts.get(group_id, {}).get(move_id)

    def remember(self, group_id: str, move_id: str, verdict: Verdict) -> None:
        """Store a verdict."""
        self.moves.verdicts.setdefault(group_id, {})[move_id] = verdict

    def record_end(self, group_id: str, at_ms: int) -> None:
        """Store the verdict about a group that has arrived and that leaves or ends now."""
        arrived = self.moves.arrived.pop(group_id, None)
        if arrived is not None:
            self.remember(group_id, arrived.move_id, Verdict(arrived.number, ADOPTED, "", arrived.at_ms, at_ms))

    def remove_old(self, at_ms: int) -> None:
        """Drop entries that were kept long enough: verdicts, parts of moves, and foreign names that are away."""
        moves = self.moves
        if moves.is_blank:
            moves.looked_ms = 0
            return
        if at_ms < moves.looked_ms + VERDICTS_DROPPED_EVERY_MS:
            return
        moves.looked_ms = at_ms
        for group_id in list(moves.verdicts):
            known = moves.verdicts[group_id]
            store = {move_id: each for move_id, each in known.items() if each.kept_since_ms + VERDICT_MS > at_ms}
            if store:
                moves.verdicts[group_id] = store
            else:
                del moves.verdicts[group_id]
        for move_id in [m for m, each in moves.partial.items() if each.released_ms + MOVE_AGE_MS <= at_ms]:
            del moves.partial[move_id]
        for group_id in [g for g, each in moves.away.items() if each.since_ms + VERDICT_MS <= at_ms]:
            if not self.owns(group_id):
                del moves.away[group_id]

    # -- addresses -----------------------------------------------------------------------------------------------------

    def lacks_addresses(self, group_id: str) -> bool:
        """Return whether the mailboxes of members of a group are missing, so that each request brings one."""
        arrived = self.moves.arrived.get(group_id)
        return arrived is not None and arrived.lacks_addresses

    def record_address(self, group: Group | ConsumerGroup, request: Request) -> None:
        """Store the mailbox of the member that sends a request, if it is missing."""
        arrived = self.moves.arrived.get(group.group_id)
        if arrived is None or not arrived.lacks_addresses:
            return
        member = group.members.get(getattr(request, "member_id", None) or "")
        if member is not None and not member.reply_to:
            member.reply_to = request.reply_to
        arrived.lacks_addresses = lacks_addresses(group)

    # -- outputs -------------------------------------------------------------------------------------------------------

    def ignored(self, record: MoveRecord, at_ms: int, why: str) -> Iterator[Output]:
        """Yield the event of a record of another coordinator that changes nothing."""
        yield MoveIgnored(
            group_id=record.group_id,
            version=None,
            at_ms=at_ms,
            generation_id=None,
            source=record.source,
            record=str(type(record).__struct_config__.tag),
            move_id=record.move_id,
            number=record.number,
            partition=self.shard.partition,
            why=why,
        )

    def parts(self, group_id: str) -> Iterator[ToPeer]:
        """Yield the parts of a released name that are not written yet, and note that they are."""
        sent = self.moves.sent[group_id]
        parts = transfer.parts_of(sent.state)
        crc = crc32c(sent.state)
        while sent.unwritten:
            part = sent.unwritten
            sent.unwritten = 0 if part == parts else part + 1
            yield ToPeer(
                AdoptGroup(
                    group_id=group_id,
                    move_id=sent.move_id,
                    number=sent.number,
                    source=self.config.prefix,
                    to=sent.to,
                    released_ms=sent.released_ms,
                    home=self.owns(group_id),
                    part=part,
                    parts=parts,
                    codec=VERSION,
                    bytes=len(sent.state),
                    crc=crc,
                    state=transfer.part_of(sent.state, part),
                )
            )

    @property
    def unwritten(self) -> list[str]:
        """The names with parts that are not written yet. Only peers get any."""
        peers = self.config.peers
        return [group_id for group_id, sent in self.moves.sent.items() if sent.unwritten and sent.to in peers]

    @property
    def has_unwritten(self) -> bool:
        """True if records for other coordinators are not written yet."""
        return bool(self.unwritten or self.unwritten_slots)

    @property
    def unwritten_slots(self) -> list[int]:
        """The numbers of released slots with records that are not written yet. Only peers get any."""
        return [number for number, sent in self.slots.sent.items() if sent.to in self.config.peers]


def moved_slot(holding: Holding | None) -> Moved | None:
    """Return where a foreign slot is; None if that is not known."""
    return None if holding is None else Moved(holding.owner, holding.number, "slot")
