"""The gateway: relayed requests, rebalances of stock clients with their defaults, and heartbeats over plain sockets.

Each measurement has a counterpart without the gateway, on the same broker and machine. Produce and Fetch are compared
with a direct connection. Heartbeats are compared with heartbeats that Kafka's own coordinator answers. Rebalances of
librdkafka's members alternate between groups of our coordinator and groups of Kafka's.
"""

import argparse
import asyncio
import random
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from kafka import KafkaAdminClient

from streaming.config.settings import Settings
from tests.benchmarks import bench, gateway_load, gateway_relay
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.gateway_load import Answered, Load
from tests.benchmarks.rebalance import FOUR, HEARTBEAT_S, PARTITIONS, THREE, TOPIC, WARM_UP, join, leave
from tests.benchmarks.rebalance_members import Group, Kafkas, MemberProcesses, Variant
from tests.benchmarks.usage import Usage

CONNECTIONS = 1_000
IN_FLIGHT = 20
PROMPT = {"COORDINATOR_GATEWAY_HEARTBEAT_HOLD_MS": "0", "COORDINATOR_GATEWAY_HEARTBEAT_TICK_MS": "0"}

RANGE, COOPERATIVE = "range", "cooperative-sticky"


def measure(options: argparse.Namespace) -> Figures:
    """Measure relayed requests, rebalances and heartbeats, on one broker and one running query."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-gateway-", ignore_cleanup_errors=True) as name,
    ):
        folder = Path(name)
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics({TOPIC: {"num_partitions": PARTITIONS}}, wait_for_metadata=True)
        say("Starting the coordinator and a gateway.")
        kafka = settings.bootstrap_servers
        with bench.coordinator(settings, folder):
            with bench.gateway(kafka, folder / "gateway") as (_, servers):
                relayed = gateway_relay.measure(kafka, servers)
                rebalanced = _rebalances({"gateway": servers, "kafka": kafka}, options)
            with bench.gateway(kafka, folder / "prompt", **PROMPT) as (
                gateway,
                servers,
            ):
                beaten = _heartbeats(servers, kafka, gateway.pid, options)
    return {**relayed, **rebalanced, **beaten}


# -- heartbeats --------------------------------------------------------------------------------------------------------


def _heartbeats(gateway: str, kafka: str, process_id: int, options: argparse.Namespace) -> Figures:
    found: dict[str, float] = {"gateway_connections": CONNECTIONS}
    for name, servers in (("gateway", gateway), ("gateway_kafka", kafka)):
        say(f"{CONNECTIONS} members send heartbeats at the interval, then as fast as they can, to {servers}.")
        with Usage({"gateway": process_id}, weighed="gateway") as usage:
            load = Load(servers, CONNECTIONS, HEARTBEAT_S, options.seconds / 2, options.seconds / 2, IN_FLIGHT)
            answered: Answered = asyncio.run(gateway_load.run(load, usage.begin, usage.end))
        found[f"{name}_reply_p50_ms"] = percentile(answered.ease_ms, 50)
        found[f"{name}_reply_p99_ms"] = percentile(answered.ease_ms, 99)
        found[f"{name}_heartbeats_per_s"] = answered.rush_per_s
        found[f"{name}_heartbeat_errors"] = answered.errors
        if name == "gateway":
            seconds = options.seconds / 2
            found["gateway_heartbeats_per_core_s"] = answered.rush_per_s * seconds / max(0.01, usage.cpu_s("gateway"))
            found["gateway_rss_mb_max"] = usage.memory_mb_max
    found["gateway_heartbeats_ratio"] = found["gateway_heartbeats_per_s"] / found["gateway_kafka_heartbeats_per_s"]
    return found


# -- rebalances --------------------------------------------------------------------------------------------------------


def _rebalances(servers: Mapping[str, str], options: argparse.Namespace) -> Figures:
    """Time a fourth member's join and leave, in a group of each coordinator and each strategy."""
    times: dict[str, list[float]] = defaultdict(list)
    pauses = random.Random(3)
    with ExitStack() as stack:
        groups = {
            f"{name}{'' if strategy == RANGE else '_cooperative'}": stack.enter_context(
                _member_processes(name, at, strategy)
            )
            for strategy in (RANGE, COOPERATIVE)
            for name, at in servers.items()
        }
        for processes in groups.values():
            for who in THREE:
                processes.start(who)
            processes.settle(THREE)
        for number in range(-WARM_UP, options.repeats):
            before_join_s, before_leave_s = pauses.uniform(0, HEARTBEAT_S), pauses.uniform(0, HEARTBEAT_S)
            for name, processes in groups.items():
                took_s = join(processes, before_join_s), leave(processes, before_leave_s)
                say(f"{processes.group}: joined in {took_s[0]:.2f} s, left in {took_s[1]:.2f} s.")
                if number >= 0:
                    times[f"join_{name}"].append(took_s[0])
                    times[f"leave_{name}"].append(took_s[1])
    return _compared(times)


def _member_processes(name: str, servers: str, strategy: str) -> MemberProcesses:
    group_id = f"stock-{name}-{strategy}"
    return MemberProcesses(Group(Variant(name, Kafkas, strategy), servers, "", TOPIC, PARTITIONS, group_id), len(FOUR))


def _compared(times: Mapping[str, Sequence[float]]) -> Figures:
    medians = {name: percentile(sorted(took_s), 50) for name, took_s in times.items()}
    found = {f"gateway_{name}_p50_s": median for name, median in medians.items()}
    for variant in ("", "_cooperative"):
        ours, kafkas = (
            sum(medians[f"{what}_{whose}{variant}"] for what in ("join", "leave")) for whose in ("gateway", "kafka")
        )
        found[f"gateway_rebalance{variant}_ratio"] = ours / kafkas
    return found


if __name__ == "__main__":
    bench.main(measure)
