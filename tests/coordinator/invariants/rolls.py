"""I3, I9: responses about a group fit its published members, phase and generation."""

from collections import defaultdict
from dataclasses import dataclass, field

from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.base.states import Phase
from coordinator.classic.admin import _lowered
from coordinator.messages.events import GroupEmptied, MemberFenced, MemberJoined, RebalanceCompleted, RebalanceStarted
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.outputs import Output
from coordinator.messages.requests import ListGroups
from coordinator.messages.responses import (
    DescribeGroupAnswer,
    HeartbeatAnswer,
    JoinGroupAnswer,
    ListGroupsAnswer,
    RebalanceNotice,
    Reply,
)
from tests.coordinator.invariants.step import GONE, NONE, KnownRequests, Step, forgotten

UNKNOWN, FENCED = ErrorCode.UNKNOWN_MEMBER_ID.number, ErrorCode.FENCED_INSTANCE_ID.number
AGAIN = ErrorCode.REBALANCE_IN_PROGRESS.number
ILLEGAL = ErrorCode.ILLEGAL_GENERATION.number
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR.number
NOT_OF_THE_GROUP = {
    ErrorCode.NOT_COORDINATOR.number,
    ErrorCode.INVALID_GROUP_ID.number,
    ErrorCode.GROUP_AUTHORIZATION_FAILED.number,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.number,
}
"""Errors that do not depend on the group."""

MOVES_TO = {
    RebalanceStarted: Phase.PREPARING,
    RebalanceCompleted: Phase.STABLE,
    GroupEmptied: Phase.EMPTY,
}


@dataclass
class Roll:
    """The members of a group by its outputs: instance ids by member id."""

    state: Phase = Phase.EMPTY
    generation_id: int = 0
    members: dict[str, str | None] = field(default_factory=dict)

    def note(self, output: Output) -> None:
        """Update the members from a record or an event of the group."""
        if isinstance(output, Published):
            if isinstance(output.record, GroupRecord):
                self.state, self.generation_id = output.record.state, output.record.generation_id
                self.members = {m.member_id: m.group_instance_id for m in output.record.members}
            return
        self.state = MOVES_TO.get(type(output), self.state)
        self.generation_id = output.generation_id or self.generation_id
        if isinstance(output, MemberJoined):
            self.members[output.member_id] = output.group_instance_id
        elif isinstance(output, GONE):
            del self.members[output.member_id]
            if isinstance(output, MemberFenced):
                self.members[output.replaced_by] = output.group_instance_id

    def joined(self, answer: JoinGroupAnswer) -> None:
        """Update the members from the response to a join.

        The first one of a generation shows that its joins are complete.
        """
        if answer.generation_id > self.generation_id:
            self.state, self.generation_id = Phase.COMPLETING, answer.generation_id


class AnswersFitTheGroup:
    """I3, I9: responses to heartbeats, descriptions and listings fit the group's records and events."""

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.rolls: defaultdict[str, Roll] = defaultdict(Roll)
        self.called: defaultdict[str, set[str]] = defaultdict(set)
        """The members that were told alone to join again, and have not."""
        self.was_called: dict[str, dict[str, int]] = {}
        """The members whose calls last from before a step until after it, with the ends of their offers."""
        self.joined: set[tuple[str, str | None]] = set()

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        self._end_calls(step)
        for output in step.outputs:
            self._call(output)
            if type(output) is Reply:
                if type(output.answer) is HeartbeatAnswer:
                    self._heartbeat(self.asked.by(output), output.answer.code)
                else:
                    self._answered(output)
            elif forgotten(output):
                self.rolls.pop(output.group_id, None)
            elif isinstance(output, Published) and output.version is None:
                continue  # a repeated tombstone of a forgotten group
            elif output.group_id is not None:
                if isinstance(output, Published) and isinstance(output.record, GroupRecord):
                    self._is_whole(output.record)
                self.rolls[output.group_id].note(output)

        for group_id, group in (step.groups or {}).items():
            called = frozenset(group.hot_state.called)
            assert called <= self.called[group_id], f"{called - self.called[group_id]} got no notice"
            self.was_called[group_id] = {m: group.policy_state.offers[m].until_ms for m in called}
            self.called[group_id] &= called

    def _end_calls(self, step: Step) -> None:
        """Remove the calls whose offers end in a step: a later heartbeat in the step is answered NONE."""
        for group_id, group in (step.groups or {}).items():
            calls = self.was_called.get(group_id, {})
            self.was_called[group_id] = {m: until for m, until in calls.items() if until > group.hot_state.now_ms}

    def _call(self, output: Output) -> None:
        """Update the members that have to join again alone."""
        if isinstance(output, Reply):
            answer = output.answer
            if isinstance(answer, RebalanceNotice) and self.rolls[answer.group_id].state is Phase.STABLE:
                self.called[answer.group_id].add(answer.member_id)
            elif isinstance(answer, JoinGroupAnswer) and answer.code == NONE:
                asker = output.to, answer.request_id
                if asker not in self.joined:  # a repeat of an earlier join does not count
                    self.called[self.asked.by(output).group_id].discard(answer.member_id)
                self.joined.add(asker)
        elif isinstance(output, RebalanceStarted):
            self.called[output.group_id or ""] = set()

    def _is_whole(self, record: GroupRecord) -> None:
        told, roll = {m.member_id for m in record.members}, self.rolls[record.group_id]
        assert told == roll.members.keys(), f"{told} are published, events have {list(roll.members)}"

    def _heartbeat(self, request: Heartbeat, code: int) -> None:
        if code in NOT_OF_THE_GROUP:
            return
        roll = self.rolls.get(request.group_id)
        expected = self._expected(roll, request) if roll else UNKNOWN
        if expected == NONE and request.member_id in self.called[request.group_id]:
            is_over = code == NONE and request.member_id not in self.was_called.get(request.group_id, ())
            expected = NONE if is_over else AGAIN
        assert code == expected, f"the response is {code}, not {expected}: {request}"

    @staticmethod
    def _expected(roll: Roll, request: Heartbeat) -> int:
        if request.group_instance_id is not None:
            holder = next((m for m, i in roll.members.items() if i == request.group_instance_id), None)
            if holder != request.member_id:
                return UNKNOWN if holder is None else FENCED
        if request.member_id not in roll.members:
            return UNKNOWN
        return (
            ILLEGAL if request.generation_id != roll.generation_id else AGAIN if roll.state is Phase.PREPARING else NONE
        )

    def _answered(self, reply: Reply) -> None:
        match reply.answer:
            case JoinGroupAnswer():
                if reply.answer.code == NONE:
                    self.rolls[self.asked.by(reply).group_id].joined(reply.answer)
            case DescribeGroupAnswer(code=0):
                self._described(reply.answer)
            case ListGroupsAnswer(code=0):
                self._listed(self.asked.by(reply), reply.answer)

    def _described(self, answer: DescribeGroupAnswer) -> None:
        roll = self.rolls.get(answer.group_id)
        if answer.state is Phase.DEAD:
            assert roll is None or not roll.members, f"{answer.group_id} exists"
            return
        assert roll is not None, f"{answer.group_id} does not exist"
        told = answer.state, answer.generation_id, {m.member_id for m in answer.members}
        assert told == (roll.state, roll.generation_id, roll.members.keys()), f"{told}, not {roll}"

    def _listed(self, request: ListGroups, answer: ListGroupsAnswer) -> None:
        if request.types:
            return
        wanted = {_lowered(state) for state in request.states}
        listed = {group.group_id for group in answer.groups}
        there = {group_id for group_id, roll in self.rolls.items() if not wanted or roll.state.value.lower() in wanted}
        assert listed == there, f"{listed} are listed, {there} exist"


class MisroutedIsRefused:
    """Only requests to groups of other partitions get NOT_COORDINATOR, and they get nothing else.

    Args:
        partitions: The number of partitions; the requests are those of the first.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.asked = KnownRequests()

    def watch(self, step: Step) -> None:
        if self.partitions == 1:
            return
        self.asked.note(step)
        for output in step.news:
            group_id = getattr(self.asked.by(output), "group_id", "") if isinstance(output, Reply) else output.group_id
            if not group_id or (isinstance(output, Reply) and isinstance(output.answer, RebalanceNotice)):
                continue
            is_elsewhere = shard_of(group_id, self.partitions) != 0
            if not isinstance(output, Reply):
                assert not is_elsewhere, f"{group_id} belongs to another shard: {output}"
                continue
            codes = {p.code for p in getattr(output.answer, "partitions", ())} | {output.answer.code}
            is_refused = NOT_COORDINATOR in codes or (is_elsewhere and codes <= NOT_OF_THE_GROUP)
            assert is_elsewhere == is_refused, f"{group_id} is refused wrongly, or not refused: {output}"
