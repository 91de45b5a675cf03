"""A member's side of the protocol: when to join, sync, send heartbeats, commit and leave, and how to handle responses.

    UNJOINED ── join sent ──> PREPARING_REBALANCE ── answered ──> COMPLETING_REBALANCE ── sync answered ──> STABLE
        ^                              ^                                                                      │
        └─ membership lost, or left    └───────────────────── rejoin needed: poll, prepare, join ─────────────┘

Like the coordinator's core, this module uses no clock, no randomness and no network. Time is an argument. Every call
returns actions: requests to send, and effects that only the member's owner can carry out. `deadline_ms` is the one time
at which time alone causes more actions.

`PendingRequests` sends requests without a response again, under the same `request_id`. So a first join needs no id from
the coordinator to be recognized (KIP-394 gives it one in a round of its own). It creates one member, however often it
arrives.

`ON_ERROR` has the actions after an error in a response, by request: the client's half of the protocol's tables.

Source: Kafka's AbstractCoordinator, ConsumerCoordinator and Heartbeat; KIP-62, KIP-345, KIP-394, KIP-447, KIP-800,
KIP-814.
"""

from collections.abc import Iterable
from enum import Enum, auto

from msgspec import UNSET

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.member import requests
from coordinator.member.effects import (
    Assigned,
    CommitEnded,
    CoordinatorSilent,
    Effect,
    Failed,
    FetchEnded,
    Left,
    MakePlan,
    PartitionsLost,
    PrepareToJoin,
    RejoinNeeded,
)
from coordinator.member.pending_requests import Call, PendingRequests
from coordinator.member.requests import MemberConfig, Sent
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    Assignment,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    SyncGroup,
    TopicPartitions,
)
from coordinator.messages.responses import (
    AnyAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    OffsetCommitAnswer,
    OffsetFetchAnswer,
    RebalanceNotice,
    SyncGroupAnswer,
)

# -- errors ------------------------------------------------------------------------------------------------------------


class ErrorAction(Enum):
    """A member's action after an error."""

    RETRY = auto()  # send the same request again, after a backoff
    REJOIN = auto()  # join again at once, with the same member id
    REJOIN_LATER = auto()  # join again with the same member id, after a backoff
    NEW_GENERATION = auto()  # reset the generation but not the member id, and join again
    NEW_MEMBER = auto()  # reset both, and join again
    ADOPT_ID = auto()  # join again at once, with the id in the response
    REPORT = auto()  # the caller decides
    STOP = auto()  # report to the owner: a retry cannot succeed


RETRY, REJOIN, REJOIN_LATER, NEW_GENERATION, NEW_MEMBER, ADOPT_ID, REPORT, STOP = ErrorAction

_TABLE: dict[ErrorCode, tuple[ErrorAction, ...]] = {
    # error                                   JoinGroup   SyncGroup       Heartbeat       OffsetCommit    OffsetFetch
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:   (STOP,        STOP,           STOP,           RETRY,          REPORT),
    ErrorCode.REQUEST_TIMED_OUT:            (STOP,        STOP,           STOP,           RETRY,          REPORT),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (RETRY,       RETRY,          RETRY,          RETRY,          RETRY),
    ErrorCode.COORDINATOR_NOT_AVAILABLE:    (RETRY,       REJOIN_LATER,   RETRY,          RETRY,          RETRY),
    ErrorCode.NOT_COORDINATOR:              (RETRY,       REJOIN_LATER,   RETRY,          RETRY,          RETRY),
    ErrorCode.ILLEGAL_GENERATION:           (STOP,        NEW_GENERATION, NEW_GENERATION, NEW_GENERATION, REPORT),
    ErrorCode.UNKNOWN_MEMBER_ID:            (NEW_MEMBER,  NEW_MEMBER,     NEW_MEMBER,     NEW_MEMBER,     REPORT),
    ErrorCode.REBALANCE_IN_PROGRESS:        (REJOIN,      REJOIN,         REJOIN,         REJOIN,         REPORT),
    ErrorCode.GROUP_ID_NOT_FOUND:           (STOP,        STOP,           STOP,           NEW_MEMBER,     REPORT),
    ErrorCode.MEMBER_ID_REQUIRED:           (ADOPT_ID,    STOP,           STOP,           REPORT,         REPORT),
    ErrorCode.FENCED_INSTANCE_ID:           (STOP,        STOP,           STOP,           STOP,           REPORT),
    ErrorCode.UNSTABLE_OFFSET_COMMIT:       (STOP,        STOP,           STOP,           REPORT,         RETRY),
}  # fmt: skip

_COLUMNS: tuple[type, ...] = (JoinGroup, SyncGroup, Heartbeat, OffsetCommit, OffsetFetch)

ON_ERROR: dict[tuple[type, int], ErrorAction] = {
    (request, error.number): action
    for error, actions in _TABLE.items()
    for request, action in zip(_COLUMNS, actions, strict=True)
}
"""The action after an error number in the response to a request of this type."""


def action(request_type: type, code: int) -> ErrorAction:
    """Return the action after an error. An error that is not in the table ends the membership."""
    return ON_ERROR.get((request_type, code), REPORT if request_type in (OffsetCommit, OffsetFetch) else STOP)


Action = Sent | Effect


class MemberState(Enum):
    """The state of a member. Heartbeats keep its session alive in the last two."""

    UNJOINED = auto()
    PREPARING_REBALANCE = auto()
    COMPLETING_REBALANCE = auto()
    STABLE = auto()


BEATING = (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)


class Member:
    """One member of one group. It may leave and subscribe again any number of times.

    Args:
        request_prefix: The beginning of this member's request ids, unique among all members that share its mailbox.
        now_ms: From any clock that never goes back.
    """

    def __init__(self, config: MemberConfig, request_prefix: str, now_ms: int) -> None:
        assert config.heartbeat_interval_ms < config.session_timeout_ms, "heartbeat_interval_ms is too high"
        self.config = config
        self.state = MemberState.UNJOINED
        self.generation_id = -1
        self.member_id = ""
        self.protocol_name: str | None = None
        self.is_leader = False
        self.is_subscribed = False
        self.rejoin_needed = False
        self._why = ""
        self._is_preparing = False  # PrepareToJoin was returned, `join` was not called yet
        self._protocols: tuple[Protocol, ...] = ()
        self._polled_ms = now_ms
        self._heartbeat_ms = NEVER_MS
        self._silent_ms = NEVER_MS  # when a session timeout has passed without a response
        self._calls = PendingRequests(config, request_prefix)

    # -- the owner's calls ---------------------------------------------------------------------------------------------

    def subscribe(self, why: str = "subscribed") -> list[Action]:
        """Join at the next `poll`, or join again with another subscription."""
        self.is_subscribed = True
        return self.request_rejoin(why)

    def request_rejoin(self, why: str) -> list[Action]:
        """Join again at the next `poll`."""
        if self.rejoin_needed:
            return []
        self.rejoin_needed, self._why = True, why
        return [RejoinNeeded(why)]

    def poll(self, now_ms: int) -> list[Action]:
        """Record that the owner is alive. Return `PrepareToJoin` if the member has to join."""
        self._polled_ms = now_ms
        is_between_rounds = self.state in (MemberState.UNJOINED, MemberState.STABLE)
        if not (self.is_subscribed and self.rejoin_needed and is_between_rounds) or self._is_preparing:
            return []
        self._is_preparing = True
        return [PrepareToJoin(self._why)]

    def join(self, protocols: tuple[Protocol, ...], now_ms: int) -> list[Action]:
        """Continue after `PrepareToJoin`; void if the member has left since.

        Args:
            protocols: The assignors that this member offers, the preferred one first.
        """
        if not self._is_preparing:
            return []
        self._is_preparing, self._protocols = False, protocols
        return self._join(now_ms)

    def plan(self, generation_id: int, assignments: Iterable[Assignment], now_ms: int) -> list[Action]:
        """Send the assignments after `MakePlan`; void if the generation has ended."""
        if generation_id != self.generation_id or self.state is not MemberState.COMPLETING_REBALANCE:
            return []
        return self._sync(tuple(assignments), now_ms)

    def fail_to_plan(self, generation_id: int, now_ms: int) -> list[Action]:
        """Handle a failed `MakePlan`: join again after a short wait, which leads to another `MakePlan`."""
        if generation_id != self.generation_id or self.state is not MemberState.COMPLETING_REBALANCE:
            return []
        return self._join(now_ms, wait_ms=self.config.retry_backoff_max_ms)

    def commit(self, offsets: tuple[OffsetToCommit, ...], now_ms: int) -> tuple[str, list[Action]]:
        """Commit offsets as a member of this generation.

        Returns:
            The ticket that `CommitEnded` will carry, and the actions. A member that is not STABLE sends no request: its
            commit ends at once with REBALANCE_IN_PROGRESS, or with UNKNOWN_MEMBER_ID if no rebalance is in progress.
        """
        ticket = self._calls.next_id()
        if self.state is not MemberState.STABLE:
            is_rebalancing = self.state is not MemberState.UNJOINED
            error = ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.UNKNOWN_MEMBER_ID
            return ticket, [CommitEnded(ticket, error.number, error.name)]
        return ticket, self._call(requests.commit(self, ticket, offsets), now_ms)

    def fetch(self, topics: tuple[TopicPartitions, ...] | None, now_ms: int) -> tuple[str, list[Action]]:
        """Request committed offsets, of all partitions if `topics` is None; `FetchEnded` carries the ticket."""
        ticket = self._calls.next_id()
        return ticket, self._call(requests.fetch(self, ticket, topics), now_ms)

    def give_up(self, ticket: str) -> None:
        """Stop waiting for a commit or a fetch."""
        self._calls.give_up(ticket)

    def leave(self, reason: str, now_ms: int) -> list[Action]:
        """End the membership. `Left` follows if a leave is sent to the coordinator; a static member sends none."""
        self.is_subscribed = self._is_preparing = False
        todos = self._leave(reason, now_ms)
        self.rejoin_needed = False
        return todos

    @property
    def is_leaving(self) -> bool:
        """True while `Left` is still to come."""
        return self._calls.is_leaving

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def deadline_ms(self) -> int:
        """The time at which `advance` next has an action."""
        return min(self._heartbeat_ms, self._silent_ms, self._poll_overdue_ms, self._calls.due_ms)

    @property
    def _poll_overdue_ms(self) -> int:
        return self._polled_ms + self.config.max_poll_interval_ms if self.state in BEATING else NEVER_MS

    def advance(self, now_ms: int) -> list[Action]:
        """Return the actions that are due: heartbeats, repeated requests, and a leave if the owner does not poll."""
        todos: list[Action] = []
        if self._poll_overdue_ms <= now_ms:
            todos += self._leave("consumer poll timeout has expired", now_ms)
            todos.append(PartitionsLost(f"poll() was not called for {self.config.max_poll_interval_ms} ms"))
        if self._silent_ms <= now_ms:
            self._silent_ms = NEVER_MS
            todos.append(CoordinatorSilent(self.config.session_timeout_ms))
        if self._heartbeat_ms <= now_ms:
            todos += self._beat(now_ms)
        todos += self._calls.send_due(now_ms)
        assert self.deadline_ms > now_ms, "an action is still due"
        return todos

    def _beat(self, now_ms: int) -> list[Action]:
        self._heartbeat_ms = self.config.next_heartbeat_ms(now_ms)
        self._calls.forget_old_heartbeats()
        return self._call(requests.heartbeat(self, self._calls.next_id()), now_ms)

    # -- answers -------------------------------------------------------------------------------------------------------

    def receive(self, answer: AnyAnswer, now_ms: int) -> list[Action]:
        """Handle a response or a notice from this member's mailbox; ignore repeats and those of other members."""
        if isinstance(answer, RebalanceNotice):
            me = (self.config.group_id, self.member_id, self.generation_id)
            is_news = (answer.group_id, answer.member_id, answer.generation_id) == me
            return self._record_rebalance() if is_news else []
        call = self._calls.end(answer.request_id or "")
        if call is None:
            return []
        if self.state in BEATING:
            self._silent_ms = now_ms + self.config.session_timeout_ms
        if call.leaves_because is not None:
            member_id = answer.member_id if isinstance(answer, JoinGroupAnswer) else ""
            return self._request_leave(member_id, call.leaves_because, now_ms) if member_id else [Left()]
        if answer.code != ErrorCode.NONE.number:
            return self._refused(call, answer, now_ms)
        match answer:
            case JoinGroupAnswer() if isinstance(call.request, JoinGroup):
                return self._joined(answer, now_ms)
            case SyncGroupAnswer() if isinstance(call.request, SyncGroup):
                return self._synced(answer)
            case OffsetCommitAnswer() if isinstance(call.request, OffsetCommit):
                return self._committed(call, answer, now_ms)
            case OffsetFetchAnswer() if isinstance(call.request, OffsetFetch):
                return [FetchEnded(call.ticket, answer.code, answer.error, answer.partitions)]
            case LeaveGroupAnswer() if isinstance(call.request, LeaveGroup):
                return [Left()]
        return []

    def _joined(self, answer: JoinGroupAnswer, now_ms: int) -> list[Action]:
        if answer.protocol_type != self.config.protocol_type:
            return self._stop(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group is of type {answer.protocol_type}")
        self.state = MemberState.COMPLETING_REBALANCE
        self.generation_id, self.member_id = answer.generation_id, answer.member_id
        self.protocol_name, self.is_leader = answer.protocol_name, answer.leader == answer.member_id
        self._heartbeat_ms = self.config.next_heartbeat_ms(now_ms)
        self._silent_ms = now_ms + self.config.session_timeout_ms
        is_planned = answer.skip_assignment
        todos = [] if self.is_leader and not is_planned else self._sync((), now_ms)
        if self.is_leader:
            todos.append(MakePlan(answer.generation_id, answer.protocol_name or "", answer.members, is_planned))
        return todos

    def _synced(self, answer: SyncGroupAnswer) -> list[Action]:
        named = (answer.protocol_type, answer.protocol_name)
        if named != (self.config.protocol_type, self.protocol_name):
            return self._stop(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the assignment is for {named}")
        self.state, self.rejoin_needed = MemberState.STABLE, False
        return [Assigned(self.generation_id, self.protocol_name or "", answer.assignment, answer.fencing_token)]

    def _committed(self, call: Call, answer: OffsetCommitAnswer, now_ms: int) -> list[Action]:
        """End a commit; an error of single partitions is the commit's error too."""
        failed = next((p for p in answer.partitions if p.code), None)
        if failed is None:
            return [CommitEnded(call.ticket, answer.code, answer.error, answer.partitions)]
        if action(OffsetCommit, failed.code) is RETRY:
            return self._retry(call, now_ms)
        return [CommitEnded(call.ticket, failed.code, failed.error, answer.partitions)]

    def _refused(self, call: Call, answer: AnyAnswer, now_ms: int) -> list[Action]:
        match call.request:
            case OffsetCommit():
                return self._commit_refused(call, call.request, answer, now_ms)
            case OffsetFetch():
                if action(OffsetFetch, answer.code) is RETRY:
                    return self._retry(call, now_ms)
                return [FetchEnded(call.ticket, answer.code, answer.error)]
            case LeaveGroup():
                return [Left()]
            case Heartbeat():
                return self._heartbeat_refused(answer, now_ms)
        act = action(type(call.request), answer.code)
        if act is RETRY:
            return self._retry(call, now_ms)
        if isinstance(answer, JoinGroupAnswer) and act in (ADOPT_ID, REJOIN):
            self.member_id = answer.member_id or self.member_id  # else a known member would join as a new one
        if act is ADOPT_ID:
            return self._join(now_ms)
        if act is REJOIN:
            self._why = "rebalance overtaken by another"
            return self._join(now_ms)
        if act is REJOIN_LATER:
            return self._join(now_ms, wait_ms=self._calls.backoff_ms(call.failures + 1))
        return self._end_membership(act, answer)

    def _heartbeat_refused(self, answer: AnyAnswer, now_ms: int) -> list[Action]:
        act = action(Heartbeat, answer.code)
        if act is RETRY:
            self._heartbeat_ms = min(self._heartbeat_ms, now_ms + self._calls.backoff_ms(1))
            return []
        return self._record_rebalance() if act is REJOIN else self._end_membership(act, answer)

    def _commit_refused(self, call: Call, request: OffsetCommit, answer: AnyAnswer, now_ms: int) -> list[Action]:
        """End a refused commit. A refused commit of an earlier generation does not end this generation."""
        act = action(OffsetCommit, answer.code)
        if act is RETRY:
            return self._retry(call, now_ms)
        is_ours = (request.generation_id, request.member_id) == (self.generation_id, self.member_id)
        ended: list[Action] = [CommitEnded(call.ticket, answer.code, answer.error)]
        if act in (NEW_GENERATION, NEW_MEMBER, STOP):
            if is_ours:
                return self._end_membership(act, answer) + ended
            if self.state is MemberState.PREPARING_REBALANCE:
                rebalancing = ErrorCode.REBALANCE_IN_PROGRESS
                return [CommitEnded(call.ticket, rebalancing.number, rebalancing.name)]
        if act is REJOIN and is_ours:
            return self._record_rebalance() + ended
        return ended

    def _record_rebalance(self) -> list[Action]:
        """Note that a rebalance is in progress. This has no effect during a join: `rejoin_needed` is set already."""
        return self.request_rejoin("group is already rebalancing")

    # -- moves ---------------------------------------------------------------------------------------------------------

    def _join(self, now_ms: int, wait_ms: int = 0) -> list[Action]:
        self._calls.forget_membership()
        self.state, self._heartbeat_ms, self._silent_ms = MemberState.PREPARING_REBALANCE, NEVER_MS, NEVER_MS
        request = requests.join(self, self._calls.next_id(), self._protocols, self._why)
        return self._call(request, now_ms, wait_ms)

    def _sync(self, assignments: tuple[Assignment, ...], now_ms: int) -> list[Action]:
        return self._call(requests.sync(self, self._calls.next_id(), assignments), now_ms)

    def _leave(self, reason: str, now_ms: int) -> list[Action]:
        member_id, was_in = self.member_id, self.state is not MemberState.UNJOINED
        is_dynamic = self.config.group_instance_id is None
        if is_dynamic and not member_id:
            self._calls.leave_after_joining(reason)
        self._forget_generation(keep_member_id=False)
        self.rejoin_needed, self._why = True, reason
        return self._request_leave(member_id, reason, now_ms) if is_dynamic and was_in and member_id else []

    def _request_leave(self, member_id: str, reason: str, now_ms: int) -> list[Action]:
        return self._call(requests.leave(self, self._calls.next_id(), member_id, reason), now_ms)

    def _end_membership(self, act: ErrorAction, answer: AnyAnswer) -> list[Action]:
        """Reset the generation, or the generation and the member id, and join again or stop."""
        if act not in (NEW_GENERATION, NEW_MEMBER):
            message = None if answer.error_message is UNSET else answer.error_message
            return self._fail(answer.code, answer.error, message)
        self._forget_generation(keep_member_id=act is NEW_GENERATION)
        self.rejoin_needed, self._why = True, f"the coordinator answered {answer.error}"
        return [PartitionsLost(self._why)]

    def _stop(self, error: ErrorCode, message: str) -> list[Action]:
        return self._fail(error.number, error.name, message)

    def _fail(self, code: int, error: str, message: str | None) -> list[Action]:
        self._forget_generation(keep_member_id=True)
        self.rejoin_needed = True
        return [PartitionsLost(f"the coordinator answered {error}"), Failed(code, error, message)]

    def _forget_generation(self, *, keep_member_id: bool) -> None:
        self._calls.forget_membership()
        self.state, self._heartbeat_ms, self._silent_ms = MemberState.UNJOINED, NEVER_MS, NEVER_MS
        self.generation_id, self.protocol_name, self.is_leader = -1, None, False
        if not keep_member_id:
            self.member_id = ""

    # -- requests ------------------------------------------------------------------------------------------------------

    def _call(self, request: Sent, now_ms: int, wait_ms: int = 0) -> list[Action]:
        return [*self._calls.make(request, now_ms, wait_ms)]

    def _retry(self, call: Call, now_ms: int) -> list[Action]:
        self._calls.retry(call, now_ms)
        return []
