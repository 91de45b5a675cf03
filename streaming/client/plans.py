"""What a member says to its group about partitions: which assignors it offers, what it owns, and the plans it makes.

    resolve            what was configured      ->  strategies, the preferred one first
    offer              what this member owns    ->  its subscription, for each strategy
    make_plan          everybody's subscription ->  everybody's part of a plan
    read_assignment    one's own part           ->  partitions

Our assignors stand in for kafka-python's four of the same names; plans are the same where those work. A user's own
assignor for kafka-python is used as it is.

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
from coordinator.consumer_protocol import Subscription, read_subscription, write_assignment
from coordinator.outputs import JoinedMember
from coordinator.requests import Assignment, Protocol
from streaming.client.strategies import NOTHING_TOLD, Ours, PartitionsOf, RacksOf, Strategy, Theirs, Told

log = logging.getLogger(__name__)

SETTING = "partition_assignment_strategy"
STAND_INS: Mapping[type, type[Assignor]] = {
    RangePartitionAssignor: ASSIGNORS["range"],
    RoundRobinPartitionAssignor: ASSIGNORS["roundrobin"],
    StickyPartitionAssignor: ASSIGNORS["sticky"],
    CooperativeStickyAssignor: ASSIGNORS["cooperative-sticky"],
}


# -- what the configuration says ---------------------------------------------------------------------------------------


def resolve(strategy: Iterable[Any]) -> tuple[Strategy, ...]:
    """Find the assignors that `partition_assignment_strategy` means, the preferred one first.

    Args:
        strategy: Names ("range", or "package.module.Class" for one to import), and classes or instances of our
            `Assignor` or of kafka-python's `AbstractPartitionAssignor`.

    Raises:
        KafkaConfigurationError: says which one is unknown, cannot be imported or is no assignor; or that there is none,
            that two have one name, or that they have no rebalance protocol in common.
    """
    if isinstance(strategy, str):
        raise KafkaConfigurationError(f"{SETTING}: {strategy!r} is text; a list of assignors is needed")
    strategies = tuple(map(_resolve, strategy))
    names = [each.name for each in strategies]
    if not strategies:
        raise KafkaConfigurationError(f"{SETTING}: at least one assignor is needed")
    if len(set(names)) < len(names):
        raise KafkaConfigurationError(f"{SETTING}: two assignors have one name among {', '.join(names)}")
    effective_protocol(strategies)
    return strategies


def effective_protocol(strategies: Iterable[Strategy]) -> RebalanceProtocol:
    """Tell how partitions change hands: by the highest rebalance protocol that all strategies support.

    Raises:
        KafkaConfigurationError: there is none.
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
        raise KafkaConfigurationError(f"{SETTING}: {each!r} is no assignor")
    try:
        assignor = found() if isinstance(found, type) else found
    except Exception as error:
        raise KafkaConfigurationError(f"{SETTING}: {each!r} cannot be made: {error}") from error
    return Ours(assignor) if isinstance(assignor, Assignor) else Theirs(assignor)


def _kind(thing: Any) -> type:
    return thing if isinstance(thing, type) else type(thing)


def _find(name: str) -> Any:
    """Find what a name stands for: one of ours, or something to import."""
    if name in ASSIGNORS:
        return ASSIGNORS[name]
    module, _, attribute = name.rpartition(".")
    if not module:
        raise KafkaConfigurationError(f"{SETTING}: there is no assignor {name!r}; there are {', '.join(ASSIGNORS)}")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:
        raise KafkaConfigurationError(f"{SETTING}: {name!r} cannot be imported: {error}") from error


# -- what a member sends and gets --------------------------------------------------------------------------------------


def offer(
    strategies: Iterable[Strategy],
    topics: Iterable[str],
    *,
    owned: Iterable[TopicPartition] = (),
    generation_id: int = -1,
    told: Mapping[str, Told] | None = None,
    rack_id: str | None = None,
) -> tuple[Protocol, ...]:
    """Write what this member asks for and owns, as each of its assignors wants to be told.

    Args:
        owned: What this member owns while it joins. Left out under the eager protocol, where that is nothing.
        generation_id: The generation it owns that in; -1 once it has lost its membership.
        told: The last plan that reached this member, by the name of the assignor that made it. It outlasts a loss of
            membership, and it is how `sticky` knows what a member that has given up everything had.
        rack_id: Where this member runs; "" is nowhere, as in Kafka's configuration.
    """
    strategies = tuple(strategies)
    is_eager = effective_protocol(strategies) is RebalanceProtocol.EAGER
    subscription = Subscription(
        topics=tuple(sorted(set(topics))),
        owned={} if is_eager else by_topic(owned),
        generation_id=generation_id,
        rack_id=rack_id or None,
    )
    told = told or {}
    return tuple(Protocol(s.name, s.subscription(subscription, told.get(s.name, NOTHING_TOLD))) for s in strategies)


def make_plan(
    strategy: Strategy,
    members: Iterable[JoinedMember],
    partitions_of: PartitionsOf,
    racks_of: RacksOf = lambda topic: (),
) -> list[Assignment]:
    """Share out the partitions of all topics that any member subscribes to. Every member has a part, if an empty one.

    A member whose subscription cannot be read gets nothing, so that it does not stop everybody.

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
    """Read one's own part of a plan, sorted. No bytes at all are no partitions.

    Raises:
        KafkaError: the bytes are not an assignment.
    """
    return strategy.take(assignment, generation_id) if assignment else []
