"""Members of the consumer protocol in the simulation: the client's own code and the coordinator's, on one clock."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError

from coordinator.base.config import Config
from coordinator.base.errors import name_of
from coordinator.base.states import Phase
from coordinator.member.consumer_config import ConsumerProtocolConfig, Wanted
from coordinator.member.consumer_member import State
from coordinator.member.effects import CommitEnded, Effect, FetchEnded
from coordinator.member.owned_partitions import Change
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, TopicFact
from coordinator.messages.heartbeats import Heartbeats
from coordinator.messages.outputs import Output
from coordinator.messages.requests import OffsetToCommit, Request, TopicPartitions
from coordinator.messages.responses import AnyAnswer, HeartbeatAnswer, HeartbeatsAnswer, Reply
from coordinator.state.consumer_group import ConsumerGroup
from streaming.client.consumer_protocol.participant import ConsumerProtocolDriver, ConsumerProtocolParticipant
from streaming.client.member import resource_id
from streaming.kafka.patterns import matching
from tests.streaming.client.contract import CallbacksInOrder
from tests.streaming.client.simulation import (
    METADATA_AGE_MS,
    TURN_MS,
    Faults,
    MeantToFail,
    Simulation,
    Wire,
    Worker,
    words,
)

CONFIG = Config(group_initial_rebalance_delay_ms=0, group_consumer_heartbeat_interval_ms=5_000)


class ConsumerWorker:
    """One process with one member of the consumer protocol, and the history of its listener's calls."""

    def __init__(self, simulation: "BothSimulation", name: str, topics: Iterable[str], **settings: Any) -> None:
        self.simulation, self.name, self.instance = simulation, name, settings.get("group_instance_id")
        self.regex: str = settings.pop("regex", "")
        self.topics = frozenset(topics)
        self.seen: dict[str, TopicFact] = {}
        self._seen_ms = -METADATA_AGE_MS
        self._made: tuple[object, Wanted] | None = None
        self.history: list[str] = []
        self.raised: list[Exception] = []
        self.failed: KafkaError | None = None
        self.received: list[AnyAnswer] = []
        self.ended: dict[str, CommitEnded | FetchEnded] = {}
        self.is_awake = self.is_polling = True
        self.wire = Wire(simulation, f"inbox of {name}")
        settings = {"member_id": f"{name}-id", "client_id": name, **settings}
        self.driver = ConsumerProtocolDriver(
            self.wire,  # type: ignore[arg-type]
            ConsumerProtocolConfig(group_id="g", reply_to=self.wire.inbox, **settings),
        )
        self.participant = ConsumerProtocolParticipant(self.driver, self)
        self.calls = CallbacksInOrder(
            is_cooperative=True, is_wanted=lambda p: True, owned=lambda: self.participant.owned
        )
        self.driver.subscribe()

    def __repr__(self) -> str:
        member = self.driver.member
        return (
            f"{self.name}: {member.state.name} e{member.epoch}{' asleep' * (not self.is_awake)}"
            f"{' idle' * (not self.is_polling)} owns {words(self.owned)}"
        )

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.participant.owned

    # -- actions of a worker -------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Run the owner's part of a poll; keep the errors that it raises."""
        try:
            self.participant.attend()
        except KafkaError as error:
            if isinstance(error.__cause__, MeantToFail):
                self.raised.append(error)
            elif error.__cause__ is not None:
                raise error.__cause__ from None
            else:
                self.failed = error
        self.calls.step_ended()

    def look_around(self) -> None:
        """Update the known topics, unless they are younger than the metadata age."""
        if self.simulation.now_ms >= self._seen_ms + METADATA_AGE_MS:
            self.seen, self._seen_ms = self.simulation.facts(), self.simulation.now_ms

    def leave(self) -> None:
        """Close, or unsubscribe."""
        try:
            self.participant.leave("the worker is leaving", wait_s=0)
        except KafkaError as error:
            self.raised.append(error)
        self.calls.step_ended()
        assert not self.owned

    def come_back(self) -> None:
        self.driver.subscribe()

    def subscribe(self, *topics: str, regex: str = "") -> None:
        """Subscribe to other topics, from the next poll on."""
        self.topics, self.regex = frozenset(topics), regex

    def commit(self, topic: str, number: int, offset: int) -> str:
        return self.driver.commit((OffsetToCommit(topic, number, offset),))

    def fetch(self, topic: str, number: int) -> str:
        return self.driver.fetch((TopicPartitions(topic, (number,)),))

    # -- the owner's methods that a participant calls ------------------------------------------------------------------

    def wanted(self, asked: frozenset[str]) -> Wanted | None:
        if self.simulation.faults.fails("look-up"):
            return None
        key = (self.topics, self.regex, asked, self.seen)
        if self._made is None or self._made[0] != key:
            matched = matching(self.regex, self.seen).topics if self.regex else None
            facts = {n: self.seen.get(n, TopicFact(n)) for n in sorted(self.topics | asked | set(matched or ()))}
            self._made = key, Wanted(tuple(sorted(self.topics)), self.regex, matched, facts)
        return self._made[1]

    def notify(self, change: Change[TopicPartition]) -> None:
        self.history.append(f"{change.call.name.lower()} {words(change.partitions)}")
        self.calls.called(change.call, change.partitions)
        if self.simulation.faults.fails("listener"):
            raise MeantToFail

    def keep_owned(self, owned: frozenset[TopicPartition]) -> None:
        """Ignore the call: the participant keeps the owned partitions."""

    def hear(self, effect: Effect) -> None:
        if isinstance(effect, CommitEnded | FetchEnded):
            self.ended[effect.ticket] = effect


class BothSimulation(Simulation):
    """A simulation whose workers use either protocol. Topics have ids: one that is made anew has another id."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        topics: Mapping[str, int],
        config: Config = CONFIG,
        faults: Faults | None = None,
    ) -> None:
        super().__init__(patch, topics, config, faults)
        self.lives: dict[str, int] = {}

    def start_consumer(self, name: str, topics: Iterable[str] = ("t",), **settings: Any) -> ConsumerWorker:
        """Start a process with a member of the consumer protocol."""
        worker = ConsumerWorker(self, name, topics, **settings)
        self.workers.append(worker)  # type: ignore[arg-type]
        self.inboxes[worker.wire.inbox] = worker  # type: ignore[assignment]
        return worker

    def append(self, request: Request) -> None:
        """Append a request to the log. A bare heartbeat is the only one of a record of many."""
        if isinstance(request, ConsumerGroupHeartbeat) and request.is_bare:
            request = Heartbeats.of([request], request_id="all", reply_to=request.reply_to)
        super().append(request)

    def _put_out(self, output: Output) -> None:
        if not isinstance(output, Reply) or not isinstance(output.answer, HeartbeatsAnswer):
            super()._put_out(output)
            return
        for request_id, code in zip(output.answer.request_ids, output.answer.codes, strict=True):
            super()._put_out(Reply(output.to, HeartbeatAnswer(request_id=request_id, error=name_of(code), code=code)))

    def turn(self, ms: int = TURN_MS) -> None:
        """Advance the time, run the coordinator and every worker, and check what the workers own."""
        super().turn(ms)
        self.check_owners()

    def facts(self) -> dict[str, TopicFact]:
        """Return what the brokers' metadata say of all topics."""
        return {
            name: TopicFact(name, resource_id(f"{name} {self.lives.get(name, 0)}"), count)
            for name, count in self.topics.items()
        }

    def make_anew(self, topic: str, partitions: int) -> None:
        """Delete a topic, and create it with another id."""
        self.lives[topic] = self.lives.get(topic, 0) + 1
        self.topics[topic] = partitions

    @property
    def consumers(self) -> list[ConsumerWorker]:
        return [worker for worker in self.workers if isinstance(worker, ConsumerWorker)]

    @property
    def consumer_group(self) -> ConsumerGroup | None:
        return self.shard.consumer_group("g")

    def _check_sent(self, request: Request) -> None:
        """Check nothing: members of the consumer protocol leave by a heartbeat."""

    def note_owned(self, worker: Worker) -> None:
        """Check the owners of a classic group; `check_owners` checks those of a group of the consumer protocol."""
        if self.consumer_group is None:
            super().note_owned(worker)

    def check_owners(self) -> None:
        """Check that no worker owns a partition that the coordinator could give to another member.

        That holds for all members whose epoch the coordinator accepts: the others learn that they were expelled.
        """
        group = self.consumer_group
        if group is None:
            return
        for worker in self.consumers:
            member, known = worker.driver.member, group.members.get(worker.driver.member.member_id)
            if known is None or member.epoch not in (group.epoch_of(known.member_id), known.previous_epoch):
                continue
            given = [
                (t, n) for part in (known.assigned, known.revoking) for t, numbers in part.items() for n in numbers
            ]
            owned = {(p.topic_id, p.partition) for p in worker.participant._holding.owned}
            assert owned <= set(given), f"{worker.name} owns more than it was given\n{self}"

    @property
    def is_agreed(self) -> bool:
        """True if the group is Stable, and each subscribed worker follows its assignment."""
        workers = [w for w in self.workers if w.driver.member.is_subscribed]
        group = self.consumer_group
        if group is None:
            return super().is_agreed
        is_stable = group.phase is Phase.STABLE and set(group.members) == {w.driver.member.member_id for w in workers}
        return is_stable and all(self._follows(w, group) for w in workers)

    def _follows(self, worker: Worker | ConsumerWorker, group: ConsumerGroup) -> bool:
        member = worker.driver.member
        if isinstance(worker, Worker):
            return worker.driver.is_settled and not worker.driver.member.rejoin_needed
        target = worker.driver.target
        is_current = member.generation_id == group.epoch_of(member.member_id)
        is_told = target is not None and {(p.topic, p.partition) for p in target.partitions} == set(worker.owned)
        return member.state is State.STABLE and is_current and is_told

    @property
    def is_at_rest(self) -> bool:
        """True if the group agrees, and each partition of each subscribed topic has one owner."""
        subscribed: set[str] = set()
        for worker in self.workers:
            if worker.driver.member.is_subscribed:
                regex = getattr(worker, "regex", "")
                subscribed |= worker.topics | set(matching(regex, self.topics).topics if regex else ())
        owned = sorted(p for w in self.workers for p in w.owned)
        return self.is_agreed and owned == [
            TopicPartition(topic, n) for topic in sorted(subscribed) for n in range(self.topics.get(topic, 0))
        ]

    def _quiet_ms(self) -> int:
        if self.is_late or any(getattr(w.driver.member, "rejoin_needed", False) for w in self.workers):
            return 100
        deadlines = [w.driver.member.deadline_ms for w in self.workers]
        if (shard_ms := self.shard.next_deadline_ms) is not None:
            deadlines.append(shard_ms + self.config.clock_slack_ms)
        return max(100, min(1_000, min(deadlines, default=0) - self.now_ms))
