"""A member in its own process, which tests kill or pause. It writes each event of the member as a JSON line.

A consumer of a topic. It commits when it reads "commit" from its input, or, with "commits", after a poll with records:

    python -m tests.system.worker '{"topic": "t", "bootstrap_servers": "...", "group_id": "g", ...}'

A member that shares resources. It writes again and again its resources and its fencing token:

    python -m tests.system.worker '{"resources": ["gate", "yard"], "bootstrap_servers": "...", "group_id": "g", ...}'
"""

import json
import queue
import sys
import threading
from collections.abc import Collection
from typing import Any

from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.errors import KafkaError

from streaming.client import GroupConsumer, GroupMember

POLL_MS = 20

Partitions = set[TopicPartition]


def tell(what: str, value: object) -> None:
    print(json.dumps({what: value}), flush=True)


class Telling(ConsumerRebalanceListener):  # type: ignore[misc]
    """A listener that writes each call, and the member id on assignment."""

    consumer: GroupConsumer

    def on_partitions_revoked(self, revoked: Partitions) -> None:
        tell("revoked", sorted(p.partition for p in revoked))

    def on_partitions_assigned(self, assigned: Partitions) -> None:
        tell("member_id", self.consumer.member_id)
        tell("assigned", sorted(p.partition for p in assigned))

    def on_partitions_lost(self, lost: Partitions) -> None:
        tell("lost", sorted(p.partition for p in lost))


def asked() -> "queue.Queue[str]":
    """Start a thread that reads commands from stdin, and return the queue of the commands."""
    lines: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line.strip())

    threading.Thread(target=listen, daemon=True).start()
    return lines


def commit(consumer: GroupConsumer) -> None:
    try:
        consumer.commit()
    except KafkaError as error:
        tell("refused", type(error).__name__)
    else:
        tell("committed", {p.partition: consumer.position(p) for p in consumer.assignment()})


def consume(config: dict[str, Any]) -> None:
    topic, commits, wishes = config.pop("topic"), config.pop("commits", False), asked()
    listener = Telling()
    with GroupConsumer(**config) as consumer:
        listener.consumer = consumer
        consumer.subscribe([topic], listener=listener)
        while True:
            polled = consumer.poll(POLL_MS)
            for partition, records in polled.items():
                tell("read", [partition.partition, records[0].offset, records[-1].offset])
            if (polled and commits) or (not wishes.empty() and wishes.get() == "commit"):
                commit(consumer)


def share(config: dict[str, Any]) -> None:
    def telling(what: str, names: Collection[str]) -> None:
        tell(what, sorted(names))

    with GroupMember(
        **config,
        on_assigned=lambda names: telling("assigned", names),
        on_revoked=lambda names: telling("revoked", names),
        on_lost=lambda names: telling("lost", names),
    ) as member:
        while True:
            if mine := member.poll(POLL_MS / 1000):
                tell("works", [sorted(mine), member.fencing_token])


def main() -> None:
    config: dict[str, Any] = json.loads(sys.argv[1])
    share(config) if "resources" in config else consume(config)


if __name__ == "__main__":
    main()
