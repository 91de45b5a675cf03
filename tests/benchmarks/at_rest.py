"""The processor time of 1,000 members at rest, in 100 groups of 10, with Kafka's defaults: a heartbeat every 3 s.

The members are those of our client in four processes, then plain connections through a gateway, then plain connections
to Kafka's own coordinator. The connections send their heartbeats at times that are spread evenly. Each part begins
after a time without measurement, because a young JVM compiles for that long.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from streaming.config.settings import Settings
from tests.benchmarks import bench, crowd, gateway_load
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures
from tests.benchmarks.members import HEARTBEAT_INTERVAL_S
from tests.benchmarks.usage import Usage

GROUPS, EACH, PROCESSES = 100, 10, 5
WARM_UP_S, AGAIN_S, SECONDS = 120.0, 45.0, 30.0


def measure(options: argparse.Namespace) -> Figures:
    """Measure members of our client, clients of a gateway, and clients of Kafka's own coordinator."""
    with (
        bench.broker({"group.initial.rebalance.delay.ms": "3000"}) as broker,
        tempfile.TemporaryDirectory(prefix="bench-at-rest-", ignore_cleanup_errors=True) as name,
    ):
        folder, servers = Path(name), broker.bootstrap_servers
        settings = Settings.load(bootstrap_servers=servers, checkpoint=f"{name}/checkpoint")
        with bench.coordinator(settings, folder) as coordinator:
            roles = {"coordinator": coordinator.pid, "broker": broker.pid}
            topics = _members(servers, roles, folder)
            with bench.gateway(servers, folder / "gateway") as (gateway, address):
                through = _connections(address, {**roles, "gateway": gateway.pid}, folder / "log", AGAIN_S)
        kafka = _connections(servers, {"broker": broker.pid}, None, AGAIN_S)
    return {
        "at_rest_1000_cores": topics["coordinator"],
        "at_rest_1000_broker_cores": topics["broker"],
        "at_rest_1000_batches_per_s": topics["batches"],
        "at_rest_1000_gateway_cores": through["coordinator"],
        "at_rest_1000_gateway_own_cores": through["gateway"],
        "at_rest_1000_gateway_batches_per_s": through["batches"],
        "at_rest_1000_kafka_cores": kafka["broker"],
    }


@contextmanager
def resting(servers: str, folder: Path) -> Iterator[None]:
    """Run the members of our client during the block."""
    say(f"{GROUPS * EACH} members of our client join in {PROCESSES} processes.")
    arguments = ("--bootstrap-servers", servers, "--groups", str(GROUPS), "--whole-group", str(EACH))
    with ExitStack() as stack:
        for number in range(PROCESSES):
            (at := folder / f"members-{number}").mkdir()
            child = bench.child(
                "tests.benchmarks.at_rest_members", *arguments, "--members", str(EACH // PROCESSES), folder=at
            )
            stack.enter_context(child)
        yield


def _members(servers: str, roles: Mapping[str, int], folder: Path) -> dict[str, float]:
    with resting(servers, folder):
        say(f"Warming up for {WARM_UP_S:.0f} s, then measuring for {SECONDS:.0f} s.")
        time.sleep(WARM_UP_S)
        with Usage(roles, weighed="coordinator") as usage, crowd.batches(folder / "log") as batches:
            usage.begin()
            time.sleep(SECONDS)
            usage.end()
        return _cores(usage, roles, len(batches))


def _connections(servers: str, roles: Mapping[str, int], log_file: Path | None, warm_up_s: float) -> dict[str, float]:
    say(f"{GROUPS * EACH} connections send heartbeats to {servers}.")
    with ExitStack() as stack:
        usage = stack.enter_context(Usage(roles, weighed="broker"))
        measured: list[list[crowd.Batch]] = []

        def begin() -> None:
            if log_file:
                measured.append(stack.enter_context(crowd.batches(log_file)))
            usage.begin()

        asyncio.run(
            gateway_load.rest(servers, GROUPS, EACH, HEARTBEAT_INTERVAL_S, warm_up_s, SECONDS, begin, usage.end)
        )
    return _cores(usage, roles, sum(map(len, measured)))


def _cores(usage: Usage, roles: Mapping[str, int], batches: int) -> dict[str, float]:
    cores = {role: usage.cpu_percent(role) / 100 for role in roles}
    say(f"{cores}; {batches / SECONDS:.2f} batches a second; others {usage.others_cpu_percent():.0f} %.")
    return {**cores, "batches": batches / SECONDS}


if __name__ == "__main__":
    bench.main(measure)
