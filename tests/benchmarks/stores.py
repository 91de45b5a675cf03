"""A checkpoint on an object store, compared with one on a disk: a batch at rest, its requests, and a start.

    python -m tests.benchmarks.stores

This benchmark takes some minutes and needs the server of the tests, so it runs only when it is named. The store is the
tests' S3 server behind their proxy, which passes each request on after `DELAY_S`. Both take time from the cores of the
coordinator, so the same is measured without the delay. A start is one after `kill -9`, with `DELTAS` states of each
task since its last snapshot, which it reads.
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from streaming.config.settings import Settings
from tests.benchmarks import bench
from tests.benchmarks.bench import say
from tests.benchmarks.crowd import Crowd
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.members import Member, members
from tests.benchmarks.recovery import until_killed, watch
from tests.stores.proxy import Proxy, Request
from tests.stores.server import BUCKET, CREDENTIALS, Server
from tests.stores.test_s3 import requests_of_batches

DELAY_S = 0.02
DELTAS = 120
WARM_UP = 40
PAUSE_S = (0.02, 0.1)
KINDS = ("file", "store", "far")
"""The checkpoint is on a disk; on a store; on a store whose requests take `DELAY_S`."""


def measure(_: argparse.Namespace) -> Figures:
    """Run a coordinator on a checkpoint of each kind, kill it, and start it again."""
    found: dict[str, float] = {}
    with (
        bench.broker() as broker,
        Server() as server,
        tempfile.TemporaryDirectory(prefix="bench-stores-", ignore_cleanup_errors=True) as name,
    ):
        for kind in KINDS:
            say(f"A checkpoint of the kind {kind}.")
            with Proxy(server.port) as proxy, _environment(Path(name) / kind, proxy):
                proxy.delay_s = DELAY_S if kind == "far" else 0.0
                settings = Settings.load(
                    bootstrap_servers=broker.bootstrap_servers,
                    topic_prefix=kind,
                    checkpoint=f"{name}/{kind}/checkpoint" if kind == "file" else f"s3a://{BUCKET}/{kind}",
                )
                found |= {
                    f"stores_{kind}_{each}": value for each, value in _measured(settings, Path(name) / kind, proxy)
                }
    return {
        **found,
        "stores_far_more_ms": found["stores_far_rest_ms"] - found["stores_file_rest_ms"],
        "stores_far_start_ratio": found["stores_far_start_s"] / found["stores_file_start_s"],
    }


@contextmanager
def _environment(folder: Path, proxy: Proxy) -> Iterator[None]:
    """Set the variables with the store, and with a file of Spark that prevents snapshots of the state."""
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text("spark.sql.streaming.stateStore.minDeltasForSnapshot 1000000\n")
    store = {"COORDINATOR_STORE_ENDPOINT": proxy.url, "COORDINATOR_STORE_REGION": "us-east-1"}
    with patch.dict(os.environ, {**CREDENTIALS, **store, "SPARK_CONF_DIR": str(folder)}):
        yield


def _measured(settings: Settings, folder: Path, proxy: Proxy) -> Iterator[tuple[str, float]]:
    """Yield the figures of a kind."""
    (member,) = members(1, 1)
    with Crowd(settings) as asker:
        with until_killed(settings, folder / "first"):
            asker.settle([member])
            _beats(asker, member, WARM_UP)
            begins = len(proxy.seen)
            latencies_ms = _beats(asker, member, DELTAS - WARM_UP)
            counts = [len(requests) for requests in requests_of_batches(proxy.seen[begins:])[1:]]
        yield "rest_ms", percentile(latencies_ms, 50)
        if counts:
            yield "requests", percentile(sorted(counts), 50)
        say("Starting again.")
        begins = len(proxy.seen)
        with ThreadPoolExecutor(1) as pool:
            watched = pool.submit(watch, folder / "second" / "log", asker, member)
            with until_killed(settings, folder / "second"):
                yield "start_s", sum(watched.result())
    yield "start_reads", sum(_is_read_of_state(request) for request in proxy.seen[begins:])


def _is_read_of_state(request: Request) -> bool:
    return request.kind in ("GET", "HEAD") and request.key.endswith(".delta")


def _beats(asker: Crowd, member: Member, count: int) -> list[float]:
    """Send heartbeats, each in a batch of its own, and return the sorted times until their responses."""
    pauses, latencies_ms = random.Random(1), []
    for _ in range(count):
        time.sleep(pauses.uniform(*PAUSE_S))
        begun_s = time.perf_counter()
        asker.ask(member.heartbeat)
        latencies_ms.append(1_000 * (time.perf_counter() - begun_s))
    return sorted(latencies_ms)


if __name__ == "__main__":
    bench.main(measure)
