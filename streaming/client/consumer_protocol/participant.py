"""Participation in a group of the consumer protocol: reconciliation with assignments, on the owner's thread.

    an assignment comes      revoked: partitions that it lacks, if any, after an automatic commit; then assigned: new
                             ones, also if none; then the acknowledgement
    it is the same as before the acknowledgement alone
    the membership is lost   lost: all, if any; then the member joins again
    the owner leaves         revoked: all, if any; or lost

One assignment is reconciled at a time. While a listener runs, later assignments replace each other.

The coordinator reads no metadata. The clients of a group of the consumer protocol send it the facts about its topics:
their ids and partition counts.

Source: Kafka's AbstractMembershipManager.maybeReconcile, revokeAndAssign and ConsumerRebalanceListenerInvoker; KIP-848.
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol

from kafka import TopicPartition
from kafka.errors import KafkaError, for_code

from coordinator.assignors import RebalanceProtocol
from coordinator.member.consumer_config import AssignedPartition, ConsumerProtocolConfig, Partitions, Target, Wanted
from coordinator.member.consumer_member import AssignmentChanged, ConsumerProtocolMember, State
from coordinator.member.effects import CoordinatorSilent, Effect, Failed, PartitionsLost
from coordinator.member.owned_partitions import Change, OwnedPartitions
from coordinator.messages.consumer_requests import TopicFact
from streaming.client.callbacks import Listening, notify_all
from streaming.client.driver import MemberDriver
from streaming.client.subscription import Subscription
from streaming.client.topics import Snapshot, TopicWatch
from streaming.client.transport import PATIENCE_MS, Transport

log = logging.getLogger(__name__)

# -- the threads -------------------------------------------------------------------------------------------------------


class ConsumerProtocolDriver(MemberDriver[ConsumerProtocolMember]):
    """A member that uses the consumer protocol.

    Args:
        config: The member's identity; its `reply_to` and `client_host` are those of the transport.
    """

    def __init__(self, transport: Transport, config: ConsumerProtocolConfig) -> None:
        super().__init__(
            transport,
            lambda prefix, now_ms: ConsumerProtocolMember(config, prefix, now_ms),
            PATIENCE_MS,  # the coordinator has the session timeout: 45 s by default
        )

    @property
    def is_in_group(self) -> bool:
        """True from the first request to join until the membership ends."""
        return self.member.is_in_group

    @property
    def is_settled(self) -> bool:
        """True while the member is STABLE."""
        return self.member.state is State.STABLE

    @property
    def is_rejoining(self) -> bool:
        """False: members of this protocol are reconciled and do not join again while they are settled."""
        return False

    @property
    def may_commit(self) -> bool:
        """True while the member has an epoch."""
        return self.member.generation_id >= 0

    @property
    def target(self) -> Target | None:
        """The latest assignment; None before the first one of a membership."""
        return self.member.target

    @property
    def failed(self) -> Failed | None:
        """The error with which the coordinator refuses the member for good; None without one."""
        return self.member.failed

    def follow(self, wanted: Wanted) -> None:
        """Set the subscription and the facts about its topics."""
        self._do(lambda now_ms: self.member.follow(wanted, now_ms))

    def reconciled(self, target: Target) -> None:
        """Acknowledge an assignment: its partitions, and no others, are owned now."""
        self._do(lambda now_ms: self.member.reconciled(target, now_ms))

    def released(self) -> None:
        """Join again after `PartitionsLost`: no partition is owned any more."""
        self._do(lambda now_ms: self.member.released(now_ms))


class Subscriber(Listening, Protocol):
    """The owner of a participant."""

    def wanted(self, requested: frozenset[str]) -> Wanted | None:
        """Return the subscription with the facts about its topics; None until the topics have been read.

        It is called before each step. If nothing has changed, it returns the same object.

        Args:
            asked: Further topics about which the coordinator has asked.
        """

    def hear(self, effect: Effect) -> None:
        """Handle an effect that is not about membership: the end of a commit or of a fetch."""


class ConsumerProtocolParticipant:
    """A member of a group with its owner's partitions."""

    def __init__(self, driver: ConsumerProtocolDriver, owner: Subscriber) -> None:
        self._driver, self._owner = driver, owner
        self._holding: OwnedPartitions[AssignedPartition] = OwnedPartitions(RebalanceProtocol.COOPERATIVE)
        self._followed: Wanted | None = None
        self._target: Target | None = None  # the latest one that was reconciled

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns now."""
        return _named(self._holding.owned)

    @property
    def fencing_token(self) -> int:
        """The token of the current assignment; -1 while nothing is owned."""
        return self._target.token if self._target is not None and self._holding.owned else -1

    @property
    def _group_id(self) -> str:
        return self._driver.member.config.group_id

    # -- participation -------------------------------------------------------------------------------------------------

    def attend(self) -> None:
        """Handle the effects of the group until none is left.

        Raises:
            KafkaError: the coordinator refuses this member, by its code; or the listener failed, which is the cause.
        """
        self._follow()
        while (effect := self._driver.poll()) is not None:
            self._act(effect)
        if (failed := self._driver.failed) is not None:
            raise _error(failed)

    def _follow(self) -> None:
        member = self._driver.member
        wanted = self._owner.wanted(member.requested_topics) if member.is_subscribed else None
        if wanted is not None and wanted is not self._followed:
            self._followed = wanted
            self._driver.follow(wanted)

    def _act(self, effect: Any) -> None:
        match effect:
            case AssignmentChanged():
                self._reconcile()
            case PartitionsLost(why):
                if self._holding.owned:
                    log.warning("group %s: partitions lost, because %s", self._group_id, why)
                self._target = None
                with notify_all(self._owner, _changes(self._holding.lose())):
                    self._driver.released()
            case CoordinatorSilent(timeout_ms):
                log.warning(
                    "group %s: no response from the coordinator for %d ms; continuing with %d partitions",
                    self._group_id, timeout_ms, len(self._holding.owned),
                )  # fmt: skip
            case Failed():
                raise _error(effect)
            case _:
                self._owner.hear(effect)

    def _reconcile(self) -> None:
        """Release and take partitions by the latest assignment, and acknowledge it, even if the listener fails."""
        target, before = self._driver.target, self._target
        if target is None or target is before:
            return
        self._target = target
        if before is not None and before.partitions == target.partitions:
            self._driver.reconciled(target)
            return
        log.info("group %s: epoch %d assigns %d partitions", self._group_id, target.epoch, len(target.partitions))
        with notify_all(self._owner, _changes(self._holding.assign(target.partitions))):
            self._driver.reconciled(target)

    def request_rebalance(self, reason: str) -> None:
        """Log that members of this protocol cannot request a rebalance, as Kafka's consumer does."""
        log.warning("group %s: with the consumer protocol a member requests no rebalance: %s", self._group_id, reason)

    # -- leaving -------------------------------------------------------------------------------------------------------

    def leave(self, reason: str, wait_s: float) -> bool:
        """Release all partitions and leave the group. Return whether the coordinator has confirmed it in time."""
        is_ours = self._driver.may_commit
        log.info("group %s: leaving, because %s", self._group_id, reason)
        self._followed = self._target = None
        try:
            with notify_all(self._owner, _changes(self._holding.leave() if is_ours else self._holding.lose())):
                pass
        finally:
            is_answered = self._driver.leave(reason, wait_s)
        return is_answered


def _named(partitions: Partitions) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(each.topic, each.partition) for each in partitions)


def _changes(changes: Iterable[Change[AssignedPartition]]) -> Iterator[Change[TopicPartition]]:
    """Yield changes without the ids of topics, which listeners do not know."""
    for change in changes:
        yield Change(change.call, _named(change.partitions), _named(change.owned))


def _error(failed: Failed) -> KafkaError:
    """Return the exception for an error in a response. It has Kafka's name: kafka-python lacks some of the classes."""
    message = failed.error if failed.message is None else f"{failed.error}: {failed.message}"
    error: KafkaError = for_code(failed.code)(message)
    return error


# -- facts about topics ------------------------------------------------------------------------------------------------


class SubscribedTopics:
    """The subscription of one consumer.

    Args:
        age_ms: How often the topics are read, in milliseconds.
    """

    def __init__(self, subscription: Subscription, watch: TopicWatch, age_ms: int) -> None:
        self._subscription, self._watch, self._age_ms = subscription, watch, age_ms
        self._question: object = None
        self._read: tuple[object, Snapshot | None] = None, None
        self._wanted: Wanted | None = None

    def wanted(self, requested: frozenset[str]) -> Wanted | None:
        """Return the subscription; None until its topics have been read. The same object if nothing has changed.

        Args:
            requested: Further topics about which the coordinator has asked.
        """
        names, pattern, snapshot = self._subscription.names, self._subscription.pattern, self._watch.snapshot
        topics = None if pattern else names | requested
        question = topics, pattern
        if question != self._question:
            self._question = question
            self._watch.ask(self, topics, self._age_ms)
        if not _knows(snapshot, topics):
            return None
        if (question, requested) != self._read[0] or snapshot is not self._read[1]:
            self._read, self._wanted = ((question, requested), snapshot), self._made(snapshot, requested)
        return self._wanted

    def _made(self, snapshot: Snapshot, requested: frozenset[str]) -> Wanted:
        names, pattern = self._subscription.names, self._subscription.pattern
        if pattern is None:
            return Wanted(tuple(sorted(names)), facts=_facts(snapshot, sorted(names | requested)))
        matched = tuple(sorted(name for name in (*snapshot.topics, *snapshot.unclear) if self._subscription.has(name)))
        return Wanted((), pattern.pattern, matched, _facts(snapshot, dict.fromkeys((*matched, *sorted(requested)))))

    def forget(self) -> None:
        """Stop reading the topics."""
        self._question, self._read = None, (None, None)
        self._watch.forget(self)


def _knows(snapshot: Snapshot, topics: Collection[str] | None) -> bool:
    return snapshot.known is None if topics is None else snapshot.knows(topics)


def _facts(snapshot: Snapshot, names: Iterable[str]) -> dict[str, TopicFact]:
    """Return the facts about topics. A topic whose state is unclear at present has none."""
    return {name: _fact(snapshot, name) for name in names if name not in snapshot.unclear}


def _fact(snapshot: Snapshot, name: str) -> TopicFact:
    topic = snapshot.topics.get(name)
    return TopicFact(name) if topic is None else TopicFact(name, topic.topic_id, len(topic.racks))
