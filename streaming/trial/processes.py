"""The processes behind a recorded group: when each began, left and was last heard of, and how fast it reacts."""

from collections import defaultdict
from statistics import median
from typing import Any

from msgspec import Struct, field

from coordinator.messages.events import AnyEvent, MemberExpired, MemberJoined, RebalanceCompleted, RebalanceStarted
from coordinator.messages.requests import JoinGroup, LeaveGroup, SyncGroup
from streaming.trial.recording import Recording, Start
from streaming.trial.replaying import Sender, sender_of

COMES_BACK_MS = 300_000
"""A client that was dropped and joins again within this time is the same process."""

REACTION_MS, SYNC_MS, BACK_MS = 300, 200, 100
"""The delays of a process of which the log shows none: until it joins again, until it syncs, and between the two
requests of a first join. Where the log shows those of other processes, theirs count."""

SAMPLES_MAX = 100


class Process(Struct, kw_only=True):
    """One process, which may have been several members one after the other.

    Args:
        members: Its recorded member ids.
        joins: Its joins, with the times at which they came; a later one may have another subscription.
        begin_ms: Its first join; None if it was a member at the start.
        left_ms: When it left, with the reason that it gave; None if it did not.
        last_ms: When it was last heard of.
        died: It was dropped after that.
        silences: The times in which nothing was heard of it for so long that it was dropped.
        reactions_ms, syncs_ms: Samples of the times from a rebalance to its join, and from the assignments to its sync.
    """

    members: list[str] = field(default_factory=list)
    joins: list[tuple[int, JoinGroup]] = field(default_factory=list)
    begin_ms: int | None = None
    left_ms: int | None = None
    reason: str | None = None
    last_ms: int = 0
    died: bool = False
    silences: list[tuple[int, int]] = field(default_factory=list)
    reactions_ms: list[int] = field(default_factory=list)
    syncs_ms: list[int] = field(default_factory=list)

    @property
    def reaction_ms(self) -> int:
        """The median time from the beginning of a rebalance to its join."""
        return round(median(self.reactions_ms)) if self.reactions_ms else REACTION_MS

    @property
    def sync_ms(self) -> int:
        """The median time from the end of the join phase to its sync."""
        return round(median(self.syncs_ms)) if self.syncs_ms else SYNC_MS

    def join_at(self, at_ms: int) -> JoinGroup:
        """Return the join that it sends at a time."""
        return next((join for since_ms, join in reversed(self.joins) if since_ms <= at_ms), self.joins[0][1])


class _Found:
    """One pass over the requests and events of a recording."""

    def __init__(self, recording: Recording, start: Start) -> None:
        self.processes: list[Process] = []
        self._of: dict[str, Process] = {}
        self._latest: dict[Sender, Process] = {}
        self._joins_sent: dict[Sender, tuple[int, JoinGroup]] = {}
        self._dropped = {e.member_id: e.at_ms for e in recording.events if isinstance(e, MemberExpired)}
        self._joined: defaultdict[tuple[int, str, str], list[str]] = defaultdict(list)
        for event in recording.events:
            if isinstance(event, MemberJoined):
                self._joined[event.at_ms, event.client_id, event.client_host].append(event.member_id)
        self._phases = _phases(recording.events)
        for member_id, join in start.joins.items():
            process = Process(members=[member_id], joins=[(0, join)], last_ms=start.at_ms)
            self._add(member_id, process, sender_of(join))

    def add(self, at_ms: int, request: Any) -> None:
        """Handle the next request."""
        if isinstance(request, LeaveGroup):
            for each in request.members:
                if (leaving := self._of.get(each.member_id)) is not None:
                    leaving.left_ms, leaving.reason, leaving.last_ms = at_ms, each.reason, at_ms
            return
        member_id = getattr(request, "member_id", None)
        if member_id is None:
            return
        if isinstance(request, JoinGroup) and not member_id:
            sender = sender_of(request)
            self._joins_sent[sender] = at_ms, request
            for joined in self._joined.pop((at_ms, request.client_id, request.client_host), []):
                self._begin(joined, sender, at_ms, request)
            return
        process = self._of.get(member_id)
        if process is None and isinstance(request, JoinGroup):
            sender = sender_of(request)
            asked_ms, _ = self._joins_sent.get(sender, (at_ms, request))
            process = self._begin(member_id, sender, asked_ms, request)
        if process is None or process.members[-1] != member_id:
            return
        self._hear(process, at_ms, request)

    def _hear(self, process: Process, at_ms: int, request: Any) -> None:
        process.last_ms = at_ms
        if isinstance(request, JoinGroup):
            process.joins.append((at_ms, request))
            begun_ms = self._phases.begun_before(at_ms)
            if begun_ms is not None and len(process.reactions_ms) < SAMPLES_MAX and process.begin_ms != begun_ms:
                process.reactions_ms.append(at_ms - begun_ms)
        elif isinstance(request, SyncGroup):
            asked_ms = process.joins[-1][0]
            ended_ms = max(asked_ms, self._phases.joined_ms.get(request.generation_id, asked_ms))
            if ended_ms <= at_ms and asked_ms and len(process.syncs_ms) < SAMPLES_MAX:
                process.syncs_ms.append(at_ms - ended_ms)

    def _begin(self, member_id: str, sender: Sender, at_ms: int, join: JoinGroup) -> Process:
        """Return the process of a new member: one that was dropped and is back, or a new one."""
        before = self._latest.get(sender)
        if before is not None and before.left_ms is None and at_ms - before.last_ms < COMES_BACK_MS:
            dropped_ms = self._dropped.get(before.members[-1])
            if dropped_ms is not None and dropped_ms <= at_ms:
                before.silences.append((before.last_ms, at_ms))
                before.members.append(member_id)
                before.joins.append((at_ms, join))
                before.last_ms = at_ms
                self._of[member_id] = before
                return before
        process = Process(members=[member_id], joins=[(at_ms, join)], begin_ms=at_ms, last_ms=at_ms)
        self._add(member_id, process, sender)
        return process

    def _add(self, member_id: str, process: Process, sender: Sender) -> None:
        self.processes.append(process)
        self._of[member_id], self._latest[sender] = process, process

    def end(self) -> list[Process]:
        """Return the processes, after the last request."""
        reactions_ms = [each for process in self.processes for each in process.reactions_ms]
        syncs_ms = [each for process in self.processes for each in process.syncs_ms]
        for process in self.processes:
            process.died = process.left_ms is None and process.members[-1] in self._dropped
            process.reactions_ms = process.reactions_ms or reactions_ms[:SAMPLES_MAX]
            process.syncs_ms = process.syncs_ms or syncs_ms[:SAMPLES_MAX]
        return self.processes


class _Phases:
    """The join phases of a recording: when each began, and when all had joined."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
        self._at = 0
        self.joined_ms: dict[int, int] = {}

    def add(self, begun_ms: int, joined_ms: int, generation_id: int) -> None:
        self._spans.append((begun_ms, joined_ms))
        self.joined_ms[generation_id] = joined_ms

    def begun_before(self, at_ms: int) -> int | None:
        """Return the beginning of the join phase in which a time is; None if it is in none. Times only grow."""
        while self._at < len(self._spans) and self._spans[self._at][1] < at_ms:
            self._at += 1
        is_within = self._at < len(self._spans) and self._spans[self._at][0] <= at_ms
        return self._spans[self._at][0] if is_within else None


def _phases(events: Any) -> _Phases:
    phases = _Phases()
    begun_ms: int | None = None
    each: AnyEvent
    for each in events:
        if isinstance(each, RebalanceStarted) and begun_ms is None:
            begun_ms = each.at_ms
        elif isinstance(each, RebalanceCompleted):
            if begun_ms is not None:
                phases.add(begun_ms, each.at_ms - (each.syncs_ms or 0), each.generation_id or 0)
            begun_ms = None
    return phases


def processes_of(recording: Recording, start: Start) -> list[Process]:
    """Return the processes behind a group after the start, those that were members at the start first."""
    found = _Found(recording, start)
    for received in recording.after(start):
        found.add(received.at_ms, received.request)
    return found.end()
