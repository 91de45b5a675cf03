"""I2, I3: generations grow, and phases follow each other."""

from collections import Counter

from coordinator.base.limits import NEVER_MS, REMOVED_GROUP_MS
from coordinator.base.states import Phase
from coordinator.messages.events import GroupDeleted
from coordinator.messages.fields import Event
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.state.classic_group import Group
from tests.coordinator.invariants.step import CONVERTED, Step, forgotten, is_written_again


class GenerationsGrow:
    """I2: a generation never decreases or repeats; it grows by one at each completed join phase, and only there.

    A forgotten group continues from its generation, as long as its tombstone is kept.
    """

    def __init__(self) -> None:
        self.latest: dict[str, int] = {}
        self.records: dict[str, GroupRecord] = {}
        self.forgotten_ms: dict[str, int] = {}
        self.now_ms = -NEVER_MS

    def watch(self, step: Step) -> None:
        self.now_ms = max(self.now_ms, step.now_ms)
        for output in step.news:
            if isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self._published(output.record)
            elif isinstance(output, Event) and output.group_id is not None:
                assert output.generation_id in (self._of(output.group_id), self._of(output.group_id) + 1), output
                if isinstance(output, GroupDeleted):
                    self.forgotten_ms[output.group_id] = output.at_ms
        for group_id, group in (step.groups or {}).items():
            assert group.generation_id == self._of(group_id), f"{group_id} changed its generation without a record"

    def _of(self, group_id: str) -> int:
        return self.latest.get(group_id, 0)

    def _published(self, record: GroupRecord) -> None:
        before, self.records[record.group_id] = self.records.get(record.group_id), record
        if is_written_again(record, before) and record.group_id not in self.forgotten_ms:
            return
        is_new = record.group_id not in self.latest
        if (forgotten_ms := self.forgotten_ms.pop(record.group_id, None)) is not None:
            is_new = True
            if not record.generation_id and max(self.now_ms, record.since_ms) >= forgotten_ms + REMOVED_GROUP_MS:
                self.latest[record.group_id] = 0
        completes = record.state in (Phase.COMPLETING, Phase.EMPTY) and not is_new
        expected = self._of(record.group_id) + completes
        assert record.generation_id == expected, f"generation {record.generation_id}, not {expected}: {record}"
        self.latest[record.group_id] = record.generation_id


SEEN_AFTER = {
    # a group record of ...  may follow one of ...; two moves by one request are published once
    Phase.EMPTY: {None, Phase.PREPARING, Phase.COMPLETING, Phase.STABLE},
    Phase.PREPARING: {Phase.EMPTY, Phase.COMPLETING, Phase.STABLE},
    Phase.COMPLETING: {Phase.PREPARING, Phase.COMPLETING, Phase.STABLE, Phase.EMPTY},
    Phase.STABLE: {Phase.COMPLETING, Phase.STABLE},  # a static member may be replaced
}


class PhasesAreLegal:
    """I3: phases follow each other as in the table; parked requests, the leader and the counts fit the phase."""

    def __init__(self) -> None:
        self.latest: dict[str, Phase] = {}
        self.records: dict[str, GroupRecord] = {}

    def watch(self, step: Step) -> None:
        for output in step.news:
            if forgotten(output):
                before = self.latest.pop(output.group_id, Phase.EMPTY)
                assert before is Phase.EMPTY or output.version == CONVERTED, "only an Empty group is forgotten"
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                record = output.record
                before = self.latest.get(record.group_id)
                is_again = is_written_again(record, self.records.get(record.group_id))
                assert is_again or before in SEEN_AFTER[record.state], f"{record.state} after {before}"
                self.records[record.group_id] = record
                self._fits(record.state, [m.member_id for m in record.members], record.leader)
                self.latest[record.group_id] = record.state
        for group in (step.groups or {}).values():
            assert group.phase is self.latest[group.group_id], f"{group.group_id} changed its phase without a record"
            self._fits(group.phase, list(group.members), group.leader_id)
            self._looks_right(group)

    def _fits(self, phase: Phase, members: list[str], leader: str | None) -> None:
        assert phase is not Phase.DEAD
        assert phase is not Phase.EMPTY or not members, "an Empty group has members"
        assert phase not in (Phase.COMPLETING, Phase.STABLE) or members, f"{phase} without members"
        assert leader in members if members else leader is None, f"{leader} leads {members}"

    def _looks_right(self, group: Group) -> None:
        hot_state, members = group.hot_state, group.members.values()
        assert list(hot_state.sessions) == list(group.members), "sessions and members differ"
        statics = {m.group_instance_id: m.member_id for m in members if m.group_instance_id is not None}
        assert hot_state.instances == statics, "two members have one instance id"
        assert not hot_state.pending.keys() & group.members.keys(), "a pending id is a member"
        assert group.joins_parked == sum(m.awaiting_join is not None for m in members)
        assert group.syncs_owed == sum(m.owes_sync for m in members)
        assert group.supporters == dict(Counter(name for m in members for name in {p.name for p in m.protocols}))
        assert group.phase is Phase.PREPARING or not group.joins_parked, "a join is parked outside PreparingRebalance"
        assert group.phase is Phase.COMPLETING or not any(m.awaiting_sync for m in members), "a sync is parked"
        assert not any(m.awaiting_sync and m.owes_sync for m in members), "a sync is parked and still owed"
        assert (group.protocol_name is not None) >= (group.phase in (Phase.COMPLETING, Phase.STABLE))
        assert group.phase is not Phase.EMPTY or group.protocol_name is None
        if group.phase in (Phase.COMPLETING, Phase.STABLE):
            assert group.supporters[group.protocol_name or ""] == len(members), "the assignor is not offered by all"
