"""The coordinator's four topics: what they are, making them, and refusing those that would not do.

| topic | holds | partitions | kept |
| --- | --- | --- | --- |
| `requests` | what clients ask, by group; the broker's clock dates each one | a shard each | 1 day |
| `replies` | what the coordinator answers, by the asker's inbox | a setting | 10 minutes |
| `groups` | each group's assignment and offsets | as requests | the last of each key |
| `events` | why each group is as it is | as requests | 7 days |

`_NEEDED` is what a topic must be for the coordinator to be right, and is checked at every start, as is that each takes
at least `SINK_BATCH_BYTES`; `topic_watch` checks both while the query runs. `_CHOSEN` is what we set when we make a
topic, and anybody may change later.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

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

# Which setting says how many partitions a topic has. What a shard publishes goes where its requests come from.
_PARTITIONS: Mapping[str, str] = {
    "requests": "request_partitions",
    "replies": "reply_partitions",
    "groups": "request_partitions",
    "events": "request_partitions",
}

# Setting by setting, the values that will do; the first is what we set.
_NEEDED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "requests": {"cleanup.policy": ("delete",), "message.timestamp.type": ("LogAppendTime",)},
    "replies": {"cleanup.policy": ("delete",)},
    "groups": {"cleanup.policy": ("compact",)},
    "events": {"cleanup.policy": ("delete", "compact,delete")},
}

MESSAGE_BYTES_MAX = RECORD_BYTES_MAX + 2**16
"""A record's value, its key, and what frames them."""

_ROOM = {"max.message.bytes": str(MESSAGE_BYTES_MAX)}
# Only closed segments are deleted or compacted, so a segment is closed well within the time that its records are kept.
_CHOSEN: Mapping[str, Mapping[str, str]] = {
    "requests": {"retention.ms": str(_DAY_MS), "segment.ms": str(_HOUR_MS), **_ROOM},
    "replies": {"retention.ms": str(10 * _MINUTE_MS), "segment.ms": str(10 * _MINUTE_MS), **_ROOM},
    "groups": {"segment.bytes": str(100 * 2**20), "segment.ms": str(_DAY_MS), **_ROOM},
    "events": {"retention.ms": str(7 * _DAY_MS), "segment.ms": str(_DAY_MS), **_ROOM},
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
    """A topic as we would make it."""

    name: str
    partitions: int
    config: Mapping[str, str]


class Mismatch(NamedTuple):
    """Something in which a topic is not as the coordinator needs it.

    Args:
        role: The topic's name in `Topics`.
    """

    role: str
    what: str


class Topics(NamedTuple):
    """The four topics of one coordinator."""

    requests: Topic
    replies: Topic
    groups: Topic
    events: Topic


def layout(settings: Settings) -> Topics:
    """Return the topics that these settings ask for."""
    return Topics(*(_topic(role, settings) for role in Topics._fields))


def ensure(settings: Settings, report: Callable[[str], None] | None = None) -> Topics:
    """Make the topics that are missing, check those that are there, and return when all have leaders.

    Another service may be doing the same at the same time.

    Args:
        report: Told in plain sentences which topics are being made.

    Raises:
        BrokerUnreachable: no broker answered.
        TopicRefused: the brokers would not make a topic, or not show it.
        TopicMismatch: a topic has other partitions, another cleanup policy or timestamp type, or less room than needed.
    """
    say = report or (lambda _: None)
    topics = layout(settings)
    names = [topic.name for topic in topics]
    with _admin(settings) as admin:
        there = {each["name"] for each in admin.describe_topics(names) if each["partitions"]}
        if missing := [topic for topic in topics if topic.name not in there]:
            say(f"Creating the topics {', '.join(topic.name for topic in missing)}.")
            _create(admin, missing, settings.replication_factor)
        _await_leaders(admin, names)
        found = list(_mismatches(admin, topics))
    if found:
        raise refusal(found)
    return topics


def mismatches(settings: Settings) -> list[Mismatch]:
    """Find in what the topics are not as the coordinator needs them.

    Raises:
        BrokerUnreachable: no broker answered.
        TopicRefused: the brokers would not show a topic.
    """
    with _admin(settings) as admin:
        return list(_mismatches(admin, layout(settings)))


def refusal(found: Iterable[Mismatch]) -> TopicMismatch:
    """Make the error that says what is wrong with the topics, and what to do."""
    whats = "; ".join(mismatch.what for mismatch in found)
    return TopicMismatch(f"{whats}: alter the topics or the settings, or choose a topic_prefix that is not in use.")


def topic_ids(settings: Settings) -> dict[str, str]:
    """Return each topic's id, which a topic made again under the same name does not share.

    Raises:
        BrokerUnreachable: no broker answered.
        TopicRefused: a topic is not there.
    """
    with _admin(settings) as admin:
        described = admin.describe_topics([topic.name for topic in layout(settings)])
    for topic in described:
        _refuse_error(topic["name"], "show", topic["error_code"])
    return {topic["name"]: str(topic["topic_id"]) for topic in described}


def _topic(role: str, settings: Settings) -> Topic:
    needed = {name: values[0] for name, values in _NEEDED[role].items()}
    return Topic(
        name=getattr(settings, f"{role}_topic"),
        partitions=getattr(settings, _PARTITIONS[role]),
        config={**needed, **_CHOSEN[role]},
    )


@contextmanager
def _admin(settings: Settings) -> Iterator[Any]:
    """Talk to the brokers; whatever they leave unanswered becomes `BrokerUnreachable`."""
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
            f"Topics have no leaders yet ({error}): see that all brokers are up, and try again."
        ) from error


def _mismatches(admin: Any, topics: Topics) -> Iterator[Mismatch]:
    """Say in what the topics that exist differ from what is needed."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics]
    configs = admin.describe_configs(resources, config_filter="all")["topic"]
    described = {each["name"]: each for each in admin.describe_topics([topic.name for topic in topics])}
    for role, topic in topics._asdict().items():
        _refuse_error(topic.name, "show", described[topic.name]["error_code"])
        partitions = len(described[topic.name]["partitions"])
        if partitions != topic.partitions:
            yield Mismatch(
                role, f"{topic.name} has {partitions} partitions where {_PARTITIONS[role]} is {topic.partitions}"
            )
        for name, values in _NEEDED[role].items():
            found = configs[topic.name].get(name, {}).get("value", "unreadable")
            if sorted(found.split(",")) not in [sorted(value.split(",")) for value in values]:
                yield Mismatch(role, f"{topic.name} has {name}={found} where {' or '.join(values)} is needed")
        room = configs[topic.name].get("max.message.bytes", {}).get("value", "unreadable")
        if not room.isdigit() or int(room) < SINK_BATCH_BYTES:
            yield Mismatch(
                role, f"{topic.name} has max.message.bytes={room} where {SINK_BATCH_BYTES} or more is needed"
            )
