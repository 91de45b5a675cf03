"""Events of groups that Kafka's own coordinator keeps, which are read from its `__consumer_offsets` topic."""

from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType

from coordinator.messages.fields import Event, MemberEvent


class ObservedCause(StrEnum):
    """The causes of a `rebalance_started` of a group that Kafka's coordinator keeps."""

    MEMBER_JOINED = "member_joined"
    MEMBER_GONE = "member_gone"
    STATIC_MEMBER_REPLACED = "static_member_replaced"  # another process has its instance id
    METADATA_CHANGED = "metadata_changed"  # a classic member's topics, or the assignor
    LEADER_REJOINED = "leader_rejoined"  # a partition is assigned that never was: a topic has more of them
    COOPERATIVE_ROUND = "cooperative_round"  # the second round of a cooperative rebalance
    PROTOCOL_UPGRADED = "protocol_upgraded"
    PROTOCOL_DOWNGRADED = "protocol_downgraded"
    SUBSCRIPTION_CHANGED = "subscription_changed"  # the topics or the pattern of a member of the consumer protocol
    REGEX_RESOLVED = "regex_resolved"  # the pattern of members matches other topics
    TOPICS_CHANGED = "topics_changed"  # a topic has other partitions or replicas on other racks, was made or deleted
    ASSIGNOR_CHANGED = "assignor_changed"  # a member prefers another server assignor
    ASSIGNORS_TIED = "assignors_tied"  # two assignors are preferred by as many members each: Kafka 4.4.0 never rests
    REVOCATION_OVERDUE = "revocation_overdue"  # a member was dropped for its rebalance timeout
    BROKERS_UPGRADED = "brokers_upgraded"  # from Kafka 4.0, whose epochs have no metadata hash
    MEMBER_CHANGED = "member_changed"  # streams: its topology epoch, process, rack, tags, endpoint, client or timeout
    TOPOLOGY_READY = "topology_ready"  # streams: all topics of the topology are there, which was not so before
    TOPOLOGY_NOT_READY = "topology_not_ready"  # streams: a topic is missing, or has a wrong number of partitions
    CONFIGS_CHANGED = "configs_changed"  # streams: settings of the group, such as num.standby.replicas
    SHARE_STATE_READY = "share_state_ready"  # share: Kafka has initialized the state of partitions
    UNKNOWN = "unknown"  # nothing differs, or the log has a gap


class ObservationBegan(Event, frozen=True, kw_only=True, tag="observation_began"):
    """The first record of a group that is read. The history of the group begins here.

    Args:
        founded: The record founds the group, so that nothing is missing before it.
        from_offset: The record's offset in its partition of `__consumer_offsets`.
    """

    founded: bool
    from_offset: int


class HistoryGap(Event, frozen=True, kw_only=True, tag="history_gap"):
    """Changes of the group between two generations are not in the log any more. The history begins anew here.

    `holes` is whether records of the partition are missing between the two; otherwise the generation has fallen, as
    of a group that was deleted and founded again. `group_type` is `consumer` if they are group epochs.
    """

    from_generation: int
    to_generation: int
    holes: bool
    group_type: str | UnsetType = UNSET


class MemberGone(MemberEvent, frozen=True, kw_only=True, tag="member_gone"):
    """A member is not in the group any more. Kafka does not record whether it left or expired.

    Args:
        last_commit_ms: The time of the last commit of a partition that the member owned; null if none is known.
        session_timeout_ms: The member's session timeout; null if it is not recorded.
        likely: `left` if its last commit is so recent that the session cannot have expired, `expired` for a static
            member, which does not leave by itself, `revocation_overdue` if it had partitions to give up for just as
            long as its rebalance timeout; null if it is not known.
    """

    last_commit_ms: int | None
    session_timeout_ms: int | None
    likely: str | None


class OffsetsForgotten(Event, frozen=True, kw_only=True, tag="offsets_forgotten"):
    """Committed offsets are gone.

    `why` is "deleted" if they cannot have expired, "expired, most likely" with a group whose offsets have, and "expired
    or deleted" where Kafka's records do not tell which.
    """

    partitions: tuple[tuple[str, int], ...]
    why: str


class SetOffset(Struct, frozen=True):
    """An offset that was set; `before` is the one that was committed before, null if it is not known."""

    topic: str
    partition: int
    before: int | None
    after: int


class OffsetsSet(Event, frozen=True, kw_only=True, tag="offsets_set"):
    """Offsets were committed while the group had no members, and differ from those before.

    An operator does so, most likely. A client that reads partitions of its own choice, and a tool that copies offsets
    from another cluster, can do it too.

    Args:
        partitions: The partitions, the first ones if they are many.
        offsets_set: The number of all partitions.
        set_back: The number of those whose offset is lower than before.
    """

    partitions: tuple[SetOffset, ...]
    offsets_set: int
    set_back: int


class TopicNamed(Event, frozen=True, kw_only=True, tag="topic_named"):
    """The name of a topic id is known. Earlier events and records of the group have the id in place of the name."""

    topic_id: str
    topic_name: str


class TopicChange(Struct, frozen=True):
    """A change of a topic between two group epochs.

    Args:
        what: `made`, `deleted`, `made_anew` (the name has another id), `partitions`, or `racks` (its replicas are on
            other racks, and nothing else has changed).
        partitions_before, partitions: The partition counts; null where the topic did not exist.
    """

    topic: str
    what: str
    partitions_before: int | None = None
    partitions: int | None = None


class TopicsNamed(Event, frozen=True, kw_only=True, tag="topics_named"):
    """The changed topics of the group epoch `generation_id`.

    Since 4.1 Kafka records a hash of the topics with each epoch (KIP-1101). The observer has computed both hashes, that
    of the epoch before and that of this one, from the brokers' metadata; so the changes are certain. Before 4.1 Kafka
    recorded the topics themselves. `at_ms` is later than the epoch's time.
    """

    changes: tuple[TopicChange, ...]
