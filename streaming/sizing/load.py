"""The load of a coordinator: its groups, their members, and what these send."""

from dataclasses import dataclass, replace

from coordinator.base.limits import ASSIGNMENTS_MAX, SESSION_TIMEOUT_MS_MAX

GROUPS_MAX = 10_000_000
"""A hundred times the groups of the largest load that the page about sizing discusses."""

MEMBERS_MAX = ASSIGNMENTS_MAX
"""Members of one group: a group cannot have more."""

MEMBERS_TOTAL_MAX = 100_000_000
"""Members of all groups. The formulas are straight lines through measured loads, and say nothing so far beyond them."""

HEARTBEAT_INTERVAL_MS_MIN = 500
"""The shortest heartbeat interval that the consumer protocol may be set to."""

HEARTBEAT_INTERVAL_MS_MAX = SESSION_TIMEOUT_MS_MAX
"""The longest heartbeat interval that the consumer protocol may be set to."""

COMMITS_PER_S_MAX = 10_000_000
"""Commits of all groups a second: more than any figure of a coordinator or of Kafka by far."""

REBALANCES_PER_HOUR_MAX = 10_000_000
"""Rebalances of all groups an hour: one for each group of the largest load."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one coordinator or of all. A part of a load may have fractions of groups.

    Args:
        members: Members of each group.
        heartbeat_interval_ms: Each member sends a heartbeat that often.
        commits_per_s: Commits of all groups. With any, each member has one partition whose offset is committed.
        rebalances_per_hour: Rebalances of all groups. In each, all members of one group join and sync.
    """

    groups: float
    members: int
    heartbeat_interval_ms: int
    commits_per_s: float = 0
    rebalances_per_hour: float = 0

    @property
    def members_total(self) -> float:
        """The members of all groups."""
        return self.groups * self.members

    @property
    def offsets(self) -> float:
        """The committed offsets of all groups."""
        return self.members_total if self.commits_per_s else 0

    @property
    def heartbeats_per_s(self) -> float:
        """The heartbeats of all members a second."""
        return 1_000 * self.members_total / self.heartbeat_interval_ms

    @property
    def rejoins_per_s(self) -> float:
        """The members that join and sync a second."""
        return self.rebalances_per_hour * self.members / 3_600

    @property
    def requests_per_s(self) -> float:
        """All requests a second. A member that rejoins sends two: JoinGroup and SyncGroup."""
        return self.heartbeats_per_s + self.commits_per_s + 2 * self.rejoins_per_s

    def part(self, coordinators: int) -> "Load":
        """Return the load of each of several coordinators that share the groups evenly."""
        return replace(
            self,
            groups=self.groups / coordinators,
            commits_per_s=self.commits_per_s / coordinators,
            rebalances_per_hour=self.rebalances_per_hour / coordinators,
        )
