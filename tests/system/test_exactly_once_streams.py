"""Kafka Streams with exactly_once_v2, through the gateway: its group, its transactions and its internal topics."""

import random
import subprocess
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient

from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.clients.copying import Committed
from tests.clients.streams import WordCounts
from tests.system.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.nightly]

LINES, SINK = "streams-lines", "streams-counts"
PARTITIONS = 4
WORDS = [f"word-{number}" for number in range(20)]
BATCH = 500
"""The lines that are produced at once."""


class Lines:
    """Lines of words, and how often each word is in them."""

    def __init__(self, bootstrap: str) -> None:
        self.counts: Counter[str] = Counter()
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._drawn = random.Random(1)

    def produce(self) -> None:
        for _ in range(BATCH):
            words = self._drawn.choices(WORDS, k=3)
            self.counts.update(words)
            self._producer.produce(LINES, " ".join(words).encode())
        self._producer.flush()


def test_words_are_counted_once_when_an_instance_is_killed(broker: Broker, gateway: Gateway, tmp_path: Path) -> None:
    """One of two instances is killed with SIGKILL in an open transaction, and is started again; then the other one.

    A new process has a new transactional id, so the open transaction ends by its timeout of 10 s. Each word has the
    counts 1, 2, 3 and so on to its number, each once: no line is counted twice, and none is missing.
    """
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({name: {"num_partitions": PARTITIONS} for name in (LINES, SINK)}, wait_for_metadata=True)
    lines = Lines(broker.bootstrap_servers)
    counting = WordCounts(tmp_path, gateway.bootstrap_servers, "word-count", LINES, SINK)
    with ExitStack() as stack:
        counts = stack.enter_context(Committed.of(broker.bootstrap_servers, SINK, PARTITIONS))

        def start(number: int) -> subprocess.Popen[bytes]:
            process = stack.enter_context(counting.start(number))
            stack.callback(process.kill)
            return process

        def told() -> str:
            return f"{counts.read()} of {lines.counts.total()}\n{counting.log(0)}\n{counting.log(1)}"

        instances = [start(number) for number in (0, 1)]
        wait_until(lambda: counting.runs(0) and counting.runs(1), account=told)
        for number, process in enumerate(instances):
            lines.produce()
            wait_until(lambda: counts.has_open_transaction, account=told)
            process.kill()
            process.wait()
            lines.produce()
            instances[number] = start(number)
            wait_until(lambda: counts.read() >= lines.counts.total(), account=told)
        for process in instances:
            process.terminate()
        for process in instances:
            process.wait()
        counts.read_all()
    found = defaultdict[str, list[int]](list)
    for record in counts.records:
        found[(record.key() or b"").decode()].append(int(record.value() or b""))
    assert found == {word: list(range(1, count + 1)) for word, count in lines.counts.items()}
