"""The client's own code and the coordinator's, in one thread on one clock, with everything between them simulated.

    Participant over Driver over Member   the real client
    Wire                                  its transport: the log of requests and a mailbox
    Worker                                its owner: subscribes, looks topics up, listens, and keeps a history of calls
    Shard                                 the real coordinator
    Faults                                the faults of messages, listeners and look-ups

`turn` advances the time, runs a batch of the coordinator, delivers responses, and lets every worker poll.
"""

import heapq
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import pytest
from kafka import TopicPartition
from kafka.errors import FencedInstanceIdError, KafkaError, KafkaTimeoutError

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import CONSUMERS
from coordinator.base.states import Phase
from coordinator.member.effects import CommitEnded, Effect
from coordinator.member.member import MemberState
from coordinator.member.owned_partitions import Change, ListenerCall
from coordinator.member.requests import MemberConfig
from coordinator.messages.events import RebalanceStarted
from coordinator.messages.fields import Event
from coordinator.messages.outputs import Output
from coordinator.messages.requests import JoinGroup, LeaveGroup, OffsetToCommit, Received, Request
from coordinator.messages.responses import AnyAnswer, JoinGroupAnswer, Reply
from coordinator.shard.shard import Shard
from coordinator.state.classic_group import Group
from streaming.client import driver as clock_user
from streaming.client.driver import Driver
from streaming.client.participant import Participant, Racks
from streaming.client.plans import effective_protocol, resolve
from tests.coordinator.waking import wake
from tests.streaming.client.contract import CallbacksInOrder, OneOwnerAGeneration, OneOwnerAToken

TURN_MS = 100
METADATA_AGE_MS = 1_000
SECRET = b"a secret of the tests"
NO_DELAY = Config(group_initial_rebalance_delay_ms=0)
EAGER, COOPERATIVE = ("range",), ("cooperative-sticky",)


class MeantToFail(Exception):
    """An intended failure of a listener or an assignor of the tests."""


class Faults:
    """The faults of messages, listeners and look-ups. This class has none."""

    def repeated_after_ms(self, request: Request) -> int | None:
        """Return the milliseconds after which a request is appended again, or None."""
        return None

    def is_refused(self, request: Request) -> bool:
        """Return whether the brokers refuse a request, which may be retried."""
        return False

    def arrivals(self, answer: AnyAnswer) -> Collection[int]:
        """Return the delay in milliseconds of each arrival of a response."""
        return (0,)

    def fails(self, what: str) -> bool:
        """Return whether a listener or a look-up fails."""
        return False

    def polls_first(self) -> bool:
        """Return whether the owner's thread runs before the transport's."""
        return False


class Wire:
    """A transport: a sent request is appended to the simulation's log, unless a fault prevents it."""

    def __init__(self, simulation: "Simulation", inbox: str) -> None:
        self.simulation, self.inbox = simulation, inbox
        self.sent: list[Request] = []
        self.first_join: str | None = None  # until its result is known

    def condition(self) -> threading.Condition:
        return threading.Condition()

    def register(self, driver: Driver, patience_ms: int) -> str:
        self._driver = driver
        return "1."

    @property
    def _is_leaving(self) -> bool:
        """True if the member leaves as soon as the response to its first join has its id."""
        return self._driver.member.is_leaving

    def unregister(self, prefix: str) -> None:
        self.simulation.inboxes.pop(self.inbox, None)

    def send(self, request: Request) -> None:
        if self.simulation.faults.is_refused(request):
            raise KafkaTimeoutError("no broker")
        is_first_join = isinstance(request, JoinGroup) and not request.member_id and request.group_instance_id is None
        if is_first_join and request not in self.sent:
            if self.first_join is not None and not self._is_leaving:
                self.simulation.orphans.append(request)
            self.first_join = request.request_id
        self.sent.append(request)
        self.simulation.append(request)


class Worker:
    """One process with one member, which acts as Kafka's consumers do and keeps a history of its listener's calls."""

    def __init__(
        self,
        simulation: "Simulation",
        name: str,
        topics: Iterable[str],
        strategies: Iterable[object],
        group_instance_id: str | None,
        **settings: int,
    ) -> None:
        self.simulation, self.name, self.instance = simulation, name, group_instance_id
        self.topics = frozenset(topics)
        self.seen: dict[str, int] = {}
        self._seen_ms = -METADATA_AGE_MS
        self.history: list[str] = []
        self.raised: list[Exception] = []
        self.received: list[AnyAnswer] = []
        self.commits: dict[str, str] = {}
        self.is_awake = self.is_polling = True
        resolved = resolve(strategies)
        self.wire = Wire(simulation, f"inbox of {name}")
        self.driver = Driver(
            self.wire,  # type: ignore[arg-type]
            MemberConfig(
                group_id="g",
                reply_to=self.wire.inbox,
                client_id=name,
                group_instance_id=group_instance_id,
                protocol_type=CONSUMERS,
                **settings,  # type: ignore[arg-type]
            ),
        )
        self.participant = Participant(self.driver, resolved, self)
        self.calls = CallbacksInOrder(
            is_cooperative=effective_protocol(resolved).name == "COOPERATIVE",
            is_wanted=lambda p: p.topic in self.topics,
            owned=lambda: self.participant.owned,
        )
        self.driver.subscribe()

    def __repr__(self) -> str:
        member = self.driver.member
        return (
            f"{self.name}: {member.state.name} g{member.generation_id} {member.member_id[-6:]}"
            f"{' asleep' * (not self.is_awake)}{' idle' * (not self.is_polling)}"
            f"{' rejoins' * member.rejoin_needed} owns {words(self.owned)}"
        )

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.participant.owned

    @property
    def who(self) -> str:
        return self.instance or self.name

    # -- actions of a worker -------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Run the owner's part of a poll; keep the errors that it raises."""
        if self.driver.member.state is MemberState.UNJOINED:
            self.calls.left()
            self.wire.first_join = None
        try:
            self.participant.attend()
        except FencedInstanceIdError:
            self.history.append("fenced")
            self.simulation.kill(self)
        except KafkaError as error:
            if not isinstance(error.__cause__, MeantToFail):
                raise error.__cause__ or error from None
            self.raised.append(error)
        self.calls.step_ended()

    def look_around(self) -> None:
        """Update the known topics, unless they are younger than the metadata age."""
        if self.simulation.now_ms >= self._seen_ms + METADATA_AGE_MS:
            self.seen, self._seen_ms = dict(self.simulation.topics), self.simulation.now_ms

    def leave(self) -> None:
        """Close, or unsubscribe."""
        try:
            self.participant.leave("the worker is leaving", wait_s=0)
        except KafkaError as error:
            self.raised.append(error)
        self.calls.step_ended()
        self.calls.left()
        assert not self.owned

    def come_back(self) -> None:
        self.driver.subscribe()

    def subscribe(self, *topics: str) -> None:
        """Subscribe to other topics, from the next poll on."""
        self.topics = frozenset(topics)
        self.calls.resubscribed()

    def commit(self, topic: str, number: int, offset: int) -> str:
        return self.driver.commit((OffsetToCommit(topic, number, offset),))

    # -- the owner's methods that a participant calls ------------------------------------------------------------------

    def subscribed(self) -> frozenset[str]:
        return self.topics

    def is_wanted(self, topic: str) -> bool:
        return topic in self.topics

    def look_up(self, topics: Collection[str], *, newest: bool) -> Mapping[str, Racks]:
        if newest:
            if self.simulation.faults.fails("look-up"):
                raise KafkaTimeoutError("the brokers did not answer in time")
            self.look_around()
        return {topic: (frozenset(),) * self.seen[topic] for topic in topics if self.seen.get(topic)}

    def notify(self, change: Change[TopicPartition]) -> None:
        self.history.append(f"{change.call.name.lower()} {words(change.partitions)}")
        self.calls.called(change.call, change.partitions)
        if change.call is ListenerCall.ASSIGNED:
            self.simulation.note_owned(self)
        if self.simulation.faults.fails("listener"):
            raise MeantToFail

    def keep_owned(self, owned: frozenset[TopicPartition]) -> None:
        """Ignore the call: the participant keeps the owned partitions."""

    def hear(self, effect: Effect) -> None:
        if isinstance(effect, CommitEnded):
            self.commits[effect.ticket] = effect.error


class Simulation:
    """Workers, topics and one shard. `topics` may grow."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        topics: Mapping[str, int],
        config: Config = NO_DELAY,
        faults: Faults | None = None,
    ) -> None:
        self.now_ms = 1_000_000
        patch.setattr(clock_user, "monotonic_ms", lambda: self.now_ms)
        self.topics = dict(topics)
        self.faults = faults or Faults()
        self.config = config
        self.shard = Shard(0, 1, SECRET, config)
        self.is_up = True
        self.batch_ms = 0  # the shortest time between the beginnings of two batches
        self.workers: list[Worker] = []
        self.gone: list[Worker] = []
        self.inboxes: dict[str, Worker] = {}
        self.log: list[Received] = []
        self.events: list[Event] = []
        self.orphans: list[JoinGroup] = []
        """First joins of processes that had sent another first join, and that do not know that it failed."""
        self.joined: defaultdict[int, set[str]] = defaultdict(set)
        self.one_owner, self.one_token = OneOwnerAGeneration(), OneOwnerAToken()
        self._offset = self._count = self._last_batch_ms = 0
        self._to_append: list[tuple[int, int, Request]] = []
        self._to_deliver: list[tuple[int, int, str, AnyAnswer]] = []

    def __str__(self) -> str:
        group = self.group
        told = f"{group.phase.value} g{group.generation_id} {sorted(group.members)}" if group else "no group"
        return "\n".join([f"at {self.now_ms - 1_000_000}: {told}; {self.topics}", *map(repr, self.workers)])

    @property
    def group(self) -> Group | None:
        return self.shard.group("g")

    @property
    def generation_id(self) -> int:
        group = self.group
        return group.generation_id if group else -1

    def start(
        self,
        name: str,
        topics: Iterable[str] = ("t",),
        strategies: Iterable[object] = EAGER,
        group_instance_id: str | None = None,
        **settings: int,
    ) -> Worker:
        """Start a process without any state, also if an earlier process had the same name."""
        worker = Worker(self, name, topics, strategies, group_instance_id, **settings)
        self.workers.append(worker)
        self.inboxes[worker.wire.inbox] = worker
        return worker

    def kill(self, worker: Worker) -> None:
        """End a process without any request."""
        self.workers.remove(worker)
        self.gone.append(worker)
        del self.inboxes[worker.wire.inbox]

    def come_back(self, *, with_its_state: bool = True) -> None:
        """Start the coordinator again, in the same process, or in another one from the stored state."""
        if not with_its_state:
            self.shard = Shard(0, 1, SECRET, self.config, self.shard.to_bytes())
        self.is_up = True

    # -- messages ------------------------------------------------------------------------------------------------------

    def append(self, request: Request) -> None:
        self._check_sent(request)
        self._append(request)
        if (later_ms := self.faults.repeated_after_ms(request)) is not None:
            self._count += 1
            heapq.heappush(self._to_append, (self.now_ms + later_ms, self._count, request))

    def _append(self, request: Request) -> None:
        self.log.append(Received(self._offset, self.now_ms, request))
        self._offset += 1

    def _check_sent(self, request: Request) -> None:
        if isinstance(request, LeaveGroup):
            worker = self.inboxes[request.reply_to]
            assert worker.instance is None, "a static member leaves by silence"
            assert not worker.owned or not worker.is_polling or worker.driver.member.generation_id < 0

    def _batch(self) -> None:
        self._last_batch_ms = self.now_ms
        log, self.log = self.log, []
        for output in self.shard.step([*log, wake(self.now_ms)], self.now_ms):
            self._put_out(output)

    def _put_out(self, output: Output) -> None:
        if isinstance(output, Event):
            self.events.append(output)
        if not isinstance(output, Reply):
            return
        if isinstance(output.answer, JoinGroupAnswer) and not output.answer.code:
            self.joined[output.answer.generation_id].add(output.answer.member_id)
        for later_ms in self.faults.arrivals(output.answer):
            self._count += 1
            heapq.heappush(self._to_deliver, (self.now_ms + later_ms, self._count, output.to, output.answer))

    def _deliver(self) -> None:
        kept = []
        while self._to_deliver and self._to_deliver[0][0] <= self.now_ms:
            arrival = heapq.heappop(self._to_deliver)
            worker = self.inboxes.get(arrival[2])
            if worker is not None and not worker.is_awake:
                kept.append(arrival)
            elif worker is not None:
                worker.received.append(arrival[3])
                worker.driver.receive(arrival[3])
        for arrival in kept:
            heapq.heappush(self._to_deliver, arrival)

    # -- time ----------------------------------------------------------------------------------------------------------

    def turn(self, ms: int = TURN_MS) -> None:
        """Advance the time, and run the coordinator and every worker."""
        self.now_ms += ms
        while self._to_append and self._to_append[0][0] <= self.now_ms:
            self._append(heapq.heappop(self._to_append)[2])
        if self.is_up and self.now_ms >= self._last_batch_ms + self.batch_ms:
            self._batch()
        for worker in list(self.workers):
            if worker.is_awake and worker.is_polling and self.faults.polls_first():
                worker.poll()
        self._deliver()
        for worker in list(self.workers):
            if worker.is_awake:
                worker.look_around()
                worker.driver.advance()
                if worker.is_polling:
                    worker.poll()

    def run(self, ms: int) -> None:
        """Run turns until the time has passed."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.turn(min(TURN_MS, until_ms - self.now_ms))

    def settle(self, within_ms: int = 60_000, *, completely: bool = True) -> None:
        """Run until the group is at rest or, with `completely=False`, until all members follow one assignment."""
        until_ms = self.now_ms + within_ms
        while not (self.is_at_rest if completely else self.is_agreed):
            assert self.now_ms < until_ms, f"not at rest:\n{self}"
            self.turn(self._quiet_ms())

    def _quiet_ms(self) -> int:
        """Return the milliseconds in which no event is due, between one turn and one second."""
        if self.is_late or any(w.driver.member.rejoin_needed for w in self.workers):
            return TURN_MS
        deadlines = [w.driver.member.deadline_ms for w in self.workers]
        if (shard_ms := self.shard.next_deadline_ms) is not None:
            deadlines.append(shard_ms + self.config.clock_slack_ms)
        return max(TURN_MS, min(1_000, min(deadlines, default=0) - self.now_ms))

    @property
    def is_late(self) -> bool:
        """True if requests or responses are still under way."""
        return bool(self._to_append or self._to_deliver or self.log)

    @property
    def is_at_rest(self) -> bool:
        """True if the group agrees, and each subscribed partition has one owner."""
        topics = frozenset().union(*(w.topics for w in self.workers if w.driver.member.is_subscribed))
        owned = sorted(p for w in self.workers for p in w.owned)
        return self.is_agreed and owned == [
            TopicPartition(topic, n) for topic in sorted(topics) for n in range(self.topics.get(topic, 0))
        ]

    @property
    def is_agreed(self) -> bool:
        """True if the group is Stable with exactly the subscribed workers, which own only topics of their subscription.

        No worker may be about to rejoin.
        """
        workers = [w for w in self.workers if w.driver.member.is_subscribed]
        if not all(w.driver.member.state is MemberState.STABLE and not w.driver.member.rejoin_needed for w in workers):
            return False
        group, members = self.group, [w.driver.member for w in workers]
        return (
            group is not None
            and group.phase is Phase.STABLE
            and sorted(group.members) == sorted(m.member_id for m in members)
            and {m.generation_id for m in members} == {group.generation_id}
            and {w.participant.assigned_generation for w in workers} == {group.generation_id}
            and all(p.topic in w.topics for w in workers for p in w.owned)
        )

    # -- owners --------------------------------------------------------------------------------------------------------

    def note_owned(self, worker: Worker) -> None:
        """Check that no two workers own a partition, unless one was expelled and may not know it."""
        self.one_owner.takes(worker.who, worker.participant.assigned_generation, worker.owned)
        self.one_token.takes(worker.name, worker.participant.fencing_token, worker.owned)
        for other in self.workers:
            if other is not worker and (both := other.owned & worker.owned):
                assert self._is_passed_over(other) or self._is_passed_over(worker), (
                    f"{words(both)} is owned by {other.name} and by {worker.name}\n{self}"
                )

    def _is_passed_over(self, worker: Worker) -> bool:
        """Return whether a worker is no longer a member, perhaps without knowing it.

        A static member that did not join the latest round in time is still a member, but its partitions are reassigned.
        """
        group, member = self.group, worker.driver.member
        if group is None or member.member_id not in group.members or member.generation_id < 0:
            return True
        is_counted = group.phase in (Phase.COMPLETING, Phase.STABLE)
        is_static = worker.instance is not None
        return is_static and is_counted and member.member_id not in self.joined[group.generation_id]

    # -- for named examples --------------------------------------------------------------------------------------------

    def histories(self) -> dict[str, list[str]]:
        return {w.name: list(w.history) for w in self.workers}

    def forget(self) -> None:
        """Clear the histories, events, responses and sent requests."""
        self.events.clear()
        for worker in self.workers:
            worker.history.clear()
            worker.received.clear()
            worker.wire.sent.clear()

    def causes(self) -> list[str]:
        return [event.cause for event in self.events if isinstance(event, RebalanceStarted)]

    def joins(self, worker: Worker) -> int:
        return len({r.request_id for r in worker.wire.sent if isinstance(r, JoinGroup)})


def words(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as short text: `t0 t1`."""
    return " ".join(f"{p.topic}{p.partition}" for p in sorted(partitions)) or "nothing"
