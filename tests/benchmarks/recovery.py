"""The time from kill -9 to the first response, with 10,000 groups in the state.

The coordinator is started again at once on the same checkpoint. The heartbeat that it answers first was written while
it was dead, and waits in the topic. The messages of the new process are timed when they appear in its log. They show
how long each part of the start takes.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import psutil

from streaming.config.settings import Settings
from streaming.kafka import topics
from tests.benchmarks import bench, crowd
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.crowd import Crowd
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.members import Member, members

REST_S = (3.0, 3.3, 3.7)  # before each kill
LOOK_S = 0.01
REPLY_WAIT_S = 120.0

PARTS: Mapping[str, str | None] = {
    # a part, and the message in the log that ends it
    "imports_and_checks": "Starting Spark.",
    "spark": " started run=",
    "first_batch": None,  # no message: this part ends with the response
}


def measure(options: argparse.Namespace) -> Figures:
    """Make groups of one member, kill their coordinator several times, and return the medians of the times."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-recovery-", ignore_cleanup_errors=True) as name,
    ):
        settings = Settings.load(
            bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint", replication_factor=1
        )
        topics.ensure(settings)
        everybody = members(options.groups, 1)
        with Crowd(settings) as asker:
            times = [*_recoveries(settings, Path(name), asker, everybody)]
    medians = [percentile(sorted(took_s), 50) for took_s in zip(*times, strict=True)]
    return {
        "recovery_s": percentile(sorted(map(sum, times)), 50),
        "recovery_longest_s": max(map(sum, times)),
        **{f"recovery_{part}_s": took_s for part, took_s in zip(PARTS, medians, strict=True)},
        "recovery_groups": options.groups,
    }


def _recoveries(
    settings: Settings, folder: Path, asker: Crowd, everybody: Sequence[Member]
) -> Iterator[Sequence[float]]:
    """Yield the times of the parts of each recovery, in seconds."""
    say("Starting the coordinator.")
    with until_killed(settings, folder / "first"):
        say(f"{len(everybody)} members join, each its own group.")
        asker.settle(everybody)
        time.sleep(REST_S[-1])
    for number, rest_s in enumerate(REST_S):
        home = folder / str(number)
        with ThreadPoolExecutor(1) as pool:
            watched = pool.submit(watch, home / "log", asker, everybody[number])
            with until_killed(settings, home):
                took_s = watched.result()
                say(f"Killed, and answering again after {sum(took_s):.2f} s.")
                yield took_s
                time.sleep(rest_s)


@contextmanager
def until_killed(settings: Settings, folder: Path) -> Iterator[None]:
    """Run a coordinator, and kill it with all of its processes at the end."""
    folder.mkdir()
    with suppress(_Killed), bench.coordinator(settings, folder) as running:
        yield
        psutil.wait_procs(bench.kill(running.pid))
        raise _Killed


class _Killed(Exception):
    """The coordinator was killed on purpose."""


def watch(log_file: Path, asker: Crowd, member: Member) -> Sequence[float]:
    """Send a heartbeat, and watch the log and the responses; return the seconds between the expected moments."""
    moments_s = [time.monotonic()]
    request_id = asker.send(member.heartbeat)
    messages = iter([message for message in PARTS.values() if message])
    awaited = next(messages)
    while time.monotonic() < moments_s[0] + REPLY_WAIT_S:
        log = log_file.read_text(errors="replace") if log_file.exists() else ""
        while awaited and awaited in log:
            moments_s.append(time.monotonic())
            awaited = next(messages, "")
        for answer in asker.answers(LOOK_S):
            if answer.request_id == request_id:
                crowd.check_no_errors([answer])
                moments_s.append(time.monotonic())
                assert len(moments_s) == len(PARTS) + 1, f"the log does not contain {awaited!r}"
                return [end - begin for begin, end in pairwise(moments_s)]
    raise BenchFailed(f"no response within {REPLY_WAIT_S:.0f} s after the kill")


if __name__ == "__main__":
    bench.main(measure)
