"""Consume through the gateway with librdkafka, which knows nothing of this coordinator:

    python examples/gateway/librdkafka_consumer.py --bootstrap-servers localhost:9192

Output:

    librdkafka reads order 1
    librdkafka reads order 2
    librdkafka reads order 3
    committed offset 3
"""

import argparse
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "librdkafka-orders"
RECORDS = 3
WAIT_S = 60.0


def produce(servers: str) -> None:
    """Create the topic, unless an earlier run has created it, and produce the orders."""
    admin = AdminClient({"bootstrap.servers": servers})
    try:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(WAIT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    producer = Producer({"bootstrap.servers": servers})
    for number in range(1, RECORDS + 1):
        producer.produce(TOPIC, b"order %d" % number)
    producer.flush(WAIT_S)


def consume(servers: str) -> None:
    """Read the orders as a member of a group, and commit."""
    consumer = Consumer({
        "bootstrap.servers": servers,
        "group.id": "librdkafka",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })  # fmt: skip
    try:
        consumer.subscribe([TOPIC])
        for _ in range(RECORDS):
            record = consumer.poll(WAIT_S)
            if record is None:
                raise TimeoutError(f"no record came in {WAIT_S:g} s")
            if error := record.error():
                raise KafkaException(error)
            print("librdkafka reads", (record.value() or b"").decode())
        consumer.commit(asynchronous=False)
        (committed,) = consumer.committed([TopicPartition(TOPIC, 0)], WAIT_S)
        print("committed offset", committed.offset)
    finally:
        consumer.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Produce orders, and consume them."""
    parser = argparse.ArgumentParser(description="Consume through the gateway.")
    parser.add_argument("--bootstrap-servers", default="localhost:9192", help="the gateway's address")
    servers = parser.parse_args(arguments).bootstrap_servers
    produce(servers)
    consume(servers)


if __name__ == "__main__":
    main()
