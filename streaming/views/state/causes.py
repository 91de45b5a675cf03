"""The causes of rebalances, as far as a member's own reason makes them more precise.

The coordinator knows that a member joined again, and the reason that its client gives. The reasons of this module are
those of released clients.

Source: ConsumerCoordinator and AbstractCoordinator of Kafka's Java client, StreamThread of Kafka Streams, kgo of
franz-go.
"""

import re
from enum import Enum

from msgspec import UNSET

from coordinator.base.connect_protocol import CONNECT
from coordinator.messages.events import RebalanceStarted

COOPERATIVE_ROUND = "cooperative_round"
"""A member joins again because it gave up partitions in the round before."""

SCHEDULED = "scheduled"
"""Kafka Streams scheduled the rebalance, to move tasks whose state has been restored."""

REQUESTED = "requested"
"""A member joined again without a change that the coordinator can see, for a reason of its own."""

REJOINED = frozenset({"leader_rejoined", "metadata_changed"})
"""The causes of a rebalance that began because a member joined again."""

_FURTHER_ROUND = re.compile(
    r"need to revoke partitions and re-join|after revoking what we lost from a rebalance"
    r"|triggered followup rebalance scheduled for 0"
)
"""The reasons of a further round: Java, franz-go, and a member of Kafka Streams whose tasks others gave up."""

_SCHEDULED = re.compile(r"triggered followup rebalance scheduled for [1-9]\d*|Scheduled probing rebalance")

_OF_TOPICS = re.compile(r"cached metadata has changed|partitions were added|new partitions|partitions on topics")
"""The reasons of a leader that saw other partitions of subscribed topics."""

_OF_THE_CLIENT = re.compile(
    rf"{_OF_TOPICS.pattern}|subscription has changed|received assignment does not match|rebalance failed"
    r"|need to re-join with the given member-id|subscribed to |topic interests changed"
)
"""The reasons for which clients join again by themselves. Any other reason is the application's own."""


class GroupKind(Enum):
    """The program whose instances are the members of a group."""

    CONSUMERS = "consumers"
    CONNECT = "Kafka Connect"
    STREAMS = "Kafka Streams"


_OF_CONNECT = frozenset({"default", "compatible", "sessioned"})
"""The names of Connect's protocols, versions 0 to 2. Consumers have no assignor of these names."""

STREAMS = "stream"
"""The assignor of Kafka Streams."""


def kind_of(protocol_type: str | None, assignor: str | None) -> GroupKind:
    """Return the program of a group's members. Without a protocol type, its last assignor decides."""
    if protocol_type == CONNECT or (not protocol_type and assignor in _OF_CONNECT):
        return GroupKind.CONNECT
    return GroupKind.STREAMS if assignor == STREAMS else GroupKind.CONSUMERS


def cause_of(event: RebalanceStarted) -> str:
    """Return the cause of a rebalance. In a group that Kafka's coordinator keeps, no reason is a client's own."""
    if event.cause not in REJOINED or not event.reason or event.how_known is not UNSET:
        return event.cause
    if _FURTHER_ROUND.fullmatch(event.reason):
        return COOPERATIVE_ROUND
    if _SCHEDULED.fullmatch(event.reason):
        return SCHEDULED
    return event.cause if _OF_THE_CLIENT.search(event.reason) else REQUESTED


def tells_of_topics(reason: str | None) -> bool:
    """Return whether a member's reason says that subscribed topics were created or deleted, or have more partitions."""
    return reason is not None and _OF_TOPICS.search(reason) is not None


def is_further_round(event: RebalanceStarted) -> bool:
    """Return whether a rebalance began as a further round of the one before."""
    return cause_of(event) == COOPERATIVE_ROUND


def counts_against(event: RebalanceStarted, kind: GroupKind) -> bool:
    """Return whether a rebalance counts against the client that caused it.

    It does not if the protocol requires it of a healthy member: a further round, a scheduled rebalance of Kafka
    Streams, and in Kafka Connect each change of the configuration, for which the workers join again.
    """
    if cause_of(event) in (COOPERATIVE_ROUND, SCHEDULED):
        return False
    return kind is not GroupKind.CONNECT or event.cause not in REJOINED
