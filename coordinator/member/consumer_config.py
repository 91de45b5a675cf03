"""The subscription of a member of the consumer protocol, and its assignment."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from coordinator.member.requests import MemberConfig
from coordinator.messages.consumer_requests import OwnedPartitions, TopicFact
from coordinator.messages.responses import AssignedTopic


class ConsumerProtocolConfig(MemberConfig, frozen=True, kw_only=True):
    """The identity and the timeouts of a member. The coordinator chooses session timeout and heartbeat interval.

    Args:
        member_id: Made by the client, and kept for the life of the member.
        server_assignor: The assignor that the member votes for; None for the coordinator's default.
    """

    member_id: str
    rack_id: str | None = None
    server_assignor: str | None = None


class Wanted(Struct, frozen=True):
    """A subscription, and the facts about its topics from the brokers' metadata.

    Args:
        regex: One pattern of RE2; "" for a subscription by names.
        matched: The topics that the pattern matches; None without a pattern.
        facts: By topic. A topic that does not exist has a fact without an id.
    """

    names: tuple[str, ...] = ()
    regex: str = ""
    matched: tuple[str, ...] | None = None
    facts: Mapping[str, TopicFact] = {}


class AssignedPartition(NamedTuple):
    """A partition of a topic. A topic that is deleted and created anew has the same name and another id."""

    topic: str
    partition: int
    topic_id: str


Partitions = frozenset[AssignedPartition]


class Target(Struct, frozen=True):
    """An assignment to reconcile with.

    Args:
        membership: Distinguishes the times that the member has joined with epoch 0.
        token: The fencing token of the partitions.
    """

    membership: int
    epoch: int
    partitions: Partitions
    token: int


def read(topics: tuple[AssignedTopic, ...]) -> Partitions:
    """Return the partitions in a response. A topic whose name is not known any more cannot be read, and is left out."""
    return frozenset(AssignedPartition(t.topic, n, t.topic_id) for t in topics if t.topic for n in t.partitions)


def written(partitions: Partitions) -> tuple[OwnedPartitions, ...]:
    """Return partitions as a request lists them."""
    numbers: dict[str, list[int]] = {}
    for each in sorted(partitions):
        numbers.setdefault(each.topic_id, []).append(each.partition)
    return tuple(OwnedPartitions(topic_id, tuple(listed)) for topic_id, listed in numbers.items())
