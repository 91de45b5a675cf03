"""Rebalances of the consumer protocol (KIP-848): librdkafka's second member joins a group of one, and leaves it again.

Groups of our coordinator, through a gateway, alternate with groups of Kafka's own coordinator, on the same broker. All
settings are the defaults of both. The members of the groups `committing` commit each second: a commit ends the hold of
a heartbeat's response, because both use one connection and responses keep the order of the requests. The others commit
nothing and read nothing. Times are measured as in `rebalance`.
"""

import argparse
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kafka import KafkaAdminClient

from streaming.config.settings import Settings
from tests.benchmarks import bench
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.rebalance import PARTITIONS, TOPIC, join, leave
from tests.benchmarks.rebalance_members import Committing, Group, MemberProcesses, NextGeneration, Stock, Variant

ONE, SECOND = range(1), 1
TWO = range(2)
WARM_UP = 1
HEARTBEAT_S = 5.0  # the default, and the longest pause

KINDS: Mapping[str, type[Stock]] = {"": NextGeneration, "_committing": Committing}


def measure(options: argparse.Namespace) -> Figures:
    """Time a second member's joins and leaves, group by group."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-next-", ignore_cleanup_errors=True) as name,
    ):
        folder, kafka = Path(name), broker.bootstrap_servers
        settings = Settings.load(bootstrap_servers=kafka, checkpoint=f"{name}/checkpoint")
        with KafkaAdminClient(bootstrap_servers=kafka) as admin:
            admin.create_topics(
                {TOPIC: {"num_partitions": PARTITIONS, "replication_factor": 1}}, wait_for_metadata=True
            )
        say("Starting the coordinator and a gateway.")
        with bench.coordinator(settings, folder), bench.gateway(kafka, folder / "gateway") as (_, servers):
            return _figures(_joins_and_leaves({"ours": servers, "kafka": kafka}, options.repeats))


def _joins_and_leaves(servers: Mapping[str, str], repeats: int) -> Mapping[str, Sequence[float]]:
    """Return seconds by the figure's name without its end: `join_committing_ours`."""
    times: dict[str, list[float]] = defaultdict(list)
    pauses = random.Random(4)
    with ExitStack() as stack:
        groups = {
            f"{kind}_{whose}": stack.enter_context(_group_of_one(f"next{kind}_{whose}", side, at))
            for kind, side in KINDS.items()
            for whose, at in servers.items()
        }
        for number in range(-WARM_UP, repeats):
            before_join_s, before_leave_s = pauses.uniform(0, HEARTBEAT_S), pauses.uniform(0, HEARTBEAT_S)
            for name, processes in groups.items():
                took_s = (
                    join(processes, before_join_s, SECOND, TWO),
                    leave(processes, before_leave_s, SECOND, ONE),
                )
                say(f"{processes.group}: joined in {took_s[0]:.2f} s, left in {took_s[1]:.2f} s.")
                if number >= 0:
                    times[f"join{name}"].append(took_s[0])
                    times[f"leave{name}"].append(took_s[1])
    return times


@contextmanager
def _group_of_one(group_id: str, side: type[Stock], servers: str) -> Iterator[MemberProcesses]:
    """Start the first member of a group, in processes for two."""
    group = Group(Variant(group_id, side, "uniform"), servers, "", TOPIC, PARTITIONS, group_id)
    with MemberProcesses(group, len(TWO)) as processes:
        processes.start(*ONE)
        processes.settle(ONE)
        yield processes


def _figures(times: Mapping[str, Sequence[float]]) -> Figures:
    """Return the medians, the longest times, and this coordinator's times compared to Kafka's."""
    found: dict[str, float] = {"next_samples": min(map(len, times.values()))}
    for name, took_s in times.items():
        found[f"next_{name}_p50_s"] = percentile(sorted(took_s), 50)
        found[f"next_{name}_max_s"] = max(took_s)
    for what in ("join", "leave"):
        for kind in KINDS:
            ours, kafkas = (found[f"next_{what}{kind}_{whose}_p50_s"] for whose in ("ours", "kafka"))
            found[f"next_{what}{kind}_ratio"] = ours / kafkas
    return found


if __name__ == "__main__":
    bench.main(measure)
