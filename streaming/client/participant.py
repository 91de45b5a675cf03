"""Taking part in a group: what the member's machine wants of its owner, done on the owner's thread.

A `Participant` asks for partitions, makes plans when it leads, keeps what it was given, and tells its owner what to do
about it. What the partitions are, and who listens, is the owner's: a `GroupConsumer` or a `GroupMember`.

Source: Kafka's ConsumerCoordinator, onJoinPrepare, onLeaderElected, onJoinComplete and rejoinNeededOrPending.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from kafka import TopicPartition
from kafka.errors import KafkaError, RetriableError, for_code
from msgspec import Struct

from coordinator.consumer_protocol import subscribed_topics
from coordinator.effects import (
    Assigned,
    CoordinatorSilent,
    Effect,
    Failed,
    Lost,
    MakePlan,
    PrepareToJoin,
    RejoinNeeded,
)
from coordinator.holding import Change, Holding, Told
from coordinator.member import MemberState
from streaming.client.driver import Driver
from streaming.client.plans import effective_protocol, make_plan, offer, read_assignment
from streaming.client.strategies import Strategy
from streaming.client.strategies import Told as Plan

log = logging.getLogger(__name__)

Racks = Sequence[frozenset[str]]
"""Of one topic, partition by partition, the racks that hold a replica."""


class Owner(Protocol):
    """Who takes part, as a participant sees it."""

    def subscribed(self) -> frozenset[str]:
        """Tell the topics that are wanted now."""

    def is_wanted(self, topic: str) -> bool:
        """Tell whether partitions of a topic may be given to this member."""

    def look_up(self, topics: Collection[str], *, newest: bool) -> Mapping[str, Racks]:
        """Find the partitions of topics; one that is not there is left out.

        Args:
            newest: Wait for what is not known yet. Raises a KafkaError that is retriable where that takes too long.
        """

    def tell(self, change: Change[TopicPartition]) -> None:
        """Tell whoever listens."""

    def keep(self, owned: frozenset[TopicPartition]) -> None:
        """Take note of what is owned from here on."""

    def hear(self, effect: Effect) -> None:
        """Take what is no business of membership: the ends of commits and fetches."""


class InGroup:
    """What a member of a group tells about itself."""

    _driver: Driver
    _participant: "Participant"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.member_id or 'of no id'} in {self._group_id}, {self.state.name}>"

    @property
    def _group_id(self) -> str:
        return self._driver.member.config.group_id

    @property
    def generation(self) -> int:
        """The generation this member is in; -1 while it is in none."""
        return self._driver.member.generation_id

    @property
    def fencing_token(self) -> int:
        """A number to show whatever stores the work; -1 while nothing is owned.

        Whoever is given a partition or resource later shows a higher one, also a new process under the same
        `group_instance_id`. So a store that refuses numbers below the highest it has seen refuses an owner that was
        taken for dead. All that a member owns has one token, which grows with each rebalance. It is below 2^53. A
        coordinator from before there were tokens gives none; then it is the generation.

        Source: M. Kleppmann, How to do distributed locking.
        """
        return self._participant.fencing_token

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave; "" while there is none."""
        return self._driver.member.member_id

    @property
    def state(self) -> MemberState:
        """How far this member has come in joining the group."""
        return self._driver.member.state


class _Round(Struct):
    """What this member said and heard in the round that led to its generation.

    Args:
        topics: What it asked for.
        generation_id: The generation that it was in when it began to prepare.
        counts: How many partitions there were of each topic, when it planned as the leader.
    """

    topics: frozenset[str] = frozenset()
    generation_id: int = -1
    counts: dict[str, int] | None = None


class Participant:
    """A member of a group with its owner's partitions.

    Args:
        strategies: The assignors to offer, the preferred one first.
        rack_id: Where the owner runs, for assignors that look at that.
    """

    def __init__(
        self, driver: Driver, strategies: Sequence[Strategy], owner: Owner, rack_id: str | None = None
    ) -> None:
        self._driver, self._owner, self._rack_id = driver, owner, rack_id
        self._strategies = {strategy.name: strategy for strategy in strategies}
        self._holding: Holding[TopicPartition] = Holding(effective_protocol(strategies))
        self._round = _Round()
        self._has_to_join = False  # it has been asked to, and has not come to it
        self._told: dict[str, Plan] = {}
        self.assigned_generation = -1
        """The generation whose plan gave what is owned now; -1 where nothing is."""
        self._token = -1

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What is this member's now."""
        return self._holding.owned

    @property
    def fencing_token(self) -> int:
        """The token that came with what is owned now; -1 while nothing is owned."""
        return self._token if self.owned else -1

    @property
    def _group_id(self) -> str:
        return self._driver.member.config.group_id

    # -- taking part ---------------------------------------------------------------------------------------------------

    def attend(self) -> None:
        """Do what the group asks of this member, until there is nothing more to do at once.

        Raises:
            KafkaError: the coordinator refuses this member, by its code; or the listener or an assignor failed, as the
                cause. What had to be done has been done all the same.
        """
        self._look_for_changes()
        while (effect := self._driver.poll()) is not None:
            self._act(effect)
        if self._has_to_join:
            self._join()

    def _look_for_changes(self) -> None:
        """Join again where the group's plan is not for what is wanted, or not for what there is, any more."""
        member = self._driver.member
        if member.state is not MemberState.STABLE or member.rejoin_needed:
            return
        if (topics := self._owner.subscribed()) != self._round.topics:
            self._driver.request_rejoin(subscribed_to(topics))
        elif member.is_leader and self._round.counts is not None:
            now = _counts(self._owner.look_up(self._round.counts, newest=False), self._round.counts)
            if now != self._round.counts:
                self._driver.request_rejoin(_what_changed(self._round.counts, now))

    def _act(self, effect: Effect) -> None:
        match effect:
            case PrepareToJoin(why):
                log.info("group %s: joining, because %s", self._group_id, why)
                self._prepare()
            case MakePlan():
                self._plan(effect)
            case Assigned(generation_id) if generation_id == self._driver.member.generation_id:
                self._take(effect)
            case Lost(why):
                if self.owned:
                    log.warning("group %s: partitions lost, because %s", self._group_id, why)
                with self._told_all(self._holding.lose()):
                    self.assigned_generation = -1
            case CoordinatorSilent(session_timeout_ms):
                log.warning(
                    "group %s: no word from the coordinator for %d ms; going on with %d partitions",
                    self._group_id, session_timeout_ms, len(self.owned),
                )  # fmt: skip
            case RejoinNeeded(why):
                log.info("group %s: will join again, because %s", self._group_id, why)
            case Failed(code, error, message):
                raise for_code(code)(message or error)
            case _:
                self._owner.hear(effect)

    def _prepare(self) -> None:
        """Give up what has to be, and join, whatever the listener does: the round must not wait for that."""
        self._round = _Round(self._owner.subscribed(), self._driver.member.generation_id)
        self._has_to_join = True
        with self._told_all(self._holding.prepare(lambda p: self._owner.is_wanted(p.topic))):
            self._join()

    def _join(self) -> None:
        """Ask for partitions; if an assignor fails to say what it wants to be said, the next `attend` tries again."""
        protocols = offer(
            self._strategies.values(),
            self._round.topics,
            owned=self.owned,
            generation_id=self._round.generation_id,
            told=self._told,
            rack_id=self._rack_id,
        )
        self._has_to_join = False
        self._driver.join(protocols)

    def _plan(self, wanted: MakePlan) -> None:
        topics = {topic for member in wanted.members for topic in subscribed_topics(member.metadata) or ()}
        try:
            racks = self._owner.look_up(topics, newest=True)
            self._round.counts = _counts(racks, topics)
            if not wanted.is_planned:
                strategy, counts = self._strategies[wanted.protocol_name], self._round.counts
                plan = make_plan(strategy, wanted.members, lambda t: range(counts[t]), lambda t: racks.get(t, ()))
                self._driver.plan(wanted.generation_id, plan)
        except KafkaError as error:
            self._driver.fail_to_plan(wanted.generation_id)
            if not isinstance(error, RetriableError):
                raise
            log.warning("group %s: no plan could be made, to be tried again: %s", self._group_id, error)

    def _take(self, assigned: Assigned) -> None:
        strategy = self._strategies[assigned.protocol_name]
        partitions = read_assignment(strategy, assigned.assignment, assigned.generation_id)
        if not all(self._owner.is_wanted(p.topic) for p in partitions):
            self._driver.request_rejoin("the plan is for another subscription")
            return
        self._told[assigned.protocol_name] = Plan(partitions, assigned.generation_id)
        self.assigned_generation, self._token = assigned.generation_id, assigned.fencing_token
        is_last_round = self.owned.issubset(partitions)
        with self._told_all(self._holding.take(partitions)):
            if not is_last_round:
                self._driver.request_rejoin("partitions given up are free for others")

    # -- leaving -------------------------------------------------------------------------------------------------------

    def leave(self, reason: str, wait_s: float) -> bool:
        """Give up everything and be a member no longer. Tells whether the coordinator has said so within the time."""
        is_ours = self._driver.member.state is MemberState.STABLE
        self._has_to_join = False
        try:
            with self._told_all(self._holding.leave() if is_ours else self._holding.lose()):
                self.assigned_generation = -1
        finally:
            is_answered = self._driver.leave(reason, wait_s)
        return is_answered

    # -- telling -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _told_all(self, changes: Iterable[Change[TopicPartition]]) -> Iterator[None]:
        """Tell all changes, do what follows in the block, and only then raise the first error of a listener."""
        errors = [error for change in changes if (error := self._tell(change)) is not None]
        errors.sort(key=lambda error: isinstance(error, Exception))  # ctrl-C is not to be lost among others
        yield
        for error in errors:
            raise error

    def _tell(self, change: Change[TopicPartition]) -> BaseException | None:
        failed: BaseException | None = None
        if change.told is Told.ASSIGNED:
            self._owner.keep(change.owned)
        try:
            self._owner.tell(change)
        except Exception as error:
            failed = KafkaError(f"User rebalance callback {change.told.value} throws an error")
            failed.__cause__ = error
        except BaseException as interrupt:  # the round must not wait for that either, nor what is given up be kept
            failed = interrupt
        if change.told is not Told.ASSIGNED:
            self._owner.keep(change.owned)
        return failed


def subscribed_to(topics: Collection[str]) -> str:
    """Say what a member asks for, as a reason for joining."""
    return f"subscribed to {', '.join(sorted(topics)) or 'nothing that is there'}"


def _counts(racks: Mapping[str, Racks], topics: Iterable[str]) -> dict[str, int]:
    return {topic: len(racks.get(topic, ())) for topic in topics}


def _what_changed(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    changed = sorted(topic for topic in now if now[topic] != before[topic])
    return "partitions changed: " + ", ".join(f"{topic} has {now[topic]}, had {before[topic]}" for topic in changed)
