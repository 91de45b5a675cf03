"""The coordinator's five topics: their layout, their creation, and the check of existing ones.

| topic | holds | partitions | kept |
| --- | --- | --- | --- |
| `requests` | requests of clients, by group, with the broker's timestamps | one for each shard | 1 day |
| `replies` | responses of the coordinator, by the client's mailbox | a setting | 10 minutes |
| `groups` | each group's assignment and offsets | as requests | the last of each key |
| `events` | the cause of each change of a group | as requests | 7 days |
| `transactions` | a record for each commit inside a transaction | as requests | until it is reported |

The observer of Kafka's own groups has `groups`, `events` and `topics`, which holds the names of topic ids. Drivers that
stand by for each other have `lease`, with one partition, whose order decides which of them holds the lease.

`_NEEDED` has the settings of a topic that the coordinator depends on. Every start checks these settings, and checks
that each topic takes at least `SINK_BATCH_BYTES`. `topic_watch` checks both while the query runs. `_CHOSEN` has the
settings that we use when we create a topic, and that may be changed later.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from kafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidReplicationFactorError,
    KafkaError,
    NoError,
    NotControllerError,
    PolicyViolationError,
    RetriableError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.admin import CreateTopicsRequest

from coordinator.base.limits import RECORD_BYTES_MAX
from streaming.config.settings import SINK_BATCH_BYTES, Settings
from streaming.config.timeouts import ATTEMPT_WAIT_S, KNOWN_WAIT_S, LEADERS_WAIT_S, RETRY_WAIT_S
from streaming.errors import TopicMismatch, TopicRefused
from streaming.kafka.any_broker import (
    AnyBroker,
    are_known,
    metadata_request,
    values_of,
)
from streaming.kafka.brokers import unreachable

ALTERED = '"Topics that were altered" in docs/checkpoints.md'
"""Where a user reads what to do about a topic that was altered under a checkpoint."""

FEWER_COPIES = (
    "The new topics get a replication factor of {number}, the number of brokers, in place of {wanted}: set"
    " replication_factor to insist on another number."
)

UNREADABLE = "unreadable"
"""Stands for a value that the brokers do not show."""

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS

# The setting with the number of partitions of each topic; a topic without a setting has one. A shard publishes to the
# partition that its requests come from.
_PARTITIONS: Mapping[str, str] = {
    "requests": "request_partitions",
    "replies": "reply_partitions",
    "groups": "request_partitions",
    "events": "request_partitions",
    "transactions": "request_partitions",
    "topics": "request_partitions",
}

# Setting by setting, the valid values. The first one is used for a new topic.
_NEEDED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "requests": {"cleanup.policy": ("delete",), "message.timestamp.type": ("LogAppendTime",)},
    "replies": {"cleanup.policy": ("delete",)},
    "groups": {"cleanup.policy": ("compact",)},
    "events": {"cleanup.policy": ("delete", "compact,delete")},
    "transactions": {"cleanup.policy": ("delete",), "retention.ms": ("-1",), "retention.bytes": ("-1",)},
    "topics": {"cleanup.policy": ("compact",)},
    "lease": {"cleanup.policy": ("delete",)},
    "directory": {"cleanup.policy": ("compact",)},
}

DURABLE = frozenset({"requests", "groups", "events", "transactions"})
"""The topics whose acknowledged records must not be lost. A client repeats a request whose response is lost."""

MESSAGE_BYTES_MAX = RECORD_BYTES_MAX + 2**16
"""The bytes of a record's value, of its key, and of the frame around them."""

_ROOM = {"max.message.bytes": str(MESSAGE_BYTES_MAX)}
# Only closed segments are deleted or compacted, so a segment is closed well within the time that its records are kept.
_CHOSEN: Mapping[str, Mapping[str, str]] = {
    "requests": {"retention.ms": str(_DAY_MS), "segment.ms": str(_HOUR_MS), **_ROOM},
    "replies": {"retention.ms": str(10 * _MINUTE_MS), "segment.ms": str(10 * _MINUTE_MS), **_ROOM},
    "groups": {"segment.bytes": str(100 * 2**20), "segment.ms": str(_DAY_MS), **_ROOM},
    "events": {"retention.ms": str(7 * _DAY_MS), "segment.ms": str(_DAY_MS), **_ROOM},
    "transactions": {"segment.bytes": str(2**20), **_ROOM},
    "topics": {"segment.bytes": str(100 * 2**20), "segment.ms": str(_DAY_MS), **_ROOM},
    "lease": {"retention.ms": str(_DAY_MS), "segment.ms": str(_HOUR_MS)},
    "directory": {},
}

_ADVICE: Mapping[type[KafkaError], str] = {
    InvalidReplicationFactorError: "set replication_factor to the number of brokers or less",
    PolicyViolationError: "create it by hand as the brokers' policy allows",
    TopicAuthorizationFailedError: "grant the service Create, Describe and DescribeConfigs on its topics",
    ClusterAuthorizationFailedError: "grant the service Create, Describe and DescribeConfigs on its topics",
    UnknownTopicOrPartitionError: "start the coordinator, which creates it, or wait for a broker that lags behind",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """The layout of a topic that we would create."""

    name: str
    partitions: int
    config: Mapping[str, str]


class Mismatch(NamedTuple):
    """A difference between a topic and the needs of the coordinator.

    Args:
        role: The topic's name in `Topics`.
    """

    role: str
    what: str


class Topics(NamedTuple):
    """The five topics of one coordinator."""

    requests: Topic
    replies: Topic
    groups: Topic
    events: Topic
    transactions: Topic


class ObservedTopics(NamedTuple):
    """The three topics of one observer of Kafka's own groups."""

    groups: Topic
    events: Topic
    topics: Topic


class LeaseTopics(NamedTuple):
    """The topic of drivers that stand by for each other."""

    lease: Topic


class DirectoryTopics(NamedTuple):
    """The topic of coordinators that share the groups."""

    directory: Topic


T = TypeVar("T", Topics, ObservedTopics, LeaseTopics, DirectoryTopics)


def layout(settings: Settings) -> Topics:
    """Return the layout of the topics for these settings."""
    return Topics(*(_topic(role, settings) for role in Topics._fields))


def observed_layout(settings: Settings) -> ObservedTopics:
    """Return the layout of an observer's topics for these settings."""
    return ObservedTopics(*(_topic(role, settings) for role in ObservedTopics._fields))


def lease_layout(settings: Settings) -> LeaseTopics:
    """Return the layout of the lease topic."""
    return LeaseTopics(_topic("lease", settings))


def directory_layout(settings: Settings) -> DirectoryTopics:
    """Return the layout of the directory."""
    return DirectoryTopics(_topic("directory", settings))


def ensure(settings: Settings, report: Callable[[str], None] | None = None) -> Topics:
    """Create the missing topics of the coordinator; see `ensure_all`."""
    return ensure_all(settings, layout(settings), report)


def ensure_all(settings: Settings, topics: T, report: Callable[[str], None] | None = None) -> T:
    """Create the missing topics, check the existing ones, and return when all of them have leaders.

    Another service may do the same at the same time.

    Args:
        report: Called with a sentence that names the topics to create.

    Raises:
        BrokerUnreachable: no broker answered.
        TopicRefused: the brokers did not create a topic, or did not describe it.
        TopicMismatch: a topic has other partitions, another cleanup policy or timestamp type, or less room than needed.
    """
    say = report or (lambda _: None)
    names = [topic.name for topic in topics]
    with any_broker(settings) as brokers:
        described = brokers.describe_topics(names)
        if missing := [topic for topic in topics if not described[topic.name].partitions]:
            say(f"Creating the topics {', '.join(topic.name for topic in missing)}.")
            _create(brokers, missing, settings, say)
        _await_leaders(brokers, names)
        found = list(_mismatches(brokers, topics))
    if found:
        raise refusal(found)
    return topics


def shards(settings: Settings) -> int:
    """Return the number of partitions of the request topic; 0 if there is no such topic.

    Raises:
        BrokerUnreachable: no broker answered.
    """
    with any_broker(settings) as brokers:
        described = brokers.describe_topics([settings.requests_topic])
    return len(described[settings.requests_topic].partitions)


def mismatches(settings: Settings, topics: Topics | ObservedTopics) -> list[Mismatch]:
    """Return the differences between the topics and the needs of the coordinator or of the observer.

    Raises:
        BrokerUnreachable: no broker answered.
        TopicRefused: the brokers did not describe a topic.
    """
    with any_broker(settings) as brokers:
        return list(_mismatches(brokers, topics))


def risks(settings: Settings, topics: Topics | ObservedTopics) -> list[str]:
    """Return a sentence for each setting with which the brokers may lose acknowledged records of the coordinator.

    Raises:
        BrokerUnreachable: no broker answered.
    """
    wanted = [topic.name for role, topic in topics._asdict().items() if role in DURABLE]
    with any_broker(settings) as brokers:
        configs, described = brokers.describe_configs(wanted), brokers.describe_topics(wanted)
    copies = {
        name: min((len(each.replica_nodes) for each in topic.partitions), default=0)
        for name, topic in described.items()
    }
    return list(risks_of({name: values_of(config) for name, config in configs.items()}, copies))


def risks_of(configs: Mapping[str, Mapping[str, str | None]], copies: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for each risky setting, with the topics that have it.

    Args:
        configs: The settings of each topic, also those that the brokers have for all topics.
        copies: The number of replicas of each topic.
    """
    unclean = [name for name, config in configs.items() if config.get("unclean.leader.election.enable") == "true"]
    if unclean:
        yield (
            f"Acknowledged records may be lost while brokers fail: set unclean.leader.election.enable=false on"
            f" {', '.join(unclean)}."
        )
    single = [name for name, config in configs.items() if config.get("min.insync.replicas") == "1" and copies[name] > 1]
    if single:
        yield (
            f"Acknowledged records may be on a single broker: set min.insync.replicas=2 or more on {', '.join(single)}."
        )


def refusal(found: Iterable[Mismatch]) -> TopicMismatch:
    """Return the error with the faults of the topics and a remedy."""
    whats = "; ".join(mismatch.what for mismatch in found)
    return TopicMismatch(f"{whats}: alter the topics or the settings, or choose a topic_prefix that is not in use.")


def topic_ids(settings: Settings, topics: Topics | ObservedTopics | None = None) -> dict[str, str]:
    """Return the id of each topic. A topic that is deleted and created again gets another id.

    Args:
        topics: The coordinator's topics if None.

    Raises:
        BrokerUnreachable: no broker answered.
        TopicRefused: a topic does not exist.
    """
    with any_broker(settings) as brokers:
        described = brokers.describe_topics([topic.name for topic in topics or layout(settings)], are_known)
    for name, topic in described.items():
        refuse_error(name, "show", topic.error_code)
    return {name: str(topic.topic_id) for name, topic in described.items()}


def _topic(role: str, settings: Settings) -> Topic:
    needed = {name: values[0] for name, values in _NEEDED[role].items()}
    return Topic(
        name=getattr(settings, f"{role}_topic"),
        partitions=getattr(settings, _PARTITIONS[role]) if role in _PARTITIONS else 1,
        config={**needed, **_CHOSEN[role]},
    )


@contextmanager
def any_broker(settings: Settings) -> Iterator[AnyBroker]:
    """Return a context manager with the connections to the brokers. A request without an answer raises
    `BrokerUnreachable`, whose text says which brokers answer."""
    try:
        with AnyBroker(settings.kafka_client_arguments()) as brokers:
            yield brokers
    except KafkaError as error:
        raise unreachable(settings, error) from error


def _create(brokers: AnyBroker, topics: Collection[Topic], settings: Settings, report: Callable[[str], None]) -> None:
    """Create topics. A number of copies that nobody has set is not above the number of brokers.

    The brokers decide whether they are too few: some may be registered and not running.
    """
    copies, number = settings.replication_factor, len(brokers.members)
    results = _request_creation(brokers, topics, copies)
    refused = {each.name for each in results if for_code(each.error_code) is InvalidReplicationFactorError}
    if refused and "replication_factor" not in settings.model_fields_set and 0 < number < copies:
        report(FEWER_COPIES.format(number=number, wanted=copies))
        fewer = [_with_copies(topic, number) for topic in topics if topic.name in refused]
        results = [each for each in results if each.name not in refused] + _request_creation(brokers, fewer, number)
    for each in results:
        if for_code(each.error_code) is not TopicAlreadyExistsError:
            refuse_error(each.name, "create", each.error_code, each.error_message)


def _with_copies(topic: Topic, copies: int) -> Topic:
    """Return a topic to which one broker can write, whatever the cluster has as `min.insync.replicas`."""
    return replace(topic, config={**topic.config, "min.insync.replicas": "1"}) if copies == 1 else topic


def _request_creation(brokers: AnyBroker, topics: Iterable[Topic], copies: int) -> list[Any]:
    """Send a request to create topics, and return the result of each."""
    creation = CreateTopicsRequest.CreatableTopic
    wanted = [
        creation(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=copies,
            assignments=[],
            configs=[creation.CreatableTopicConfig(name=name, value=value) for name, value in topic.config.items()],
        )
        for topic in topics
    ]
    response = brokers.ask(
        lambda: CreateTopicsRequest(topics=wanted, timeout_ms=int(ATTEMPT_WAIT_S * 1_000), validate_only=False),
        lambda response: not any(_may_pass(result.error_code) for result in response.topics),
        LEADERS_WAIT_S,
    )
    return list(response.topics)


def _may_pass(error_code: int) -> bool:
    """Return whether another attempt may create the topic. Only the controller does it, and there may be none for some
    seconds."""
    return issubclass(for_code(error_code), (RetriableError, NotControllerError))


def refuse_error(name: str, verb: str, error_code: int, message: str | None = None) -> None:
    """Raise `TopicRefused` for the error in a response about a topic, unless it has none.

    Args:
        verb: What the brokers were asked to do with the topic.
    """
    error = for_code(error_code)
    if error is not NoError:
        why = (message or error.description or error.__name__).rstrip(".")
        advice = _ADVICE.get(error, "see the brokers' logs")
        raise TopicRefused(f"The brokers did not {verb} the topic {name} ({why}): {advice}.")


def _await_leaders(brokers: AnyBroker, names: list[str]) -> None:
    described = brokers.describe_topics(
        names, lambda topics: not any(_problem(topics[name]) for name in names), LEADERS_WAIT_S
    )
    if lacking := {name: lack for name in names if (lack := _problem(described[name]))}:
        raise TopicRefused(f"Topics have no leaders yet ({lacking}): check that all brokers run, and try again.")
    _await_knowledge(brokers, names)


def _await_knowledge(brokers: AnyBroker, names: list[str]) -> None:
    """Wait until each broker that answers knows the topics: whatever a start asks next, it may ask another one.

    After `KNOWN_WAIT_S` a broker that still lags behind is left to those who ask it.
    """
    until_s = time.monotonic() + KNOWN_WAIT_S
    lagging: Collection[int] = brokers.members
    while lagging and time.monotonic() < until_s:
        answers = brokers.ask_each(lambda _: metadata_request(names), lagging)
        lagging = [
            broker
            for broker in lagging
            if not isinstance(answers[broker], KafkaError) and any(map(_problem, answers[broker].topics))
        ]
        time.sleep(RETRY_WAIT_S if lagging else 0)


def _problem(topic: Any) -> str:
    """Return what a new topic lacks yet; empty if each partition has a leader."""
    if topic.error_code or not topic.partitions:
        return str(for_code(topic.error_code).message)
    without = [str(each.partition_index) for each in topic.partitions if each.leader_id < 0]
    return f"no leader of {', '.join(without)}" if without else ""


def _mismatches(
    brokers: AnyBroker, topics: Topics | ObservedTopics | LeaseTopics | DirectoryTopics
) -> Iterator[Mismatch]:
    """Yield the differences between the existing topics and the needs of the coordinator."""
    names = [topic.name for topic in topics]
    described = brokers.describe_topics(names, are_known)
    configs = shown_configs(brokers, names)
    for role, topic in topics._asdict().items():
        refuse_error(topic.name, "show", described[topic.name].error_code)
        for what in differences(role, topic, len(described[topic.name].partitions), configs[topic.name]):
            yield Mismatch(role, what)


def differences(role: str, topic: Topic, partitions: int, config: Mapping[str, str]) -> Iterator[str]:
    """Yield the differences between an existing topic and the needs of the coordinator.

    Args:
        role: The topic's name in `Topics`, or in the tuple of other topics that it belongs to.
        partitions: The number of partitions that it has.
        config: The configuration that it has.
    """
    if partitions != topic.partitions:
        wanted = f"{_PARTITIONS[role]} is {topic.partitions}" if role in _PARTITIONS else "one is needed"
        how = f" (if they were added, see {ALTERED})" if role == "requests" and partitions > topic.partitions else ""
        yield f"{topic.name} has {partitions} partitions where {wanted}{how}"
    for name, values in _NEEDED[role].items():
        found = config.get(name, UNREADABLE)
        if sorted(found.split(",")) not in [sorted(value.split(",")) for value in values]:
            yield f"{topic.name} has {name}={found} where {' or '.join(values)} is needed"
    room = config.get("max.message.bytes", UNREADABLE)
    if not room.isdigit() or int(room) < SINK_BATCH_BYTES:
        yield f"{topic.name} has max.message.bytes={room} where {SINK_BATCH_BYTES} or more is needed"


def shown_configs(brokers: AnyBroker, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the configuration of topics.

    Raises:
        TopicRefused: The brokers do not show that of a topic. This is no mismatch: the topic may be as it should be.
        KafkaError: No broker answered.
    """
    configs = brokers.describe_configs(names)
    for name, config in configs.items():
        refuse_error(name, "show the configuration of", config.error_code, config.error_message)
    return {name: values_of(config) for name, config in configs.items()}
