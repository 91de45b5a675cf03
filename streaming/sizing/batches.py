"""The time, the processor time and the responses of one coordinator's batches, from its load and the costs.

A batch answers the requests that gathered during the batch before. Its time has a part that no core shortens, the
driver's planning and the brokers' responses, and work that the cores share: the state of the touched shards, which is
handed to Python and back, and the requests. Each formula is one line; `docs/sizing.md` explains them.
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
        cores: The shards that are handled at the same time (`shuffle_partitions`).
    """

    load: Load
    shards: int
    cores: int
    costs: Costs

    def ms(self) -> float:
        """Return the time of a batch; infinity if the requests of a second take the cores longer than a second."""
        rate = self.request_core_ms_per_s() / 1_000 / self.cores
        if rate >= 1:
            return inf
        return (self.costs["batch_ms"] + self.shards_core_ms() / self.cores) / (1 - rate)

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
        per_s = 1_000 / (self.ms() + self._pause_ms())
        batch_core_ms = self.costs["batch_core_ms"] + self.shards_core_ms()
        return self.costs["idle_cores"] + (per_s * batch_core_ms + self.request_core_ms_per_s()) / 1_000

    def request_core_ms_per_s(self) -> float:
        """Return the processor time of the requests of a second."""
        amounts = {
            "heartbeat_core_us": self.load.heartbeats_per_s,
            "commit_core_us": self.load.commits_per_s,
            "rejoin_core_us": self.load.rejoins_per_s,
        }
        return self.costs.total(amounts) / 1_000

    def shards_core_ms(self) -> float:
        """Return the processor time of the shards that a batch touches."""
        touched = self.shards_touched()
        state_mb = state_bytes(self.load, self.costs) / 1e6 * touched / self.shards
        return self.costs.total({"shard_core_ms": touched - 1, "state_core_ms_per_mb": state_mb})

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
