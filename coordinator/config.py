"""What an operator may choose about groups, under Kafka's broker names, with Kafka's defaults."""

from typing import Literal

from msgspec import Struct

MINUTE_MS = 60_000


class Config(Struct, frozen=True, kw_only=True):
    """The rules that every group of a shard lives by. All times in milliseconds.

    Source: Kafka's `GroupCoordinatorConfig`; what has a docstring here has no counterpart there.
    """

    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 10_000
    group_new_member_join_timeout_ms: int = 300_000
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offset_metadata_max_bytes: int = 4_096

    super_users: tuple[str, ...] = ()

    access: Literal["open", "rules"] = "open"
    """Whether everybody may do everything, or what the rules allow that were set."""

    offsets_retention_by_group_ms: dict[str, int] = {}
    """How long offsets of these groups are kept, by group id, where that is not `offsets_retention_ms`."""

    empty_group_retention_ms: int = 10 * MINUTE_MS
    """How long an Empty group without offsets is remembered (Kafka: until its next expiry run, every 10 minutes)."""

    clock_slack_ms: int = 1_000
    """Deadlines that no request's time has passed fire this late: requests from before them may be on their way."""

    fencing_token_floor: int = 0
    """No fencing token is below it: above all that were given before the state began, whatever the clocks say."""

    late_notice_ms: int = 5_000
    """A deadline noticed later than this says that the coordinator was away, not the member: it runs once more."""
