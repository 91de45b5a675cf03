"""Rebalances: a member joins, leaves or is killed, in groups of our coordinator and in groups of Kafka's own.

All groups use one topic of 12 partitions, on one broker and one machine. A fourth member joins a group of three and
leaves it again, in one group after the other. Meanwhile, the other groups only send heartbeats. The time of a join is
measured from just before the member is created, the time of a leave from just before `close`, the time of a death from
just before SIGKILL. Each time ends when the last member receives the change of its assignment. Pauses are drawn at
random, the same for all groups, so that a rebalance can begin at any time between two heartbeats. Timeouts are the
defaults, except in the groups with killed members. These have the shortest session timeout that both coordinators
allow.

At the end, `rebalance_storm` makes many members join one group at the same time.
"""

import argparse
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

from kafka import KafkaAdminClient

from streaming.config.settings import Settings
from tests.benchmarks import bench, rebalance_storm
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.rebalance_members import Group, Kafkas, MemberProcesses, Ours, Variant

TOPIC, PARTITIONS = "orders", 12
THREE, FOURTH = range(3), 3
FOUR = range(4)
WARM_UP = 5  # joins and leaves of each group, more than a minute: a young JVM compiles for that long

OURS = Variant("ours", Ours, "range")
OURS_COOPERATIVE = Variant("ours_cooperative", Ours, "cooperative-sticky")
KAFKA = Variant("kafka", Kafkas, "range")
KAFKA_COOPERATIVE = Variant("kafka_cooperative", Kafkas, "cooperative-sticky")

HEARTBEAT_S = 3.0  # the default, and the longest pause
SHORT_SESSION_MS, SHORT_HEARTBEAT_MS = 6_000, 2_000
ALONE = nullcontext()  # no other programs

Times = Mapping[str, Sequence[float]]


def measure(options: argparse.Namespace) -> Figures:
    """Measure joins and leaves, deaths, and a storm of joins, on one broker and one running query."""
    with running() as settings:
        variants = [OURS, KAFKA, KAFKA_COOPERATIVE] + [OURS_COOPERATIVE] * options.ours_cooperative
        alive = joins_and_leaves(settings, variants, options.repeats)
        dead = _deaths(settings, options.kills)
        storm = rebalance_storm.measure(settings, options.storm_members)
    return {**compared(alive), **_figures_of_deaths(dead), **storm}


@contextmanager
def running() -> Iterator[Settings]:
    """Run a broker with the topic, and the coordinator."""
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
            yield settings


def joins_and_leaves(
    settings: Settings, variants: Sequence[Variant], repeats: int, beside: AbstractContextManager[object] = ALONE
) -> Times:
    """Time a fourth member's joins and leaves, group by group, after a warm-up.

    Args:
        beside: The block around the measured joins and leaves. It begins after the warm-up.

    Returns:
        Seconds by `join_` or `leave_` and the variant's name.
    """
    pauses = random.Random(1)
    with ExitStack() as stack:
        groups = [stack.enter_context(_member_processes(settings, variant, THREE)) for variant in variants]
        say(f"Warming up with {WARM_UP} joins and leaves of each group.")
        _rounds(groups, WARM_UP, pauses)
        with beside:
            say(f"Measuring {repeats} joins and leaves of each group.")
            return _rounds(groups, repeats, pauses)


def _rounds(groups: Sequence[MemberProcesses], rounds: int, pauses: random.Random) -> Times:
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        before_join_s, before_leave_s = pauses.uniform(0, HEARTBEAT_S), pauses.uniform(0, HEARTBEAT_S)
        for processes in groups:
            took_s = join(processes, before_join_s), leave(processes, before_leave_s)
            say(f"{processes.group}: joined in {took_s[0]:.2f} s, left in {took_s[1]:.2f} s.")
            times[f"join_{processes.group.variant.name}"].append(took_s[0])
            times[f"leave_{processes.group.variant.name}"].append(took_s[1])
    return times


@contextmanager
def _member_processes(
    settings: Settings, variant: Variant, members: Sequence[int], **timeouts_ms: int
) -> Iterator[MemberProcesses]:
    """Run a group of these members in processes for four; yield when the group is stable."""
    group_id = f"{variant.name}-{len(members)}"
    servers, prefix = settings.bootstrap_servers, settings.topic_prefix
    with MemberProcesses(
        Group(variant, servers, prefix, TOPIC, PARTITIONS, group_id, **timeouts_ms), len(FOUR)
    ) as processes:
        for who in members:
            processes.start(who)
        processes.settle(members)
        say(f"{processes.group} is stable: {processes.assignments()}.")
        yield processes


def join(processes: MemberProcesses, pause_s: float, who: int = FOURTH, all_then: Sequence[int] = FOUR) -> float:
    """Make a member join, by default the fourth one; return how long the group took."""
    time.sleep(pause_s)
    began_s = processes.start(who)
    return processes.settle(all_then) - began_s


def leave(processes: MemberProcesses, pause_s: float, who: int = FOURTH, all_then: Sequence[int] = THREE) -> float:
    """Make a member leave, by default the fourth one; return how long the group took."""
    time.sleep(pause_s)
    began_s = processes.close(who)
    return processes.settle(all_then) - began_s


def _deaths(settings: Settings, kills: int) -> Times:
    """Kill the fourth member repeatedly; return seconds by the variant's name."""
    times: dict[str, list[float]] = defaultdict(list)
    pauses = random.Random(2)
    timeouts_ms = {"session_timeout_ms": SHORT_SESSION_MS, "heartbeat_interval_ms": SHORT_HEARTBEAT_MS}
    with ExitStack() as stack:
        groups = [
            stack.enter_context(_member_processes(settings, variant, FOUR, **timeouts_ms)) for variant in (OURS, KAFKA)
        ]
        for _ in range(kills):
            pause_s = pauses.uniform(0, SHORT_HEARTBEAT_MS / 1000)
            for processes in groups:
                took_s = _die(processes, pause_s)
                say(f"{processes.group}: rebalanced {took_s:.2f} s after a kill.")
                times[processes.group.variant.name].append(took_s)
    return times


def _die(processes: MemberProcesses, pause_s: float) -> float:
    """Kill the fourth member and start another one; return how long the others took until they had all partitions."""
    time.sleep(pause_s)
    began_s = processes.kill(FOURTH)
    took_s = processes.settle(THREE) - began_s
    processes.revive(FOURTH)
    processes.start(FOURTH)
    processes.settle(FOUR)
    return took_s


def compared(times: Times) -> Figures:
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
