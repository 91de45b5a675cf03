"""The operator's settings for groups, under Kafka's broker names, with Kafka's defaults."""

from typing import Literal

from msgspec import Struct

from coordinator.base.policies import Policy

MINUTE_MS = 60_000


class Config(Struct, frozen=True, kw_only=True):
    """The settings that apply to every group of a shard. All times are in milliseconds.

    Source: Kafka's `GroupCoordinatorConfig`; a setting with a docstring here has no counterpart there.
    """

    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 10_000
    group_new_member_join_timeout_ms: int = 300_000
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offset_metadata_max_bytes: int = 4_096

    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_max_size: int = 10_000
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: Literal["bidirectional", "upgrade", "downgrade", "disabled"] = "bidirectional"

    super_users: tuple[str, ...] = ()

    access: Literal["open", "rules"] = "open"
    """`open`: every operation is allowed to every principal. `rules`: the access rules decide."""

    offsets_retention_by_group_ms: dict[str, int] = {}
    """The retention time of the offsets of these groups, by group id, in place of `offsets_retention_ms`."""

    empty_group_retention_ms: int = 10 * MINUTE_MS
    """The retention time of an Empty group without offsets (Kafka: until its next expiry run, every 10 minutes)."""

    clock_slack_ms: int = 1_000
    """The delay of a deadline that no request's time has passed, because earlier requests may still be on their way."""

    fencing_token_floor: int = 0
    """The lower bound of every fencing token. It is above all tokens that were given before the state was created."""

    late_notice_ms: int = 5_000
    """A deadline that is noticed later than this shows that the coordinator was unavailable. The wait starts once
    more."""

    prefix: str = ""
    """The prefix of this coordinator's topics, by which other coordinators name it."""

    peers: tuple[str, ...] = ()
    """The prefixes of the coordinators with which this one exchanges groups."""

    peer_partitions: dict[str, int] = {}
    """The number of request partitions of each peer, by its prefix. Only such a peer can get slots."""

    slots: Literal["all", "none"] = "all"
    """The slots that have never moved are this coordinator's own: all of them, or none. A name of a foreign slot is not
    served here before it has arrived."""

    policy: Policy | None = None
    """The policy entry in force. A shard sets it for each group; no operator does."""
