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

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidReplicationFactorError,
    KafkaError,
    KafkaTimeoutError,
    NoError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from coordinator.limits import RECORD_BYTES_MAX
from streaming.config.settings import SINK_BATCH_BYTES, Settings
from streaming.errors import BrokerUnreachable, TopicMismatch, TopicRefused

ANSWER_WAIT_MS = 15_000
LEADERS_WAIT_MS = 30_000

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
    UnknownTopicOrPartitionError: "start the coordinator once, which creates it",
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
    with open_admin(settings) as admin:
        there = {each["name"] for each in admin.describe_topics(names) if each["partitions"]}
        if missing := [topic for topic in topics if topic.name not in there]:
            say(f"Creating the topics {', '.join(topic.name for topic in missing)}.")
            _create(admin, missing, settings.replication_factor)
        _await_leaders(admin, names)
        found = list(_mismatches(admin, topics))
    if found:
        raise refusal(found)
    return topics


def shards(settings: Settings) -> int:
    """Return the number of partitions of the request topic; 0 if there is no such topic.

    Raises:
        BrokerUnreachable: no broker answered.
    """
    with open_admin(settings) as admin:
        described = admin.describe_topics([settings.requests_topic])
    return sum(len(topic["partitions"]) for topic in described)


def mismatches(settings: Settings) -> list[Mismatch]:
    """Return the differences between the topics and the needs of the coordinator.

    Raises:
        BrokerUnreachable: no broker answered.
        TopicRefused: the brokers did not describe a topic.
    """
    with open_admin(settings) as admin:
        return list(_mismatches(admin, layout(settings)))


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
    with open_admin(settings) as admin:
        described = admin.describe_topics([topic.name for topic in topics or layout(settings)])
    for topic in described:
        _refuse_error(topic["name"], "show", topic["error_code"])
    return {topic["name"]: str(topic["topic_id"]) for topic in described}


def _topic(role: str, settings: Settings) -> Topic:
    needed = {name: values[0] for name, values in _NEEDED[role].items()}
    return Topic(
        name=getattr(settings, f"{role}_topic"),
        partitions=getattr(settings, _PARTITIONS[role]) if role in _PARTITIONS else 1,
        config={**needed, **_CHOSEN[role]},
    )


@contextmanager
def open_admin(settings: Settings) -> Iterator[Any]:
    """Return a context manager with an admin client. A request without an answer raises `BrokerUnreachable`."""
    try:
        with KafkaAdminClient(bootstrap_timeout_ms=ANSWER_WAIT_MS, **settings.kafka_client_arguments()) as admin:
            yield admin
    except KafkaError as error:
        why = "" if isinstance(error, KafkaTimeoutError) else error
        raise BrokerUnreachable.at(settings.bootstrap_servers, why) from error


def _create(admin: Any, topics: Iterable[Topic], replication_factor: int) -> None:
    wanted = {
        topic.name: {
            "num_partitions": topic.partitions,
            "replication_factor": replication_factor,
            "configs": dict(topic.config),
        }
        for topic in topics
    }
    for result in admin.create_topics(wanted, raise_errors=False)["topics"]:
        if for_code(result["error_code"]) is not TopicAlreadyExistsError:
            _refuse_error(result["name"], "create", result["error_code"], result["error_message"])


def _refuse_error(name: str, verb: str, error_code: int, message: str | None = None) -> None:
    error = for_code(error_code)
    if error is not NoError:
        why = (message or error.description or error.__name__).rstrip(".")
        advice = _ADVICE.get(error, "see the brokers' logs")
        raise TopicRefused(f"The brokers did not {verb} the topic {name} ({why}): {advice}.")


def _await_leaders(admin: Any, names: list[str]) -> None:
    try:
        admin.wait_for_topics(names, timeout_ms=LEADERS_WAIT_MS)
    except KafkaTimeoutError as error:
        raise TopicRefused(
            f"Topics have no leaders yet ({error}): check that all brokers run, and try again."
        ) from error


def _mismatches(admin: Any, topics: Topics | ObservedTopics | LeaseTopics | DirectoryTopics) -> Iterator[Mismatch]:
    """Yield the differences between the existing topics and the needs of the coordinator."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics]
    configs = admin.describe_configs(resources, config_filter="all")["topic"]
    described = {each["name"]: each for each in admin.describe_topics([topic.name for topic in topics])}
    for role, topic in topics._asdict().items():
        _refuse_error(topic.name, "show", described[topic.name]["error_code"])
        partitions = len(described[topic.name]["partitions"])
        if partitions != topic.partitions:
            wanted = f"{_PARTITIONS[role]} is {topic.partitions}" if role in _PARTITIONS else "one is needed"
            yield Mismatch(role, f"{topic.name} has {partitions} partitions where {wanted}")
        for name, values in _NEEDED[role].items():
            found = configs[topic.name].get(name, {}).get("value", "unreadable")
            if sorted(found.split(",")) not in [sorted(value.split(",")) for value in values]:
                yield Mismatch(role, f"{topic.name} has {name}={found} where {' or '.join(values)} is needed")
        room = configs[topic.name].get("max.message.bytes", {}).get("value", "unreadable")
        if not room.isdigit() or int(room) < SINK_BATCH_BYTES:
            yield Mismatch(
                role, f"{topic.name} has max.message.bytes={room} where {SINK_BATCH_BYTES} or more is needed"
            )
