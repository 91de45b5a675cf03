"""The Java client in Kafka's own tools: the verifiable consumer, and the console consumer for patterns.

The tools are unmodified, so this module translates their output. The verifiable consumer commits after each poll. Both
tools react only to SIGTERM. The console consumer prints only values, so each value contains its partition and offset.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streaming.embedded import BROKER, TOOLS, fetch, find_java

Event = dict[str, Any]

OPTIONS = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
VERIFIABLE = "org.apache.kafka.tools.VerifiableConsumer"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


def run(main_class: str, *arguments: str) -> list[str]:
    """Return the command that runs a class of Kafka's tools."""
    jars = os.pathsep.join(map(str, (*fetch(BROKER), *fetch(TOOLS))))
    return [str(find_java()), *OPTIONS, "-cp", jars, main_class, *arguments]


def copier(bootstrap: str, source: str, sink: str, group: str, transactional_id: str) -> list[str]:
    """Return the command of Kafka's own copier, a member of a group that copies in transactions and never ends."""
    return run(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--input-topic", source, "--input-partition", "0", "--output-topic", sink),
        *("--broker-list", bootstrap, "--consumer-group", group),
        *("--transaction-size", "20", "--transaction-timeout", "5000", "--transactional-id", transactional_id),
        *("--group-mode", "--use-group-metadata", "--enable-random-aborts"),
    )


def version() -> str:
    (tools,) = (jar for jar in fetch(TOOLS) if jar.name.startswith("kafka-tools-"))
    return tools.stem.rpartition("-")[2]


def command(config: dict[str, Any], folder: Path) -> list[str]:
    """Return the consumer's command for a configuration. Write the consumer's properties into `folder`."""
    is_classic = config["protocol"] == "classic"
    properties = {
        "client.id": config["client_id"],
        "max.poll.interval.ms": config["max_poll_ms"],
        "metadata.max.age.ms": config["metadata_ms"],
        "group.protocol": config["protocol"],
        **config["access"],
    }
    if is_classic:
        properties |= {
            "heartbeat.interval.ms": config["heartbeat_ms"],
            "session.timeout.ms": config["session_ms"],
            "partition.assignment.strategy": ASSIGNORS[config["assignor"]],
        }
    file = folder / f"{config['client_id']}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()).replace("\\", r"\\"))
    common = ("--bootstrap-server", config["bootstrap"], "--command-config", str(file))
    if config["pattern"]:
        options = ("--include", config["pattern"], "--group", config["group"], "--from-beginning")
        return run(CONSOLE, *common, *options)
    instance = ("--group-instance-id", config["instance"]) if config["instance"] else ()
    (topic,) = config["topics"]
    return run(
        *(VERIFIABLE, *common, "--topic", topic, "--group-id", config["group"], *instance),
        *("--group-protocol", config["protocol"]),
        *(("--session-timeout", str(config["session_ms"])) if is_classic else ()),
        *(("--assignment-strategy", ASSIGNORS[config["assignor"]]) if is_classic else ()),
    )


def translate(line: str) -> list[Event]:
    """Return the events of one line of either consumer."""
    if value := re.fullmatch(r"(\S+) (\d+) (\d+)", line):
        return [records(value[1], int(value[2]), [int(value[3])])]
    line_event = json.loads(line)
    return WORDS.get(line_event["name"], lambda _: [])(line_event)


def records(topic: str, partition: int, offsets: list[int]) -> Event:
    return {"event": "records", "partition": [topic, partition], "offsets": offsets}


def _consumed(line_event: Event) -> list[Event]:
    read = line_event["partitions"]
    return [records(p["topic"], p["partition"], list(range(p["minOffset"], p["maxOffset"] + 1))) for p in read]


def _committed(line_event: Event) -> list[Event]:
    if not line_event["success"]:
        return [{"event": "error", "error": line_event["error"]}]
    offsets = [[p["topic"], p["partition"], p["offset"]] for p in line_event["offsets"]]
    return [{"event": "committed", "offsets": offsets}]


def _moved(event: str) -> Callable[[Event], list[Event]]:
    def move(line_event: Event) -> list[Event]:
        return [{"event": event, "partitions": [[p["topic"], p["partition"]] for p in line_event["partitions"]]}]

    return move


WORDS: dict[str, Callable[[Event], list[Event]]] = {
    "partitions_assigned": _moved("assigned"),
    "partitions_revoked": _moved("revoked"),
    "records_consumed": _consumed,
    "offsets_committed": _committed,
}
