"""The requests of the consumer protocol, and the facts about topics in them. `requests` has all other requests.

Source: KIP-848 and Kafka's message schemas ConsumerGroupHeartbeatRequest.json and ConsumerGroupDescribeRequest.json.
`group_topics` is our own.
"""

from typing import Annotated

from msgspec import Meta, Struct

from coordinator.base import limits
from coordinator.messages.fields import BaseRequest, Id, Int32, Name, Reason, TopicId


class TopicFact(Struct, frozen=True, forbid_unknown_fields=True):
    """A fact about a topic, from the sender's metadata.

    Args:
        topic_id: null if the topic does not exist.
    """

    topic: Name
    topic_id: TopicId | None = None
    partitions: Annotated[int, Meta(ge=0, le=limits.TOPIC_PARTITIONS_MAX)] = 0


class OwnedPartitions(Struct, frozen=True, forbid_unknown_fields=True):
    """The partitions of one topic that a member owns."""

    topic_id: TopicId
    partitions: Annotated[tuple[Int32, ...], Meta(max_length=limits.TOPIC_PARTITIONS_MAX)]


class ConsumerGroupHeartbeat(
    BaseRequest, frozen=True, kw_only=True, omit_defaults=True, tag="consumer_group_heartbeat"
):
    """Join a group of the consumer protocol, confirm partitions, renew the session, or leave (KIP-848).

    A null field has the value of an earlier request of the member.

    Args:
        member_id: Made by the client, for the life of its process.
        member_epoch: 0 to join, above 0 the member's epoch, -1 to leave, -2 if a static member goes away for a while.
        rebalance_timeout_ms: How long the member may take to give partitions up; -1 for the earlier value.
        subscribed_topic_names: The whole list.
        subscribed_topic_regex: One pattern; "" for none any more.
        topic_partitions: All partitions that the member owns now.
        version: The version of Kafka's request. In version 0, a member may join without an id.
        topics: Facts about the topics to which the member subscribes.
        regex_topics: The topics that the pattern matches, as far as the member may see them.
        regex_error: Why the pattern does not compile.
        again: A gateway sends it on the member's behalf, so the session is not renewed.
    """

    member_id: Id = ""
    member_epoch: Int32 = 0
    group_instance_id: Id | None = None
    rack_id: Id | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Annotated[tuple[Name, ...], Meta(max_length=limits.SUBSCRIBED_NAMES_MAX)] | None = None
    subscribed_topic_regex: Annotated[str, Meta(max_length=limits.PATTERN_CHARS_MAX)] | None = None
    server_assignor: Name | None = None
    topic_partitions: (
        Annotated[tuple[OwnedPartitions, ...], Meta(max_length=limits.PARTITIONS_PER_REQUEST_MAX)] | None
    ) = None
    version: Annotated[int, Meta(ge=0, le=1)] = 1
    topics: Annotated[tuple[TopicFact, ...], Meta(max_length=limits.SUBSCRIBED_NAMES_MAX)] = ()
    regex_topics: Annotated[tuple[Name, ...], Meta(max_length=limits.SUBSCRIBED_NAMES_MAX)] | None = None
    regex_error: Reason | None = None
    again: bool = False

    @property
    def is_full(self) -> bool:
        """True if it has all fields: a member sends them again when a response may have been lost."""
        subscribes = self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        return self.rebalance_timeout_ms != -1 and subscribes and self.topic_partitions is not None

    @property
    def is_plain(self) -> bool:
        """True if a settled member sends it only to renew its session."""
        return (
            self.rebalance_timeout_ms == -1
            and self.subscribed_topic_names is None
            and self.subscribed_topic_regex is None
            and self.server_assignor is None
            and self.rack_id is None
            and not self.topics
        )

    @property
    def is_bare(self) -> bool:
        """True if it only renews the session of a member with an epoch: it may be one of many in a record."""
        return (
            self.is_plain
            and self.member_epoch > 0
            and not self.again
            and self.topic_partitions is None
            and self.regex_topics is None
            and self.regex_error is None
        )


class ResolvedPattern(Struct, frozen=True, forbid_unknown_fields=True):
    """The topics that a pattern matches, for the member that has brought it."""

    regex: Annotated[str, Meta(max_length=limits.PATTERN_CHARS_MAX)]
    topics: Annotated[tuple[Name, ...], Meta(max_length=limits.SUBSCRIBED_NAMES_MAX)]
    member_id: Id


class GroupTopics(BaseRequest, frozen=True, kw_only=True, tag="group_topics"):
    """Send facts to a group of the consumer protocol: topics have changed, or its coordinator has asked for them."""

    topics: Annotated[tuple[TopicFact, ...], Meta(max_length=limits.SUBSCRIBED_NAMES_MAX)] = ()
    regexes: Annotated[tuple[ResolvedPattern, ...], Meta(max_length=limits.PATTERNS_MAX)] = ()


class ConsumerGroupDescribe(BaseRequest, frozen=True, kw_only=True, tag="consumer_group_describe"):
    """Request the description of a group of the consumer protocol: epochs, members, assignments and targets."""
