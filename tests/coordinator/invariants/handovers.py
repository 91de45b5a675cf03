"""I1: the events of owners fit the records, also where a seat passes on within a generation."""

from collections import defaultdict

from coordinator.base.consumer_protocol import READABLE
from coordinator.base.states import Phase
from coordinator.messages.events import (
    AssignmentChanged,
    GroupEmptied,
    MemberFenced,
    MemberJoined,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.policy_events import SeatTaken, SeatVacated
from tests.coordinator.invariants.step import GONE, KnownRequests, Step, forgotten


class HandoversAddUp:
    """I1: each handover names the owner before, and the owner after as in the record.

    A leader may assign a partition to several members; any of them may then be named as the owner before. If policies
    seat members, the members before a rebalance are those of the moment, with or without those of the same step.
    """

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.moment: defaultdict[str | None, set[str]] = defaultdict(set)
        self.begun: dict[str | None, tuple[set[str], set[str]]] = {}
        """The members before the rebalance in progress: those that were certainly there, and those that may have."""
        self.owners: defaultdict[str, dict[tuple[str, int], set[str | None]]] = defaultdict(dict)
        self.members: dict[str, tuple[str, ...]] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        joined, gone = defaultdict[str | None, set[str]](set), defaultdict[str | None, set[str]](set)
        for output in step.news:
            if isinstance(output, MemberJoined):
                self.moment[output.group_id].add(output.member_id)
                joined[output.group_id].add(output.member_id)
            elif isinstance(output, GONE):
                self.moment[output.group_id].discard(output.member_id)
                gone[output.group_id].add(output.member_id)
            elif isinstance(output, RebalanceStarted) and output.group_id not in self.begun:
                there = self.moment[output.group_id]
                self.begun[output.group_id] = there - joined[output.group_id], there | gone[output.group_id]
            if forgotten(output) or isinstance(output, GroupEmptied):
                self.owners.pop(output.group_id, None)
                self.members.pop(output.group_id, None)
                self.begun.pop(output.group_id, None)
            elif isinstance(output, MemberFenced):
                self._replaced(output)
            elif isinstance(output, RebalanceCompleted):
                self._completed(output)
            elif isinstance(output, SeatVacated | SeatTaken):
                self._passed(output)
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

    def _passed(self, passed: SeatVacated | SeatTaken) -> None:
        """Update the owners of the partitions of a seat."""
        owners = self.owners[passed.group_id or ""]
        for place in ((topic, number) for topic, numbers in passed.partitions.items() for number in numbers):
            held = owners.get(place, {None})
            if isinstance(passed, SeatVacated):
                assert passed.member_id in held, f"{place} is {held}'s: {passed}"
                owners[place] = held - {passed.member_id} or {None}
            else:
                owners[place] = held - {None} | {passed.member_id}

    def _replaced(self, fenced: MemberFenced) -> None:
        group_id, old, new = fenced.group_id or "", fenced.member_id, fenced.replaced_by
        self.moment[group_id].add(new)
        for members in self.begun.get(group_id, ()):
            if old in members:
                members.remove(old)
                members.add(new)
        for held in self.owners[group_id].values():
            if old in held:
                held.remove(old)
                held.add(new)
        self.members[group_id] = tuple(new if m == old else m for m in self.members.get(group_id, ()))

    def _completed(self, told: RebalanceCompleted) -> None:
        group_id, before, after = told.group_id or "", set(told.members_before), set(told.members_after)
        least, most = self.begun.pop(group_id, (set(), set()))
        if self.asked.has_policies:
            assert least <= before <= most, f"before were {least} and perhaps {most - least}: {told}"
        else:
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
