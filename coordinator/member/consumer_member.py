"""A member of a group of the consumer protocol: when to join, to send heartbeats, to acknowledge and to leave.

Like the coordinator's core, this module uses no clock, no randomness and no network. Time is an argument. Every call
returns actions: requests to send, and effects that only the member's owner can carry out. `deadline_ms` is the one time
at which time alone causes more actions.

When the coordinator sends a notice of a change, the member sends its next heartbeat at once. Without notices, each step
of a rebalance would wait for the interval that the coordinator names.

Every change of a member's state goes through `move`, and each legal change is a row of `MOVES`.

Java's PREPARE_LEAVING is not needed: the thread that leaves calls the listener itself, and reconciles nothing
meanwhile. Its LEAVING is not needed either: a leave is sent at once, and never again.

Source: Kafka's AbstractMembershipManager, ConsumerMembershipManager, MemberState, ConsumerHeartbeatRequestManager and
AbstractHeartbeatRequestManager.onErrorResponse; KIP-848.
"""

from enum import Enum, auto

from msgspec import UNSET, Struct

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.member.consumer_config import ConsumerProtocolConfig, Partitions, Target, Wanted, read
from coordinator.member.consumer_heartbeats import JOIN_EPOCH, HeartbeatBuilder
from coordinator.member.consumer_offsets import Offsets
from coordinator.member.consumer_topics import TopicReports
from coordinator.member.effects import CoordinatorSilent, Effect, Failed, Left, PartitionsLost
from coordinator.member.pending_requests import PendingRequests
from coordinator.member.requests import Sent
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, GroupTopics
from coordinator.messages.requests import OffsetToCommit, TopicPartitions
from coordinator.messages.responses import (
    AnyAnswer,
    Ask,
    AssignmentNotice,
    ConsumerGroupHeartbeatAnswer,
    HeartbeatAnswer,
)

# -- states ------------------------------------------------------------------------------------------------------------


class State(Enum):
    """The state of a member. Only in the states of `IN_GROUP` does it send heartbeats."""

    UNSUBSCRIBED = auto()  # it is no member, and has no subscription
    JOINING = auto()  # it sends epoch 0, and waits for the response
    RECONCILING = auto()  # an assignment waits for its owner, or the owner's listener is being called
    ACKNOWLEDGING = auto()  # its next request lists the partitions that it owns now
    STABLE = auto()  # it follows its assignment
    FENCED = auto()  # the coordinator has refused its epoch; its owner still has to release the partitions
    STALE = auto()  # its owner did not poll for too long, so it has left; its owner still has to release the partitions
    FATAL = auto()  # the coordinator refuses it for good


class Cause(Enum):
    """The cause of a move."""

    SUBSCRIBED = auto()
    ASSIGNED = auto()  # a response has another assignment
    RECONCILED = auto()  # the owner has released and taken partitions
    ACKNOWLEDGED = auto()  # a request lists the owned partitions
    FENCED = auto()
    NOT_POLLED = auto()
    RELEASED = auto()  # the owner has given up all partitions, as lost
    REFUSED = auto()
    LEFT = auto()


IN_GROUP = (State.JOINING, State.RECONCILING, State.ACKNOWLEDGING, State.STABLE)

MOVES: dict[tuple[State, Cause], State] = {
    # a member that is ...   when ...             becomes ...
    (State.UNSUBSCRIBED,     Cause.SUBSCRIBED):   State.JOINING,
    (State.JOINING,          Cause.ASSIGNED):     State.RECONCILING,
    (State.STABLE,           Cause.ASSIGNED):     State.RECONCILING,
    (State.ACKNOWLEDGING,    Cause.ASSIGNED):     State.RECONCILING,
    (State.RECONCILING,      Cause.ASSIGNED):     State.RECONCILING,
    (State.RECONCILING,      Cause.RECONCILED):   State.ACKNOWLEDGING,
    (State.ACKNOWLEDGING,    Cause.ACKNOWLEDGED): State.STABLE,
    (State.FENCED,           Cause.RELEASED):     State.JOINING,
    (State.STALE,            Cause.RELEASED):     State.JOINING,
    **{(state, Cause.FENCED):     State.FENCED for state in IN_GROUP},
    **{(state, Cause.NOT_POLLED): State.STALE for state in IN_GROUP},
    **{(state, Cause.REFUSED):    State.FATAL for state in IN_GROUP},
    **{(state, Cause.LEFT):       State.UNSUBSCRIBED for state in State},
}  # fmt: skip


def move(state: State, cause: Cause) -> State:
    """Return the state after a cause.

    Raises:
        AssertionError: the move is not in `MOVES`, which is a bug of the caller.
    """
    assert (state, cause) in MOVES, f"{cause.name} in {state.name}"
    return MOVES[state, cause]


# -- errors ------------------------------------------------------------------------------------------------------------


class ErrorAction(Enum):
    """A member's action after an error."""

    RETRY = auto()  # send all fields again, after a backoff
    REJOIN = auto()  # give up all partitions as lost, and join with epoch 0
    REPORT = auto()  # raise the error in `poll`, and continue
    STOP = auto()  # report to the owner: a retry cannot succeed


_ACTS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE:    ErrorAction.RETRY,
    ErrorCode.NOT_COORDINATOR:              ErrorAction.RETRY,
    ErrorCode.UNKNOWN_MEMBER_ID:            ErrorAction.REJOIN,
    ErrorCode.FENCED_MEMBER_EPOCH:          ErrorAction.REJOIN,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED:   ErrorAction.REPORT,
}  # fmt: skip

_BY_NUMBER = {error.number: act for error, act in _ACTS.items()}


def reaction(code: int, epoch: int) -> ErrorAction:
    """Return the action after an error in the response to a heartbeat. An error without a row stops the member.

    GROUP_ID_NOT_FOUND for a member with an epoch means that the group does not exist any more. The member then creates
    the group again. Kafka's clients stop. Without an epoch the error means that the group's members use the classic
    protocol, and may not be mixed.
    """
    if code == ErrorCode.GROUP_ID_NOT_FOUND.number and epoch > 0:
        return ErrorAction.REJOIN
    return _BY_NUMBER.get(code, ErrorAction.STOP)


class AssignmentChanged(Struct, frozen=True):
    """The assignment has changed: release and take partitions, then call `reconciled`. `target` is the latest one."""


Action = Sent | ConsumerGroupHeartbeat | GroupTopics | Effect | AssignmentChanged


class ConsumerProtocolMember:
    """One member of one group. It may leave and subscribe again any number of times.

    Args:
        request_prefix: The beginning of this member's request ids, unique among all members that share its mailbox.
        now_ms: From any clock that never goes back.
    """

    def __init__(self, config: ConsumerProtocolConfig, request_prefix: str, now_ms: int) -> None:
        self.config = config
        self.member_id = config.member_id
        self.state = State.UNSUBSCRIBED
        self.epoch = JOIN_EPOCH
        self.is_subscribed = False
        self.owned: Partitions = frozenset()
        self.target: Target | None = None
        self.requested_topics: frozenset[str] = frozenset()
        """The topics about which the coordinator has asked."""
        self.failed: Failed | None = None
        """The error that made the member FATAL; None without one."""
        self._wanted: Wanted | None = None
        self._membership = 0
        self._rejoins = False
        self._has_news = False  # a heartbeat is to be sent as soon as none is under way
        self._is_at_rest = False  # the last response had no news
        self._last_ask: Ask | None = None
        self._failures = 0
        self._polled_ms = now_ms
        self._silent_ms = NEVER_MS
        self._leaving: str | None = None
        self._heartbeats = HeartbeatBuilder(config, request_prefix)
        self._topics = TopicReports(config, request_prefix)
        self._offsets = Offsets(self, request_prefix)
        self._backoff = PendingRequests(config, request_prefix)

    @property
    def generation_id(self) -> int:
        """The member epoch; -1 without one."""
        return self.epoch if self.epoch > JOIN_EPOCH else -1

    @property
    def is_in_group(self) -> bool:
        """True while the member has an epoch, or is joining."""
        return self.state in IN_GROUP

    # -- the owner's calls ---------------------------------------------------------------------------------------------

    def subscribe(self, why: str = "subscribed") -> list[Action]:
        """Join at the next `poll`, once `follow` has been called."""
        self.is_subscribed = True
        return []

    def follow(self, wanted: Wanted, now_ms: int) -> list[Action]:
        """Set the subscription and the facts about its topics. Changes are sent to the group."""
        before, self._wanted = self._wanted, wanted
        if not self.is_in_group or before is None:
            return []
        todos: list[Action] = []
        if (before.names, before.regex) != (wanted.names, wanted.regex):
            todos += self._send_news(now_ms)
        return todos + self._report_topics(now_ms)

    def poll(self, now_ms: int) -> list[Action]:
        """Record that the owner is alive, and join if the member has to."""
        self._polled_ms = now_ms
        if self.state is not State.UNSUBSCRIBED or not self.is_subscribed or self._wanted is None:
            return []
        self.state = move(self.state, Cause.SUBSCRIBED)
        return self._send(now_ms)

    def reconciled(self, target: Target, now_ms: int) -> list[Action]:
        """Continue after the owner has reconciled with a target. If the membership has ended since, do nothing."""
        if target.membership != self._membership or self.state is not State.RECONCILING:
            return []
        self.owned = target.partitions
        self.state = move(self.state, Cause.RECONCILED)
        return self._send_news(now_ms)

    def released(self, now_ms: int) -> list[Action]:
        """Join again after `PartitionsLost`, unless the member is refused: the owner has given up all partitions."""
        if self.state not in (State.FENCED, State.STALE):
            return []
        self.state = move(self.state, Cause.RELEASED)
        return self._send(now_ms)

    def commit(self, offsets: tuple[OffsetToCommit, ...], now_ms: int) -> tuple[str, list[Action]]:
        """Commit offsets with the member's epoch. Return the ticket that `CommitEnded` will carry, and the actions."""
        ticket, todos = self._offsets.commit(offsets, now_ms)
        return ticket, [*todos]

    def fetch(self, topics: tuple[TopicPartitions, ...] | None, now_ms: int) -> tuple[str, list[Action]]:
        """Request committed offsets, of all partitions if `topics` is None; `FetchEnded` carries the ticket."""
        ticket, todos = self._offsets.fetch(topics, now_ms)
        return ticket, [*todos]

    def give_up(self, ticket: str) -> None:
        """Stop waiting for a commit or a fetch."""
        self._offsets.give_up(ticket)

    def leave(self, reason: str, now_ms: int) -> list[Action]:
        """End the membership. `Left` follows if there was one."""
        self.is_subscribed, was_in_group, self._wanted, self.failed = False, self.is_in_group, None, None
        self._forget(Cause.LEFT)
        self._rejoins = False
        if not was_in_group:
            return []
        farewell = self._heartbeats.farewell()
        self._leaving = farewell.request_id
        return [farewell]

    @property
    def is_leaving(self) -> bool:
        """True while `Left` is still to come."""
        return self._leaving is not None

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def deadline_ms(self) -> int:
        """The time at which `advance` next has an action."""
        dues_ms = self._heartbeats.due_ms, self._topics.due_ms, self._offsets.due_ms
        return min(*dues_ms, self._silent_ms, self._poll_overdue_ms)

    @property
    def _poll_overdue_ms(self) -> int:
        return self._polled_ms + self.config.max_poll_interval_ms if self.is_in_group else NEVER_MS

    def advance(self, now_ms: int) -> list[Action]:
        """Return the actions that are due: heartbeats, repeated requests, and a leave if the owner does not poll."""
        todos: list[Action] = []
        if self._poll_overdue_ms <= now_ms:
            todos += self._stop_for_want_of_polls()
        if self._silent_ms <= now_ms:
            self._silent_ms = NEVER_MS
            todos.append(CoordinatorSilent(self.config.request_timeout_ms))
        if self._heartbeats.due_ms <= now_ms:
            todos += self._send(now_ms)
        if self._topics.due_ms <= now_ms:
            todos += self._report_topics(now_ms)
        todos += self._offsets.send_due(now_ms)
        assert self.deadline_ms > now_ms, "an action is still due"
        return todos

    def _stop_for_want_of_polls(self) -> list[Action]:
        self._forget(Cause.NOT_POLLED)
        why = f"poll() was not called for {self.config.max_poll_interval_ms} ms"
        return [self._heartbeats.farewell(), PartitionsLost(why)]

    # -- sending -------------------------------------------------------------------------------------------------------

    def _send_news(self, now_ms: int) -> list[Action]:
        """Send a heartbeat as soon as no other one is under way."""
        self._has_news = True
        return [] if self._heartbeats.is_awaited else self._send(now_ms)

    def _send(self, now_ms: int) -> list[Action]:
        assert self._wanted is not None, "a member in a group follows a subscription"
        todos: list[Action] = []
        is_static = self.config.group_instance_id is not None
        if is_static and self.epoch == JOIN_EPOCH and (self._rejoins or self._heartbeats.is_awaited):
            todos.append(self._heartbeats.farewell())  # else its own instance id would count as taken
        owes, has_news = self.state is State.ACKNOWLEDGING, self._has_news or not self._is_at_rest
        self._has_news = False
        todos.append(
            self._heartbeats.make(self.epoch, self._wanted, self._held, has_news=owes or has_news, now_ms=now_ms)
        )
        self._topics.subscribed(self._wanted)
        if self._silent_ms == NEVER_MS:
            self._silent_ms = now_ms + self.config.request_timeout_ms
        if owes:
            self._acknowledged()
        return todos

    @property
    def _held(self) -> Partitions:
        """The partitions that the member owns, or may take at any time. Each list of owned partitions has them."""
        return self.owned if self.target is None else self.owned | self.target.partitions

    def _report_topics(self, now_ms: int) -> list[Action]:
        if self._wanted is None or self.epoch == JOIN_EPOCH:
            return []
        news = self._topics.make(self._wanted, now_ms)
        return [] if news is None else [news]

    def _acknowledged(self) -> None:
        self.state = move(self.state, Cause.ACKNOWLEDGED)
        if self.target is not None and self.target.partitions != self.owned:
            self.state = move(self.state, Cause.ASSIGNED)  # a newer one waits for the owner

    # -- responses -----------------------------------------------------------------------------------------------------

    def receive(self, answer: AnyAnswer, now_ms: int) -> list[Action]:
        """Handle a response or a notice from this member's mailbox; ignore repeats and those of other members."""
        if isinstance(answer, AssignmentNotice):
            is_mine = (answer.group_id, answer.member_id) == (self.config.group_id, self.member_id)
            return self._send_news(now_ms) if is_mine and self.epoch > JOIN_EPOCH else []
        request_id = answer.request_id or ""
        if request_id == self._leaving:
            self._leaving = None
            return [Left()]
        if self._heartbeats.end(request_id):
            return self._answered(answer, now_ms)
        if self._topics.end(request_id, answer.code):
            return self._report_topics(now_ms)
        todos: list[Action] = [*self._offsets.receive(answer, now_ms)]
        if self._offsets.has_doubts and self.epoch > JOIN_EPOCH:
            todos += self._send_news(now_ms)
        return todos

    def _answered(self, answer: AnyAnswer, now_ms: int) -> list[Action]:
        self._silent_ms = NEVER_MS
        answer = self._completed(answer)
        asks = self._record_ask(answer)
        if answer.code or not isinstance(answer, ConsumerGroupHeartbeatAnswer):
            return self._refused(answer, now_ms)
        self._failures = 0
        self.epoch = answer.member_epoch
        self._is_at_rest = answer.assignment is None and answer.pending == "none" and not answer.ask
        self._heartbeats.answered(answer.heartbeat_interval_ms, now_ms)
        todos = self._handle_assignment(answer)
        if asks:
            self._heartbeats.say_all()
        if self._has_news or asks:
            todos += self._send(now_ms)
        return todos + self._report_topics(now_ms)

    def _completed(self, answer: AnyAnswer) -> AnyAnswer:
        """Return a response. If it is the code NONE to one of many heartbeats in a record, add all else: as before."""
        if not isinstance(answer, HeartbeatAnswer) or answer.code:
            return answer
        return ConsumerGroupHeartbeatAnswer(
            request_id=answer.request_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            heartbeat_interval_ms=self._heartbeats.interval_ms,
        )

    def _handle_assignment(self, answer: ConsumerGroupHeartbeatAnswer) -> list[Action]:
        """Store the assignment of a response, and return the action that lets the owner reconcile with it."""
        if answer.assignment is None:
            return []
        target = Target(self._membership, self.epoch, read(answer.assignment), answer.fencing_token)
        before = self.target
        if before is not None and (before.partitions, before.token) == (target.partitions, target.token):
            return []
        self.target = target
        self.state = move(self.state, Cause.ASSIGNED)
        return [AssignmentChanged()]

    def _record_ask(self, answer: AnyAnswer) -> bool:
        """Store the `ask` of a response. Return whether it is a new one, which the next heartbeat answers."""
        ask = answer.ask if isinstance(answer, ConsumerGroupHeartbeatAnswer) else UNSET
        before, self._last_ask = self._last_ask, ask or None
        if not ask:
            return False
        self.requested_topics |= set(ask.topics)
        return ask != before

    # -- errors --------------------------------------------------------------------------------------------------------

    def _refused(self, answer: AnyAnswer, now_ms: int) -> list[Action]:
        message = None if answer.error_message is UNSET else answer.error_message
        failed = Failed(answer.code, answer.error, message)
        act = reaction(answer.code, self.epoch)
        if act is ErrorAction.RETRY:
            self._failures += 1
            self._heartbeats.say_all(now_ms + self._backoff.backoff_ms(self._failures))
            return []
        if act is ErrorAction.REPORT:
            self._heartbeats.say_all(now_ms + self._heartbeats.interval_ms)
            return [failed]
        if act is ErrorAction.STOP:
            self.failed = failed
        self._forget(Cause.FENCED if act is ErrorAction.REJOIN else Cause.REFUSED)
        return [PartitionsLost(f"the coordinator answered {answer.error}")]

    def _forget(self, cause: Cause) -> None:
        """End the membership, and forget all that belongs to it."""
        self.state = move(self.state, cause)
        self._membership += 1
        self._rejoins = True
        self.epoch, self.owned, self.target = JOIN_EPOCH, frozenset(), None
        self._has_news, self._silent_ms, self._last_ask = False, NEVER_MS, None
        self._heartbeats.forget()
        self._topics.forget()
