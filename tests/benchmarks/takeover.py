"""The time from kill -9 of the active driver to the first response of the one that stands by, with 10,000 groups.

The heartbeat that is answered first is written right after the kill, and waits in the topic. The driver that stands by
has been ready for some seconds. After each take-over another driver is started, which stands by for the next one. The
messages of the driver are timed when they appear in its log.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from streaming.config.settings import Settings
from streaming.embedded.child import Child
from streaming.kafka import topics
from tests.benchmarks import bench, crowd
from tests.benchmarks.bench import ROOT, START_WAIT_S, STOP_WAIT_S, BenchFailed, say
from tests.benchmarks.crowd import Crowd
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.members import Member, members

REST_S = (5.0, 5.3, 5.7, 6.1, 6.4)  # before each kill
LOOK_S = 0.01
REPLY_WAIT_S = 120.0
STANDING, TAKING_OVER = "Standing by: ", "Taking over: "


class Driver:
    """A driver that stands by while another one serves, in its own process and folder."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        folder.mkdir()
        self._log_file, self._ready_file = folder / "log", folder / "ready"
        arguments = ["run", "--stand-by", "-b", settings.bootstrap_servers, "--checkpoint", settings.checkpoint]
        arguments += ["--replication-factor", "1", "--ready-file", str(self._ready_file)]
        command = [sys.executable, "-m", "streaming", *arguments]
        self.child = Child(command, folder=ROOT, log_file=self._log_file, die_with_parent=True)

    def has_logged(self, message: str) -> bool:
        return message in self._log_file.read_text(errors="replace")

    def await_ready(self) -> None:
        self._await(self._ready_file.exists)

    def await_standing_by(self) -> None:
        self._await(lambda: self.has_logged(STANDING))

    def _await(self, is_true: Callable[[], bool]) -> None:
        until_s = time.monotonic() + START_WAIT_S
        while not is_true():
            if self.child.ended.wait(LOOK_S) or time.monotonic() > until_s:
                raise BenchFailed(f"a driver did not start: {self._log_file.read_text(errors='replace')[-500:]}")


def measure(options: argparse.Namespace) -> Figures:
    """Make groups of one member, kill their active driver several times, and return the medians of the times."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-takeover-", ignore_cleanup_errors=True) as name,
    ):
        settings = Settings.load(
            bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint", replication_factor=1
        )
        topics.ensure(settings)
        everybody = members(options.groups, 1)
        with Crowd(settings) as asker:
            lease_s, total_s = zip(*_takeovers(settings, Path(name), asker, everybody), strict=True)
    return {
        "takeover_s": percentile(sorted(total_s), 50),
        "takeover_longest_s": max(total_s),
        "takeover_lease_s": percentile(sorted(lease_s), 50),
        "takeover_groups": options.groups,
    }


def _takeovers(
    settings: Settings, folder: Path, asker: Crowd, everybody: list[Member]
) -> Iterator[tuple[float, float]]:
    """Yield the seconds from each kill until the lease is held, and until the response."""
    with ExitStack() as stack:

        def driver(name: str) -> Driver:
            started = Driver(settings, folder / name)
            stack.callback(started.child.stop, STOP_WAIT_S)
            return started

        say("Starting the coordinator.")
        active = driver("first")
        active.await_ready()
        say(f"{len(everybody)} members join, each its own group.")
        asker.settle(everybody)
        for number, rest_s in enumerate(REST_S):
            other = driver(str(number))
            other.await_standing_by()
            time.sleep(rest_s)
            took_s = _take_over(active, other, asker, everybody[number])
            say(f"Killed, and answering again after {took_s[1]:.2f} s.")
            yield took_s
            active = other


def _take_over(active: Driver, other: Driver, asker: Crowd, member: Member) -> tuple[float, float]:
    begun_s = time.monotonic()
    bench.kill(active.child.pid)
    request_id = asker.send(member.heartbeat)
    held_s: float | None = None
    while time.monotonic() < begun_s + REPLY_WAIT_S:
        if held_s is None and other.has_logged(TAKING_OVER):
            held_s = time.monotonic() - begun_s
        for answer in asker.answers(LOOK_S):
            if answer.request_id == request_id:
                crowd.check_no_errors([answer])
                assert held_s is not None, "the log has no line about the lease"
                return held_s, time.monotonic() - begun_s
    raise BenchFailed(f"no response within {REPLY_WAIT_S:.0f} s after the kill")


if __name__ == "__main__":
    bench.main(measure)
