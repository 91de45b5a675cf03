"""The cost of a gateway for requests that it only relays: Produce and Fetch by librdkafka, with and without a gateway.

Both sides move the same records of the same topic, in turn. The time of a produce is measured from the first record to
the last acknowledgement. The time of a fetch is measured from the first records that arrive to the last.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaAdminClient

from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.figures import Figures, percentile

TOPIC = "relayed"
RECORDS, RECORD_BYTES = 200_000, 1_000
ROUNDS = 7
MB = 1e6
WAIT_S = 60.0

Speeds = Mapping[tuple[str, str], Sequence[float]]


def measure(direct: str, gateway: str) -> Figures:
    """Compare the direct connection to a broker with the connection through a gateway, given by their addresses."""
    with KafkaAdminClient(bootstrap_servers=direct) as admin:
        admin.create_topics({TOPIC: {"num_partitions": 1}}, wait_for_metadata=True)
    _produce(direct)
    speeds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for what, move in (("produce", _produce), ("fetch", _fetch)):
            for route, servers in (("direct", direct), ("gateway", gateway)):
                speeds[what, route].append(move(servers))
            say(
                f"{what}: {speeds[what, 'direct'][-1]:.0f} MB/s direct, {speeds[what, 'gateway'][-1]:.0f} MB/s relayed."
            )
    return _figures(speeds)


def _figures(speeds: Speeds) -> Figures:
    medians = {key: percentile(sorted(values), 50) for key, values in speeds.items()}
    found = {f"gateway_{what}_{route}_mb_s": value for (what, route), value in medians.items()}
    for what in ("produce", "fetch"):
        found[f"gateway_{what}_ratio"] = medians[what, "gateway"] / medians[what, "direct"]
    return found


def _produce(servers: str) -> float:
    """Send all records; return the speed in MB/s."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": RECORDS + 1,
            "queue.buffering.max.kbytes": 2 * RECORDS,
            "delivery.report.only.error": True,
        }
    )
    producer.list_topics(TOPIC, WAIT_S)
    value = bytes(RECORD_BYTES)
    began_s = time.monotonic()
    for _ in range(RECORDS):
        producer.produce(TOPIC, value)
    if left := producer.flush(WAIT_S):
        raise BenchFailed(f"{left} records were not acknowledged within {WAIT_S:.0f} s")
    return RECORDS * RECORD_BYTES / MB / (time.monotonic() - began_s)


def _fetch(servers: str) -> float:
    """Read as many records as one produce sends; return the speed in MB/s."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    count, began_s, until_s = 0, 0.0, time.monotonic() + WAIT_S
    while count < RECORDS:
        messages = consumer.consume(10_000, 1.0)
        if any(m.error() and m.error().code() != KafkaError._PARTITION_EOF for m in messages):
            raise BenchFailed("records could not be fetched")
        began_s = began_s or (time.monotonic() if messages else 0.0)
        count += len(messages)
        if time.monotonic() > until_s:
            raise BenchFailed(f"only {count} records were fetched within {WAIT_S:.0f} s")
    took_s = time.monotonic() - began_s
    consumer.close()
    return RECORDS * RECORD_BYTES / MB / took_s
