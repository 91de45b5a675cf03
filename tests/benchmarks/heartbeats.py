"""The coordinator under load: heartbeats of many groups, sent for a minute by a process of their own.

Replies, latencies and the two minutes' wait for the last of them are `load`'s; the processes' use of the machine is
`usage`'s; the query's batches are told by its own log.
"""

import argparse
import multiprocessing
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from streaming.settings import Settings
from tests.benchmarks import bench, load
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.load import Load
from tests.benchmarks.usage import Usage

_BATCH = re.compile(r" duration_ms=(\d+) requests=[1-9]")


def measure(options: argparse.Namespace) -> Figures:
    """Run broker, coordinator and load, and see how the coordinator does."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-coordinator-", ignore_cleanup_errors=True) as name,
    ):
        folder = Path(name)
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        say("Starting the coordinator.")
        with bench.coordinator(settings, folder) as coordinator, _loading(_load(settings, options)) as (pid, pipe):
            roles = {"broker": broker.pid, "coordinator": coordinator.pid, "load_generator": pid}
            with Usage(roles, weighed="coordinator") as usage:
                found, batches_ms = _follow(pipe, usage, folder / "log")
        if options.keep_log:
            shutil.copyfile(folder / "log", options.keep_log)
    return {
        **found,
        "heartbeats_seconds": options.seconds,
        "heartbeats_groups": options.groups,
        "heartbeats_members": options.members,
        "batch_p50_ms": percentile(batches_ms, 50),
        "batch_max_ms": batches_ms[-1],
        "driver_and_workers_rss_mb_max": usage.memory_mb_max,
        "coordinator_us_per_heartbeat": 1e6 * usage.cpu_s("coordinator") / found["heartbeats_answered"],
        "coordinator_jvm_cpu_percent": usage.cpu_percent("coordinator", jvm_only=True),
        **{f"{role}_cpu_percent": usage.cpu_percent(role) for role in roles},
        "others_cpu_percent": usage.others_cpu_percent(),
    }


def _load(settings: Settings, options: argparse.Namespace) -> Load:
    return Load(
        bootstrap_servers=settings.bootstrap_servers,
        requests_topic=settings.requests_topic,
        replies_topic=settings.replies_topic,
        request_partitions=settings.request_partitions,
        reply_partitions=settings.reply_partitions,
        groups=options.groups,
        members=options.members,
        seconds=options.seconds,
        warm_up_s=options.warm_up,
    )


@contextmanager
def _loading(what: Load) -> Iterator[tuple[int, Connection]]:
    """Run the load in a process of its own: its id, and the pipe that it reports on."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=load.run, args=(what, theirs), name="load", daemon=True)
    process.start()
    theirs.close()  # so that the load's end is the pipe's end
    try:
        yield process.pid or 0, ours
    finally:
        process.terminate()
        process.join()


def _follow(pipe: Connection, usage: Usage, log_file: Path) -> tuple[Figures, list[int]]:
    """Pass on what the load reports; return its figures, and how long the batches took while it counted, in order."""
    begin = end = 0
    try:
        while not isinstance(said := pipe.recv(), dict):
            if said == load.BEGIN:
                usage.begin()
                begin = log_file.stat().st_size
            elif said == load.END:
                usage.end()
                end = log_file.stat().st_size
            else:
                say(said)
    except EOFError:
        raise BenchFailed("the load generator failed, as told above") from None
    batches = _BATCH.findall(log_file.read_bytes()[begin:end].decode())
    return said, sorted(map(int, batches)) or [0]


if __name__ == "__main__":
    bench.main(measure)
