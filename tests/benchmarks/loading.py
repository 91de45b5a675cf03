"""A load in its own process: its description, its start, and its progress and figures."""

import argparse
import multiprocessing
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from streaming.config.settings import Settings
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.load import BEGIN, END, Load
from tests.benchmarks.usage import Usage

Run = Callable[[Load, Connection], None]

_BATCH = re.compile(r" duration_ms=(\d+) requests=[1-9]")


def load_on(settings: Settings, **how: int) -> Load:
    """Return the load for the coordinator with these settings. `how` has the other fields of `Load`."""
    return Load(
        bootstrap_servers=settings.bootstrap_servers,
        requests_topic=settings.requests_topic,
        replies_topic=settings.replies_topic,
        request_partitions=settings.request_partitions,
        reply_partitions=settings.reply_partitions,
        **how,
    )


def load_as_asked(settings: Settings, options: argparse.Namespace) -> Load:
    """Return the load that the flags describe."""
    return load_on(
        settings,
        groups=options.groups,
        members=options.members,
        seconds=options.seconds,
        warm_up_s=options.warm_up,
    )


@contextmanager
def loading(run: Run, load: Load) -> Iterator[tuple[int, Connection]]:
    """Run the load in its own process; yield the process id and the pipe for its reports."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(load, theirs), name="load", daemon=True)
    process.start()
    theirs.close()  # so that the pipe closes when the load ends
    try:
        yield process.pid or 0, ours
    finally:
        process.terminate()
        process.join()


def follow(pipe: Connection, usage: Usage, log_file: Path) -> tuple[dict[str, Any], list[int]]:
    """Print the load's progress; return its figures, and the sorted times of the batches of the measured part."""
    at: dict[str, int] = {}
    around = {BEGIN: usage.begin, END: usage.end}
    try:
        while not isinstance(report := pipe.recv(), dict):
            if report in around:
                around[report]()
                at[report] = log_file.stat().st_size
            else:
                say(report)
    except EOFError:
        raise BenchFailed("the load generator failed, see its error above") from None
    logged = log_file.read_bytes()[at[BEGIN] : at[END]].decode(errors="replace")
    return report, sorted(map(int, _BATCH.findall(logged))) or [0]
