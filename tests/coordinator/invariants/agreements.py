"""I1, I4: the members of a generation agree on its leader and protocol, and each has the assignment of the leader."""

from collections import defaultdict
from typing import Any

from coordinator.base.consumer_protocol import assigned_partitions, write_assignment
from coordinator.base.states import Phase
from coordinator.messages.events import MemberFenced, MemberJoined
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.outputs import Output
from coordinator.messages.policy_events import MemberQuarantined, QuarantineEnded, SeatTaken, SeatVacated
from coordinator.messages.requests import SyncGroup
from coordinator.messages.responses import JoinGroupAnswer, Reply, SyncGroupAnswer
from coordinator.state.classic_group import Group
from tests.coordinator.invariants.step import GONE, NONE, KnownRequests, Step, forgotten

NO_PARTITIONS = bytes.fromhex("0000 00000000 ffffffff")

Generation = tuple[str, int]
Place = tuple[str, int]


class Present:
    """The members of each group by events, and those in quarantine."""

    def __init__(self) -> None:
        self.members: defaultdict[str | None, set[str]] = defaultdict(set)
        self.hidden: defaultdict[str | None, set[str]] = defaultdict(set)

    def note(self, output: Output) -> None:
        """Update the members from an event."""
        if isinstance(output, GONE):
            self.members[output.group_id].discard(output.member_id)
            was_hidden = output.member_id in self.hidden[output.group_id]
            self.hidden[output.group_id].discard(output.member_id)
            if isinstance(output, MemberFenced):
                self.members[output.group_id].add(output.replaced_by)
                self.hidden[output.group_id] |= {output.replaced_by} if was_hidden else set()
        elif isinstance(output, MemberJoined):
            self.members[output.group_id].add(output.member_id)
        elif isinstance(output, MemberQuarantined):
            self.hidden[output.group_id].add(output.member_id)
        elif isinstance(output, QuarantineEnded):
            self.hidden[output.group_id].discard(output.member_id)
        elif forgotten(output):
            self.members.pop(output.group_id, None)  # type: ignore[union-attr]

    def visible(self, group_id: str) -> set[str]:
        return self.members[group_id] - self.hidden[group_id]


class GenerationsAreAgreed:
    """I4, P6, P7: all members of a generation get the same protocol, and the leader of the moment, which was told so.

    Only the leader gets the members, and those are the members of the moment. Within a generation the leader changes
    only if it is gone, or to a member that is told so in place of one that was not.
    """

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.present = Present()
        self.heard: dict[Generation, tuple[Any, ...]] = {}
        self.leaders: dict[Generation, str] = {}
        self.told: defaultdict[Generation, set[str]] = defaultdict(set)
        """The members that were told that they lead."""
        self.joined: defaultdict[Generation, set[str]] = defaultdict(set)
        self.first: dict[str, str] = {}
        """The first id of a static member: a new process of it is not a new member."""

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.news:
            self.present.note(output)
            if isinstance(output, MemberFenced):
                self.first[output.replaced_by] = self._first(output.member_id)
            elif forgotten(output):
                memories: tuple[dict[Generation, Any], ...] = (self.heard, self.leaders, self.told, self.joined)
                for memory in memories:
                    for key in [k for k in memory if k[0] == output.group_id]:  # type: ignore[union-attr]
                        del memory[key]
            elif isinstance(output, Reply) and isinstance(output.answer, JoinGroupAnswer):
                self._joined(self.asked.by(output).group_id, output.answer)
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self._published(output.record)
        for group in (step.groups or {}).values():
            if group.phase is Phase.STABLE and group.policy_state.leader_vacancy is None:
                told = self.told[group.group_id, group.generation_id]
                assert self._first(group.leader_id or "") in told, f"{group.leader_id} was not told that it leads"

    def _published(self, record: GroupRecord) -> None:
        """Check that the leader was told so, and that each member has joined or is an absent static member."""
        if record.state is Phase.COMPLETING:
            generation = record.group_id, record.generation_id
            assert self.told[generation], f"no response named the leader: {record}"
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
        said = answer.protocol_type, answer.protocol_name
        assert self.heard.setdefault(generation, said) == said, f"{said}, but others got {self.heard[generation]}"
        self._leads(generation, answer)
        if answer.member_id == answer.leader:
            roll = {m.member_id for m in answer.members}
            assert roll == self.present.visible(group_id), f"the leader got {roll}"
            self.told[generation].add(self._first(answer.member_id))
        else:
            assert answer.members == (), "a follower got the members"
            assert answer.member_id in self.present.members[group_id]

    def _leads(self, generation: Generation, answer: JoinGroupAnswer) -> None:
        """Check that the leader changes only for a reason."""
        group_id, leader = generation[0], self._first(answer.leader)
        before = self.leaders.setdefault(generation, leader)
        if leader != before:
            is_there = before in map(self._first, self.present.members[group_id])
            is_told = answer.member_id == answer.leader and before not in self.told[generation]
            assert not is_there or is_told, f"{before} leads, and {answer.member_id} got {leader}"
            assert self.asked.has_policies, f"{leader} leads after {before} without a policy"
            self.leaders[generation] = leader

    def _first(self, member_id: str) -> str:
        return self.first.get(member_id, member_id)


class PlansArePassedOn:
    """I1, P2: each member owns exactly the leader's assignment, to the byte; a member that is left out owns nothing.

    A member that is seated in the running generation owns no partitions, until it has the assignment of one that is
    gone; or both that and its own. The assignments of members and vacancies together are the leader's, and what was
    added to a topic.
    """

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.present = Present()
        self.leaders: dict[str, str | None] = {}
        self.plans: dict[Generation, dict[str, bytes]] = {}
        self.vacant: defaultdict[Generation, dict[str, bytes]] = defaultdict(dict)

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        early: list[tuple[SyncGroup, bytes]] = []  # members that synced before the leader are answered first
        for output in step.news:
            self.present.note(output)
            if forgotten(output):
                self.plans = {key: plan for key, plan in self.plans.items() if key[0] != output.group_id}  # type: ignore[union-attr]
            elif isinstance(output, Published) and isinstance(output.record, GroupRecord):
                self._published(output.record)
            elif isinstance(output, Reply) and isinstance(output.answer, SyncGroupAnswer) and not output.answer.code:
                request = self.asked.by(output)
                early.append((request, output.answer.assignment))
                if self._knows_the_plan(request):
                    self._compare(early)
                    early = []
            elif not isinstance(output, Reply):
                self._seated(output)
        assert not early, f"no leader has sent the assignments {early}"
        for group in (step.groups or {}).values():
            if group.phase is Phase.STABLE and (group.group_id, group.generation_id) in self.plans:
                self._looks_right(group)

    def _seated(self, output: Any) -> None:
        """Update who has which assignment from an event."""
        generation = getattr(output, "group_id", None) or "", getattr(output, "generation_id", None) or 0
        if (plan := self.plans.get(generation)) is None:
            return
        match output:
            case MemberFenced():
                plan[output.replaced_by] = plan.pop(output.member_id, b"")
            case MemberJoined():
                plan[output.member_id] = NO_PARTITIONS
            case SeatVacated():
                self.vacant[generation][output.member_id] = plan.pop(output.member_id, b"")
            case SeatTaken():
                added = write_assignment(output.partitions, version=0)
                vacant = self.vacant[generation].pop(output.before, added)
                assert output.partitions == (assigned_partitions(vacant) or {}), f"not the assignment: {output}"
                is_adopted = output.how == "adopted"
                own = plan.get(output.member_id, b"")
                plan[output.member_id] = merged(own, vacant) if is_adopted else vacant

    def _published(self, record: GroupRecord) -> None:
        self.leaders[record.group_id] = record.leader
        if record.state is Phase.STABLE:
            plan = self.plans.get((record.group_id, record.generation_id))
            assert plan is not None, f"no leader has sent the assignments: {record}"
            for member in record.members:
                assert member.assignment == plan.get(member.member_id, b""), f"not the leader's assignment: {member}"

    def _knows_the_plan(self, request: SyncGroup) -> bool:
        generation = request.group_id, request.generation_id
        if request.member_id == self.leaders[request.group_id] and generation not in self.plans:
            plan = {a.member_id: a.assignment for a in request.assignments}
            self.plans[generation] = plan | dict.fromkeys(self.present.hidden[request.group_id], NO_PARTITIONS)
        return generation in self.plans

    def _compare(self, answers: list[tuple[SyncGroup, bytes]]) -> None:
        for request, assignment in answers:
            planned = self.plans[request.group_id, request.generation_id].get(request.member_id, b"")
            assert assignment == planned, f"{request.member_id} gets {assignment!r} instead of {planned!r}"

    def _looks_right(self, group: Group) -> None:
        generation = group.group_id, group.generation_id
        plan = self.plans[generation]
        for member in group.members.values():
            planned = plan.get(member.member_id, b"")
            assert member.assignment == planned, f"{member.member_id} has {member.assignment!r} and not {planned!r}"
        kept = {key: vacancy.assignment for key, vacancy in group.policy_state.vacant.items() if key}
        assert kept == self.vacant[generation], f"vacant are {list(kept)}, and not {list(self.vacant[generation])}"


def merged(one: bytes, other: bytes) -> bytes:
    """Return an assignment with the partitions of two."""
    partitions: dict[str, list[int]] = {}
    for assignment in (one, other):
        for topic, numbers in (assigned_partitions(assignment) or {}).items():
            partitions[topic] = sorted({*partitions.get(topic, []), *numbers})
    return write_assignment(partitions, version=0)


class SeatsHaveOneHolder:
    """P1: a partition is one member's at a moment. It comes to another one only if the first is no member any more.

    A leader may assign a partition to several members; then all of them have it.
    """

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.told: defaultdict[Generation, defaultdict[Place, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.shared: defaultdict[Generation, set[Place]] = defaultdict(set)
        self.latest: dict[str, int] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.news:
            if isinstance(output, GONE):
                for told in self.told[output.group_id or "", self.latest.get(output.group_id or "", 0)].values():
                    told.discard(output.member_id)
            elif isinstance(output, Reply) and isinstance(output.answer, SyncGroupAnswer) and not output.answer.code:
                self._told(self.asked.by(output), output.answer.assignment)

    def _told(self, request: SyncGroup, assignment: bytes) -> None:
        generation = request.group_id, request.generation_id
        if self.latest.get(request.group_id) != request.generation_id:
            self.told.pop((request.group_id, self.latest.get(request.group_id, 0)), None)
            self.latest[request.group_id] = request.generation_id
        places = [(t, p) for t, ps in (assigned_partitions(assignment) or {}).items() for p in ps]
        for place in places:
            others = self.told[generation][place] - {request.member_id}
            assert not others or self._is_shared(generation, place), f"{place} is {others}'s and {request.member_id}'s"
            self.told[generation][place].add(request.member_id)

    def _is_shared(self, generation: Generation, place: Place) -> bool:
        """Check whether the leader of the generation has assigned a partition to several members."""
        for request in self.asked.requests.values():
            if isinstance(request, SyncGroup) and (request.group_id, request.generation_id) == generation:
                parts = {a.member_id: assigned_partitions(a.assignment) or {} for a in request.assignments}
                if sum(place[1] in part.get(place[0], ()) for part in parts.values()) > 1:
                    return True
        return False
