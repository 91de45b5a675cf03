"""A worker with librdkafka's consumer, through confluent-kafka."""

import time
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.clients.talk import Orders, pairs, read_config, write_event

OF_CLASSIC = ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms")
"""The settings that a member of the consumer protocol may not have."""

POLL_S = 0.1
RECORDS_MAX = 500


def on_assign(_: Consumer, assigned: list[TopicPartition]) -> None:
    write_event("assigned", partitions=pairs(assigned))


def on_revoke(_: Consumer, revoked: list[TopicPartition]) -> None:
    write_event("revoked", partitions=pairs(revoked))


def on_lost(_: Consumer, lost: list[TopicPartition]) -> None:
    write_event("lost", partitions=pairs(lost))


def commit(consumer: Consumer) -> None:
    try:
        committed = consumer.commit(asynchronous=False)
    except KafkaException as error:
        write_event("error", error=repr(error))
    else:
        write_event("committed", offsets=[(p.topic, p.partition, p.offset) for p in committed])


def write_records(messages: list[Message]) -> None:
    for message in messages:
        if message.error():
            write_event("error", error=str(message.error()))
    read = sorted((m.topic(), m.partition(), m.offset()) for m in messages if not m.error())
    for partition, of_partition in groupby(read, key=lambda each: each[:2]):
        write_event("records", partition=partition, offsets=[offset for _, _, offset in of_partition])


def consumer_options(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration with the names of librdkafka."""
    options = {
        "bootstrap.servers": config["bootstrap"],
        "group.id": config["group"],
        "client.id": config["client_id"],
        "group.instance.id": config["instance"],
        "partition.assignment.strategy": config["assignor"],
        "session.timeout.ms": config["session_ms"],
        "heartbeat.interval.ms": config["heartbeat_ms"],
        "max.poll.interval.ms": config["max_poll_ms"],
        "topic.metadata.refresh.interval.ms": config["metadata_ms"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **config["access"],
    }
    if config["protocol"] == "consumer":
        options |= dict.fromkeys(OF_CLASSIC)
        options["group.protocol"] = "consumer"
    return {name: value for name, value in options.items() if value is not None}


def main() -> None:
    config, orders = read_config(), Orders()
    consumer = Consumer(consumer_options(config))
    topics = config["topics"] or [config["pattern"]]
    consumer.subscribe(topics, on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
    while (order := orders.next()) != "close":
        if order == "commit":
            commit(consumer)
        if orders.paused:
            time.sleep(POLL_S)
        else:
            write_records(consumer.consume(RECORDS_MAX, POLL_S))
    consumer.close()


if __name__ == "__main__":
    main()
