"""The time, the processor time and the responses of one coordinator's batches, from its load and the costs.

A batch answers the requests that gathered during the batch before. Its time has a part that no core shortens, the
driver's planning and the brokers' responses. The cores share the rest, which takes as long as its processor time: the
state of the touched shards, which is handed to Python and back, the touched groups, and the requests. Each formula is
one line; `docs/sizing.md` explains them.
"""

from dataclasses import dataclass
from math import exp, inf

from streaming.sizing.costs import Costs
from streaming.sizing.load import Load

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
