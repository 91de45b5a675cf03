"""A consumer in a process of its own, to be killed or paused; tells what happens to it, a JSON line each.

python -m tests.system.worker '{"topic": "t", "bootstrap_servers": "...", "group_id": "g", ...}'
"""

import json
import sys
from typing import Any

from kafka import ConsumerRebalanceListener, TopicPartition

from streaming.client import GroupConsumer

Partitions = set[TopicPartition]


def tell(what: str, value: object) -> None:
    print(json.dumps({what: value}), flush=True)


class Telling(ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells of each call, and under which member id."""

    consumer: GroupConsumer

    def on_partitions_revoked(self, revoked: Partitions) -> None:
        tell("revoked", sorted(p.partition for p in revoked))

    def on_partitions_assigned(self, assigned: Partitions) -> None:
        tell("member_id", self.consumer.member_id)
        tell("assigned", sorted(p.partition for p in assigned))

    def on_partitions_lost(self, lost: Partitions) -> None:
        tell("lost", sorted(p.partition for p in lost))


def main() -> None:
    config: dict[str, Any] = json.loads(sys.argv[1])
    topic = config.pop("topic")
    listener = Telling()
    with GroupConsumer(**config) as consumer:
        listener.consumer = consumer
        consumer.subscribe([topic], listener=listener)
        while True:
            for partition, records in consumer.poll(500).items():
                tell("read", [partition.partition, records[-1].offset])


if __name__ == "__main__":
    main()
