"""The layout for a load: the number of coordinators, and the shards and cores of each."""

from collections.abc import Iterator
from math import ceil

from streaming.sizing.batches import NEARLY_ALL, Batches, Load, state_bytes
from streaming.sizing.costs import Costs

SHARDS_MIN, SHARDS_MAX = 4, 1_000
"""`coordinator up` creates 4 shards; 1,000 is the bound of the setting `request_partitions`."""

SHARDS_PER_CORE = 4
"""Shards for each core that the requests need, so that no core waits for long for the largest shard."""

RESPONSE_MS_MAX = 5_000
"""The default of `late_notice_ms`: a coordinator that is later than this counts as unavailable."""


class NoSize(Exception):
    """No number of cores carries the load. The text is the reason."""


def coordinators(load: Load, costs: Costs) -> tuple[int, str]:
    """Return the number of coordinators, and the reason.

    More than one are needed only where the load is beyond the largest that one query was measured with.
    """
    reasons = [(ceil(amount / bound), text) for amount, bound, text in _bounds(load, costs)]
    needed = max(number for number, _ in reasons)
    if needed <= 1:
        return 1, "one query carries the load"
    return needed, next(text for number, text in reasons if number == needed)


def _bounds(load: Load, costs: Costs) -> Iterator[tuple[float, float, str]]:
    """Yield what one query must carry, the most that it carries, and the reason for more than one query."""
    requests, state_mb = load.requests_per_s, state_bytes(load, costs) / 1e6
    requests_max, state_mb_max = costs["query_requests_per_s"], SHARDS_MAX * costs["shard_state_mb_max"]
    yield requests, requests_max, f"{requests:,.0f} requests a second; one query was measured with {requests_max:,.0f}"
    yield state_mb, state_mb_max, f"{state_mb:,.0f} MB of state; {SHARDS_MAX:,} shards hold {state_mb_max:,.0f} MB"


def shards(load: Load, costs: Costs) -> int:
    """Return the shards of one coordinator that has this load: a power of two, or the largest number of shards."""
    by_state = state_bytes(load, costs) / 1e6 / costs["shard_state_mb_max"]
    by_requests = SHARDS_PER_CORE * load.requests_per_s / costs["core_requests_per_s"]
    needed = ceil(max(SHARDS_MIN, by_state, by_requests))
    return min(SHARDS_MAX, 1 << (needed - 1).bit_length())


def response_ms_max(load: Load) -> int:
    """Return the longest p99 of a response with which the coordinator carries the load."""
    return min(load.heartbeat_interval_ms, RESPONSE_MS_MAX)


def batches(load: Load, costs: Costs) -> Batches:
    """Return the batches of one coordinator that has this load, with as few cores as carry it.

    Raises:
        NoSize: No number of cores carries the load.
    """
    number, goal_ms = shards(load, costs), response_ms_max(load)
    for cores in range(1, number + 1):
        found = Batches(load, number, cores, costs)
        if found.response_ms(NEARLY_ALL) <= goal_ms:
            return found
    raise NoSize(f"with {number} cores, one for each shard, 99 of 100 responses still take more than {goal_ms:,} ms")
