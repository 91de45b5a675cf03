"""A worker with the consumer of this package, which needs no gateway: `bootstrap` is the brokers' address."""

import time

from streaming.client import GroupConsumer
from tests.clients.talk import Orders, consumer_arguments, read_config, write_event
from tests.clients.with_kafka_python import ASSIGNORS, PAUSE_S, POLL_MS, Listener, commit


def main() -> None:
    config, orders = read_config(), Orders()
    consumer = GroupConsumer(**consumer_arguments(config, ASSIGNORS), topic_prefix=config["topic_prefix"])
    consumer.subscribe(topics=config["topics"], listener=Listener())
    while (order := orders.next()) != "close":
        if order == "commit":
            commit(consumer)
        if orders.paused:
            time.sleep(PAUSE_S)
            continue
        for partition, records in consumer.poll(POLL_MS).items():
            write_event("records", partition=partition[:2], offsets=[record.offset for record in records])
    consumer.close()


if __name__ == "__main__":
    main()
