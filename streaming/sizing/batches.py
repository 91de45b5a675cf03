"""The time, the processor time and the responses of one coordinator's batches, from its load and the costs.

A batch answers the requests that gathered during the batch before. Its time has a part that no core shortens, the
driver's planning and the brokers' responses, and work that the tasks share: the state of the touched shards, which is
handed to Python and back, and the requests. Its processor time has the same parts. Each formula is one line;
`docs/sizing.md` explains them.
"""

from dataclasses import dataclass
from math import inf

from streaming.sizing.costs import Costs
from streaming.sizing.load import Load

MEDIAN, NEARLY_ALL = 0.5, 0.99
"""The parts of all responses that arrive within p50 and p99."""


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of one coordinator.

    Args:
        load: The load of this coordinator alone.
        shards: Its shards, which are its request partitions.
        cores: The cores, which is also the number of parallel tasks (`shuffle_partitions`).
    """

    load: Load
    shards: int
    cores: int
    costs: Costs

    def ms(self) -> float:
        """Return the time of a batch; infinity if the requests of a second take the tasks longer than a second."""
        busy = self._of_requests("heartbeat_us", "commit_us", "rejoin_us") / 1_000 / self.cores
        if busy >= 1:
            return inf
        return (self.costs["batch_ms"] + self._of_shards("shard_ms", "state_ms_per_mb") / self.cores) / (1 - busy)

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
        batch_ms = self.costs["batch_core_ms"] + self._of_shards("shard_core_ms", "state_core_ms_per_mb")
        requests_ms = self._of_requests("heartbeat_core_us", "commit_core_us", "rejoin_core_us")
        batches_per_s = 1_000 / (self.ms() + self._pause_ms())
        return self.costs["idle_cores"] + (batches_per_s * batch_ms + requests_ms) / 1_000

    def _of_requests(self, heartbeat: str, commit: str, rejoin: str) -> float:
        """Return the milliseconds that the requests of a second take, from these costs."""
        load = self.load
        amounts = {heartbeat: load.heartbeats_per_s, commit: load.commits_per_s, rejoin: load.rejoins_per_s}
        return self.costs.total(amounts) / 1_000

    def _of_shards(self, shard: str, state: str) -> float:
        """Return the milliseconds that the shards that a batch touches take, from these costs."""
        touched = self.shards_touched()
        state_mb = state_bytes(self.load, self.costs) / 1e6 * touched / self.shards
        return self.costs.total({shard: touched - 1, state: state_mb})

    def shards_touched(self) -> float:
        """Return the shards that a batch touches on average, if its requests are those of `batch_ms`, and one more."""
        requests = 1 + self.load.requests_per_s * self.costs["batch_ms"] / 1_000
        untouched: float = (1 - 1 / self.shards) ** requests
        return self.shards * (1 - untouched)

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
