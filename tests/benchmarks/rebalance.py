"""Rebalances: a member joins, leaves or is killed, in a group of our coordinator's and in one of Kafka's own.

All groups share a topic of 12 partitions, on one broker and one machine. In turn a fourth member joins three and leaves
again, in one group after the other, while the other groups do nothing but beat. A join counts from just before the
member is made, a leave from just before `close`, a death from just before SIGKILL; each to the moment at which the last
member is told what is new in its share. Pauses are drawn, the same for all groups, so that a rebalance may begin
anywhere between two heartbeats. Timeouts are the defaults, except for those who die, who have the shortest session that
both coordinators allow.

Last of all, `rebalance_storm` has many members join one group at once.
"""

import argparse
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kafka import KafkaAdminClient

from streaming.config.settings import Settings
from tests.benchmarks import bench, rebalance_storm
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.rebalance_members import Crew, Group, Kafkas, Ours, Way

TOPIC, PARTITIONS = "orders", 12
THREE, FOURTH = range(3), 3
FOUR = range(4)
WARM_UP = 5  # joins and leaves of each group, more than a minute: a young JVM compiles for that long

OURS = Way("ours", Ours, "range")
OURS_COOPERATIVE = Way("ours_cooperative", Ours, "cooperative-sticky")
KAFKA = Way("kafka", Kafkas, "range")
KAFKA_COOPERATIVE = Way("kafka_cooperative", Kafkas, "cooperative-sticky")

HEARTBEAT_S = 3.0  # the default; as long as a pause is at most
SHORT_SESSION_MS, SHORT_HEARTBEAT_MS = 6_000, 2_000

Times = Mapping[str, Sequence[float]]


def measure(options: argparse.Namespace) -> Figures:
    """Measure joins and leaves, deaths, and a storm of joins, on one broker and one running query."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-rebalance-", ignore_cleanup_errors=True) as name,
    ):
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            wanted = {"num_partitions": PARTITIONS, "replication_factor": 1}
            admin.create_topics({TOPIC: wanted}, wait_for_metadata=True)
        say("Starting the coordinator.")
        with bench.coordinator(settings, Path(name)):
            alive = _joins_and_leaves(settings, options)
            dead = _deaths(settings, options.kills)
            storm = rebalance_storm.measure(settings, options.storm_members)
    return {**_figures(alive), **_figures_of_deaths(dead), **storm}


def _joins_and_leaves(settings: Settings, options: argparse.Namespace) -> Times:
    """Time a fourth member's joins and leaves, group by group; seconds by `join_` or `leave_` and the way's name."""
    ways = [OURS, KAFKA, KAFKA_COOPERATIVE] + [OURS_COOPERATIVE] * options.ours_cooperative
    times: dict[str, list[float]] = defaultdict(list)
    pauses = random.Random(1)
    with ExitStack() as stack:
        crews = [stack.enter_context(_crew(settings, way, THREE)) for way in ways]
        say(f"Warming up with {WARM_UP} joins and leaves of each group.")
        for number in range(-WARM_UP, options.repeats):
            before_join_s, before_leave_s = pauses.uniform(0, HEARTBEAT_S), pauses.uniform(0, HEARTBEAT_S)
            for crew in crews:
                took_s = join(crew, before_join_s), leave(crew, before_leave_s)
                say(f"{crew.group}: joined in {took_s[0]:.2f} s, left in {took_s[1]:.2f} s.")
                if number >= 0:
                    times[f"join_{crew.group.way.name}"].append(took_s[0])
                    times[f"leave_{crew.group.way.name}"].append(took_s[1])
    return times


@contextmanager
def _crew(settings: Settings, way: Way, members: Sequence[int], **timeouts_ms: int) -> Iterator[Crew]:
    """Run a group of these members, at rest, in processes for four."""
    group_id = f"{way.name}-{len(members)}"
    servers, prefix = settings.bootstrap_servers, settings.topic_prefix
    with Crew(Group(way, servers, prefix, TOPIC, PARTITIONS, group_id, **timeouts_ms), len(FOUR)) as crew:
        for who in members:
            crew.start(who)
        crew.settle(members)
        say(f"{crew.group} is at rest: {crew.shares()}.")
        yield crew


def join(crew: Crew, pause_s: float) -> float:
    """Make the fourth member join; return how long the group took."""
    time.sleep(pause_s)
    began_s = crew.start(FOURTH)
    return crew.settle(FOUR) - began_s


def leave(crew: Crew, pause_s: float) -> float:
    """Make the fourth member leave; return how long the group took."""
    time.sleep(pause_s)
    began_s = crew.close(FOURTH)
    return crew.settle(THREE) - began_s


def _deaths(settings: Settings, kills: int) -> Times:
    """Kill the fourth member, over and over; seconds by the way's name."""
    times: dict[str, list[float]] = defaultdict(list)
    pauses = random.Random(2)
    timeouts_ms = {"session_timeout_ms": SHORT_SESSION_MS, "heartbeat_interval_ms": SHORT_HEARTBEAT_MS}
    with ExitStack() as stack:
        crews = [stack.enter_context(_crew(settings, way, FOUR, **timeouts_ms)) for way in (OURS, KAFKA)]
        for _ in range(kills):
            pause_s = pauses.uniform(0, SHORT_HEARTBEAT_MS / 1000)
            for crew in crews:
                took_s = _die(crew, pause_s)
                say(f"{crew.group}: a death was made good after {took_s:.2f} s.")
                times[crew.group.way.name].append(took_s)
    return times


def _die(crew: Crew, pause_s: float) -> float:
    """Kill the fourth member and start another one; return how long the others took until they had all partitions."""
    time.sleep(pause_s)
    began_s = crew.kill(FOURTH)
    took_s = crew.settle(THREE) - began_s
    crew.revive(FOURTH)
    crew.start(FOURTH)
    crew.settle(FOUR)
    return took_s


def _figures(times: Times) -> Figures:
    """Return the times of joins and leaves, and this coordinator's times compared to Kafka's."""
    found: dict[str, float] = {"rebalance_samples": min(map(len, times.values()))}
    for name, took_s in times.items():
        found[f"{name}_p50_s"] = percentile(sorted(took_s), 50)
        found[f"{name}_p99_s"] = percentile(sorted(took_s), 99)
    for what in ("join", "leave"):
        found[f"{what}_ratio"] = found[f"{what}_ours_p50_s"] / found[f"{what}_kafka_p50_s"]
    return found


def _figures_of_deaths(times: Times) -> Figures:
    """Return the times from a death to the end of its rebalance, and how much they exceed the session timeout."""
    found: dict[str, float] = {"killed_samples": min(map(len, times.values()))}
    for name, took_s in times.items():
        found[f"killed_{name}_p50_s"] = percentile(sorted(took_s), 50)
        found[f"killed_{name}_after_session_s"] = found[f"killed_{name}_p50_s"] - SHORT_SESSION_MS / 1000
    return found


if __name__ == "__main__":
    bench.main(measure)
