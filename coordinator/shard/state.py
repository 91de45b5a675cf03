"""The state of one shard: read from bytes, shown to the engine and to tools, and written as bytes again."""

from coordinator.base.config import Config
from coordinator.base.limits import NEVER_MS
from coordinator.base.slots import PartitionRef
from coordinator.common.authorizer import AclStore
from coordinator.moves.custody import MoveStore
from coordinator.moves.drain import next_deadline_ms
from coordinator.policies.store import PolicyStore
from coordinator.state import codec
from coordinator.state.classic_group import Group
from coordinator.state.codec import ShardSnapshot
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.member_index import MemberIndexCache
from coordinator.state.move_state import Draining, Moves, SlotMoves
from coordinator.state.store import GroupStore


class ShardState:
    """The groups of one partition of the request topic, and what a shard keeps beside them.

    Args:
        snapshot: What an earlier shard has written.
        member_indexes: A cache that outlives the shard.
    """

    def __init__(
        self,
        partition: int,
        partitions: int,
        secret: bytes,
        config: Config,
        snapshot: ShardSnapshot,
        member_indexes: MemberIndexCache,
    ) -> None:
        self.partition, self.partitions, self.secret, self.config = partition, partitions, secret, config
        self.store = GroupStore(snapshot.groups, snapshot.removed_groups, snapshot.pending, member_indexes)
        self.settled = snapshot.settled
        self.rules, self.policies = AclStore(config, snapshot.access), PolicyStore(config, snapshot.policies)
        has_moves = config.peers or snapshot.moves is not None or snapshot.slots is not None or snapshot.draining
        self.move_store = self._of_moves(snapshot.moves, snapshot.slots, snapshot.draining) if has_moves else None
        self.clock, self.allowance = snapshot.clock, snapshot.allowance

    def _of_moves(
        self,
        moves: Moves | None = None,
        slots: SlotMoves | None = None,
        draining: dict[str, Draining] | None = None,
    ) -> MoveStore:
        shard = PartitionRef(self.partition, self.partitions)
        return MoveStore(self.config, moves or Moves(), slots or SlotMoves(), draining or {}, self.store, shard)

    def moves_to_change(self) -> MoveStore:
        """Return the moves that the shard keeps, or new ones, which it keeps as soon as they are not blank."""
        return self._of_moves() if self.move_store is None else self.move_store

    @property
    def next_deadline_ms(self) -> int | None:
        """The next time at which time alone may change a group: never later than the change, sometimes earlier."""
        deadline_ms = min(self.store.next_deadline_ms, next_deadline_ms(self.draining))
        return deadline_ms if deadline_ms < NEVER_MS else None

    @property
    def is_blank(self) -> bool:
        """True if the shard keeps no group, removed group, rule, policy, move, and no topic of transactions."""
        kept = self.store.removed_groups, self.rules.written, self.policies.written, self.settled.topic_id
        moves = self._written_moves, self._written_slots
        return not (self.store.stored or any(kept) or self.draining) and moves == (None, None)

    @property
    def last_ms(self) -> int:
        """The time of the last record that was read, as the log has it; 0 if the shard has read none."""
        return self.clock.last_ms

    @property
    def group_ids(self) -> tuple[str, ...]:
        return tuple(self.store.stored)

    @property
    def members(self) -> int:
        """The number of members of all groups together."""
        return sum(stored.members for stored in self.store.stored.values())

    def group(self, group_id: str) -> Group | None:
        """Return a copy of one classic group, for tests and tools."""
        group = self.store.copy_of(group_id)
        return group if isinstance(group, Group) else None

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Return a copy of one group of the consumer protocol, for tests and tools."""
        group = self.store.copy_of(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    @property
    def _written_moves(self) -> Moves | None:
        return None if self.move_store is None else self.move_store.written

    @property
    def _written_slots(self) -> SlotMoves | None:
        return None if self.move_store is None else self.move_store.written_slots

    @property
    def moves(self) -> Moves:
        """The moves of groups between coordinators, for tests and tools."""
        return Moves() if self.move_store is None else self.move_store.moves

    @property
    def slots(self) -> SlotMoves:
        """The moves of slots between coordinators, for tests and tools."""
        return SlotMoves() if self.move_store is None else self.move_store.slots

    @property
    def draining(self) -> dict[str, Draining]:
        """The releases that wait for open transactions, by the name of the group."""
        return {} if self.move_store is None else self.move_store.draining

    def to_bytes(self) -> bytes:
        """Return the shard as bytes, for the argument `state` of another `Shard`."""
        groups, settled = self.store, self.settled
        return codec.encode_shard(
            ShardSnapshot(
                groups.stored,
                groups.removed_groups,
                self.rules.written,
                self.clock,
                self.allowance,
                settled.before,
                groups.pending,
                settled.topic_id,
                self.policies.written,
                self._written_moves,
                self._written_slots,
                self.draining,
                settled.open,
            )
        )
