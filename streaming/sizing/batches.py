"""The load of a coordinator (its groups, their members, and what these send), and the time, the processor time and the
responses of its batches, from the load and the costs.

A batch answers the requests that gathered during the batch before. Its time has a part that no core shortens, the
driver's planning and the brokers' responses. The cores share the rest, which takes as long as its processor time: the
state of the touched shards, which is handed to Python and back, the touched groups, and the requests. Each formula is
one line; `docs/sizing.md` explains them.
"""

from dataclasses import dataclass, replace
from math import exp, inf

from coordinator.base.limits import ASSIGNMENTS_MAX, SESSION_TIMEOUT_MS_MAX
from streaming.sizing.costs import Costs

# -- the load ----------------------------------------------------------------------------------------------------------


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


MEDIAN, NEARLY_ALL = 0.5, 0.99
"""The parts of all responses that arrive within p50 and p99."""

PRECISION = 1e-6
"""The part by which a computed time of a batch may differ from the solution of its formula."""


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of one coordinator.

    Args:
        load: The load of this coordinator alone.
        shards: Its shards, which are its request partitions.
        cores: The cores that it has for itself. As many tasks run in parallel (`shuffle_partitions`).
    """

    load: Load
    shards: int
    cores: float
    costs: Costs

    def ms(self) -> float:
        """Return the time of a batch; infinity if the requests of a second take the cores longer than a second.

        A longer batch touches more shards and groups, and so takes longer. Its time is where both are equal.
        """
        busy = self._requests_ms() / 1_000 / self.cores
        if busy >= 1:
            return inf
        fixed_ms = self.costs["batch_ms"]

        def of_touched_in(ms: float) -> float:
            return (fixed_ms + self._touched_ms(ms) / self.cores) / (1 - busy)

        shorter_ms, longer_ms = of_touched_in(0), of_touched_in(inf)
        while longer_ms - shorter_ms > PRECISION * longer_ms:
            ms = (shorter_ms + longer_ms) / 2
            if of_touched_in(ms) > ms:
                shorter_ms = ms
            else:
                longer_ms = ms
        return longer_ms

    def response_ms(self, part: float) -> float:
        """Return the time in which this part of all responses arrives.

        A request waits for the end of the batch that runs when it arrives, if one runs, and then for its own batch.
        """
        ms = self.ms()
        if ms == inf:
            return inf
        busy = ms / (ms + self._pause_ms())
        waiting = max(0.0, part - (1 - busy)) / busy
        spread = self.costs["response_spread_ms"] if part > MEDIAN else 0
        return ms * (1 + waiting) + spread

    def cores_used(self) -> float:
        """Return the use of the cores: without requests, of the batches, and of the requests."""
        ms = self.ms()
        batch_ms = self.costs["batch_core_ms"] + self._touched_ms(ms)
        batches_per_s = 1_000 / (ms + self._pause_ms())
        return self.costs["idle_cores"] + (batches_per_s * batch_ms + self._requests_ms()) / 1_000

    def _requests_ms(self) -> float:
        """Return the processor time that the requests of a second take."""
        load = self.load
        amounts = {
            "heartbeat_core_us": load.heartbeats_per_s,
            "commit_core_us": load.commits_per_s,
            "rejoin_core_us": load.rejoins_per_s,
        }
        return self.costs.total(amounts) / 1_000

    def _touched_ms(self, batch_ms: float) -> float:
        """Return the processor time that the shards and groups take that a batch of this time touches."""
        shards = self.touched(self.shards, batch_ms)
        state_mb = state_bytes(self.load, self.costs) / 1e6 * shards / self.shards
        groups_ms = self.touched(self.load.groups, batch_ms) / 1_000
        amounts = {"shard_core_ms": shards - 1, "state_core_ms_per_mb": state_mb, "group_core_us": groups_ms}
        return self.costs.total(amounts)

    def touched(self, number: float, batch_ms: float) -> float:
        """Return how many of a number of shards or groups a batch of this time touches, at least one.

        Its requests are the one that it begins with, and those that arrive in its time, each for any shard or group.
        """
        arrived = self.load.requests_per_s * batch_ms / 1_000
        return 1 + max(0.0, number - 1) * (1 - exp(-arrived / number))

    def _pause_ms(self) -> float:
        """Return the time from the end of a batch to the next request, if requests arrive at random."""
        return 1_000 / self.load.requests_per_s


def state_bytes(load: Load, costs: Costs) -> float:
    """Return the bytes of the state of all groups."""
    amounts = {
        "state_bytes_per_group": load.groups,
        "state_bytes_per_member": load.members_total,
        "state_bytes_per_offset": load.offsets,
    }
    return costs.total(amounts)


def broker_bytes_per_s(load: Load, costs: Costs) -> float:
    """Return the bytes that are written to the brokers a second: keys and values, of one copy."""
    amounts = {
        "heartbeat_bytes": load.heartbeats_per_s,
        "commit_bytes": load.commits_per_s,
        "rejoin_bytes": load.rejoins_per_s,
    }
    return costs.total(amounts)
