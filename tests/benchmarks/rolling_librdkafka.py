"""A program with many librdkafka consumers, each in its own thread: see `rolling_members` for its messages.

It reads commands from stdin, one a line: `start MEMBER GROUP SERVERS TOPIC`, `close MEMBER` and `flush`. It ends when
stdin ends.
"""

import json
import os
import struct
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.benchmarks.rolling_members import ASSIGNED, CLOSED, CLOSING, FLUSHED, LOST, READ, REVOKED, STARTED

POLL_S = 0.1

_writing = threading.Lock()


def write(what: str, member: str, **fields: object) -> None:
    """Write a message immediately and in one write."""
    line = json.dumps({"what": what, "member": member, "at_s": time.time(), **fields}) + "\n"
    with _writing:
        sys.stdout.write(line)
        sys.stdout.flush()


class Member:
    """A consumer in its own thread. All settings are the defaults, but for the first offset to read."""

    def __init__(self, name: str, group_id: str, servers: str, topic: str) -> None:
        self._name, self._topic = name, topic
        self._config = {
            "bootstrap.servers": servers,
            "group.id": group_id,
            "client.id": name,
            "auto.offset.reset": "earliest",
        }
        self._runs: dict[int, list[int]] = {}  # by partition: the first record of a run, and the one behind its last
        self._lock = threading.Lock()
        self._closes = threading.Event()
        threading.Thread(target=self._run, name=name).start()

    def close(self) -> None:
        """Make the thread close the consumer."""
        self._closes.set()

    def flush(self) -> None:
        """Write which records were read since the last call."""
        with self._lock:
            runs, self._runs = self._runs, {}
        if runs:
            write(READ, self._name, runs=[[partition, *run] for partition, run in runs.items()])

    def _run(self) -> None:
        write(STARTED, self._name)
        consumer = Consumer(self._config)
        consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        while not self._closes.is_set():
            message = consumer.poll(POLL_S)
            if message is not None:
                assert message.error() is None, f"{self._name}: a poll returned {message.error()}"
                self._take(message.partition(), message.offset())
        write(CLOSING, self._name)
        consumer.close()
        self.flush()
        write(CLOSED, self._name)

    def _take(self, partition: int, offset: int) -> None:
        if (run := self._runs.get(partition)) is not None and run[1] != offset:
            self.flush()
        with self._lock:
            self._runs.setdefault(partition, [offset, offset])[1] = offset + 1

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._changed(ASSIGNED, partitions, generation=_generation(consumer))

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._changed(REVOKED, partitions)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._changed(LOST, partitions)

    def _changed(self, what: str, partitions: list[TopicPartition], **fields: object) -> None:
        write(what, self._name, partitions=[each.partition for each in partitions], **fields)
        self.flush()


def _generation(consumer: Consumer) -> int:
    """Return the generation of a member. confluent-kafka has no call for it, so it is read from librdkafka's bytes.

    Source: librdkafka, rd_kafka_consumer_group_metadata_write: "CGMDv2:", and an int32 in the machine's byte order.
    """
    metadata: Any = consumer.consumer_group_metadata()
    (generation,) = struct.unpack_from("=i", metadata, len(b"CGMDv2:"))
    return int(generation)


def _end(failed: threading.ExceptHookArgs) -> None:
    """End the process because a thread has failed."""
    sys.__excepthook__(failed.exc_type, failed.exc_value or failed.exc_type(), failed.exc_traceback)
    sys.stderr.flush()
    os._exit(1)


def main() -> None:
    members: dict[str, Member] = {}
    for line in sys.stdin:
        command, *words = line.split()
        if command == "start":
            members[words[0]] = Member(*words)
        elif command == "close":
            members.pop(words[0]).close()
        else:
            for member in members.values():
                member.flush()
            write(FLUSHED, "")
    os._exit(0)


if __name__ == "__main__":
    threading.excepthook = _end
    main()
