"""The records of one group on the output topics."""

import json
import time
from typing import Any, NamedTuple

from kafka import KafkaConsumer, TopicPartition

from coordinator.base.hashing import shard_of
from streaming.config.settings import Settings
from streaming.wire.records import decode_group_key
from tests.system.waiting import HANG_S


class Published(NamedTuple):
    """The records that a group has published, in the order of its versions."""

    groups: list[dict[str, Any]]
    offsets: list[dict[tuple[str, int], int]]
    events: list[dict[str, Any]]
    versions: list[int]


class Reader:
    """A reader of the partitions of the output topics that hold a group's records."""

    def __init__(self, settings: Settings, group_id: str) -> None:
        self._settings, self._group_id = settings, group_id
        self._home = shard_of(group_id, settings.request_partitions)

    def records(self, topic: str) -> list[Any]:
        """Read the group's partition of a topic from its beginning to its present end."""
        partition = TopicPartition(topic, self._home)
        consumer = KafkaConsumer(**self._settings.kafka_client_arguments())
        try:
            consumer.assign([partition])
            end = consumer.end_offsets([partition])[partition]
            consumer.seek_to_beginning(partition)
            found: list[Any] = []
            while consumer.position(partition) < end:
                for batch in consumer.poll(timeout_ms=500).values():
                    found += batch
            return found
        finally:
            consumer.close()

    def events(self) -> list[dict[str, Any]]:
        """Read the group's events; `_appended_ms` is the time at which each was written."""
        return [
            {**json.loads(r.value), "_appended_ms": r.timestamp}
            for r in self.records(self._settings.events_topic)
            if r.key == self._group_id.encode()
        ]

    def await_event(self, name: str, within_s: float = HANG_S) -> dict[str, Any]:
        """Wait for the first event of a name, and return it."""
        deadline = time.monotonic() + within_s
        while True:
            events = self.events()
            for event in events:
                if event["event"] == name:
                    return event
            assert time.monotonic() < deadline, f"no {name} within {within_s} s, but {[e['event'] for e in events]}"

    def everything(self) -> Published:
        """Read all that the group has published until now."""
        groups, offsets, versions = [], [], []
        for record in self.records(self._settings.groups_topic):
            kind, group_id, *rest = decode_group_key(record.key)
            if group_id != self._group_id:
                continue
            value = json.loads(record.value) if record.value else None
            versions.append(value["version"] if value else int(dict(record.headers)["version"]))
            if kind == "group":
                groups.append(value or {})
            elif value:
                offsets.append({(str(rest[0]), int(rest[1])): value["offset"]})
        events = self.events()
        versions += [e["version"] for e in events]
        return Published(groups, offsets, events, sorted(versions))

    def time_of_last_request(self) -> int:
        """Return the time at which the broker appended the group's latest request, in Unix milliseconds."""
        mine = [r for r in self.records(self._settings.requests_topic) if r.key == self._group_id.encode()]
        return int(mine[-1].timestamp)
