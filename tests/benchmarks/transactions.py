"""Offsets inside transactions: how soon one takes effect beside open transactions of others, and a copying loop.

All clients are of librdkafka, through a gateway and at a broker with its own coordinator, one after the other.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from coordinator.base.hashing import shard_of
from streaming.config.settings import Settings
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.figures import Figures

SOURCE, SINK = "transactions-source", "transactions-sink"
PARTITIONS = 6
GROUPS = 3
SAMPLES = 10
OPEN = 20
"""The transactions of others that stay open meanwhile, in the same shard."""

OPEN_MS = 600_000
"""Their timeout: none of them ends by itself."""

RECORDS = 200_000
LOOP_S = 20.0
WARM_UP_S = 3.0
AT_ONCE = 10
"""The records of one transaction of the loop."""

LOOK_S = 0.005
WAIT_S = 60.0


class Seen(NamedTuple):
    """What one coordinator has shown.

    Args:
        own_partitions_s: The median time from the end of a transaction until a stable fetch of its partitions has its
            offsets, while another transaction of the group is open in other partitions.
        other_groups_s: The same for the last of three other groups of the shard.
        loop_per_s: Transactions a second that a copying client has committed.
    """

    own_partitions_s: float
    other_groups_s: float
    loop_per_s: float


class Transacting:
    """A producer that commits offsets of a group without members inside transactions."""

    def __init__(self, servers: str, group_id: str, name: str, timeout_ms: int = 60_000) -> None:
        common = {"bootstrap.servers": servers}
        options = {"transactional.id": f"{group_id}-{name}", "transaction.timeout.ms": timeout_ms}
        self.producer = Producer({**common, **options})
        self.producer.init_transactions(WAIT_S)
        with closing(Consumer({**common, "group.id": group_id})) as consumer:
            self._group = consumer.consumer_group_metadata()

    def begin(self, partitions: Sequence[int], offset: int) -> None:
        self.producer.begin_transaction()
        offsets = [TopicPartition(SOURCE, each, offset) for each in partitions]
        self.producer.send_offsets_to_transaction(offsets, self._group, WAIT_S)

    def commit(self) -> None:
        self.producer.commit_transaction(WAIT_S)


class Fetching:
    """Stable fetches of groups."""

    def __init__(self, servers: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": servers})

    def wait_for(self, group_ids: Sequence[str], partitions: Sequence[int], offset: int) -> None:
        """Wait until the partitions have an offset in each group, and no transaction of theirs is open."""
        until_s, left = time.monotonic() + 2 * WAIT_S, list(group_ids)
        while left:
            if time.monotonic() > until_s:
                raise BenchFailed(f"{left} do not have the stable offset {offset}")
            time.sleep(LOOK_S)
            asked = [self._ask(group_id, partitions) for group_id in left]
            left = [each for each, offsets in zip(left, asked, strict=True) if set(_told(offsets)) != {offset}]

    def _ask(self, group_id: str, partitions: Sequence[int]) -> Any:
        wanted = ConsumerGroupTopicPartitions(group_id, [TopicPartition(SOURCE, each) for each in partitions])
        asked = self._admin.list_consumer_group_offsets([wanted], require_stable=True, request_timeout=WAIT_S)
        return asked[group_id]


def _told(asked: Any) -> list[object]:
    """Return the offsets of a response, or its errors."""
    try:
        return [each.error or each.offset for each in asked.result().topic_partitions]
    except KafkaException as error:
        return [error.args[0].code()]


def measure(options: argparse.Namespace) -> Figures:
    """Measure transactions through a gateway and with Kafka's own coordinator."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-transactions-", ignore_cleanup_errors=True) as name,
    ):
        folder, servers = Path(name), broker.bootstrap_servers
        settings = Settings.load(bootstrap_servers=servers, checkpoint=f"{name}/checkpoint")
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            topics = {topic: {"num_partitions": PARTITIONS} for topic in (SOURCE, SINK)}
            admin.create_topics(topics, wait_for_metadata=True)
        _fill(servers)
        kafkas = _see(servers, settings)
        with bench.coordinator(settings, folder), bench.gateway(servers, folder / "gateway") as (_, address):
            ours = _see(address, settings)
    return {
        "transactions_own_partitions_s": ours.own_partitions_s,
        "transactions_own_partitions_kafka_s": kafkas.own_partitions_s,
        "transactions_other_groups_s": ours.other_groups_s,
        "transactions_other_groups_kafka_s": kafkas.other_groups_s,
        "transactions_loop_per_s": ours.loop_per_s,
        "transactions_loop_ratio": ours.loop_per_s / kafkas.loop_per_s,
    }


def _fill(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 2 * RECORDS})
    for number in range(RECORDS):
        producer.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
    producer.flush()


def _see(servers: str, settings: Settings) -> Seen:
    say(f"{OPEN} transactions stay open at {servers}, and others are committed.")
    fetching = Fetching(servers)
    home = shard_of("transactions", settings.request_partitions)
    names = (name for n in count() if shard_of(name := f"beside-{n}", settings.request_partitions) == home)
    others = list(islice(names, GROUPS))
    still = [Transacting(servers, "transactions", f"open-{number}", OPEN_MS) for number in range(OPEN)]
    for each in still:
        each.begin(range(PARTITIONS // 2, PARTITIONS), 1)
    own, beside = [], []
    mine = Transacting(servers, "transactions", "mine")
    theirs = [Transacting(servers, group_id, "theirs") for group_id in others]
    for offset in range(1, SAMPLES + 1):
        mine.begin(range(PARTITIONS // 2), offset)
        mine.commit()
        began_s = time.monotonic()
        fetching.wait_for(["transactions"], range(PARTITIONS // 2), offset)
        own.append(time.monotonic() - began_s)
        for each in theirs:
            each.begin(range(PARTITIONS), offset)
        for each in theirs:
            each.commit()
        began_s = time.monotonic()
        fetching.wait_for(others, range(PARTITIONS), offset)
        beside.append(time.monotonic() - began_s)
    for each in still:
        each.producer.abort_transaction(WAIT_S)
    return Seen(median(own), median(beside), _loop(servers))


def _loop(servers: str) -> float:
    """Return the transactions a second of a client that reads records, and writes them with its offsets."""
    say(f"A client copies records in transactions at {servers}.")
    common = {"bootstrap.servers": servers}
    committed, until_s, since_s = 0, float("inf"), 0.0
    with ExitStack() as stack:
        reading = {"group.id": "copying", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = stack.enter_context(closing(Consumer({**common, **reading, "isolation.level": "read_committed"})))
        producer = Producer({**common, "transactional.id": "copying", "linger.ms": 0})
        producer.init_transactions(WAIT_S)
        consumer.subscribe([SOURCE])
        while time.monotonic() < until_s:
            read = [each for each in consumer.consume(AT_ONCE, WAIT_S) if each.error() is None]
            if not read:
                raise BenchFailed(f"no record came for {WAIT_S:.0f} s")
            producer.begin_transaction()
            for each in read:
                producer.produce(SINK, each.value())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WAIT_S
            )
            producer.commit_transaction(WAIT_S)
            committed += 1
            if until_s == float("inf"):
                since_s = time.monotonic() + WARM_UP_S
                until_s = since_s + LOOP_S
            elif time.monotonic() < since_s:
                committed = 0
    return committed / LOOP_S


if __name__ == "__main__":
    bench.main(measure)
