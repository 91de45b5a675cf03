"""The groups of one shard: as bytes between steps, as objects while a step uses them.

For a heartbeat, a step decodes only the hot state of its group. For any other request and for a deadline, it decodes
the rest too. `flush` encodes the groups that the step has used. The last generation and the last fencing token of a
removed group are kept for a while, and a new group with the same id continues them.
"""

from collections.abc import Iterator

from coordinator.base.consumer_protocol import CONSUMERS
from coordinator.base.limits import (
    ENDED_MS,
    NEVER_MS,
    RECORD_OFFSET_END,
    REMOVED_GROUP_MS,
    REMOVED_GROUPS_MAX,
    SHORT_REMOVED_GROUPS_MAX,
)
from coordinator.base.states import GroupType, Phase
from coordinator.state import codec
from coordinator.state.classic_group import Group, HotState
from coordinator.state.codec import RemovedGroup, Stored
from coordinator.state.consumer_group import INITIAL_EPOCH, ConsumerGroup, ConsumerHotState
from coordinator.state.hot_state_codec import decode_phase, encode_hot_state
from coordinator.state.member_index import MemberIndexCache

_UNWRITTEN = Stored(NEVER_MS, 0, b"", b"", "", False)


class GroupStore:
    """The groups of one shard.

    Args:
        stored: The groups as bytes, by group id.
        removed_groups: The remaining data of removed groups, by group id.
        pending: The lowest place of the pending commits of each group that has any.
        member_indexes: A cache for the codec.
    """

    def __init__(
        self,
        stored: dict[str, Stored],
        removed_groups: dict[str, RemovedGroup],
        pending: dict[str, int],
        member_indexes: MemberIndexCache,
    ) -> None:
        self.stored, self.removed_groups, self.pending, self._member_indexes = (
            stored,
            removed_groups,
            pending,
            member_indexes,
        )
        self.hot_state: dict[str, HotState | ConsumerHotState] = {}
        """The hot state of the groups that this step has touched."""

        self._groups: dict[str, Group | ConsumerGroup] = {}  # those of them that more than a heartbeat has touched

    # -- reading -------------------------------------------------------------------------------------------------------

    def hot_state_of(self, group_id: str) -> HotState | ConsumerHotState | None:
        """Return a group's hot state, to be changed; None if the group does not exist."""
        hot_state = self.hot_state.get(group_id)
        if hot_state is None and (stored := self.stored.get(group_id)):
            hot_state = self.hot_state[group_id] = codec.decode_hot_state(stored, self._member_indexes)
        return hot_state

    def open(self, group_id: str) -> Group | ConsumerGroup | None:
        """Return a group, to be changed; None if it does not exist."""
        group = self._groups.get(group_id)
        if group is None and (hot_state := self.hot_state_of(group_id)):
            group = self._groups[group_id] = codec.decode_rest(self.stored[group_id].rest, hot_state)
        return group

    def copy_of(self, group_id: str) -> Group | ConsumerGroup | None:
        """Return a copy of a group as it is stored."""
        stored = self.stored.get(group_id)
        return None if stored is None else codec.decode_group(stored, self._member_indexes)

    def listed(self) -> Iterator[tuple[str, str, Phase, GroupType]]:
        """Yield each group's id, protocol type, phase and type. The rest of the group is not decoded."""
        for group_id, stored in self.stored.items():
            if group := self._groups.get(group_id):
                yield group_id, _protocol_type(group), group.phase, group.type
                continue
            hot_state = self.hot_state.get(group_id)
            phase = hot_state.phase if hot_state else decode_phase(stored.hot_state)
            group_type = GroupType.CONSUMER if stored.is_consumer else GroupType.CLASSIC
            yield group_id, stored.protocol_type, phase, group_type

    def due_by(self, horizon_ms: int) -> list[str]:
        """Return the ids of the groups that time alone may change up to `horizon_ms`."""
        hot_state: dict[str, Stored | HotState | ConsumerHotState] = {**self.hot_state}
        return [
            group_id
            for group_id, stored in self.stored.items()
            if hot_state.get(group_id, stored).earliest_ms <= horizon_ms
        ]

    @property
    def next_deadline_ms(self) -> int:
        """The earliest time at which time alone may change a group or an entry of a removed group, else `NEVER_MS`."""
        earliest_ms = min((stored.earliest_ms for stored in self.stored.values()), default=NEVER_MS)
        return min(earliest_ms, *(removed.until_ms for removed in self.removed_groups.values()), NEVER_MS)

    def with_pending(self, before: int) -> list[str]:
        """Return the ids of the groups with pending commits whose place is before `before`."""
        opened = {group_id: _lowest_record_offset(group) for group_id, group in self._groups.items()}
        known = {**self.pending, **opened}
        return [
            group_id for group_id, record_offset in known.items() if record_offset < before and group_id in self.stored
        ]

    def held(self) -> list[str]:
        """Return the ids of the groups in which a policy has to act at some time.

        A group of the consumer protocol is among them as well if it waits for a target assignment that no policy holds.
        """
        hot_state = (
            (group_id, self.hot_state.get(group_id) or codec.decode_hot_state(stored, self._member_indexes))
            for group_id, stored in self.stored.items()
        )
        return [group_id for group_id, each in hot_state if _acts_ms(each) < NEVER_MS]

    # -- creation and removal ------------------------------------------------------------------------------------------

    def draft(self, group_id: str, at_ms: int, group_type: GroupType | None = None) -> Group | ConsumerGroup:
        """Return a new group, which `put` adds.

        It begins after the end of a removed group with its id, and continues its generations.

        Args:
            group_type: The type of the group; a classic one if it is None.
        """
        at_ms, generation_id, token = self._begin(group_id, at_ms)
        group: Group | ConsumerGroup
        if group_type is GroupType.CONSUMER:
            epoch = max(generation_id, INITIAL_EPOCH)
            consumer_hot_state = ConsumerHotState(now_ms=at_ms, group_epoch=epoch, assignment_epoch=epoch)
            group = ConsumerGroup(hot_state=consumer_hot_state, group_id=group_id, since_ms=at_ms, token=token)
        else:
            hot_state = HotState(now_ms=at_ms, generation_id=generation_id)
            group = Group(hot_state=hot_state, group_id=group_id, since_ms=at_ms, token=token)
        group.schedule_offset_expiry(at_ms)
        return group

    def put(self, group: Group | ConsumerGroup) -> None:
        """Add a group, in place of the one with its id."""
        group_id = group.group_id
        self.removed_groups.pop(group_id, None)
        self.stored.setdefault(group_id, _UNWRITTEN)
        self.hot_state[group_id], self._groups[group_id] = group.hot_state, group

    def _begin(self, group_id: str, at_ms: int) -> tuple[int, int, int]:
        """Return when a new group begins, and the last generation and fencing token of a removed group with its id."""
        at_ms = max(at_ms, self.not_before_ms(group_id))
        removed = self.removed_groups.get(group_id)
        is_kept = removed is not None and removed.until_ms > at_ms
        return (at_ms, removed.generation_id, removed.token) if removed and is_kept else (at_ms, 0, 0)

    def not_before_ms(self, group_id: str) -> int:
        """Return the first millisecond after a removed group's end; 0 if none is kept.

        The versions of a group that is created again begin at 1. The time distinguishes its records from those of the
        group before, which may be repeated late.
        """
        removed = self.removed_groups.get(group_id)
        return removed.ended_ms + 1 if removed else 0

    def remove_ended(self, group: Group | ConsumerGroup) -> None:
        """Remove a group, and keep its end for a while."""
        group_id = group.group_id
        del self.stored[group_id], self.hot_state[group_id], self._groups[group_id]
        self.pending.pop(group_id, None)
        now_ms, token = group.hot_state.now_ms, group.token
        until_ms = now_ms + ENDED_MS
        if group.generation_id:
            until_ms = max(now_ms + REMOVED_GROUP_MS, token // 1_000 + 1)  # a floor may be ahead of time
        if group.generation_id or len(self.removed_groups) < SHORT_REMOVED_GROUPS_MAX:
            self.removed_groups[group_id] = RemovedGroup(until_ms, group.generation_id, token, now_ms)
        if len(self.removed_groups) > REMOVED_GROUPS_MAX:
            del self.removed_groups[next(iter(self.removed_groups))]

    def remove(self, group_id: str) -> None:
        """Remove all of a name, because another coordinator gets it. It leaves no end."""
        for by_name in (self.stored, self.hot_state, self._groups, self.pending, self.removed_groups):
            by_name.pop(group_id, None)

    def add_tombstone(self, group_id: str, generation_id: int, token: int, at_ms: int) -> None:
        """Keep the end of a removed group that has come from another coordinator."""
        until_ms = max(at_ms + REMOVED_GROUP_MS, token // 1_000 + 1)
        self.removed_groups[group_id] = RemovedGroup(until_ms, generation_id, token, at_ms)
        if len(self.removed_groups) > REMOVED_GROUPS_MAX:
            del self.removed_groups[next(iter(self.removed_groups))]

    def expire_tombstones(self, horizon_ms: int) -> None:
        """Remove the entries of removed groups that were kept long enough."""
        for group_id in [name for name, removed in self.removed_groups.items() if removed.until_ms <= horizon_ms]:
            del self.removed_groups[group_id]

    # -- writing -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Encode all groups that the step has touched."""
        for group_id, hot_state in self.hot_state.items():
            group, stored = self._groups.get(group_id), self.stored[group_id]
            rest = codec.encode_rest(group, self._member_indexes) if group else stored.rest
            self.stored[group_id] = Stored(
                hot_state.earliest_ms,
                len(hot_state.sessions),
                encode_hot_state(hot_state, rest, self._member_indexes),
                rest,
                _protocol_type(group) if group else stored.protocol_type,
                isinstance(hot_state, ConsumerHotState),
            )
            if group and group.pending_commits:
                self.pending[group_id] = _lowest_record_offset(group)
            elif group:
                self.pending.pop(group_id, None)
        self.hot_state, self._groups = {}, {}


def _acts_ms(hot_state: HotState | ConsumerHotState) -> int:
    """Return a time that is not later than the next one at which a policy has to act."""
    return hot_state.policy_ms if isinstance(hot_state, HotState) else min(hot_state.policy_ms, hot_state.plan_ms)


def _lowest_record_offset(group: Group | ConsumerGroup) -> int:
    """Return the lowest place of a group's pending commits; a place above all others if it has none."""
    return min(group.pending_commits, default=RECORD_OFFSET_END)


def _protocol_type(group: Group | ConsumerGroup) -> str:
    """Return the protocol type of a group; "" if it has never had a member."""
    return CONSUMERS if isinstance(group, ConsumerGroup) else group.protocol_type or ""
