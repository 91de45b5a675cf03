"""The check of the request topics of other coordinators, to which this coordinator writes groups that move.

A sink that cannot write fails its batch again and again. So every start with peers checks their topics, and every start
without peers checks nothing.
"""

from collections.abc import Iterator
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType

from coordinator.limits import MOVE_AGE_MS, MOVE_PART_BYTES
from streaming.config.settings import Settings
from streaming.errors import TopicMismatch
from streaming.kafka.topics import open_admin

PART_RECORD_BYTES = MOVE_PART_BYTES * 4 // 3 + 2**14
"""The bytes of a record with one part of a group, in base 64, with its other fields and the frame around it."""


def check(settings: Settings) -> dict[str, int]:
    """Check the topics of the peers, and how long the own requests are kept.

    Returns:
        The number of request partitions of each peer, by its prefix. It is fixed for the life of the topic.

    Raises:
        BrokerUnreachable: No broker answers.
        TopicMismatch: A peer has no request topic on these brokers, or one that cannot take groups; or requests are
            kept for so long that the copy of a group could be older than its verdict.
    """
    if not settings.peers:
        return {}
    peers = [f"{prefix}.requests" for prefix in settings.peers]
    names = [settings.requests_topic, *peers]
    with open_admin(settings) as admin:
        described = {each["name"]: each for each in admin.describe_topics(names)}
        there = [name for name in names if described[name]["partitions"]]
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in there]
        configs = admin.describe_configs(resources, config_filter="all")["topic"]
    found = [
        *(f"the brokers have no topic {name}" for name in names if name not in there),
        *(problem for name in peers if name in there for problem in _of_peer(name, configs[name])),
        *_of_own(settings.requests_topic, configs.get(settings.requests_topic, {})),
    ]
    if found:
        raise TopicMismatch(f"{'; '.join(found)}: start that coordinator first, alter the topic, or change peers.")
    return {prefix: len(described[name]["partitions"]) for prefix, name in zip(settings.peers, peers, strict=True)}


def _of_peer(name: str, config: Any) -> Iterator[str]:
    stamps, room = _value(config, "message.timestamp.type"), _value(config, "max.message.bytes")
    if stamps != "LogAppendTime":
        yield f"{name} has message.timestamp.type={stamps} where LogAppendTime is needed"
    if not room.isdigit() or int(room) < PART_RECORD_BYTES:
        yield f"{name} has max.message.bytes={room} where {PART_RECORD_BYTES} or more is needed"


def _of_own(name: str, config: Any) -> Iterator[str]:
    kept_ms = _value(config, "retention.ms")
    if not kept_ms.isdigit() or int(kept_ms) >= MOVE_AGE_MS:
        yield f"{name} has retention.ms={kept_ms} where less than {MOVE_AGE_MS} is needed with peers"


def _value(config: Any, name: str) -> str:
    return str(config.get(name, {}).get("value", "unreadable"))
