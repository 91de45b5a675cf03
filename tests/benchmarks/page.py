"""The page: the time from the write of a record to its display in a browser.

The benchmark uses a real broker, the page's own process and Chromium. It writes the records itself, in the
coordinator's format, without Spark.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

from confluent_kafka import Producer
from playwright.sync_api import Page, expect, sync_playwright

from coordinator.base.hashing import shard_of
from coordinator.base.states import Phase
from coordinator.messages.group_records import GroupRecord, Published
from streaming.config.settings import Settings
from streaming.kafka.topics import ensure
from streaming.wire.records import OutputTopics, to_row
from tests.benchmarks import bench
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures

STATIC = bench.ROOT / "streaming" / "dashboard" / "static"
GROUP = "measured"
OTHERS = 1_000
EVERY_S = 0.25
APPEARS_S = 30.0

WATCH = """() => {
  window.shown = {};
  const look = () => {
    const row = [...document.querySelectorAll("tr")].find((each) => each.textContent.startsWith("measured"));
    if (!row) return;
    for (const cell of row.cells) {
      const text = cell.textContent.replaceAll(",", "");
      if (/^7\\d{5}$/.test(text)) window.shown[text] ??= Date.now();
    }
  };
  new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""

IS_SHOWN = "(number) => number in window.shown"


def measure(options: argparse.Namespace) -> Figures:
    """Write records of one of 1,001 groups, and record in the browser when each one is displayed."""
    chromium = bench.program("chromium")
    with bench.broker() as broker, tempfile.TemporaryDirectory(prefix="bench-page-") as name:
        settings = Settings(bootstrap_servers=broker.bootstrap_servers, replication_factor=1)
        ensure(settings)
        writer = _Writer(settings)
        for number in range(OTHERS):
            writer.write(f"other-{number:04}", 1)
        writer.write(GROUP, 1)
        arguments = ("dashboard", "-b", settings.bootstrap_servers, "--port", "0")
        with bench.child("streaming", *arguments, folder=Path(name)), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(address(Path(name) / "ready"))
            page.get_by_placeholder("Filter").fill(GROUP)
            expect(page.get_by_role("link", name=GROUP)).to_be_visible(timeout=APPEARS_S * 1_000)
            lags = lags_ms(page, writer.write, [EVERY_S] * options.samples)
            browser.close()
    return {
        "page_lag_ms": median(lags),
        "page_lag_p99_ms": quantiles(lags, n=100)[98],
        "page_lag_samples": len(lags),
        "page_kb": sum(file.stat().st_size for file in STATIC.iterdir()) / 1_000,
    }


def lags_ms(page: Page, write: Callable[[str, int], int], pauses_s: Sequence[float]) -> list[float]:
    """Return the milliseconds from each record of `GROUP` to its display in the list of groups.

    Args:
        write: Writes a generation of a group, and returns the time of its record.
        pauses_s: The seconds between the display of each record and the next one.
    """
    page.evaluate(WATCH)
    say(f"Writing {len(pauses_s)} records, and waiting for each on the page.")
    written_ms: dict[str, int] = {}
    for number, pause_s in enumerate(pauses_s, 700_000):
        written_ms[str(number)] = write(GROUP, number)
        page.wait_for_function(IS_SHOWN, arg=str(number), timeout=APPEARS_S * 1_000)
        time.sleep(pause_s)
    shown_ms = page.evaluate("window.shown")
    return [shown_ms[number] - at_ms for number, at_ms in written_ms.items()]


def address(ready_file: Path) -> str:
    """Return the address of the page."""
    return str(json.loads(ready_file.read_text())["dashboard"])


class _Writer:
    """Writes group records in the coordinator's format, one at a time."""

    def __init__(self, settings: Settings) -> None:
        self._topics = OutputTopics(
            settings.replies_topic, settings.groups_topic, settings.events_topic, settings.requests_topic
        )
        self._producer = Producer({**settings.librdkafka_arguments(), "linger.ms": 0})
        self._partitions = settings.request_partitions
        self._versions: dict[str, int] = {}

    def write(self, group_id: str, generation_id: int) -> int:
        """Write a record; return its time."""
        version = self._versions[group_id] = self._versions.get(group_id, 0) + 1
        now_ms = time.time_ns() // 1_000_000
        record = GroupRecord(
            group_id=group_id, state=Phase.STABLE, since_ms=now_ms, generation_id=generation_id,
            protocol_type="consumer", protocol_name="range", leader=None, subscribed_topics=(), members=(),
            version=version,
        )  # fmt: skip
        row = to_row(Published(group_id, ("group", group_id), record, version), self._topics, 0)
        partition = shard_of(group_id, self._partitions)
        self._producer.produce(row.topic, row.value, row.key, partition, timestamp=now_ms)
        if generation_id > 1:
            self._producer.flush(10)
        return now_ms


if __name__ == "__main__":
    bench.main(measure)
