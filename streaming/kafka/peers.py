"""The check of the request topics of other coordinators, to which this coordinator writes groups that move.

A sink that cannot write fails its batch again and again. So every start with peers checks their topics, and every start
without peers checks nothing.
"""

from collections.abc import Iterator, Mapping

from coordinator.base.limits import MOVE_AGE_MS, MOVE_PART_BYTES
from streaming.config.settings import Settings
from streaming.errors import TopicMismatch
from streaming.kafka.any_broker import are_known
from streaming.kafka.topics import UNREADABLE, any_broker, shown_configs

PART_RECORD_BYTES = MOVE_PART_BYTES * 4 // 3 + 2**14
"""The bytes of a record with one part of a group, in base 64, with its other fields and the frame around it."""


def check(settings: Settings) -> dict[str, int]:
    """Check the topics of the peers, and how long the own requests are kept.

    Returns:
        The number of request partitions of each peer, by its prefix. It is fixed for the life of the topic.

    Raises:
        BrokerUnreachable: No broker answers.
        TopicRefused: The brokers do not show the configuration of a topic.
        TopicMismatch: A peer has no request topic on these brokers, or one that cannot take groups; or requests are
            kept for so long that the copy of a group could be older than its verdict.
    """
    if not settings.peers:
        return {}
    peers = [f"{prefix}.requests" for prefix in settings.peers]
    names = [settings.requests_topic, *peers]
    with any_broker(settings) as brokers:
        described = brokers.describe_topics(names, are_known)
        there = [name for name in names if described[name].partitions]
        configs = shown_configs(brokers, there)
    found = [
        *(f"the brokers have no topic {name}" for name in names if name not in there),
        *(problem for name in peers if name in there for problem in _of_peer(name, configs[name])),
        *_of_own(settings.requests_topic, configs.get(settings.requests_topic, {})),
    ]
    if found:
        raise TopicMismatch(f"{'; '.join(found)}: start that coordinator first, alter the topic, or change peers.")
    return {prefix: len(described[name].partitions) for prefix, name in zip(settings.peers, peers, strict=True)}


def _of_peer(name: str, config: Mapping[str, str]) -> Iterator[str]:
    stamps, room = config.get("message.timestamp.type", UNREADABLE), config.get("max.message.bytes", UNREADABLE)
    if stamps != "LogAppendTime":
        yield f"{name} has message.timestamp.type={stamps} where LogAppendTime is needed"
    if not room.isdigit() or int(room) < PART_RECORD_BYTES:
        yield f"{name} has max.message.bytes={room} where {PART_RECORD_BYTES} or more is needed"


def _of_own(name: str, config: Mapping[str, str]) -> Iterator[str]:
    kept_ms = config.get("retention.ms", UNREADABLE)
    if not kept_ms.isdigit() or int(kept_ms) >= MOVE_AGE_MS:
        yield f"{name} has retention.ms={kept_ms} where less than {MOVE_AGE_MS} is needed with peers"
