"""I1 to I4: generations grow, phases follow each other, and all members get the same assignments."""

from collections import Counter, defaultdict
from typing import Any

from coordinator.consumer_protocol import READABLE
from coordinator.group import Group
from coordinator.group_parts import NEVER_MS
from coordinator.limits import REMOVED_GROUP_MS
from coordinator.outputs import (
    AssignmentChanged,
    Event,
    GroupDeleted,
    GroupEmptied,
    GroupRecord,
    JoinGroupAnswer,
    MemberFenced,
    Published,
    RebalanceCompleted,
    Reply,
    SyncGroupAnswer,
)
from coordinator.phases import Phase
from coordinator.requests import SyncGroup
from tests.coordinator.invariants.step import CONVERTED, NONE, KnownRequests, Step, forgotten, is_written_again


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
        vitals, members = group.vitals, group.members.values()
        assert list(vitals.sessions) == list(group.members), "sessions and members differ"
        statics = {m.group_instance_id: m.member_id for m in members if m.group_instance_id is not None}
        assert vitals.instances == statics, "two members have one instance id"
        assert not vitals.pending.keys() & group.members.keys(), "a pending id is a member"
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


class GenerationsAreAgreed:
    """I4: all members of a generation get the same protocol and leader; only the leader gets the members."""

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.heard: dict[tuple[str, int], tuple[Any, ...]] = {}
        self.rolls: dict[tuple[str, int], frozenset[str]] = {}
        self.joined: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self.first: dict[str, str] = {}
        """The first id of a static member: a new process of it is not a new member."""

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.news:
            if isinstance(output, MemberFenced):
                self.first[output.replaced_by] = self._first(output.member_id)
            elif forgotten(output):
                for memory in (self.heard, self.rolls, self.joined):
                    for key in [k for k in memory if k[0] == output.group_id]:
                        del memory[key]
            elif isinstance(output, Reply) and isinstance(output.answer, JoinGroupAnswer):
                self._joined(self.asked.by(output).group_id, output.answer)
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self._published(output.record)

    def _published(self, record: GroupRecord) -> None:
        """Check that the leader was told so, and that each member has joined or is an absent static member."""
        if record.state is Phase.COMPLETING:
            generation = record.group_id, record.generation_id
            assert generation in self.rolls, f"no response named the leader: {record}"
            for member in record.members:
                has_joined = self._first(member.member_id) in self.joined[generation]
                assert has_joined or member.group_instance_id is not None, f"{member.member_id} did not join"

    def _joined(self, group_id: str, answer: JoinGroupAnswer) -> None:
        generation = group_id, answer.generation_id
        if answer.code != NONE:
            told = answer.generation_id, answer.protocol_type, answer.protocol_name, answer.leader, answer.members
            assert told == (-1, None, None, "", ()), f"an error has further fields: {answer}"
            return
        self.joined[generation].add(self._first(answer.member_id))
        told = answer.protocol_type, answer.protocol_name, self._first(answer.leader)
        assert self.heard.setdefault(generation, told) == told, f"{told}, but others got {self.heard[generation]}"
        if answer.member_id == answer.leader:
            roll = frozenset(self._first(m.member_id) for m in answer.members)
            assert self.rolls.setdefault(generation, roll) == roll, "the leader got other members before"
            assert self._first(answer.member_id) in roll
        else:
            assert answer.members == (), "a follower got the members"
            first = self._first(answer.member_id)
            assert first in self.rolls.get(generation, (first,))

    def _first(self, member_id: str) -> str:
        return self.first.get(member_id, member_id)


class PlansArePassedOn:
    """I1: each member owns exactly the leader's assignment, to the byte; a member that is left out owns nothing.

    So a partition has at most one owner in a generation, unless the leader assigns it to two members.
    """

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.leaders: dict[str, str | None] = {}
        self.plans: dict[tuple[str, int], dict[str, bytes]] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        early: list[tuple[SyncGroup, bytes]] = []  # members that synced before the leader are answered first
        for output in step.news:
            if forgotten(output):
                self.plans = {key: plan for key, plan in self.plans.items() if key[0] != output.group_id}
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self._published(output.record)
            elif isinstance(output, MemberFenced):
                plan = self.plans.get((output.group_id or "", output.generation_id or 0), {})
                plan[output.replaced_by] = plan.get(output.member_id, b"")
            elif isinstance(output, Reply) and isinstance(output.answer, SyncGroupAnswer) and not output.answer.code:
                request = self.asked.by(output)
                early.append((request, output.answer.assignment))
                if self._knows_the_plan(request):
                    self._compare(early)
                    early = []
        assert not early, f"no leader has sent the assignments {early}"

    def _published(self, record: GroupRecord) -> None:
        self.leaders[record.group_id] = record.leader
        if record.state is Phase.STABLE:
            plan = self.plans.get((record.group_id, record.generation_id))
            assert plan is not None, f"no leader has sent the assignments: {record}"
            for member in record.members:
                assert member.assignment == plan.get(member.member_id, b""), f"not the leader's assignment: {member}"

    def _knows_the_plan(self, request: SyncGroup) -> bool:
        generation = request.group_id, request.generation_id
        if request.member_id == self.leaders[request.group_id]:
            self.plans.setdefault(generation, {a.member_id: a.assignment for a in request.assignments})
        return generation in self.plans

    def _compare(self, answers: list[tuple[SyncGroup, bytes]]) -> None:
        for request, assignment in answers:
            planned = self.plans[request.group_id, request.generation_id].get(request.member_id, b"")
            assert assignment == planned, f"{request.member_id} gets {assignment!r} instead of {planned!r}"


class HandoversAddUp:
    """I1: each handover names the owner before, and the owner after as in the record.

    A leader may assign a partition to several members; any of them may then be named as the owner before.
    """

    def __init__(self) -> None:
        self.owners: defaultdict[str, dict[tuple[str, int], set[str | None]]] = defaultdict(dict)
        self.members: dict[str, tuple[str, ...]] = {}

    def watch(self, step: Step) -> None:
        for output in step.news:
            if forgotten(output) or isinstance(output, GroupEmptied):
                self.owners.pop(output.group_id, None)
                self.members.pop(output.group_id, None)
            elif isinstance(output, MemberFenced):
                self._replaced(output)
            elif isinstance(output, RebalanceCompleted):
                self._completed(output)
            elif isinstance(output, AssignmentChanged):
                owners = self.owners[output.group_id or ""]
                for handover in output.handovers:
                    place = handover.topic, handover.partition
                    assert handover.before in owners.get(place, {None}), (
                        f"the owner was {owners.get(place)}: {handover}"
                    )
                    owners[place] = {handover.after}
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self._published(output.record)

    def _replaced(self, fenced: MemberFenced) -> None:
        group_id, old, new = fenced.group_id or "", fenced.member_id, fenced.replaced_by
        for held in self.owners[group_id].values():
            if old in held:
                held.remove(old)
                held.add(new)
        self.members[group_id] = tuple(new if m == old else m for m in self.members.get(group_id, ()))

    def _completed(self, told: RebalanceCompleted) -> None:
        group_id, before, after = told.group_id or "", set(told.members_before), set(told.members_after)
        assert before == set(self.members.get(group_id, ())), f"not the members before: {told}"
        assert (set(told.joined), set(told.gone)) == (after - before, before - after), (
            f"the members do not add up: {told}"
        )
        self.members[group_id] = told.members_after

    def _published(self, record: GroupRecord) -> None:
        if record.state is not Phase.STABLE or record.protocol_type not in READABLE:
            return
        owned = defaultdict[tuple[str, int], set[str | None]](set)
        for member in record.members:
            for topic, partitions in (member.assigned or {}).items():
                for partition in partitions:
                    owned[topic, partition].add(member.member_id)
        owners = self.owners[record.group_id]
        told = {place for place, held in owners.items() if held != {None}}
        assert told == owned.keys(), f"{told ^ owned.keys()} changed owners without a handover: {record}"
        assert all(owners[place] & held for place, held in owned.items()), (
            f"not the owners of the handovers: {owners} {record}"
        )
        owners.update(owned)
