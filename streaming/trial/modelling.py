"""Model members behind the core: what the processes of a recording would have done under other policies.

Exact are the times at which a process begins, leaves, is last heard of or is silent, its joins, and the core. Modelled
are its heartbeats, the time after which it reacts to a rebalance and syncs (its own medians), and the assignments,
which are those of the assignor that the group uses, over the recorded partitions.
"""

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from coordinator.assignors import ASSIGNORS, Cluster, Plan, Subscriber
from coordinator.base.consumer_protocol import (
    assigned_partitions,
    read_subscription,
    write_assignment,
    write_subscription,
)
from coordinator.base.errors import ErrorCode
from coordinator.base.policies import Policy
from coordinator.messages.events import AnyEvent
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.outputs import Output
from coordinator.messages.requests import (
    Assignment,
    ExpelMember,
    LeaveGroup,
    Leaving,
    RebalanceGroup,
    Request,
    SetPolicies,
    SyncGroup,
)
from coordinator.messages.responses import HeartbeatAnswer, JoinGroupAnswer, RebalanceNotice, Reply, SyncGroupAnswer
from streaming.trial.processes import BACK_MS, Process
from streaming.trial.recording import Recording, Seeded, Start, recorded_shard
from streaming.trial.replaying import events_in

HEARTBEATS_IN_A_SESSION = 3
"""The number of heartbeats of a model member within its session timeout."""

ERRORS = {each.number: each for each in ErrorCode}


class _Member:
    """A model of a process: a member, or none."""

    def __init__(self, process: Process, member_id: str) -> None:
        self.process, self.member_id = process, member_id
        self.generation_id = -1
        self.owned: dict[str, list[int]] = {}
        self.is_gone = False
        self.is_joining = False

    def is_silent(self, at_ms: int) -> bool:
        """Return whether the process sends nothing at a time."""
        process = self.process
        is_over = self.is_gone or (process.died and at_ms > process.last_ms)
        return is_over or any(begin < at_ms < end for begin, end in process.silences)


class Model:
    """A group of model members, from the start of a trial to its end.

    Args:
        policies: The policies of each time, the earliest first.
    """

    def __init__(
        self,
        recording: Recording,
        start: Start,
        seeded: Seeded,
        processes: Sequence[Process],
        policies: Sequence[tuple[int, tuple[Policy, ...]]],
    ) -> None:
        self.events: list[AnyEvent] = []
        self._recording, self._shard = recording, recorded_shard(recording, seeded)
        self._partitions = _partitions(recording, start)
        self._queue: list[tuple[int, int, Callable[[int], None]]] = []
        self._order, self._requests = itertools.count(), itertools.count()
        self._by_request: dict[str, _Member] = {}
        self._by_id: dict[str, _Member] = {}
        self._of_recorded: dict[str, _Member] = {}
        self._rhythms: dict[int, list[_Member]] = {}
        plan = {each.member_id: assigned_partitions(each.assignment) or {} for each in start.plan}
        for at_ms, entries in policies:
            self._at(max(at_ms, start.at_ms), lambda now, entries=entries: self._set(now, entries))  # type: ignore[misc]
        for process in processes:
            self._add(process, start, seeded, plan)
        for received in recording.after(start):
            if isinstance(received.request, RebalanceGroup | ExpelMember):
                self._at(received.at_ms, lambda now, request=received.request: self._administer(now, request))  # type: ignore[misc]

    def run(self) -> list[AnyEvent]:
        """Return the events up to the end of the trial."""
        while self._queue and self._queue[0][0] <= self._recording.until_ms:
            at_ms, _, act = heapq.heappop(self._queue)
            self._hear(list(self._shard.pass_time(at_ms)), at_ms)
            act(at_ms)
        self._hear(list(self._shard.pass_time(self._recording.until_ms)), self._recording.until_ms)
        return self.events

    # -- processes -----------------------------------------------------------------------------------------------------

    def _add(self, process: Process, start: Start, seeded: Seeded, plan: Mapping[str, dict[str, list[int]]]) -> None:
        recorded = process.members[0]
        member = _Member(process, seeded.ids.get(recorded, "") if process.begin_ms is None else "")
        for each in process.members:
            self._of_recorded[each] = member
        if member.member_id:
            member.generation_id, member.owned = seeded.generation_id, plan.get(recorded, {})
            self._by_id[member.member_id] = member
            self._begin_heartbeats(member, start.at_ms)
        else:
            self._at(process.begin_ms or start.at_ms, lambda now: self._begin(member, now))
        if process.left_ms is not None:
            self._at(process.left_ms, lambda now: self._leave(member, now))
        elif process.died:
            self._at(process.last_ms, lambda now: self._beat(now, member))
        for at_ms in itertools.chain.from_iterable(process.silences):
            self._at(at_ms, lambda now: self._beat(now, member))

    def _begin(self, member: _Member, now_ms: int) -> None:
        self._begin_heartbeats(member, now_ms)
        self._join(member, now_ms)

    def _begin_heartbeats(self, member: _Member, now_ms: int) -> None:
        """Add a member to those of its session timeout, which send their heartbeats together."""
        interval_ms = max(1, member.process.joins[0][1].session_timeout_ms // HEARTBEATS_IN_A_SESSION)
        if interval_ms not in self._rhythms:
            self._rhythms[interval_ms] = []
            self._at(now_ms + interval_ms, lambda now: self._tick(interval_ms, now))
        self._rhythms[interval_ms].append(member)

    def _tick(self, interval_ms: int, now_ms: int) -> None:
        members = self._rhythms[interval_ms] = [each for each in self._rhythms[interval_ms] if not each.is_gone]
        self._beat(now_ms, *members)
        self._at(now_ms + interval_ms, lambda now: self._tick(interval_ms, now))

    def _beat(self, now_ms: int, *members: _Member) -> None:
        beats: list[tuple[_Member, Any]] = [
            (member, Heartbeat(request_id="", reply_to="", group_id=self._recording.group_id,
                               member_id=member.member_id, generation_id=member.generation_id))
            for member in members
            if member.member_id and not member.is_joining and not member.is_silent(now_ms)
        ]  # fmt: skip
        self._ask(now_ms, *beats)

    def _join(self, member: _Member, now_ms: int) -> None:
        if member.is_silent(now_ms):
            member.is_joining = False
            return
        member.is_joining = True
        join = member.process.join_at(now_ms)
        protocols = tuple(replace(each, metadata=_metadata(each.metadata, member)) for each in join.protocols)
        self._ask(now_ms, (member, replace(join, member_id=member.member_id, protocols=protocols)))

    def _leave(self, member: _Member, now_ms: int) -> None:
        if member.member_id and not member.is_gone:
            join = member.process.joins[0][1]
            leaving = LeaveGroup(
                request_id="",
                reply_to="",
                group_id=self._recording.group_id,
                members=(Leaving(member.member_id, None, member.process.reason),),
                client_id=join.client_id,
                client_host=join.client_host,
            )
            self._ask(now_ms, (member, leaving))
        member.is_gone = True

    def _administer(self, now_ms: int, request: Any) -> None:
        if isinstance(request, ExpelMember):
            member = self._of_recorded.get(request.member_id)
            request = replace(request, member_id=member.member_id if member else request.member_id)
        self._hear(self._shard.handle(now_ms, request), now_ms)

    def _set(self, now_ms: int, entries: tuple[Policy, ...]) -> None:
        asked = SetPolicies(request_id="", reply_to="", made_ms=now_ms, policies=entries)
        self._hear(self._shard.handle(now_ms, asked), now_ms)

    # -- requests and responses ----------------------------------------------------------------------------------------

    def _at(self, at_ms: int, act: Callable[[int], None]) -> None:
        heapq.heappush(self._queue, (at_ms, next(self._order), act))

    def _ask(self, now_ms: int, *requests: tuple[_Member, Any]) -> None:
        """Send requests of members, and handle the responses."""
        asked: list[Request] = []
        for member, request in requests:
            request_id = f"r{next(self._requests)}"
            self._by_request[request_id] = member
            asked.append(replace(request, request_id=request_id, reply_to="model"))
        self._hear(self._shard.handle(now_ms, *asked), now_ms)

    def _hear(self, outputs: list[Output], now_ms: int) -> None:
        self.events.extend(events_in(outputs))
        for output in outputs:
            if isinstance(output, Reply):
                self._answer(output.answer, now_ms)

    def _answer(self, answer: Any, now_ms: int) -> None:
        if isinstance(answer, RebalanceNotice):
            told = self._by_id.get(answer.member_id)
            if told is not None:
                self._rejoin(told, now_ms + told.process.reaction_ms)
            return
        member = self._by_request.pop(answer.request_id or "", None)
        if member is None or member.is_gone:
            return
        match answer:
            case JoinGroupAnswer():
                self._joined(member, answer, now_ms)
            case SyncGroupAnswer(code=0):
                member.owned = assigned_partitions(answer.assignment) or {}
            case SyncGroupAnswer() | HeartbeatAnswer():
                self._refused(member, answer.code, now_ms)

    def _joined(self, member: _Member, answer: JoinGroupAnswer, now_ms: int) -> None:
        if answer.member_id and not (answer.code and answer.code != ErrorCode.MEMBER_ID_REQUIRED.number):
            self._by_id.pop(member.member_id, None)
            member.member_id = answer.member_id
            self._by_id[member.member_id] = member
        if answer.code == ErrorCode.MEMBER_ID_REQUIRED.number:
            self._at(now_ms + BACK_MS, lambda now: self._join(member, now))
        elif answer.code:
            self._refused(member, answer.code, now_ms)
        else:
            member.is_joining, member.generation_id = False, answer.generation_id
            self._at(now_ms + member.process.sync_ms, lambda now: self._sync(member, answer, now))

    def _sync(self, member: _Member, answer: JoinGroupAnswer, now_ms: int) -> None:
        if member.is_silent(now_ms) or member.is_joining or member.generation_id != answer.generation_id:
            return
        plan = _plan(answer, self._partitions) if answer.members else {}
        assignments = tuple(Assignment(who, write_assignment(each)) for who, each in plan.items())
        sync = SyncGroup(request_id="", reply_to="", group_id=self._recording.group_id, member_id=member.member_id,
                         generation_id=answer.generation_id, assignments=assignments)  # fmt: skip
        self._ask(now_ms, (member, sync))

    def _refused(self, member: _Member, code: int, now_ms: int) -> None:
        """Join again after an error, as a client does."""
        if not code or member.is_joining:
            return
        if ERRORS.get(code) in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._by_id.pop(member.member_id, None)
            member.member_id, member.owned = "", {}
            self._rejoin(member, now_ms)  # the end of a silence is the time of a join
        else:
            self._rejoin(member, now_ms + member.process.reaction_ms)

    def _rejoin(self, member: _Member, at_ms: int) -> None:
        if not member.is_joining and not member.is_gone:
            member.is_joining = True
            self._at(at_ms, lambda now: self._join(member, now))


def _metadata(recorded: bytes, member: _Member) -> bytes:
    """Return a member's subscription, with the partitions that it owns in the model."""
    try:
        subscription = read_subscription(recorded)
    except ValueError:
        return recorded
    return write_subscription(replace(subscription, owned=member.owned, generation_id=member.generation_id))


def _partitions(recording: Recording, start: Start) -> dict[str, int]:
    """Return how many partitions each topic of the recording has."""
    counts: dict[str, int] = {}
    plans = [start.plan, *(e.request.assignments for e in recording.requests if isinstance(e.request, SyncGroup))]
    for plan in plans:
        for each in plan:
            for topic, numbers in (assigned_partitions(each.assignment) or {}).items():
                counts[topic] = max(counts.get(topic, 0), *(number + 1 for number in numbers), 0)
    return counts


def _plan(answer: JoinGroupAnswer, partitions: Mapping[str, int]) -> Plan:
    """Return the assignments of the assignor that the group uses; those of range for an unknown one."""
    assignor = ASSIGNORS.get(answer.protocol_name or "", ASSIGNORS["range"])()
    subscribers = []
    for each in answer.members:
        subscription = read_subscription(each.metadata)
        subscribers.append(Subscriber(each.member_id, each.group_instance_id, subscription))
    return assignor.assign(Cluster(partitions), subscribers)
