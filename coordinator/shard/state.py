"""The state of one shard: read from bytes, shown to the engine and to tools, and written as bytes again."""

from collections.abc import Mapping

from coordinator.base.config import Config
from coordinator.base.limits import NEVER_MS
from coordinator.base.slots import Place
from coordinator.common.authorizer import KeptRules
from coordinator.messages.requests import Received
from coordinator.moves.custody import KeptMoves
from coordinator.moves.drain import next_deadline_ms
from coordinator.policies.store import KeptPolicies
from coordinator.shard.budget import Budget
from coordinator.shard.clock import Times
from coordinator.state import codec
from coordinator.state.classic_group import Group
from coordinator.state.codec import Kept
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.member_index import Rosters
from coordinator.state.move_state import Draining, Moves, SlotMoves
from coordinator.state.store import GroupStore


class ShardState:
    """The groups of one partition of the request topic.

    Args:
        partition: The number of the partition.
        partitions: The number of partitions of the topic.
        secret: The secret from which member ids are derived, 16 to 64 bytes; the same for the life of the state.
        state: The bytes that `to_bytes` returned earlier.
        rosters: A cache that outlives the shard; without one the shard makes its own.

    Raises:
        CorruptState: `state` cannot be trusted.
    """

    def __init__(
        self,
        partition: int,
        partitions: int,
        secret: bytes,
        config: Config,
        state: bytes | None = None,
        rosters: Rosters | None = None,
    ) -> None:
        self._partition, self._partitions, self._secret, self._config = partition, partitions, secret, config
        kept = codec.decode_shard(state) if state is not None else Kept()
        rosters = Rosters() if rosters is None else rosters
        self._groups = GroupStore(kept.groups, kept.removed_groups, kept.pending, rosters)
        self._settled_before, self._transactions_topic_id = kept.settled_before, kept.transactions_topic_id
        self._open_transactions: Mapping[int, int] = kept.open_transactions
        self._rules, self._policies = KeptRules(config, kept.access), KeptPolicies(config, kept.policies)
        has_moves = config.peers or kept.moves is not None or kept.slots is not None or kept.draining
        self._moves = self._kept_moves(kept.moves, kept.slots, kept.draining) if has_moves else None
        self._clock, self._allowance = kept.clock, kept.allowance
        self.deferred: list[Received] = []
        """The requests that the latest step has deferred. The log of the next step must begin with them."""

        self._times = Times(0, 0, 0, 0, 0, 0)
        self._budget = Budget()
        self._waiting = set[str]()  # groups with requests that this step has deferred

    def _kept_moves(
        self,
        moves: Moves | None = None,
        slots: SlotMoves | None = None,
        draining: dict[str, Draining] | None = None,
    ) -> KeptMoves:
        place = Place(self._partition, self._partitions)
        return KeptMoves(self._config, moves or Moves(), slots or SlotMoves(), draining or {}, self._groups, place)

    @property
    def due_in_ms(self) -> int | None:
        """The time from the latest step to the next change by time alone, in milliseconds; sometimes less than that.

        Deferred requests, and parts of groups that move, are due at once. None if the shard waits for nothing.
        """
        if self.deferred or (self._moves is not None and self._moves.has_unwritten):
            return 0
        deadline_ms = self.next_deadline_ms
        return None if deadline_ms is None else max(deadline_ms - self._times.horizon_now_ms, 0)

    @property
    def next_deadline_ms(self) -> int | None:
        """The next time at which time alone may change a group: never later than the change, sometimes earlier."""
        deadline_ms = min(self._groups.next_deadline_ms, next_deadline_ms(self.draining))
        return deadline_ms if deadline_ms < NEVER_MS else None

    @property
    def is_blank(self) -> bool:
        """True if the shard keeps no group, removed group, rule, policy, move, and no place of a transaction."""
        kept = self._groups.removed_groups, self._rules.written, self._policies.written, self._settled_before
        moves = self._written_moves, self._written_slots
        return not (self._groups.stored or any(kept) or self.draining) and moves == (None, None)

    @property
    def last_ms(self) -> int:
        """The time of the last record that was read, as the log has it; 0 if the shard has read none."""
        return self._clock.last_ms

    @property
    def settled(self) -> tuple[str, int]:
        """The id of the transactions topic, and the place in it before which all are settled but open transactions."""
        return self._transactions_topic_id, self._settled_before

    @property
    def group_ids(self) -> tuple[str, ...]:
        return tuple(self._groups.stored)

    @property
    def members(self) -> int:
        """The number of members of all groups together."""
        return sum(stored.members for stored in self._groups.stored.values())

    def group(self, group_id: str) -> Group | None:
        """Return a copy of one classic group, for tests and tools."""
        group = self._groups.copy_of(group_id)
        return group if isinstance(group, Group) else None

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Return a copy of one group of the consumer protocol, for tests and tools."""
        group = self._groups.copy_of(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    @property
    def _written_moves(self) -> Moves | None:
        return None if self._moves is None else self._moves.written

    @property
    def _written_slots(self) -> SlotMoves | None:
        return None if self._moves is None else self._moves.written_slots

    @property
    def moves(self) -> Moves:
        """The moves of groups between coordinators, for tests and tools."""
        return Moves() if self._moves is None else self._moves.moves

    @property
    def slots(self) -> SlotMoves:
        """The moves of slots between coordinators, for tests and tools."""
        return SlotMoves() if self._moves is None else self._moves.slots

    @property
    def draining(self) -> dict[str, Draining]:
        """The releases that wait for open transactions, by the name of the group."""
        return {} if self._moves is None else self._moves.draining

    def to_bytes(self) -> bytes:
        """Return the shard as bytes, for the argument `state` of another `Shard`."""
        groups, rules = self._groups, self._rules.written
        places = self._settled_before, groups.pending, self._transactions_topic_id
        kept = groups.stored, groups.removed_groups, rules, self._clock, self._allowance
        return codec.encode_shard(
            Kept(
                *kept,
                *places,
                self._policies.written,
                self._written_moves,
                self._written_slots,
                self.draining,
                dict(self._open_transactions),
            )
        )
