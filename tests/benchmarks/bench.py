"""The frame of a benchmark: its flags, its progress messages, and the processes that start and end with it.

    python -m tests.benchmarks               all of them
    python -m tests.benchmarks.heartbeats    one of them
    make bench BENCH="heartbeats rest"       some of them

The settings COORDINATOR_* of the environment apply to the coordinators that are measured. So settings can be compared:
COORDINATOR_STATE_STORE=rocksdb python -m tests.benchmarks.heartbeats
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.embedded.child import Child
from tests.benchmarks import figures
from tests.benchmarks.figures import Figures
from tests.tools import missing

ROOT = Path(__file__).parents[2]
SHIPPED_COSTS = ROOT / "streaming" / "sizing" / "costs.json"
START_WAIT_S = 180.0
STOP_WAIT_S = 90.0  # longer than the coordinator waits for its last batch

Measure = Callable[[argparse.Namespace], Figures]


class BenchFailed(Exception):
    """A measured process did not start, or did not do what it should. The text is one sentence."""


class NotMeasurable(Exception):
    """The machine does not have a program that a benchmark needs: one sentence."""


def program(name: str) -> str:
    """Return the path of a program.

    Raises:
        NotMeasurable: The machine does not have the program.
    """
    found = shutil.which(name)
    if found is None:
        raise NotMeasurable(missing(name))
    return found


def say(sentence: str) -> None:
    """Write progress to standard error. Results go to standard output."""
    print(f"{time.strftime('%H:%M:%S')} {sentence}", file=sys.stderr, flush=True)


def main(*benchmarks: Measure) -> None:
    """Run benchmarks one after the other, print their figures and write them to `latest.json`."""
    options = _options()
    benchmarks = _chosen(benchmarks, options.names)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the started processes are stopped
    found: dict[str, float] = {"cores": os.cpu_count() or 1}
    reasons: list[str] = []
    try:
        for measure in benchmarks:
            try:
                found |= {name: round(value, 3) for name, value in measure(options).items()}
            except NotMeasurable as reason:
                reasons.append(f"{measure.__module__} was not measured. {reason}")
                continue
            figures.merge(found)
    except BenchFailed as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    figures.show(found)
    for reason in reasons:
        say(reason)


def _chosen(benchmarks: Sequence[Measure], names: Sequence[str]) -> Sequence[Measure]:
    """Return the benchmarks of these modules; all of them without names."""
    by_name = {measure.__module__.rpartition(".")[2]: measure for measure in benchmarks}
    if unknown := [name for name in names if name not in by_name]:
        sys.exit(f"bench: no benchmark {unknown[0]}; choose from {', '.join(by_name)}")
    return [by_name[name] for name in names] or benchmarks


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the coordinator on this machine.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run; all without a name")
    parser.add_argument("--groups", type=int, default=10_000, help="groups under load (%(default)s)")
    parser.add_argument("--members", type=int, default=10, help="members of each group (%(default)s)")
    parser.add_argument("--seconds", type=int, default=60, help="length of the load (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=60, help="warm-up before the load, seconds (%(default)s)")
    parser.add_argument("--minutes", type=int, default=30, help="length of the steady load (%(default)s)")
    parser.add_argument("--rate", type=int, default=10_000, help="heartbeats a second of the steady load (%(default)s)")
    parser.add_argument("--samples", type=int, default=200, help="requests to an idle coordinator (%(default)s)")
    parser.add_argument("--repeats", type=int, default=20, help="joins and leaves of each group (%(default)s)")
    parser.add_argument("--kills", type=int, default=10, help="members killed in each group (%(default)s)")
    parser.add_argument("--storm-members", type=int, default=200, help="members that join together (%(default)s)")
    parser.add_argument("--next-members", type=int, default=1_000, help="... with KIP-848 and ten partitions each")
    parser.add_argument("--moved-groups", type=int, default=1_000, help="groups that move (%(default)s)")
    parser.add_argument("--moved-shards", type=int, help="shards that they leave (moving: 4; moving_many: 16)")
    parser.add_argument("--in-transit", type=int, default=256, help="... of many, in transit (%(default)s)")
    parser.add_argument("--rolling-members", type=int, default=20, help="members of each rolled group (%(default)s)")
    parser.add_argument(
        "--rolling-pause-s", type=float, default=8.0, help="... from one replacement to the next, seconds (%(default)s)"
    )
    parser.add_argument(
        "--observed-records", type=int, default=5_000_000, help="records of Kafka's groups (%(default)s)"
    )
    parser.add_argument("--rolling-java", action="store_true", help="also replace members of Java's consumer")
    parser.add_argument("--ours-cooperative", action="store_true", help="also measure our cooperative groups")
    parser.add_argument(
        "--costs", type=Path, default=SHIPPED_COSTS, metavar="FILE", help="the table of costs to write or to check"
    )
    parser.add_argument("--keep-log", type=Path, metavar="FILE", help="copy the coordinator's log here")
    return parser.parse_args()


@contextmanager
def broker(properties: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """Run an embedded broker in a folder that is deleted with it."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-broker-", ignore_cleanup_errors=True) as folder,
        Broker(Path(folder), properties=properties, report=say) as running,
    ):
        yield running


@contextmanager
def coordinator(settings: Settings, folder: Path, *flags: str) -> Iterator[Child]:
    """Run the real query in its own process, and yield when it serves requests. Its log is `folder/log`.

    Args:
        flags: Further flags of `coordinator run`.
    """
    arguments = ("-v", "run", "--bootstrap-servers", settings.bootstrap_servers, "--checkpoint", settings.checkpoint)
    arguments += ("--replication-factor", "1", "--topic-prefix", settings.topic_prefix)
    with child("streaming", *arguments, *flags, folder=folder) as running:
        yield running


@contextmanager
def gateway(kafka: str, folder: Path, **environment: str) -> Iterator[tuple[Child, str]]:
    """Run a gateway with settings of the environment; yield its process and the address for clients."""
    folder.mkdir()
    os.environ |= environment
    with child("streaming", "gateway", "-b", kafka, "--port", "0", folder=folder) as running:
        yield running, str(json.loads((folder / "ready").read_text())["gateway"])


@contextmanager
def child(module: str, *arguments: str, folder: Path) -> Iterator[Child]:
    """Run `python -m module`. When the module is ready, it writes the file that `--ready-file` names."""
    ready_file, log_file = folder / "ready", folder / "log"
    command = [sys.executable, "-m", module, *arguments, "--ready-file", str(ready_file)]
    running = Child(command, folder=ROOT, log_file=log_file, die_with_parent=True)
    try:
        deadline_s = time.monotonic() + START_WAIT_S
        while not ready_file.exists():
            if running.ended.wait(0.1) or time.monotonic() > deadline_s:
                raise BenchFailed(f"{module} did not start: {_last_lines(log_file)}")
        yield running
        if running.ended.is_set():
            raise BenchFailed(f"{module} ended before the benchmark did: {_last_lines(log_file)}")
    finally:
        running.stop(STOP_WAIT_S)


def kill(process_id: int) -> list[psutil.Process]:
    """Kill a process and all of its children at the same time, and return them. They may need a moment to end."""
    first = psutil.Process(process_id)
    tree = [first, *first.children(recursive=True)]
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return tree


def _last_lines(log_file: Path) -> str:
    return " / ".join(log_file.read_text(errors="replace").splitlines()[-5:]) or "its log is empty"
