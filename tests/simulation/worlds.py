"""The draws of a simulation: its settings, its groups and their members."""

from enum import Enum
from random import Random

from coordinator.base.config import Config
from coordinator.base.limits import ASSIGNMENTS_MAX
from coordinator.member.requests import MemberConfig

NO_LATENESS_MS = 2**40
"""The value of `late_notice_ms` with which no deadline counts as noticed late."""

CROWD, CROWD_RATE, CROWD_STEPS = ASSIGNMENTS_MAX, 0.001, 50_000
"""The members of the largest group, the share of simulations with such a group, and the steps until all have joined."""

BOTH_WAYS = "bidirectional"
POLICIES = (BOTH_WAYS, BOTH_WAYS, BOTH_WAYS, "upgrade", "downgrade", "disabled")
"""The values of `group_consumer_migration_policy`. Most simulations allow every conversion."""


class Members(Enum):
    """The protocols of a group's members. In a mixed group, each start of a process draws one of them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    MIXED = "mixed"


def draw_members(chance: Random, *, is_crowded: bool, groups: int) -> list[Members]:
    """Draw the protocols of the members of each group. Half of the simulations have only classic ones."""
    if is_crowded or chance.random() < 0.5:
        return [Members.CLASSIC] * groups
    return [chance.choice((Members.CLASSIC, Members.CONSUMER, Members.MIXED, Members.MIXED)) for _ in range(groups)]


def draw_sizes(chance: Random, *, is_crowded: bool) -> list[int]:
    """Draw the number of members of each group: a few, or the largest number if the simulation is crowded."""
    if is_crowded:
        return [CROWD]
    return [chance.choice((1, 3, 6, 9)) for _ in range(chance.choice((1, 2, 4, 4)))]


def draw_config(chance: Random, is_exact: bool, group_id: str, size: int) -> Config:
    """Draw the settings of the coordinator."""
    return Config(
        group_initial_rebalance_delay_ms=chance.choice((0, 0, 1_000, 3_000)),
        group_max_size=chance.choice((12, 1_000)) if size < 12 else size + 10,
        group_new_member_join_timeout_ms=chance.choice((15_000, 60_000)),
        offsets_retention_ms=chance.choice((30_000, 300_000)),
        offset_metadata_max_bytes=4,
        offsets_retention_by_group_ms=chance.choice(({}, {group_id: 120_000})),
        empty_group_retention_ms=chance.choice((10_000, 100_000)),
        late_notice_ms=NO_LATENESS_MS if is_exact else 5_000,
        group_consumer_session_timeout_ms=chance.choice((6_000, 10_000, 45_000)),
        group_consumer_heartbeat_interval_ms=chance.choice((500, 1_000, 2_000)),
        group_consumer_assignment_interval_ms=chance.choice((0, 1_000, 1_000, 3_000)),
        group_consumer_max_size=chance.choice((12, 1_000)),
        group_consumer_migration_policy=chance.choice(POLICIES),
    )


def draw_member(chance: Random, group_id: str, number: int) -> MemberConfig:
    """Draw the settings of one member."""
    return MemberConfig(
        group_id=group_id,
        reply_to=f"{group_id}'s {number}" if chance.random() < 0.8 else "everybody's inbox",
        client_id=f"{group_id}.{number}",
        client_host=f"/host{number}",
        group_instance_id=f"i{number}" if chance.random() < 0.3 else None,
        session_timeout_ms=chance.choice((6_000, 10_000, 30_000)),
        heartbeat_interval_ms=chance.choice((500, 1_000, 2_000)),
        max_poll_interval_ms=chance.choice((5_000, 20_000, 60_000)),
        request_timeout_ms=chance.choice((2_000, 10_000)),
    )
