"""One shard: all groups of one partition of the request topic. `Shard.step` is its entry point.

Each group handles its own requests and deadlines in the order of their times, independently of the other groups:
    1. the time of a request is the time of its record; a group's time never goes back
    2. deadlines up to that time fire before the request
    3. after the requests, deadlines up to the time to which the log was read, minus a slack, fire too
So the same log gives the same outputs, however it is divided into batches. `clock` derives the times and keeps them
within bounds. A step whose outputs use up its `budget` defers requests to the next step, as if the log had ended before
them.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec.structs import replace

from coordinator.base.config import Config
from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.base.limits import HEARTBEAT_BYTES, RECORD_OFFSET_END
from coordinator.classic import checks
from coordinator.common.events import clock_ahead
from coordinator.common.handler import RequestSpec, Subject
from coordinator.common.refusals import reject
from coordinator.common.transactions import Settling
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.heartbeats import AnyHeartbeat, Heartbeat, Heartbeats
from coordinator.messages.move_requests import PEER_RECORDS, PeerRecord
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Received, Request, SettleTransactions, TxnOffsetCommit, Unreadable, Wake
from coordinator.messages.responses import Reply
from coordinator.moves import drain
from coordinator.moves.custody import MoveStore
from coordinator.moves.peers import received_from_peer
from coordinator.shard import clock
from coordinator.shard.budget import answer_bytes
from coordinator.shard.clock import Times
from coordinator.shard.consumer_handlers import CONSUMER_HANDLERS
from coordinator.shard.converting import convert, found
from coordinator.shard.deadlines import Deadlines
from coordinator.shard.group_types import answer_from_hot_state, reconsidered, with_published
from coordinator.shard.handlers import HANDLERS
from coordinator.shard.state import ShardState
from coordinator.shard.step import Step, group_of
from coordinator.state import codec
from coordinator.state.classic_group import Group
from coordinator.state.codec import ShardSnapshot
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.member_index import MemberIndexCache


class Shard(ShardState):
    """A shard and what it does with requests.

    Args:
        partition: The number of the partition of the request topic.
        partitions: The number of partitions of the topic.
        secret: The secret from which member ids are derived, 16 to 64 bytes; the same for the life of the state.
        state: The bytes that `to_bytes` returned earlier.
        member_indexes: A cache that outlives the shard; without one the shard makes its own.

    Raises:
        CorruptState: `state` cannot be trusted.
    """

    def __init__(
        self,
        partition: int,
        partitions: int,
        secret: bytes,
        config: Config,
        state: bytes | None = None,
        member_indexes: MemberIndexCache | None = None,
    ) -> None:
        snapshot = codec.decode_shard(state) if state is not None else ShardSnapshot()
        super().__init__(
            partition,
            partitions,
            secret,
            config,
            snapshot,
            MemberIndexCache() if member_indexes is None else member_indexes,
        )
        self._step = Step(partition, Times(0, 0, 0, 0, 0, 0))
        self._deadlines = Deadlines(self, self._step)

    @property
    def deferred(self) -> list[Received]:
        """The requests that the latest step has deferred. The log of the next step must begin with them."""
        return self._step.deferred

    @property
    def due_in_ms(self) -> int | None:
        """The time from the latest step to the next change by time alone, in milliseconds; sometimes less than that.

        Deferred requests, and parts of groups that move, are due at once. None if the shard waits for nothing.
        """
        if self.deferred or (self.move_store is not None and self.move_store.has_unwritten):
            return 0
        deadline_ms = self.next_deadline_ms
        return None if deadline_ms is None else max(deadline_ms - self._step.times.horizon_now_ms, 0)

    def step(self, log: Sequence[Received], now_ms: int) -> list[Output]:
        """Handle one batch.

        Args:
            log: Requests in the order of their offsets. The requests that the step before has `deferred` come first.
            now_ms: The time for which the batch was planned, Unix milliseconds.
        """
        self.clock, times = clock.advance(self.clock, log, now_ms, self.config.clock_slack_ms)
        self._step = Step(self.partition, times)
        self._deadlines = Deadlines(self, self._step)
        outputs = self._read(log)
        outputs.extend(self._deadlines.pass_time())
        if self.move_store is not None:
            outputs = self._step.with_moves(self.move_store, outputs)
        self.store.flush()
        self.store.expire_tombstones(self._step.times.horizon_ms)
        return outputs

    def _read(self, log: Sequence[Received]) -> list[Output]:
        """Handle the requests of one batch."""
        budget, rules, slack_ms = self._step.budget, self.rules, self.config.clock_slack_ms
        earliest_ms, latest_ms = self._step.times.earliest_ms, self._step.times.latest_ms
        outputs, ahead = list[Output](), list[Received]()
        for received in log:
            request = received.request
            if budget.is_tight and self._step.must_wait(received):
                outputs.extend(self._step.defer(received))
                continue
            dated_ms = received.at_ms
            if dated_ms > latest_ms:
                ahead.append(received)
                received = replace(received, at_ms=latest_ms)
            elif dated_ms < earliest_ms and not received.was_deferred:
                received = replace(received, at_ms=earliest_ms + slack_ms)
            elif dated_ms - slack_ms > earliest_ms:
                earliest_ms = dated_ms - slack_ms
            if rules.authorizer is not None and not rules.authorizer.admits(
                received, spec := HANDLERS.get(type(request))
            ):
                outputs.extend(self._step.charged(received, rules.authorizer.refuse(received, spec)))
                continue
            if (type(request) is Heartbeat or type(request) is ConsumerGroupHeartbeat) and (
                reply := self._answer_soon(request, received.at_ms)
            ) is not None:
                outputs.append(reply)
            elif type(request) is not Wake:
                outputs.extend(self._step.charged(received, self._handle_received(received)))
        if ahead:
            outputs.append(clock_ahead(self.partition, ahead, latest_ms))
        return outputs

    def _answer_soon(self, request: AnyHeartbeat, at_ms: int) -> Reply | None:
        """Return the reply to a heartbeat that needs only the hot state of its group; None for every other one.

        Nearly all requests are heartbeats of a group in which no deadline is due.
        """
        hot_state = self.store.hot_state.get(request.group_id) or self.store.hot_state_of(request.group_id)
        if hot_state is None or not request.group_id or self._lacks_addresses(request.group_id):
            return None
        at_ms = max(at_ms, hot_state.now_ms)
        if hot_state.earliest_ms <= at_ms:
            return None
        hot_state.now_ms = at_ms
        hot_state.record_lateness(self._step.times.now_ms, self.config.late_notice_ms)
        return answer_from_hot_state(hot_state, request, at_ms, self.config)

    # -- one request ---------------------------------------------------------------------------------------------------

    def _handle_received(self, received: Received) -> Iterable[Output]:
        """Handle the part of a request for which its sender has the rights."""
        request = received.request
        assert not isinstance(request, Wake), "a wake record is no request"
        if isinstance(request, Unreadable):
            return [reject(received, request, self.partition)]
        if isinstance(request, PEER_RECORDS):
            return self._handle_from_peer(request, received)
        spec, authorizer = HANDLERS[type(request)], self.rules.authorizer
        if authorizer is None:
            return self._handle_all(spec, request, received)
        return authorizer.limited(request, received, spec, lambda part: self._handle_all(spec, part, received))

    def _handle_all(self, spec: RequestSpec, request: Request, received: Received) -> Iterator[Output]:
        error = checks.group_id_fits(request, spec.needs_group_id)
        if error is not ErrorCode.NONE:
            yield spec.refuse(request, error)
            return
        yield from _BY_SUBJECT[spec.subject](self, spec, request, received)

    def _handle_for_group(self, spec: RequestSpec, request: Request, received: Received) -> Iterator[Output]:
        """Handle a request to one group, after the group's deadlines up to the time of the request."""
        group_id = request.group_id
        if self.move_store is not None and (
            yield from self._refused_for_moves(self.move_store, spec, request, received)
        ):
            return
        if group_id in self.store.stored:
            yield from self._deadlines.advance(group_id, received.at_ms, self._step.times.now_ms)
        group = yield from self._group_for(spec, request, received)
        if group is None:
            return
        spec = CONSUMER_HANDLERS[type(request)] if isinstance(group, ConsumerGroup) else spec
        at_ms = self._deadlines.begin(group, received)
        if self.move_store is not None:
            self.move_store.record_address(group, request)
        if (refused := spec.refuse_costly(group, request, group.allowance, at_ms)) is not None:
            yield refused
            return
        epoch = group.generation_id
        brought = list(
            with_published(group, self._handle(spec, group, request, received, at_ms), request, at_ms, self.config)
        )
        yield from brought
        if spec.is_costly(group, request):
            group.allowance = group.allowance.with_answer(answer_bytes(brought, request.request_id), at_ms)
        yield from self._deadlines.conclude(group, has_lost_consumer=group.generation_id > epoch)
        yield from self._deadlines.advance(group_id, at_ms, noticed_ms=at_ms)  # those that the request itself has set

    def _group_for(
        self, spec: RequestSpec, request: Request, received: Received
    ) -> Generator[Output, None, Group | ConsumerGroup | None]:
        """Return the group of a request, created or converted if the request does so; None after a final answer."""
        group_id = request.group_id
        group = self.store.open(group_id)
        if group is None:
            home = shard_of(group_id, self.partitions)
            if home != self.partition:
                why = f"this group's requests belong in partition {home}"
                yield spec.refuse(request, ErrorCode.NOT_COORDINATOR, why)
                return None
            if not self._founds(spec, request, received):
                yield from self._handle(spec, None, request, received, received.at_ms)
                return None
            group = yield from found(self.store.draft(group_id, received.at_ms, spec.founds), request, self.config)
        elif spec.founds in (None, group.type) or not self._founds(spec, request, received):
            return group
        else:
            at_ms = self._deadlines.begin(group, received)
            group = yield from convert(group, request, at_ms, self.config)
        if group is not None:
            self.store.put(group)
        return group

    def _founds(self, spec: RequestSpec, request: Request, received: Received) -> bool:
        """Return whether a request creates its group, or replaces an Empty group of the other protocol."""
        if not spec.creates_group(request) or spec.error_on_its_own(request, self.config) is not ErrorCode.NONE:
            return False
        return spec.answers_at_once(None, request, self._context(request, received, received.at_ms)) is None

    def _handle_heartbeats(self, spec: RequestSpec, request: Heartbeats, received: Received) -> Iterator[Output]:
        """Handle the heartbeats of one record, each like a record of its own, and answer them together."""
        codes = list[int]()
        if spec.error_on_its_own(request, self.config) is ErrorCode.NONE:
            for heartbeat in request.each():
                of_one = HANDLERS[type(heartbeat)]
                for output in self._handle_heartbeat(of_one, heartbeat, received):
                    if type(output) is Reply and type(output.answer) is of_one.answer:
                        codes.append(output.answer.code)
                    else:
                        yield output
            self._step.budget.spend_bytes("", HEARTBEAT_BYTES * len(codes), received.size_bytes)
        yield from self._handle(spec, codes, request, received, received.at_ms)

    def _handle_heartbeat(self, spec: RequestSpec, heartbeat: AnyHeartbeat, received: Received) -> Iterable[Output]:
        """Handle one heartbeat of a record, or refuse it if requests to its group wait for the next step."""
        authorizer, group_id = self.rules.authorizer, heartbeat.group_id
        waits = self._step.budget.is_tight and self._step.holds_back(group_id)
        if waits or self._lacks_addresses(group_id):  # the record's mailbox is not the member's
            return [spec.refuse(heartbeat, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
        if authorizer is not None and not authorizer.admits(single := _single(heartbeat, received), spec):
            return self._step.charged(single, authorizer.refuse(single, spec))
        if (reply := self._answer_soon(heartbeat, received.at_ms)) is not None:
            return [reply]
        single, is_classic = _single(heartbeat, received), type(heartbeat) is Heartbeat
        return self._step.charged(
            single, self._handle_received(single) if is_classic else self._answer_by_code(spec, heartbeat, single)
        )

    def _answer_by_code(self, spec: RequestSpec, request: AnyHeartbeat, received: Received) -> Iterator[Output]:
        """Answer a bare heartbeat after the deadlines of its group, or refuse it if its response may have more."""
        yield from self._deadlines.advance(request.group_id, received.at_ms, self._step.times.now_ms)
        yield self._answer_soon(request, received.at_ms) or spec.refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _handle_for_groups(self, spec: RequestSpec, request: Request, received: Received) -> Iterator[Output]:
        """Handle a request to all groups, after their deadlines up to the time of the request."""
        at_ms = received.at_ms
        if (refused := spec.refuse_costly(self.store, request, self.allowance, at_ms)) is not None:
            yield refused
            return
        yield from self._deadlines.advance_all(at_ms)
        in_transit = () if self.move_store is None else self.move_store.listed()
        brought = list(self._handle(spec, chain(self.store.listed(), in_transit), request, received, at_ms))
        if spec.is_costly(self.store, request):
            self.allowance = self.allowance.with_answer(answer_bytes(brought, request.request_id), at_ms)
        yield from brought

    def _handle_for_transactions(
        self, spec: RequestSpec, request: SettleTransactions, received: Received
    ) -> Iterator[Output]:
        """Handle a report of ended transactions, after the deadlines of the groups with their commits."""
        settling = Settling(self.settled)
        before = RECORD_OFFSET_END if self.settled.is_other(request.topic_id) else request.settled_before
        for group_id in self.store.with_pending(before):
            yield from self._deadlines.end_drain(group_id, received.at_ms)
            yield from self._deadlines.advance(group_id, received.at_ms, self._step.times.now_ms)
            if (group := self.store.open(group_id)) is not None:
                if not self._deadlines.stands_still(group_id):
                    group.hot_state.now_ms = max(received.at_ms, group.hot_state.now_ms)
                settling.groups.append(group)
        yield from self._handle(spec, settling, request, received, received.at_ms)
        for settled in settling.groups:
            at_ms = settled.hot_state.now_ms
            yield from self._deadlines.advance(settled.group_id, at_ms, noticed_ms=at_ms)
            yield from self._deadlines.end_drain(settled.group_id, at_ms)

    def _handle_for_rules(self, spec: RequestSpec, request: Request, received: Received) -> Iterator[Output]:
        """Handle a request to the access rules."""
        yield from self._handle(spec, self.rules, request, received, received.at_ms)

    def _handle_for_policies(self, spec: RequestSpec, request: Request, received: Received) -> Iterator[Output]:
        """Handle a request to the policies, after the deadlines of all groups up to the time of the request."""
        yield from self._deadlines.advance_all(received.at_ms)
        before = self.policies.written
        yield from self._handle(spec, self.policies, request, received, received.at_ms)
        if self.policies.written != before:
            for group_id in self.store.held():
                group = self.store.open(group_id)
                assert group is not None, "a group with hot state exists"
                at_ms, config = self._deadlines.begin(group, received), self.policies.config_of(group_id)
                yield from reconsidered(group, at_ms, config)
                yield from self._deadlines.advance(group_id, at_ms, noticed_ms=at_ms)

    # -- moves between coordinators ------------------------------------------------------------------------------------

    def _lacks_addresses(self, group_id: str) -> bool:
        """Return whether a group has come here and the mailbox of some member is not known yet."""
        return self.move_store is not None and self.move_store.lacks_addresses(group_id)

    def _refused_for_moves(
        self, moves: MoveStore, spec: RequestSpec, request: Request, received: Received
    ) -> Generator[Output, None, bool]:
        """Refuse a request whose name is elsewhere, or a commit of a drained name. Return whether it is refused."""
        if isinstance(request, TxnOffsetCommit):
            yield from self._deadlines.end_drain(request.group_id, received.at_ms)
            refused = moves.refuse(spec, request) or drain.refuse_commit(moves, spec, request)
        else:
            refused = moves.refuse(spec, request)
        if refused is not None:
            yield refused
        return refused is not None

    def _handle_for_moves(self, spec: RequestSpec, request: Request, received: Received) -> Iterator[Output]:
        """Handle a request to move a name, after the deadlines of its group up to the time of the request."""
        if (home := shard_of(request.group_id, self.partitions)) != self.partition:
            yield spec.refuse(request, ErrorCode.NOT_COORDINATOR, f"this group's requests belong in partition {home}")
            return
        yield from self._deadlines.advance(request.group_id, received.at_ms, self._step.times.now_ms)
        moves = self.moves_to_change()
        outputs = self._handle(spec, moves, request, received, received.at_ms)
        yield from self._about_moves(moves, request.group_id, received, outputs)
        if not moves.moves.is_blank:
            self.move_store = moves  # a coordinator without peers has imported its first group

    def _handle_for_slots(self, spec: RequestSpec, request: Request, received: Received) -> Iterator[Output]:
        """Handle a request to move slots. No deadline of a group depends on its slot."""
        moves = self.moves_to_change()
        yield from self._handle(spec, moves, request, received, received.at_ms)

    def _handle_from_peer(self, record: PeerRecord, received: Received) -> Iterator[Output]:
        """Handle a record of another coordinator."""
        moves = self.moves_to_change()
        yield from self._about_moves(moves, group_of(received), received, received_from_peer(moves, received, record))

    def _about_moves(
        self, moves: MoveStore, group_id: str, received: Received, outputs: Iterable[Output]
    ) -> Iterator[Output]:
        """Yield the outputs about a name, those of deadlines of a group that has come, and parts of one that goes."""
        moves.noticed_ms = self._step.times.now_ms
        was_here = group_id in self.store.stored
        yield from outputs
        if not was_here and (group := self.store.open(group_id)) is not None:
            yield from self._deadlines.advance(group_id, group.hot_state.now_ms, noticed_ms=received.at_ms)

    def _handle(
        self, spec: RequestSpec, subject: Any, request: Request, received: Received, at_ms: int
    ) -> Iterator[Output]:
        """Check a request, and call its handler or refuse it."""
        context = self._context(request, received, at_ms)
        if (outputs := spec.answers_at_once(subject, request, context)) is not None:
            yield from outputs
        elif (error := spec.error_of(subject, request, self.config)) is ErrorCode.NONE:
            yield from spec.handler(subject, request, context)
        else:
            if subject is not None:
                yield from spec.on_refusal(subject, request, error, context)
            yield spec.refuse(request, error)

    def _context(self, request: Request, received: Received, at_ms: int) -> Context:
        absent_ms = self.store.not_before_ms(request.group_id) or self._step.times.floor_ms
        config, partition, offset = self.policies.config_of(request.group_id), self.partition, received.offset
        return Context(at_ms, config, partition, offset, self.secret, absent_ms, self.settled)


_BY_SUBJECT: dict[Subject, Callable[[Shard, RequestSpec, Any, Received], Iterator[Output]]] = {
    Subject.GROUP: Shard._handle_for_group,
    Subject.GROUPS: Shard._handle_for_groups,
    Subject.TRANSACTIONS: Shard._handle_for_transactions,
    Subject.HEARTBEATS: Shard._handle_heartbeats,
    Subject.RULES: Shard._handle_for_rules,
    Subject.POLICIES: Shard._handle_for_policies,
    Subject.MOVES: Shard._handle_for_moves,
    Subject.SLOTS: Shard._handle_for_slots,
}


def _single(heartbeat: AnyHeartbeat, received: Received) -> Received:
    """Return a heartbeat as a record of its own. The record that has it pays for its bytes."""
    return replace(received, request=heartbeat, size_bytes=0)
