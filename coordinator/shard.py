"""One shard: all groups of one partition of the request topic. `Shard.step` is the one way in.

Each group lives through its own requests and deadlines, in the order of their times, as if it were alone:
    1. a request's time is its record's; a group's time never goes back
    2. what is due by then fires first
    3. after the requests, what is due by the batch's time, less a slack for requests still on their way, fires too
So the same log gives the same outputs however it is cut into batches.
"""

from collections.abc import Iterable, Iterator

from coordinator import administration, checks, codec, guard, leaving, membership, offsets
from coordinator.codec import Grave, Kept, Stored
from coordinator.config import Config
from coordinator.deadlines import advance
from coordinator.describe import describe, publish, publishing
from coordinator.errors import ErrorCode
from coordinator.group import NEVER_MS, Group, Vitals
from coordinator.hashing import member_suffix, shard_of
from coordinator.limits import GRAVE_MS, GRAVES_MAX
from coordinator.outputs import ErrorAnswer, HeartbeatAnswer, Output, Rejected, Reply
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
    Request,
    SetAccess,
    SyncGroup,
    Unreadable,
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

    Raises:
        CorruptState: `state` is not to be trusted.
    """

    def __init__(self, partition: int, partitions: int, secret: bytes, config: Config, state: bytes | None = None):
        self._partition, self._partitions, self._secret, self._config = partition, partitions, secret, config
        kept = codec.decode_shard(state) if state is not None else Kept()
        self._stored, self._graves, self._access = kept.groups, kept.graves, kept.access
        self._guard = guard.guard_of(config, self._access)
        self._vitals: dict[str, Vitals] = {}  # of groups touched in this step
        self._groups: dict[str, Group] = {}  # of these, the ones that more than a heartbeat touched

    def step(self, log: Iterable[Received], now_ms: int) -> list[Output]:
        """Take the shard through one batch.

        Args:
            log: Requests in the order of their offsets.
            now_ms: The time for which the batch was planned, Unix milliseconds.
        """
        outputs: list[Output] = []
        for received in log:
            request = received.request
            if self._guard is not None and not self._guard.admits(received):
                outputs.extend(self._guard.refuse(received))
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
            if self._guard is None:
                outputs.extend(self._take(received, now_ms))
            else:
                outputs.extend(self._guard.limited(received, lambda part: self._take(part, now_ms)))
        horizon_ms = now_ms - self._config.clock_slack_ms
        for group_id in self._due_by(horizon_ms):
            outputs.extend(self._advance(group_id, horizon_ms, now_ms))
        self._put_away()
        self._forget_graves(horizon_ms)
        return outputs

    @property
    def next_deadline_ms(self) -> int | None:
        """When time alone may change a group next: never later than it does, sometimes earlier."""
        earliest_ms = min((s.earliest_ms for s in self._stored.values()), default=NEVER_MS)
        if self._graves:
            earliest_ms = min(earliest_ms, next(iter(self._graves.values())).until_ms)
        return earliest_ms if earliest_ms < NEVER_MS else None

    @property
    def is_blank(self) -> bool:
        """Nothing is worth keeping."""
        return not self._stored and not self._graves and not self._access

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
        return codec.decode_rest(stored.rest, codec.decode_vitals(stored.vitals, stored.rest)) if stored else None

    def to_bytes(self) -> bytes:
        """Write the shard down, to be taken up again by `Shard(..., state=)`."""
        return codec.encode_shard(Kept(self._stored, self._graves, self._access))

    # -- one request ---------------------------------------------------------------------------------------------------

    def _take(self, received: Received, now_ms: int) -> Iterator[Output]:
        request = received.request
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
        yield from publishing(group, self._handle(group, received, request, at_ms))
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
        grave = self._graves.pop(group_id, None)
        generation_id = grave.generation_id if grave and grave.until_ms > at_ms else 0
        group = Group(vitals=Vitals(now_ms=at_ms, generation_id=generation_id), group_id=group_id, since_ms=at_ms)
        group.look_at_offsets(at_ms)
        self._stored[group_id] = _UNWRITTEN
        self._vitals[group_id], self._groups[group_id] = group.vitals, group
        return group

    def _list(self, request: ListGroups, at_ms: int, now_ms: int) -> Iterator[Output]:
        for group_id in self._due_by(at_ms):
            yield from self._advance(group_id, at_ms, now_ms)
        groups = (self._groups.get(group_id) or self.group(group_id) for group_id in self._stored)
        yield administration.list_groups((group for group in groups if group), request)

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
        if group.generation_id:
            self._graves[group_id] = Grave(group.vitals.now_ms + GRAVE_MS, group.generation_id)
            if len(self._graves) > GRAVES_MAX:
                del self._graves[next(iter(self._graves))]

    def _forget_graves(self, horizon_ms: int) -> None:
        while self._graves:
            group_id, grave = next(iter(self._graves.items()))
            if grave.until_ms > horizon_ms:
                break
            del self._graves[group_id]

    # -- groups, taken out when touched and put away when the batch is over --------------------------------------------

    def _vitals_of(self, group_id: str) -> Vitals | None:
        vitals = self._vitals.get(group_id)
        if vitals is None and (stored := self._stored.get(group_id)):
            vitals = self._vitals[group_id] = codec.decode_vitals(stored.vitals, stored.rest)
        return vitals

    def _open(self, group_id: str) -> Group | None:
        group = self._groups.get(group_id)
        if group is None and (vitals := self._vitals_of(group_id)):
            group = self._groups[group_id] = codec.decode_rest(self._stored[group_id].rest, vitals)
        return group

    def _put_away(self) -> None:
        for group_id, vitals in self._vitals.items():
            group = self._groups.get(group_id)
            rest = codec.encode_rest(group) if group else self._stored[group_id].rest
            written = codec.encode_vitals(vitals, rest)
            self._stored[group_id] = Stored(vitals.earliest_ms, len(vitals.sessions), written, rest)
        self._vitals, self._groups = {}, {}


_UNWRITTEN = Stored(NEVER_MS, 0, b"", b"")


def _heard(request: Heartbeat, error: ErrorCode) -> Reply:
    if error is ErrorCode.NONE:
        return Reply(request.reply_to, HeartbeatAnswer(request_id=request.request_id))
    return Reply(request.reply_to, HeartbeatAnswer(request_id=request.request_id, error=error.name, code=error.number))
