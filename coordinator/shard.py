"""One shard: all groups of one partition of the request topic. `Shard.step` is the one way in.

Each group lives through its own requests and deadlines, in the order of their times, as if it were alone:
    1. a request's time is its record's; a group's time never goes back
    2. what is due by then fires first
    3. after the requests, what is due by the time up to which the log was read, less a slack, fires too
So the same log gives the same outputs however it is cut into batches. `clock` says within which bounds a time is
believed. A step whose outputs use up its `budget` leaves requests to the next one, as if the log were cut there.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from coordinator import administration, checks, clock, codec, guard, leaving, membership, offsets, republishing
from coordinator.budget import Budget, answer_bytes
from coordinator.clock import Times
from coordinator.codec import Grave, Kept, Rosters, Stored
from coordinator.config import Config
from coordinator.deadlines import advance
from coordinator.describe import describe, publish, publishing
from coordinator.errors import ErrorCode
from coordinator.group import NEVER_MS, Group, Vitals
from coordinator.hashing import member_suffix, shard_of
from coordinator.limits import ENDED_MS, GRAVE_MS, GRAVES_MAX, SHORT_GRAVES_MAX
from coordinator.outputs import ClockAhead, ErrorAnswer, HeartbeatAnswer, Output, Rejected, Reply
from coordinator.phases import Phase
from coordinator.refusals import refuse
from coordinator.requests import (
    CheckAccess,
    DeleteGroup,
    DescribeAccess,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    RebalanceGroup,
    Received,
    RepublishGroup,
    Request,
    SetAccess,
    SyncGroup,
    Unreadable,
    Wake,
)

OfNoGroup = ListGroups | SetAccess | DescribeAccess | CheckAccess
"""Requests to a shard."""


class Shard:
    """The groups of one partition of the request topic.

    Args:
        partition: Which one.
        partitions: How many the topic has.
        secret: What member ids are derived under, 16 to 64 bytes; the same for the life of the state.
        state: What `to_bytes` gave earlier.
        rosters: A cache that outlives the shard; without one the shard makes its own.

    Raises:
        CorruptState: `state` is not to be trusted.
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
        self._rosters = Rosters() if rosters is None else rosters
        kept = codec.decode_shard(state) if state is not None else Kept()
        self._stored, self._graves, self._access = kept.groups, kept.graves, kept.access
        self._guard = guard.guard_of(config, self._access)
        self._clock, self._allowance = kept.clock, kept.allowance
        self.deferred: list[Received] = []
        """Requests that the latest step has left to the next one, whose log must begin with them."""

        self._times = Times(0, 0, 0, 0, 0)
        self._budget = Budget()
        self._waiting = set[str]()  # groups with requests that this step has deferred
        self._vitals: dict[str, Vitals] = {}  # of groups touched in this step
        self._groups: dict[str, Group] = {}  # of these, the ones that more than a heartbeat touched

    def step(self, log: Sequence[Received], now_ms: int) -> list[Output]:
        """Take the shard through one batch.

        Args:
            log: Requests in the order of their offsets, which begin with those that the step before has `deferred`.
            now_ms: The time for which the batch was planned, Unix milliseconds.
        """
        slack_ms = self._config.clock_slack_ms
        if not self._clock.read_ms and self._stored:  # as older code has left it
            self._clock = replace(self._clock, read_ms=max(map(codec.decode_now_ms, self._stored.values())))
        self._clock, times = clock.tell(self._clock, log, now_ms, slack_ms)
        self._times = times
        now_ms, earliest_ms, latest_ms = times.now_ms, times.earliest_ms, times.latest_ms
        self._budget, self._waiting, self.deferred = Budget(), set(), []
        budget = self._budget
        outputs, ahead = list[Output](), list[Received]()
        for received in log:
            request = received.request
            if budget.is_tight and self._must_wait(received):
                outputs.extend(self._defer(received))
                continue
            dated_ms = received.at_ms
            if dated_ms > latest_ms:
                ahead.append(received)
                received = replace(received, at_ms=latest_ms)
            elif dated_ms < earliest_ms and not received.was_deferred:
                received = replace(received, at_ms=earliest_ms + slack_ms)
            elif dated_ms - slack_ms > earliest_ms:
                earliest_ms = dated_ms - slack_ms
            if self._guard is not None and not self._guard.admits(received):
                outputs.extend(self._charged(received, self._guard.refuse(received)))
                continue
            # Nearly all requests are heartbeats of a group in which nothing is due: they need its vitals and no more.
            if type(request) is Heartbeat and request.group_id:
                vitals = self._vitals.get(request.group_id) or self._vitals_of(request.group_id)
                if vitals is not None:
                    at_ms = received.at_ms if received.at_ms > vitals.now_ms else vitals.now_ms
                    if vitals.earliest_ms > at_ms:
                        vitals.now_ms = at_ms
                        self._note_lateness(vitals, now_ms)
                        outputs.append(_heard(request, membership.heartbeat(vitals, request, at_ms)))
                        continue
            if type(request) is Wake:
                continue
            if self._guard is None:
                outputs.extend(self._charged(received, self._take(received, now_ms)))
            else:
                parts = self._guard.limited(received, lambda part: self._take(part, now_ms))
                outputs.extend(self._charged(received, parts))
        if ahead:
            outputs.append(self._clock_ahead(ahead, latest_ms))
        outputs.extend(self._pass_time(times.horizon_ms, now_ms))
        self._put_away()
        self._forget_graves(times.horizon_ms)
        return outputs

    @property
    def due_in_ms(self) -> int | None:
        """How long after the latest step time alone may change a group: never more than it takes, sometimes less.

        Requests that were deferred are due at once. None where the shard waits for nothing.
        """
        if self.deferred:
            return 0
        deadline_ms = self.next_deadline_ms
        return None if deadline_ms is None else max(deadline_ms - self._times.horizon_now_ms, 0)

    @property
    def next_deadline_ms(self) -> int | None:
        """When time alone may change a group next: never later than it does, sometimes earlier."""
        earliest_ms = min((s.earliest_ms for s in self._stored.values()), default=NEVER_MS)
        earliest_ms = min(earliest_ms, *(grave.until_ms for grave in self._graves.values()), NEVER_MS)
        return earliest_ms if earliest_ms < NEVER_MS else None

    @property
    def is_blank(self) -> bool:
        """Whether nothing is kept of any group, nor any rule."""
        return not (self._stored or self._graves or self._access)

    @property
    def group_ids(self) -> tuple[str, ...]:
        return tuple(self._stored)

    @property
    def members(self) -> int:
        """How many members all groups have together."""
        return sum(s.members for s in self._stored.values())

    def group(self, group_id: str) -> Group | None:
        """Look at one group, as a copy: for tests and tools."""
        stored = self._stored.get(group_id)
        if stored is None:
            return None
        return codec.decode_rest(stored.rest, codec.decode_vitals(stored.vitals, stored.rest, self._rosters))

    def to_bytes(self) -> bytes:
        """Write the shard down, to be taken up again by `Shard(..., state=)`."""
        return codec.encode_shard(Kept(self._stored, self._graves, self._access, self._clock, self._allowance))

    # -- the bounds of a step ------------------------------------------------------------------------------------------

    def _charged(self, received: Received, outputs: Iterable[Output]) -> list[Output]:
        """Count what a request brings about against the budget of the step."""
        brought = list(outputs)
        self._budget.spend(_group_of(received), brought, received.size_bytes)
        return brought

    def _must_wait(self, received: Received) -> bool:
        """Return whether a request is left to the next step, because its group or the shard has put out enough."""
        if isinstance(received.request, Wake):
            return False
        group_id = _group_of(received)
        return group_id in self._waiting or self._budget.is_spent_by(group_id)

    def _defer(self, received: Received) -> Iterator[Output]:
        """Leave a request to the next step; where too many are left already, refuse it."""
        request = received.request
        assert not isinstance(request, Wake), "a wake record asks nothing"
        self._waiting.add(_group_of(received))
        if self._budget.defers(received.size_bytes):
            self.deferred.append(replace(received, was_deferred=True))
        elif isinstance(request, Unreadable):
            yield self._reject(received, request)
        else:
            yield refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the shard has too many requests to answer")

    def _clock_ahead(self, records: Sequence[Received], latest_ms: int) -> ClockAhead:
        return ClockAhead(
            group_id=None,
            version=None,
            at_ms=latest_ms,
            generation_id=None,
            partition=self._partition,
            offset=records[0].offset,
            records=len(records),
            ahead_ms=max(received.at_ms for received in records) - latest_ms,
        )

    # -- one request ---------------------------------------------------------------------------------------------------

    def _take(self, received: Received, now_ms: int) -> Iterator[Output]:
        request = received.request
        assert not isinstance(request, Wake), "a wake record asks nothing"
        if isinstance(request, Unreadable):
            yield self._reject(received, request)
            return
        for check in checks.EVERY_REQUEST:
            if (error := check(request, self._config)) is not ErrorCode.NONE:
                yield refuse(request, error)
                return
        if isinstance(request, OfNoGroup):
            yield from self._tell(request, received, now_ms)
            return
        if request.group_id in self._stored:
            yield from self._advance(request.group_id, received.at_ms, now_ms)
        group = self._open(request.group_id)
        if group is None:
            home = shard_of(request.group_id, self._partitions)
            if home != self._partition:
                yield refuse(request, ErrorCode.NOT_COORDINATOR, f"this group's requests belong in partition {home}")
                return
            if self._founds(request):
                group = self._found(request.group_id, received.at_ms)
                yield publish(group)
        at_ms = received.at_ms
        if group is None:
            yield from self._handle(None, received, request, at_ms)
            return
        at_ms = group.vitals.now_ms = max(at_ms, group.vitals.now_ms)
        self._note_lateness(group.vitals, now_ms)
        if asks_for_much(group, request) and group.allowance.left_at(at_ms) <= 0:
            yield refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, TOO_MUCH_ASKED)
            return
        brought = list(publishing(group, self._handle(group, received, request, at_ms)))
        yield from brought
        if asks_for_much(group, request):
            group.allowance = group.allowance.with_answer(answer_bytes(brought, request.request_id), at_ms)
        if group.phase is Phase.DEAD:
            self._bury(group)
        yield from self._advance(request.group_id, at_ms, noticed_ms=at_ms)  # what the request itself made due

    def _handle(self, group: Group | None, received: Received, request: Request, at_ms: int) -> Iterator[Output]:
        assert not isinstance(request, OfNoGroup), "that one is of no group"
        match request:
            case JoinGroup():
                asked, place = (request.reply_to, request.request_id), (self._partition, received.offset)
                born_of = asked if membership.is_known_by_its_id(request) else place
                suffix = member_suffix(self._secret, request.group_id, born_of)
                yield from membership.join(group, request, at_ms, self._config, suffix)
            case SyncGroup():
                yield from membership.sync(group, request, at_ms, self._config)
            case Heartbeat():
                error = checks.ABSENT[Heartbeat]
                yield _heard(request, membership.heartbeat(group.vitals, request, at_ms) if group else error)
            case LeaveGroup():
                yield from leaving.leave(group, request, at_ms, self._config)
            case OffsetCommit():
                yield from offsets.commit(group, request, at_ms, self._config)
            case OffsetFetch():
                yield offsets.fetch(group, request)
            case OffsetDelete():
                yield from offsets.delete(group, request, at_ms, self._config)
            case DescribeGroup():
                yield describe(group, request)
            case DeleteGroup():
                yield from offsets.delete_group(group, request, at_ms, self._config)
            case RebalanceGroup():
                yield from administration.rebalance(group, request, at_ms, self._config)
            case RepublishGroup():
                yield from republishing.republish(group, request, self._after_its_end(request.group_id) or at_ms)
            case _:
                yield from leaving.expel(group, request, at_ms, self._config)

    def _tell(self, request: OfNoGroup, received: Received, now_ms: int) -> Iterator[Output]:
        match request:
            case ListGroups():
                yield from self._list(request, received.at_ms, now_ms)
            case SetAccess():
                self._access, outputs = guard.set_access(self._access, received, request, self._partition)
                self._guard = guard.guard_of(self._config, self._access)
                yield from outputs
            case DescribeAccess():
                yield guard.describe_access(self._access, request)
            case CheckAccess():
                yield guard.check_access(self._guard, request)

    def _founds(self, request: Request) -> bool:
        """Tell whether a request makes the group it names, where there is none."""
        match request:
            case JoinGroup():
                return not request.member_id and checks.refused_on_its_own(request, self._config) is ErrorCode.NONE
            case OffsetCommit():
                return request.generation_id < 0 and bool(request.offsets)
        return False

    def _found(self, group_id: str, at_ms: int) -> Group:
        at_ms = max(at_ms, self._after_its_end(group_id))
        grave = self._graves.pop(group_id, None)
        generation_id, token = (grave.generation_id, grave.token) if grave and grave.until_ms > at_ms else (0, 0)
        vitals = Vitals(now_ms=at_ms, generation_id=generation_id)
        group = Group(vitals=vitals, group_id=group_id, since_ms=at_ms, token=token)
        group.look_at_offsets(at_ms)
        self._stored[group_id] = _UNWRITTEN
        self._vitals[group_id], self._groups[group_id] = group.vitals, group
        return group

    def _after_its_end(self, group_id: str) -> int:
        """Return the first time after a forgotten group's end; 0 where that is not remembered.

        Versions begin again at 1 with a group that is founded anew, so a reader tells it by its time from the one
        before, whose records may be repeated late.
        """
        grave = self._graves.get(group_id)
        return grave.ended_ms + 1 if grave else 0

    def _list(self, request: ListGroups, at_ms: int, now_ms: int) -> Iterator[Output]:
        if self._allowance.left_at(at_ms) <= 0:
            yield refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, TOO_MUCH_ASKED)
            return
        for group_id in self._due_by(at_ms):
            if group_id not in self._waiting:
                yield from self._advance(group_id, at_ms, now_ms)
        answer = administration.list_groups(map(self._listed, self._stored), request)
        self._allowance = self._allowance.with_answer(answer_bytes([answer], request.request_id), at_ms)
        yield answer

    def _listed(self, group_id: str) -> tuple[str, str, Phase]:
        """Return what a listing says of a group, without reading more of it than that."""
        if group := self._groups.get(group_id):
            return group_id, group.protocol_type or "", group.phase
        stored = self._stored[group_id]
        vitals = self._vitals.get(group_id)
        phase = vitals.phase if vitals else codec.decode_phase(stored.vitals)
        if stored.protocol_type is None:
            return group_id, codec.decode_protocol_type(stored.rest), phase
        return group_id, stored.protocol_type, phase

    def _reject(self, received: Received, record: Unreadable) -> Output:
        if record.request_id is not None and record.reply_to is not None:
            error = ErrorCode.INVALID_REQUEST
            answer = ErrorAnswer(
                request_id=record.request_id, error=error.name, code=error.number, error_message=record.why
            )
            return Reply(record.reply_to, answer)
        return Rejected(
            group_id=None,
            version=None,
            at_ms=received.at_ms,
            generation_id=None,
            partition=self._partition,
            offset=received.offset,
            why=record.why,
        )

    # -- time ----------------------------------------------------------------------------------------------------------

    def _note_lateness(self, vitals: Vitals, now_ms: int) -> None:
        if now_ms - vitals.now_ms > self._config.late_notice_ms or vitals.back_ms > now_ms:
            vitals.back_ms = now_ms  # of an absence that begins, or of a clock that went astray

    def _pass_time(self, horizon_ms: int, now_ms: int) -> Iterator[Output]:
        """Fire what is due in groups whose requests are all handled, as far as the budget goes."""
        for group_id in self._due_by(horizon_ms):
            if self._budget.is_spent:
                return
            if group_id not in self._waiting:
                brought = list(self._advance(group_id, horizon_ms, now_ms))
                self._budget.spend(group_id, brought, 0)
                yield from brought

    def _due_by(self, horizon_ms: int) -> list[str]:
        vitals: dict[str, Stored | Vitals] = {**self._vitals}
        return [
            group_id
            for group_id, stored in self._stored.items()
            if vitals.get(group_id, stored).earliest_ms <= horizon_ms
        ]

    def _advance(self, group_id: str, until_ms: int, noticed_ms: int) -> Iterator[Output]:
        vitals = self._vitals_of(group_id)
        if vitals is None or vitals.earliest_ms > max(until_ms, vitals.now_ms):
            return
        group = self._open(group_id)
        assert group is not None, "a group with vitals is there"
        yield from advance(group, max(until_ms, vitals.now_ms), noticed_ms, self._config)
        if group.phase is Phase.DEAD:
            self._bury(group)

    def _bury(self, group: Group) -> None:
        group_id = group.group_id
        del self._stored[group_id], self._vitals[group_id], self._groups[group_id]
        now_ms, token = group.vitals.now_ms, group.token
        until_ms = now_ms + ENDED_MS
        if group.generation_id:
            until_ms = max(now_ms + GRAVE_MS, token // 1_000 + 1)  # a floor may be ahead of time
        if group.generation_id or len(self._graves) < SHORT_GRAVES_MAX:
            self._graves[group_id] = Grave(until_ms, group.generation_id, token, now_ms)
        if len(self._graves) > GRAVES_MAX:
            del self._graves[next(iter(self._graves))]

    def _forget_graves(self, horizon_ms: int) -> None:
        if any(grave.until_ms <= horizon_ms for grave in self._graves.values()):
            self._graves = {name: grave for name, grave in self._graves.items() if grave.until_ms > horizon_ms}

    # -- groups, taken out when touched and put away when the batch is over --------------------------------------------

    def _vitals_of(self, group_id: str) -> Vitals | None:
        vitals = self._vitals.get(group_id)
        if vitals is None and (stored := self._stored.get(group_id)):
            vitals = self._vitals[group_id] = codec.decode_vitals(stored.vitals, stored.rest, self._rosters)
        return vitals

    def _open(self, group_id: str) -> Group | None:
        group = self._groups.get(group_id)
        if group is None and (vitals := self._vitals_of(group_id)):
            group = self._groups[group_id] = codec.decode_rest(self._stored[group_id].rest, vitals)
        return group

    def _put_away(self) -> None:
        for group_id, vitals in self._vitals.items():
            group = self._groups.get(group_id)
            rest = codec.encode_rest(group, self._rosters) if group else self._stored[group_id].rest
            written = codec.encode_vitals(vitals, rest, self._rosters)
            protocol_type = (group.protocol_type or "") if group else self._stored[group_id].protocol_type
            self._stored[group_id] = Stored(vitals.earliest_ms, len(vitals.sessions), written, rest, protocol_type)
        self._vitals, self._groups = {}, {}


_UNWRITTEN = Stored(NEVER_MS, 0, b"", b"")

TOO_MUCH_ASKED = "so much was asked of late that more has to wait; ask again in some seconds"


def asks_for_much(group: Group, request: Request) -> bool:
    """Return whether the answer to a request repeats all that the group holds."""
    match request:
        case DescribeGroup():
            return True
        case OffsetFetch():
            return request.topics is None
        case JoinGroup() if group.leader_id is not None:
            named = request.member_id or group.vitals.instances.get(request.group_instance_id or "")
            return named == group.leader_id and group.phase is not Phase.PREPARING
    return False


def _group_of(received: Received) -> str:
    return getattr(received.request, "group_id", "")


def _heard(request: Heartbeat, error: ErrorCode) -> Reply:
    if error is ErrorCode.NONE:
        return Reply(request.reply_to, HeartbeatAnswer(request_id=request.request_id))
    return Reply(request.reply_to, HeartbeatAnswer(request_id=request.request_id, error=error.name, code=error.number))
