"""What latency and loss between hosts cost: a heartbeat at rest, and a rebalance.

Driver, workers and broker are hosts of their own (`tests.hosts`). Packets between this client and the broker are never
late. The conditions take turns, because this machine's speed varies.
"""

import argparse
import random
import tempfile
import time
from collections import defaultdict
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks import bench
from tests.benchmarks.bench import NotMeasurable, say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.members import Member
from tests.benchmarks.rest import PAUSE_S, WARM_UP, Client, settled
from tests.hosts.network import why_no_network
from tests.hosts.site import WORKERS, Site

APART = ("driver", *WORKERS, "brokers")


class Condition(NamedTuple):
    """What happens to each packet between two of the hosts `APART`.

    Args:
        round_trip_ms: The time that a packet and its response are late together.
        loss: The share of packets that are lost, 0 to 1.
    """

    round_trip_ms: float
    loss: float = 0.0


CONDITIONS = {
    "near": Condition(0),
    "2ms": Condition(2),
    "50ms": Condition(50),
    "50ms_loss": Condition(50, loss=0.01),
}
ROUNDS, REBALANCES = 4, 5


def measure(options: argparse.Namespace) -> Figures:
    """Measure heartbeats and rebalances under each condition."""
    if reason := why_no_network():
        raise NotMeasurable(reason)
    heartbeats: dict[str, list[float]] = defaultdict(list)
    rebalances: dict[str, list[float]] = defaultdict(list)
    names, pauses = (f"orders-{number:05}" for number in count()), random.Random(1)
    with (
        tempfile.TemporaryDirectory(prefix="bench-hosts-", ignore_cleanup_errors=True) as folder,
        Site(Path(folder), group_initial_rebalance_delay_ms=0) as site,
    ):
        site.start_coordinator()
        site.service.await_ready()
        with closing(Client(site.settings)) as client:
            member = settled(client, next(names))
            heartbeats_ms(client, member, WARM_UP, pauses)
            for number in range(ROUNDS):
                for name, condition in CONDITIONS.items():
                    say(f"Round {number + 1} of {ROUNDS}: {name}.")
                    site.network.slow(APART, *condition)
                    heartbeats[name] += heartbeats_ms(client, member, options.samples // ROUNDS, pauses)
                    rebalances[name] += [rebalance_ms(client, next(names)) for _ in range(REBALANCES)]
    return {**figures_of("heartbeat", heartbeats), **figures_of("rebalance", rebalances)}


def heartbeats_ms(client: Client, member: Member, times: int, pauses: random.Random) -> list[float]:
    """Send heartbeats one at a time, and return the milliseconds until each response."""
    found = []
    for _ in range(times):
        time.sleep(pauses.uniform(*PAUSE_S))
        found.append(client.ask(member.heartbeat)[1])
    return found


def rebalance_ms(client: Client, group_id: str) -> float:
    """Return the milliseconds from the first join of a new group until its member has its assignment."""
    begun_s = time.perf_counter()
    settled(client, group_id)
    return 1_000 * (time.perf_counter() - begun_s)


def figures_of(what: str, found: dict[str, list[float]]) -> Figures:
    """Return the median without latency, and the ratio of each other median to it."""
    near, *others = ((name, percentile(sorted(values), 50)) for name, values in found.items())
    return {f"hosts_{what}_near_ms": near[1]} | {
        f"hosts_{what}_{name}_ratio": median_ms / near[1] for name, median_ms in others
    }


if __name__ == "__main__":
    bench.main(measure)
