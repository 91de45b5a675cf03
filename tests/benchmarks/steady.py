"""The growth of memory and files under steady load: by default half an hour at 10,000 heartbeats a second.

    python -m tests.benchmarks.steady --minutes 30 --rate 10000

This benchmark runs only when it is named, and not with all others. It takes a sample once a minute. Growth is the rise
of the straight line that fits the samples best, from minute 5 to the end, absolute and in per cent. From minute 5 on,
caches are warm and Spark deletes as much as it writes. Because of the fitted line, a single high sample has little
effect. A rise below 3 % in 25 minutes, with 15 million heartbeats, counts as flat. The JVM's heap is measured after a
full collection. Each sample requests this collection last.
"""

import argparse
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil

from streaming.config.settings import Settings
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.figures import Figures
from tests.benchmarks.load import Swarm
from tests.benchmarks.loading import load_on
from tests.benchmarks.usage import JAVA, MEGABYTE

EACH, HEARTBEAT_INTERVAL_S = 10, 3
WARM_UP_S = 15
WARM_MINUTES = 5
SAMPLES_MIN = 3
MINUTE_S = 60.0

Sample = Mapping[str, float]


def measure(options: argparse.Namespace) -> Figures:
    """Send heartbeats for the given minutes, and take samples of the coordinator during this time."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-steady-", ignore_cleanup_errors=True) as name,
    ):
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        say("Starting the coordinator.")
        with bench.coordinator(settings, Path(name)) as coordinator:
            seconds = int(options.minutes * MINUTE_S)
            groups = options.rate * HEARTBEAT_INTERVAL_S // EACH
            wanted = load_on(settings, groups=groups, members=EACH, seconds=seconds, warm_up_s=WARM_UP_S)
            swarm = Swarm(wanted, say)
            swarm.settle()
            watched = psutil.Process(coordinator.pid)
            with _sampling(lambda: _look(watched, Path(settings.checkpoint))) as samples:
                beaten = swarm.beat()
    warm = samples[WARM_MINUTES - 1 :] if options.minutes >= WARM_MINUTES + SAMPLES_MIN else samples
    if len(warm) < SAMPLES_MIN:
        raise BenchFailed(f"{len(warm)} samples show no growth. Run for {SAMPLES_MIN} minutes or more")
    return {
        "steady_minutes": options.minutes,
        "steady_samples": len(warm),
        "steady_heartbeats_per_s": beaten["heartbeats_per_s"],
        "steady_errors": beaten["heartbeat_errors"] + beaten["heartbeats_unanswered"],
        "steady_p99_ms": beaten["reply_33k_p99_ms"],
        **{f"steady_{what}": value for what, value in warm[-1].items()},
        **{name: value for what in warm[-1] for name, value in _growth(what, [sample[what] for sample in warm])},
    }


@contextmanager
def _sampling(take: Callable[[], Sample]) -> Iterator[list[Sample]]:
    """Collect a sample once a minute, in another thread, until the `with` block ends."""
    samples: list[Sample] = []
    over = threading.Event()

    def sample_repeatedly() -> None:
        while not over.wait(MINUTE_S):
            samples.append(take())
            say(", ".join(f"{what} {value:,.0f}" for what, value in samples[-1].items()))

    thread = threading.Thread(target=sample_repeatedly, name="sampling", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def _look(coordinator: psutil.Process, checkpoint: Path) -> Sample:
    """Return one sample of the processes, in MB, and of the checkpoint's folder."""
    jvms, workers = _jvms_and_workers(coordinator)
    pss_mb = {process: _pss_mb(process) for process in (coordinator, *jvms, *workers)}
    sizes = [*_sizes(checkpoint)]
    return {
        "jvm_rss_mb": sum(jvm.memory_info().rss for jvm in jvms) / MEGABYTE,
        "jvm_pss_mb": sum(pss_mb[jvm] for jvm in jvms),
        "driver_pss_mb": pss_mb[coordinator],
        "workers_pss_mb": sum(pss_mb[worker] for worker in workers),
        "checkpoint_mb": sum(sizes) / MEGABYTE,
        "checkpoint_files": len(sizes),
        "heap_mb": sum(_heap_mb(jvm.pid) for jvm in jvms),
    }


def _jvms_and_workers(coordinator: psutil.Process) -> tuple[list[psutil.Process], list[psutil.Process]]:
    named = [(_name(process), process) for process in coordinator.children(recursive=True)]
    return [p for name, p in named if name == JAVA], [p for name, p in named if name.startswith("python")]


def _name(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):  # Hadoop starts processes that end at once
        return process.name()
    return ""


def _pss_mb(process: psutil.Process) -> float:
    with suppress(psutil.NoSuchProcess):
        return float(process.memory_full_info().pss / MEGABYTE)
    return 0.0


def _sizes(folder: Path) -> Iterator[int]:
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # Spark deletes files that it no longer needs
            if file.is_file():
                yield file.stat().st_size


def _heap_mb(jvm: int) -> float:
    """Run a full garbage collection of a JVM, and return its used heap, in MB."""
    _output_of("jcmd", str(jvm), "GC.run")
    names, values = (line.split() for line in _output_of("jstat", "-gc", str(jvm)).splitlines())
    kilobytes = dict(zip(names, values, strict=True))
    return sum(float(kilobytes[name]) for name in ("S0U", "S1U", "EU", "OU")) / 1024


def _output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _growth(what: str, values: Sequence[float]) -> Iterator[tuple[str, float]]:
    """Yield the rise of the line that fits the values best, from the first to the last: absolute, and in per cent."""
    slope, begin = np.polyfit(range(len(values)), values, 1)
    added = slope * (len(values) - 1)
    yield f"steady_{what}_added", float(added)
    yield f"steady_{what}_growth_percent", float(100 * added / begin)


if __name__ == "__main__":
    bench.main(measure)
