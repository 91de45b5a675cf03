"""A worker with kafka-python's consumer.

Version 3.0.12 hangs if the leader of a group joins again because of new metadata, and its `poll` times out between the
responses to its join and to its sync. The response to the sync is then never read, and no heartbeat is sent. So the
worker loads the metadata before the first join. With a pattern, which can cause such a join, `poll` has a timeout that
is longer than the join.
"""

import time
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

from tests.clients.talk import Orders, consumer_arguments, pairs, read_config, write_event

ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
POLL_MS = 1_000
POLL_WITH_PATTERN_MS = 60_000
PAUSE_S = 0.1


class Listener(ConsumerRebalanceListener):
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        write_event("assigned", partitions=pairs(assigned))

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        write_event("revoked", partitions=pairs(revoked))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        write_event("lost", partitions=pairs(lost))


def commit(consumer: KafkaConsumer) -> None:
    try:
        consumer.commit()
    except KafkaError as error:
        write_event("error", error=repr(error))
    else:
        write_event("committed", offsets=[(p.topic, p.partition, consumer.committed(p)) for p in consumer.assignment()])


def work(consumer: Any, orders: Orders, poll_ms: int = POLL_MS) -> None:
    """Read records and obey orders until the worker is closed."""
    while (order := orders.next()) != "close":
        if order == "commit":
            commit(consumer)
        if orders.paused:
            time.sleep(PAUSE_S)
            continue
        for partition, records in consumer.poll(poll_ms).items():
            write_event("records", partition=partition[:2], offsets=[record.offset for record in records])
    consumer.close()


def main() -> None:
    config, orders = read_config(), Orders()
    consumer = KafkaConsumer(**consumer_arguments(config, ASSIGNORS))
    consumer.subscribe(topics=config["topics"] or (), pattern=config["pattern"], listener=Listener())
    for topic in config["topics"] or ():
        consumer.partitions_for_topic(topic)
    work(consumer, orders, POLL_WITH_PATTERN_MS if config["pattern"] else POLL_MS)


if __name__ == "__main__":
    main()
