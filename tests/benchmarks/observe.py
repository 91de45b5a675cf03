"""The observer: how fast it reads a long `__consumer_offsets`, its memory, and the way of a rebalance to the page.

The records are the bytes that Kafka writes. The benchmark writes them itself, into the topic of a broker that has no
groups: 10,000 classic groups of four members, and commits. The source is read by the real query. When the view is
whole, a further group rebalances again and again, and Chromium notes when the page shows each generation.
"""

import argparse
import os
import re
import struct
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from confluent_kafka import Producer
from playwright.sync_api import expect, sync_playwright

from coordinator.base.hashing import java_hash
from streaming.cli.groups.show import folded
from streaming.config.settings import Settings
from streaming.embedded.child import Child
from streaming.kafka.acls import SOURCE_TOPIC
from streaming.observe import source
from tests.benchmarks import bench, page
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.figures import Figures
from tests.benchmarks.usage import Usage
from tests.ports import free_port
from tests.streaming.observe.writing import classic, commit, founded, member

GROUPS, EACH, PARTITIONS = 10_000, 4, 8
SHARES = {200: 1, 2_000: 10}
"""The settings `observe_every_ms` under which the way to the page is measured: with so many times fewer samples."""

BROKERS_OWN = "__admin_client"
"""The client id with which Kafka takes records for its internal topics."""

WHOLE_WAIT_S = 600.0
LOOK_S = 0.2

_OFFSET = struct.Struct(">q")


def measure(options: argparse.Namespace) -> Figures:
    """Write the log, observe it from its beginning, and then watch single rebalances."""
    chromium = bench.program("chromium")
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-observe-", ignore_cleanup_errors=True) as name,
    ):
        settings = Settings(bootstrap_servers=broker.bootstrap_servers, replication_factor=1).observing()
        writer = _Writer(settings)
        written = writer.write_log(options.observed_records)
        figures: dict[str, float] = {"observe_records": written}
        for every_ms, share in SHARES.items():
            folder = Path(name) / str(every_ms)
            with _observer(settings, folder, every_ms) as (observer, port, began_s), _weighed(observer) as usage:
                whole_s = _await_whole(port, written, began_s)
                if share == 1:
                    figures |= _of_reading(port, written, whole_s)
                    _check_offsets(_settings_of(settings, folder), writer.last)
                lags_ms = _lags_ms(chromium, settings, folder, writer, _pauses_s(every_ms, options.samples // share))
                written = writer.written
                figures.setdefault("observe_memory_mb", usage.memory_mb_max)
            figures[f"observe_page_at_{every_ms}_p50_ms"] = median(lags_ms)
            figures[f"observe_page_at_{every_ms}_p99_ms"] = quantiles(lags_ms, n=100)[98]
    return figures


@contextmanager
def _observer(settings: Settings, folder: Path, every_ms: int) -> Iterator[tuple[Child, int, float]]:
    """Run an observer with a checkpoint and a prefix of its own; yield its process, its health port and its start."""
    folder.mkdir()
    port, began_s = free_port(), time.monotonic()
    os.environ |= {"COORDINATOR_OBSERVE_EVERY_MS": str(every_ms), "COORDINATOR_REPLICATION_FACTOR": "1"}
    arguments = ("observe", "-b", settings.bootstrap_servers, "--checkpoint", str(folder / "checkpoint"))
    arguments += ("--topic-prefix", _settings_of(settings, folder).topic_prefix, "--health-port", str(port))
    with bench.child("streaming", *arguments, folder=folder) as observer:
        yield observer, port, began_s


@contextmanager
def _weighed(observer: Child) -> Iterator[Usage]:
    with Usage({"observer": observer.pid}, weighed="observer") as usage:
        yield usage


def _await_whole(port: int, written: int, began_s: float) -> float:
    """Wait until all records are read, and return the seconds since the start of the process."""
    until_s = began_s + WHOLE_WAIT_S
    while time.monotonic() < until_s:
        if _metric(port, "records_total") >= written:
            return time.monotonic() - began_s
        time.sleep(LOOK_S)
    raise BenchFailed(f"the observer has read {_metric(port, 'records_total'):.0f} of {written} records")


def _of_reading(port: int, written: int, whole_s: float) -> dict[str, float]:
    if (groups := _metric(port, "groups")) != GROUPS:
        raise BenchFailed(f"the observer knows {groups:.0f} of {GROUPS} groups")
    return {
        "observe_records_per_s": written / _metric(port, "batch_seconds_total"),
        "observe_whole_s": whole_s,
        "observe_state_bytes_per_group": _metric(port, "state_bytes") / GROUPS,
    }


def _check_offsets(settings: Settings, last: dict[tuple[str, int], int]) -> None:
    """Check that the last commit of each partition is known, of some of the groups."""
    for group_id in ("group-0", f"group-{GROUPS // 2}", f"group-{GROUPS - 1}"):
        found = {
            number: record.offset
            for (_, number), record in folded(settings, [group_id]).groups[group_id].committed().items()
        }
        if found != (wanted := {number: last[group_id, number] for number in range(PARTITIONS)}):
            raise BenchFailed(f"the offsets of {group_id} are shown as {found}, and are {wanted}")


def _settings_of(settings: Settings, folder: Path) -> Settings:
    """Return the settings of the observer whose files are in a folder."""
    return settings.model_copy(update={"topic_prefix": f"{settings.topic_prefix}-{folder.name}"})


def _metric(port: int, name: str) -> float:
    """Return the sum of a metric of the observer over its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        found = re.findall(rf"^groupcoord_observe_{name}(?:{{.*}})? (\S+)$", answer.read().decode(), re.MULTILINE)
    return sum(map(float, found))


def _pauses_s(every_ms: int, samples: int) -> list[float]:
    """Return pauses that fall into all parts of the time between two batches."""
    return [every_ms / 1_000 * (1 + number / samples) for number in range(samples)]


def _lags_ms(chromium: str, settings: Settings, folder: Path, writer: "_Writer", pauses_s: list[float]) -> list[float]:
    """Return the milliseconds from each record of a rebalance to its display."""
    prefix = _settings_of(settings, folder).topic_prefix
    arguments = ("dashboard", "-b", settings.bootstrap_servers, "--port", "0", "--topic-prefix", prefix)
    shown = folder / "page"
    shown.mkdir()
    writer.write_group(page.GROUP, 1)
    with bench.child("streaming", *arguments, folder=shown), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        browser_page = browser.new_page()
        browser_page.goto(page.address(shown / "ready"))
        browser_page.get_by_placeholder("Filter").fill(page.GROUP)
        expect(browser_page.get_by_role("link", name=page.GROUP)).to_be_visible(timeout=page.APPEARS_S * 1_000)
        lags_ms = page.lags_ms(browser_page, writer.write_group, pauses_s)
        browser.close()
    return lags_ms


class _Writer:
    """Writes the records of Kafka's own coordinator."""

    def __init__(self, settings: Settings) -> None:
        source.have_source_made(settings)
        found = source.find_source(settings)
        assert found is not None
        self._partitions = found.partitions
        arguments = {**settings.librdkafka_arguments(), "client.id": BROKERS_OWN, "linger.ms": 5}
        self._producer = Producer({**arguments, "queue.buffering.max.messages": 1_000_000})
        self.written = 0
        self.last: dict[tuple[str, int], int] = {}

    def write_log(self, records: int) -> int:
        """Write the groups, and commits up to `records` records; return their number."""
        say(f"Writing {records:,} records of {GROUPS:,} groups.")
        now_ms = time.time_ns() // 1_000_000
        for number in range(GROUPS):
            self.write_group(f"group-{number}", 1, is_flushed=False)
        commits = [(self._partition_of(g), *commit(g, p, 0, now_ms)) for g, p in self._places()]
        offset = 0
        while self.written < records:
            offset += 1
            part = commits[: records - self.written]
            self.last = dict(zip(self._places(), [offset] * len(part) + [offset - 1] * len(commits), strict=False))
            for partition, key, value in part:
                assert value is not None
                moved = value[:2] + _OFFSET.pack(offset) + value[10:]
                self._produce(partition, key, moved)
        self._producer.flush()
        return self.written

    def write_group(self, group_id: str, generation: int, is_flushed: bool = True) -> int:
        """Write a generation of a group; return its time."""
        now_ms = time.time_ns() // 1_000_000
        parts = [member(f"m-{n}", {"orders": list(range(n, PARTITIONS, EACH))}) for n in range(EACH)]
        if generation == 1:
            self._produce(self._partition_of(group_id), *founded(group_id, now_ms), now_ms)
        self._produce(self._partition_of(group_id), *classic(group_id, generation, now_ms, *parts), now_ms)
        if is_flushed:
            self._producer.flush(10)
        return now_ms

    def _places(self) -> Iterator[tuple[str, int]]:
        return ((f"group-{number}", partition) for partition in range(PARTITIONS) for number in range(GROUPS))

    def _partition_of(self, group_id: str) -> int:
        return java_hash(group_id) % self._partitions

    def _produce(self, partition: int, key: bytes, value: bytes | None, at_ms: int = 0) -> None:
        while True:
            try:
                self._producer.produce(SOURCE_TOPIC, value, key, partition, timestamp=at_ms)
                break
            except BufferError:
                self._producer.poll(0.1)
        self.written += 1


if __name__ == "__main__":
    bench.main(measure)
