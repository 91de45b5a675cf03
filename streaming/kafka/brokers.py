"""The state of the brokers in one sentence: who answers, and why topics cannot be written.

`check_brokers` asks each broker, within some seconds. A process that has failed at the brokers says then what is wrong,
and not what it guesses: "no broker answers" only if none does. The first row that applies:

| the brokers | the sentence |
| --- | --- |
| none answers | No Kafka broker answers at a:9092,b:9092 |
| a topic does not exist | The brokers have no topic coordinator.replies |
| a partition has fewer replicas in sync than min.insync.replicas | The brokers refuse to write coordinator.replies |
| one does not answer | Broker 3 does not answer; 1 and 2 do |
| a partition has no leader | coordinator.replies-3 has no leader |

A replica on a broker that does not answer counts as not in sync, although the brokers may still list it: they need some
seconds to find out, and they never do if most of the controllers are gone.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from streaming.errors import BrokerUnreachable

if TYPE_CHECKING:  # commands that have nothing to ask start without kafka-python, and the client without settings
    from streaming.config.settings import Settings
    from streaming.kafka.any_broker import AnyBroker, Kafka

LOOK_WAIT_S = 2.0
"""The longest wait for each broker. A look waits three times at most."""

NAMED_MAX = 3
"""The number of topics, partitions and brokers that a sentence names."""


class Partition(NamedTuple):
    """A partition as the brokers describe it.

    Args:
        leader: The id of the broker; below 0 without a leader.
        in_sync: The brokers with the replicas in sync.
        needed: The topic's min.insync.replicas; None if the brokers do not show it.
    """

    topic: str
    number: int
    leader: int
    replicas: frozenset[int]
    in_sync: frozenset[int]
    needed: int | None = None


@dataclass(frozen=True, slots=True)
class Brokers:
    """What the brokers have answered.

    Args:
        servers: The bootstrap servers.
        answering: The ids of the brokers that answered.
        silent: The ids of the brokers that did not: those that are in the cluster or have replicas of the topics.
        missing: The topics that do not exist.
        partitions: The partitions of the other topics.
        error: The last error, if none answered.
    """

    servers: str
    answering: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    missing: tuple[str, ...] = ()
    partitions: tuple[Partition, ...] = ()
    error: str = ""

    @property
    def short_of_replicas(self) -> tuple[Partition, ...]:
        """The partitions that cannot be written, because too few of their replicas are in sync.

        Brokers need no more replicas in sync than there are, even if min.insync.replicas is higher.
        """
        return tuple(
            each
            for each in self.partitions
            if each.needed is not None
            and (needed := min(each.needed, len(each.replicas))) > 1
            and len(each.in_sync - self.silent) < needed
        )

    @property
    def leaderless(self) -> tuple[Partition, ...]:
        """The partitions without a leader that answers."""
        return tuple(each for each in self.partitions if each.leader < 0 or each.leader in self.silent)

    @property
    def sentence(self) -> str:
        """The fault and its remedy, as one sentence; empty if the brokers have no fault."""
        if not self.answering:
            return str(BrokerUnreachable.at(self.servers, self.error))
        if self.missing:
            return f"The brokers have no topic {listed(self.missing)}: start the coordinator again, which creates it."
        if short := self.short_of_replicas:
            topics = listed(sorted({each.topic for each in short}))
            remedy = f"; {self._who_answers}: start what is down" if self.silent else ": see the brokers' logs"
            return f"The brokers refuse to write {topics}: too few replicas are in sync (min.insync.replicas){remedy}."
        if self.silent:
            answer = self._who_answers
            return f"{answer[0].upper()}{answer[1:]}: start what is down, or check the network to it."
        if without := self.leaderless:
            return f"{listed([f'{p.topic}-{p.number}' for p in without])} has no leader: see the brokers' logs."
        return ""

    @property
    def _who_answers(self) -> str:
        silent, answering = sorted(self.silent), sorted(self.answering)
        who = f"broker {silent[0]} does" if len(silent) == 1 else f"brokers {listed(silent)} do"
        return f"{who} not answer; {listed(answering)} {'does' if len(answering) == 1 else 'do'}"


def check_brokers(kafka: "Kafka", topics: Collection[str] = (), wait_s: float = LOOK_WAIT_S) -> Brokers:
    """Return which brokers answer, and what they know of some topics. This takes `3 * wait_s` at most.

    Args:
        kafka: The arguments of kafka-python's clients.
        topics: The topics that have to be written.
        wait_s: The longest wait for each broker, seconds.
    """
    from kafka.errors import KafkaError

    from streaming.kafka.any_broker import AnyBroker

    servers = kafka["bootstrap_servers"]
    named = servers if isinstance(servers, str) else ",".join(map(str, servers))
    try:
        with AnyBroker(kafka, wait_s) as asker:
            return _check_brokers(asker, named, topics)
    except KafkaError as error:
        return Brokers(named, error=_text(error))


def _check_brokers(asker: "AnyBroker", servers: str, topics: Collection[str]) -> Brokers:
    from kafka.errors import NodeNotReadyError

    from streaming.kafka.any_broker import UNKNOWN_TOPIC, metadata_request

    responses = list(asker.ask_each(lambda _: metadata_request(topics)).values())
    found = [response for response in responses if not isinstance(response, Exception)]
    if not found:
        # one that waits for its next connection has failed before, and says only which node it is
        return Brokers(servers, error=_text(min(responses, key=lambda error: isinstance(error, NodeNotReadyError))))
    for response in found:
        asker.learn(response)
    described = {topic.name: topic for response in found for topic in response.topics if topic.error_code == 0}
    known = {topic.name for response in found for topic in response.topics if topic.error_code != UNKNOWN_TOPIC}
    missing = tuple(name for name in topics if name not in known)
    partitions = list(_partitions(described.values(), _needed(asker, described)))
    members: set[int] = {node.node_id for response in found for node in response.brokers}
    answers = asker.ask_each(lambda _: metadata_request(()), sorted(members)) if members else {}
    answering = frozenset(node for node in members if not isinstance(answers[node], Exception))
    silent = members.union(*(each.replicas for each in partitions)) - answering
    return Brokers(servers, answering, frozenset(silent), missing, tuple(partitions))


def _needed(asker: "AnyBroker", topics: Iterable[str]) -> dict[str, int]:
    """Return the min.insync.replicas of the topics whose configuration we may see."""
    from kafka.errors import KafkaError

    from streaming.kafka.any_broker import values_of

    try:
        configs = asker.describe_configs(topics, known_within_s=0)
    except KafkaError:
        return {}
    found = {name: values_of(config).get("min.insync.replicas", "") for name, config in configs.items()}
    return {name: int(value) for name, value in found.items() if value.isdigit()}


def _partitions(topics: Iterable[Any], needed: Mapping[str, int]) -> Iterator[Partition]:
    for topic in topics:
        for each in topic.partitions:
            yield Partition(
                topic.name,
                each.partition_index,
                each.leader_id,
                frozenset(each.replica_nodes),
                frozenset(each.isr_nodes),
                needed.get(topic.name),
            )


def unreachable(settings: "Settings", why: object, topics: Collection[str] = ()) -> BrokerUnreachable:
    """Return the error of a request that no broker has answered, after a look at which of them answer."""
    return unreachable_at(settings.kafka_client_arguments(), why, topics)


def unreachable_at(
    kafka: "Kafka", why: object, topics: Collection[str] = (), wait_s: float = LOOK_WAIT_S
) -> BrokerUnreachable:
    """Return the same as `unreachable`, for the arguments of kafka-python's clients."""
    state, reason = check_brokers(kafka, topics, wait_s), _text(why) if isinstance(why, Exception) else str(why)
    if not state.answering:
        return BrokerUnreachable.at(state.servers, reason)
    now = f"The brokers at {state.servers} did not answer a request ({reason}), and answer now: try again."
    return BrokerUnreachable(state.sentence or now)


def listed(things: Sequence[object]) -> str:
    """Return some things as a list in a sentence: "1, 2 and 3"."""
    names = [str(thing) for thing in things[:NAMED_MAX]]
    if len(things) > NAMED_MAX:
        names.append(f"{len(things) - NAMED_MAX} more")
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _text(error: Exception) -> str:
    """Return the text of kafka-python's error without the name of its class, which is all that some have."""
    return ", ".join(map(str, error.args)) or str(error)
