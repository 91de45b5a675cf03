"""The recorded requests through the core once more: the exact part of a trial.

A new shard gives other member ids and generations than the recorded ones. So each request is translated: a recorded id
stands for the member that joined through the same mailbox, as the same client.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any, get_args

from msgspec.structs import replace

from coordinator.base.errors import ErrorCode
from coordinator.messages.events import AnyEvent, MemberJoined, RebalanceStarted
from coordinator.messages.heartbeats import Heartbeats
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Assignment, JoinGroup, LeaveGroup, Received, SetPolicies, SyncGroup
from coordinator.messages.responses import JoinGroupAnswer
from streaming.trial.recording import Recording, Seeded, Start, answers_of, policies_at, recorded_shard

AT_ONCE = 500
"""The number of requests in a step of the shard."""

SPAN_MS = 1_000
"""The time between the first and the last request of a step. A deadline that is noticed much later counts as late."""

SAME_MS = 1_000
"""The time by which a replayed rebalance may begin earlier or later than the recorded one."""

_EVENTS: Any = get_args(AnyEvent)

Sender = tuple[str, str, str]
"""The mailbox, the client id and the host of a request."""

Joined = tuple[int, str, str, str | None]
"""The time at which a member joined, its client id, its host and its instance id."""


def sender_of(request: Any) -> Sender:
    """Return by whom a request was sent, as far as the request says it."""
    return request.reply_to, request.client_id, request.client_host


def events_in(outputs: list[Output]) -> Iterator[AnyEvent]:
    """Yield the events among outputs."""
    return (output for output in outputs if isinstance(output, _EVENTS))


class _Translation:
    """The member ids and generations of a shard for the recorded ones."""

    def __init__(self, recording: Recording, start: Start, seeded: Seeded) -> None:
        self.ids = dict(seeded.ids)
        self._later = start.generation_id - seeded.generation_id
        self._pending: defaultdict[Sender, list[str]] = defaultdict(list)
        self._joined: defaultdict[Joined, deque[str]] = defaultdict(deque)
        for event in recording.events:
            if isinstance(event, MemberJoined) and event.at_ms > start.at_ms:
                self._joined[_joined(event)].append(event.member_id)

    def expect(self, request: JoinGroup, answer: JoinGroupAnswer) -> None:
        """Note an id that the shard gave to a client, whose next join has the recorded id."""
        if answer.code == ErrorCode.MEMBER_ID_REQUIRED.number:
            self._pending[sender_of(request)].append(answer.member_id)

    def add(self, event: MemberJoined) -> None:
        """Note a member of the shard. The recorded one joined at the same time as the same client."""
        if event.member_id not in self.ids.values() and (recorded := self._joined[_joined(event)]):
            self.ids[recorded.popleft()] = event.member_id

    def is_known(self, request: Any) -> bool:
        """Return whether all member ids of a request have a translation already."""
        return all(each in self.ids for each in _ids(request))

    def of(self, request: Any) -> Any:
        """Return a request for the shard."""
        if isinstance(request, Heartbeats):
            rows = [self.of(each) for each in request.each()]
            return Heartbeats.of(rows, request_id=request.request_id, reply_to=request.reply_to)
        for recorded in _ids(request):
            if (
                recorded not in self.ids
                and isinstance(request, JoinGroup)
                and (given := self._pending[sender_of(request)])
            ):
                self.ids[recorded] = given.pop()
        fields: dict[str, Any] = {}
        if hasattr(request, "member_id"):
            fields["member_id"] = self._id(request.member_id)
        if getattr(request, "generation_id", -1) >= 0:
            fields["generation_id"] = request.generation_id - self._later
        if isinstance(request, LeaveGroup):
            fields["members"] = tuple(replace(each, member_id=self._id(each.member_id)) for each in request.members)
        if isinstance(request, SyncGroup):
            plan = request.assignments
            fields["assignments"] = tuple(Assignment(self._id(each.member_id), each.assignment) for each in plan)
        return replace(request, **fields)

    def _id(self, recorded: str) -> str:
        return self.ids.get(recorded, recorded)


def _joined(event: MemberJoined) -> Joined:
    return event.at_ms, event.client_id, event.client_host, event.group_instance_id


def _ids(request: Any) -> list[str]:
    """Return the member ids in a request."""
    if isinstance(request, Heartbeats):
        return list(request.member_ids)
    ids = [getattr(request, "member_id", "")]
    if isinstance(request, LeaveGroup):
        ids += [each.member_id for each in request.members]
    if isinstance(request, SyncGroup):
        ids += [each.member_id for each in request.assignments]
    return [each for each in ids if each]


class _Replay:
    """The requests of a recording on their way through a shard, in batches of about a second."""

    def __init__(self, recording: Recording, start: Start, seeded: Seeded) -> None:
        self.events: list[AnyEvent] = []
        self._shard, self._translation = recorded_shard(recording, seeded), _Translation(recording, start, seeded)
        self._batch: list[Received] = []
        self._joins_sent: dict[str, JoinGroup] = {}

    def handle(self, received: Received) -> None:
        """Add the next request."""
        request: Any = received.request
        if self._is_full(received.at_ms) or not self._translation.is_known(request):
            self.flush()
        if not self._batch:
            self.pass_time(received.at_ms)
        if isinstance(request, JoinGroup):
            self._joins_sent[request.request_id] = request
        asked = request if isinstance(request, SetPolicies) else self._translation.of(request)
        self._batch.append(replace(received, request=asked))

    def _is_full(self, at_ms: int) -> bool:
        batch = self._batch
        return bool(batch) and (len(batch) >= AT_ONCE or at_ms - batch[0].at_ms > SPAN_MS)

    def flush(self) -> None:
        """Handle the requests that were added."""
        if self._batch:
            self._record(self._shard.step(self._batch, self._batch[-1].at_ms))
            self._batch = []

    def pass_time(self, until_ms: int) -> None:
        """Handle the deadlines up to a time."""
        self._record(list(self._shard.pass_time(until_ms)))

    def _record(self, outputs: list[Output]) -> None:
        for event in events_in(outputs):
            self.events.append(event)
            if isinstance(event, MemberJoined):
                self._translation.add(event)
        for answer in answers_of(outputs):
            if isinstance(answer, JoinGroupAnswer) and answer.request_id in self._joins_sent:
                self._translation.expect(self._joins_sent[answer.request_id], answer)


def replay(recording: Recording, start: Start, seeded: Seeded) -> list[AnyEvent]:
    """Return the events of the recorded requests after the start."""
    replayed = _Replay(recording, start, seeded)
    if (policies := policies_at(recording, start)) is not None:
        replayed.handle(Received(start.offset, start.at_ms, policies))
    for received in recording.after(start):
        replayed.handle(received)
    replayed.flush()
    replayed.pass_time(recording.until_ms)
    return replayed.events


def difference(recorded: list[RebalanceStarted], replayed: list[RebalanceStarted]) -> str | None:
    """Return the first difference between the recorded rebalances and those of the replay; None without one."""
    for number, (first, second) in enumerate(zip(recorded, replayed, strict=False), 1):
        if first.cause != second.cause or abs(first.at_ms - second.at_ms) > SAME_MS:
            was, became = (f"{each.cause} at {each.at_ms}" for each in (first, second))
            return f"rebalance {number} is recorded as {was}, and was replayed as {became}"
    if len(recorded) != len(replayed):
        return f"{len(recorded)} rebalances are recorded, and {len(replayed)} were replayed"
    return None
