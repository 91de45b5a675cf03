"""The coordinator under load: heartbeats of many groups, sent for a minute by a separate process.

`load` measures responses and latencies, and waits at most two minutes for the last response. `usage` measures the use
of the machine by the processes. The times of the query's batches come from its own log.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from streaming.config.settings import Settings
from tests.benchmarks import bench, load
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.loading import follow, load_as_asked, loading
from tests.benchmarks.usage import Usage


def measure(options: argparse.Namespace) -> Figures:
    """Run broker, coordinator and load, and return the coordinator's figures."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-coordinator-", ignore_cleanup_errors=True) as name,
    ):
        folder = Path(name)
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        say("Starting the coordinator.")
        wanted = load_as_asked(settings, options)
        with bench.coordinator(settings, folder) as coordinator, loading(load.run, wanted) as (pid, pipe):
            roles = {"broker": broker.pid, "coordinator": coordinator.pid, "load_generator": pid}
            with Usage(roles, weighed="coordinator") as usage:
                found, batches_ms = follow(pipe, usage, folder / "log")
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


if __name__ == "__main__":
    bench.main(measure)
