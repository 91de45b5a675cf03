"""A member's messages about partitions: its assignors, its owned partitions, and the assignments that it computes.

    resolve            the configuration        ->  strategies, the preferred one first
    offer              the owned partitions     ->  this member's subscription, for each strategy
    make_plan          all subscriptions        ->  each member's assignment
    read_assignment    this member's assignment ->  partitions

Our assignors replace kafka-python's four of the same names. The assignments are the same where kafka-python's assignors
work. A user's own assignor for kafka-python is used unchanged.

Source: kafka-python's ConsumerCoordinator; Kafka's ConsumerCoordinator.metadata.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import reduce
from importlib import import_module
from typing import Any

from kafka import TopicPartition
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaConfigurationError, KafkaError

from coordinator.assignors import ASSIGNORS, Assignor, RebalanceProtocol, Subscriber, by_topic
from coordinator.base.consumer_protocol import Subscription, read_subscription, write_assignment
from coordinator.messages.requests import Assignment, Protocol
from coordinator.messages.responses import JoinedMember
from streaming.client.strategies import NO_ASSIGNMENT, LastAssignment, Ours, PartitionsOf, RacksOf, Strategy, Theirs

log = logging.getLogger(__name__)

SETTING = "partition_assignment_strategy"
STAND_INS: Mapping[type, type[Assignor]] = {
    RangePartitionAssignor: ASSIGNORS["range"],
    RoundRobinPartitionAssignor: ASSIGNORS["roundrobin"],
    StickyPartitionAssignor: ASSIGNORS["sticky"],
    CooperativeStickyAssignor: ASSIGNORS["cooperative-sticky"],
}


# -- configuration -----------------------------------------------------------------------------------------------------


def resolve(strategy: Iterable[Any]) -> tuple[Strategy, ...]:
    """Return the assignors in `partition_assignment_strategy`, the preferred one first.

    Args:
        strategy: Names ("range", or "package.module.Class" for one to import), and classes or instances of our
            `Assignor` or of kafka-python's `AbstractPartitionAssignor`.

    Raises:
        KafkaConfigurationError: an assignor is unknown, cannot be imported or is not an assignor; or the list is empty,
            two assignors have one name, or they have no rebalance protocol in common.
    """
    if isinstance(strategy, str):
        raise KafkaConfigurationError(f"{SETTING}: {strategy!r} is a string; a list of assignors is needed")
    strategies = tuple(map(_resolve, strategy))
    names = [each.name for each in strategies]
    if not strategies:
        raise KafkaConfigurationError(f"{SETTING}: at least one assignor is needed")
    if len(set(names)) < len(names):
        raise KafkaConfigurationError(f"{SETTING}: two assignors have one name among {', '.join(names)}")
    effective_protocol(strategies)
    return strategies


def effective_protocol(strategies: Iterable[Strategy]) -> RebalanceProtocol:
    """Return the highest rebalance protocol that all strategies support: it decides how partitions change owners.

    Raises:
        KafkaConfigurationError: they have no protocol in common.
    """
    strategies = tuple(strategies)
    common = reduce(frozenset.intersection, (each.supported_protocols for each in strategies))
    if not common:
        supports = "; ".join(
            f"{s.name}: {', '.join(sorted(p.name for p in s.supported_protocols))}" for s in strategies
        )
        raise KafkaConfigurationError(f"{SETTING}: no rebalance protocol in common ({supports})")
    return max(common)


def _resolve(each: Any) -> Strategy:
    found = _find(each) if isinstance(each, str) else each
    found = STAND_INS.get(_kind(found), found)
    if not issubclass(_kind(found), (Assignor, AbstractPartitionAssignor)):
        raise KafkaConfigurationError(f"{SETTING}: {each!r} is not an assignor")
    try:
        assignor = found() if isinstance(found, type) else found
    except Exception as error:
        raise KafkaConfigurationError(f"{SETTING}: {each!r} cannot be made: {error}") from error
    return Ours(assignor) if isinstance(assignor, Assignor) else Theirs(assignor)


def _kind(thing: Any) -> type:
    return thing if isinstance(thing, type) else type(thing)


def _find(name: str) -> Any:
    """Return the object that a name stands for: one of our assignors, or an imported one."""
    if name in ASSIGNORS:
        return ASSIGNORS[name]
    module, _, attribute = name.rpartition(".")
    if not module:
        raise KafkaConfigurationError(f"{SETTING}: {name!r} is not an assignor of {', '.join(ASSIGNORS)}")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:
        raise KafkaConfigurationError(f"{SETTING}: {name!r} cannot be imported: {error}") from error


# -- messages ----------------------------------------------------------------------------------------------------------


def offer(
    strategies: Iterable[Strategy],
    topics: Iterable[str],
    *,
    owned: Iterable[TopicPartition] = (),
    generation_id: int = -1,
    last: Mapping[str, LastAssignment] | None = None,
    rack_id: str | None = None,
) -> tuple[Protocol, ...]:
    """Return this member's subscription, in the form that each of its assignors needs.

    Args:
        owned: The partitions that this member owns while it joins. Left out under the eager protocol, where it owns
            none.
        generation_id: The generation in which it owns them; -1 once it has lost its membership.
        last: The last assignment of this member, by the name of the assignor that made it. It outlasts a loss of
            membership. From it `sticky` knows the partitions of a member that has given up all of them.
        rack_id: This member's rack; "" is no rack, as in Kafka's configuration.
    """
    strategies = tuple(strategies)
    is_eager = effective_protocol(strategies) is RebalanceProtocol.EAGER
    subscription = Subscription(
        topics=tuple(sorted(set(topics))),
        owned={} if is_eager else by_topic(owned),
        generation_id=generation_id,
        rack_id=rack_id or None,
    )
    last = last or {}
    return tuple(Protocol(s.name, s.subscription(subscription, last.get(s.name, NO_ASSIGNMENT))) for s in strategies)


def make_plan(
    strategy: Strategy,
    members: Iterable[JoinedMember],
    partitions_of: PartitionsOf,
    racks_of: RacksOf = lambda topic: (),
) -> list[Assignment]:
    """Return the assignments of all subscribed topics' partitions. Every member has one, which may be empty.

    A member whose subscription cannot be read gets no partitions, so that it does not stop the other members.

    Raises:
        KafkaError: the assignor failed; its error is the cause.
    """
    parts, subscribers = {}, []
    for member in members:
        parts[member.member_id] = write_assignment({})
        try:
            subscription = read_subscription(member.metadata)
        except ValueError as error:
            log.warning("member %r gets no partitions: its subscription cannot be read: %s", member.member_id, error)
        else:
            subscribers.append(Subscriber(member.member_id, member.group_instance_id, subscription))
    try:
        parts |= strategy.plan(subscribers, partitions_of, racks_of)
    except Exception as error:
        raise KafkaError(f"The assignor {strategy.name} throws an error") from error
    return [Assignment(member_id, part) for member_id, part in parts.items()]


def read_assignment(strategy: Strategy, assignment: bytes, generation_id: int) -> list[TopicPartition]:
    """Return the partitions of this member's assignment, sorted. An assignment without bytes has no partitions.

    Raises:
        KafkaError: the bytes are not an assignment.
    """
    return strategy.accept(assignment, generation_id) if assignment else []
