"""A member of a group of Kafka's own coordinator, in a process of its own that can be killed.

    python -m tests.system.kafka_worker CONFIG TOPIC

It writes its partitions to stdout whenever they change, and reads commands from stdin: `commit PARTITION OFFSET`. It
leaves the group when stdin ends.
"""

import json
import sys
import threading
from queue import Empty, SimpleQueue

from confluent_kafka import Consumer, TopicPartition


def main() -> None:
    """Be a member until stdin ends."""
    config, topic = json.loads(sys.argv[1]), sys.argv[2]
    commands: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(commands,), daemon=True).start()
    consumer = Consumer({"auto.offset.reset": "earliest", "enable.auto.commit": False, **config})
    consumer.subscribe([topic])
    owned: list[int] | None = None
    while True:
        consumer.poll(0.05)
        if (now := sorted(each.partition for each in consumer.assignment())) != owned:
            owned = now
            print(json.dumps(owned), flush=True)
        try:
            command = commands.get_nowait()
        except Empty:
            continue
        if not command:
            consumer.close()
            return
        _, partition, offset = command.split()
        consumer.commit(offsets=[TopicPartition(topic, int(partition), int(offset))], asynchronous=False)
        print("committed", flush=True)


def _read(commands: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        commands.put(line)
    commands.put("")


if __name__ == "__main__":
    main()
