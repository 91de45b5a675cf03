"""The use of the machine by a coordinator with little work: without any group, and with a hundred stable groups.

The groups are 100 groups of 10 members with session timeouts of 45 s. Each member sends a heartbeat every three
seconds, and the heartbeats are spread evenly. These are Kafka's defaults. Each part begins after two minutes without
measurement, because a young JVM compiles for that long, even when it is idle.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path

from streaming.config.settings import Settings
from tests.benchmarks import bench, crowd
from tests.benchmarks.bench import say
from tests.benchmarks.crowd import Crowd
from tests.benchmarks.figures import Figures
from tests.benchmarks.members import HEARTBEAT_INTERVAL_S, Member, members
from tests.benchmarks.usage import Usage

GROUPS, EACH = 100, 10
SESSION_TIMEOUT_MS = 45_000
SETTLE_S = 120.0
SECONDS = 30.0
TURN_S = 0.02
ANSWER_WAIT_S = 10.0


def measure(options: argparse.Namespace) -> Figures:
    """Measure a coordinator without groups, then with stable groups."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-idle-", ignore_cleanup_errors=True) as name,
    ):
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        say("Starting the coordinator.")
        with bench.coordinator(settings, Path(name)) as coordinator, Crowd(settings) as asker:
            roles = {"broker": broker.pid, "coordinator": coordinator.pid}
            none = _used(roles, Path(name) / "log", time.sleep)
            everybody = members(GROUPS, EACH)
            asker.settle(everybody, SESSION_TIMEOUT_MS)
            heart = _Heart(asker, everybody)
            some = _used(roles, Path(name) / "log", heart.beat)
            heart.await_responses()
    return {
        **{f"idle_no_group_{name}": value for name, value in none.items()},
        **{f"idle_100_groups_{name}": value for name, value in some.items()},
        "idle_100_groups_errors": heart.errors,
    }


class _Heart:
    """Sends heartbeats of the members, one after the other, so that each member sends one every three seconds."""

    def __init__(self, asker: Crowd, everybody: Sequence[Member]) -> None:
        self._asker, self._turns = asker, cycle(everybody)
        self._per_s = len(everybody) / HEARTBEAT_INTERVAL_S
        self._awaited: set[str | None] = set()
        self.errors = 0

    def beat(self, seconds: float) -> None:
        begun_s = time.monotonic()
        sent = 0
        while (passed_s := time.monotonic() - begun_s) < seconds:
            while sent < passed_s * self._per_s:
                self._awaited.add(self._asker.send(next(self._turns).heartbeat))
                sent += 1
            self._take()
            time.sleep(TURN_S)

    def await_responses(self) -> None:
        """Wait for the outstanding responses, and count missing responses as errors."""
        until_s = time.monotonic() + ANSWER_WAIT_S
        while self._awaited and time.monotonic() < until_s:
            self._take()
            time.sleep(TURN_S)
        self.errors += len(self._awaited)

    def _take(self) -> None:
        for answer in self._asker.answers(0):
            self.errors += bool(answer.code)
            self._awaited.discard(answer.request_id)


def _used(roles: dict[str, int], log_file: Path, live: Callable[[float], None]) -> dict[str, float]:
    """Run `live` without measurement until the JVM has warmed up, then return the use of the machine while it runs."""
    say(f"Warming up for {SETTLE_S:.0f} s, then measuring for {SECONDS:.0f} s.")
    live(SETTLE_S)
    with Usage(roles, weighed="coordinator") as usage, crowd.batches(log_file) as batches:
        usage.begin()
        live(SECONDS)
        usage.end()
    return {
        "cpu_percent": usage.cpu_percent("coordinator"),
        "jvm_cpu_percent": usage.cpu_percent("coordinator", jvm_only=True),
        "broker_cpu_percent": usage.cpu_percent("broker"),
        "others_cpu_percent": usage.others_cpu_percent(),
        "batches_per_s": len(batches) / SECONDS,
    }


if __name__ == "__main__":
    bench.main(measure)
