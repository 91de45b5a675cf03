"""The protocol between Python worker programs and the process that starts them. `go/talk` is the same for Go."""

import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Protocol


class TopicPartition(Protocol):
    """A partition of a topic, with the attributes that every client has."""

    topic: str
    partition: int


def read_config() -> dict[str, Any]:
    """Return the configuration on the command line, and make libraries log to stderr."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    return dict(json.loads(sys.argv[1]))


def consumer_arguments(config: Mapping[str, Any], assignors: Mapping[str, type]) -> dict[str, Any]:
    """Return the configuration with the names of kafka-python. aiokafka uses the same names."""
    return {
        "bootstrap_servers": config["bootstrap"],
        "group_id": config["group"],
        "client_id": config["client_id"],
        "group_instance_id": config["instance"],
        "partition_assignment_strategy": [assignors[config["assignor"]]],
        "session_timeout_ms": config["session_ms"],
        "heartbeat_interval_ms": config["heartbeat_ms"],
        "max_poll_interval_ms": config["max_poll_ms"],
        "metadata_max_age_ms": config["metadata_ms"],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }


def write_event(event: str, **what: object) -> None:
    """Write an event immediately and in one write."""
    sys.stdout.write(json.dumps({"event": event, **what}) + "\n")
    sys.stdout.flush()


def pairs(partitions: Iterable[TopicPartition]) -> list[tuple[str, int]]:
    return sorted((p.topic, p.partition) for p in partitions)


class Orders:
    """The commands on stdin. At the end of stdin this process exits, because its parent process has ended."""

    def __init__(self) -> None:
        self.paused = False
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._words.put(line.strip())
        os._exit(1)

    def wait_for(self, word: str) -> None:
        """Wait for this command, and drop those before it."""
        while self._words.get() != word:
            pass

    def next(self) -> str:
        """Return the next command, or "" if none has arrived. `pause` and `resume` also set `paused`."""
        try:
            word = self._words.get_nowait()
        except queue.Empty:
            return ""
        self.paused = {"pause": True, "resume": False}.get(word, self.paused)
        return word
