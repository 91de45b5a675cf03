"""Tools that read all groups of a cluster, as exporters of lag do: list them, describe them, and fetch their offsets.

Each function takes the clients' address, reads a number of rounds, and returns what each round has found.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from tests.clients import java
from tests.system.waiting import HANG_S

ROUNDS = 3
_LINE = re.compile(r"^(\S+) +(\S+) +(\d+) +(\d+|-) +(\d+|-) +(-?\d+|-) ", re.MULTILINE)
"""A partition in Kafka's own tool: the group, the topic, the partition, the offset, the end, the lag."""

_STATE = re.compile(r"^(\S+) +(\w+) *$", re.MULTILINE)


@dataclass
class Scrape:
    """What one round of a tool has found.

    Args:
        states: The state of each described group.
        offsets: The offsets of each group, by "topic/partition".
        errors: The errors about single groups.
    """

    listed: list[str] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def offset(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        self.offsets.setdefault(group_id, {})[f"{topic}/{partition}"] = offset


Tool = Callable[[str], list[Scrape]]


def with_kafka_python(bootstrap: str) -> list[Scrape]:
    with KafkaAdminClient(bootstrap_servers=bootstrap, client_id="kafka-python") as admin:
        return [_by_kafka_python(admin) for _ in range(ROUNDS)]


def _by_kafka_python(admin: KafkaAdminClient) -> Scrape:
    found = Scrape([each["group_id"] for each in admin.list_groups()])
    for group_id, told in admin.describe_groups(found.listed).items():
        if told["error"]:
            found.errors[group_id] = told["error"]
        else:
            found.states[group_id] = told["group_state"]
    for group_id, offsets in admin.list_group_offsets(found.listed).items():
        for at, committed in offsets.items():
            found.offset(group_id, at.topic, at.partition, committed.offset)
    return found


def with_librdkafka(group_ids: list[str], bootstrap: str) -> list[Scrape]:
    """List all groups, and read the states and the offsets of these."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "librdkafka"})
    return [_by_librdkafka(admin, group_ids) for _ in range(ROUNDS)]


def _by_librdkafka(admin: AdminClient, group_ids: list[str]) -> Scrape:
    listed = admin.list_consumer_groups(request_timeout=HANG_S).result()
    assert not listed.errors, listed.errors
    found = Scrape([each.group_id for each in listed.valid])
    for group_id, told in _results(admin.describe_consumer_groups(group_ids, request_timeout=HANG_S), found):
        found.states[group_id] = told.state.name  # type: ignore[attr-defined]
    asked: dict[str, Future[object]] = {}
    for group_id in group_ids:
        asked |= admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)], request_timeout=HANG_S)
    for group_id, told in _results(asked, found):
        for at in told.topic_partitions:  # type: ignore[attr-defined]
            found.offset(group_id, at.topic, at.partition, at.offset)
    return found


def _results(asked: dict[str, "Future[object]"], found: Scrape) -> Iterator[tuple[str, object]]:
    for group_id, future in asked.items():
        try:
            yield group_id, future.result()
        except KafkaException as error:
            found.errors[group_id] = error.args[0].name()


def with_go(tool: str, folder: Path, bootstrap: str) -> list[Scrape]:
    """Return what the program of `go/groups` in a folder has read with one of its tools: franz or sarama."""
    printed = _run([str(folder / "groups"), tool, bootstrap, str(ROUNDS)])
    return [Scrape(**json.loads(line)) for line in printed.splitlines()]


def with_kafkas_tool(group_ids: Sequence[str], bootstrap: str) -> list[Scrape]:
    """Read the offsets of these groups with kafka-consumer-groups, and the states of all groups."""
    chosen = [word for group_id in group_ids for word in ("--group", group_id)]
    return [_by_kafkas_tool(bootstrap, chosen) for _ in range(ROUNDS)]


def _by_kafkas_tool(bootstrap: str, chosen: Iterable[str]) -> Scrape:
    command = java.run(java.CONSUMER_GROUPS, "--bootstrap-server", bootstrap)
    found = Scrape()
    found.states = dict(_STATE.findall(_run([*command, "--list", "--state"])))
    found.listed = list(found.states)
    for group_id, topic, partition, offset, _, _ in _LINE.findall(_run([*command, "--describe", "--offsets", *chosen])):
        found.offset(group_id, topic, int(partition), int(offset))
    return found


def _run(command: Sequence[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
