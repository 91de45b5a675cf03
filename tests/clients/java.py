"""The Java client, in Kafka's own tools: the verifiable consumer, and the console consumer for patterns.

The tools are unmodified, so their output is translated here. The verifiable consumer commits after each poll; both obey
only SIGTERM. The console consumer prints only values, so each value names its partition and offset.
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
ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


def run(main_class: str, *arguments: str) -> list[str]:
    """Return the command that runs a class of Kafka's tools."""
    jars = os.pathsep.join(map(str, (*fetch(BROKER), *fetch(TOOLS))))
    return [str(find_java()), *OPTIONS, "-cp", jars, main_class, *arguments]


def version() -> str:
    (tools,) = fetch(TOOLS)
    return tools.stem.rpartition("-")[2]


def command(config: dict[str, Any], folder: Path) -> list[str]:
    """Return the command of the consumer for a configuration; its properties are written into `folder`."""
    properties = {
        "client.id": config["client_id"],
        "heartbeat.interval.ms": config["heartbeat_ms"],
        "session.timeout.ms": config["session_ms"],
        "max.poll.interval.ms": config["max_poll_ms"],
        "metadata.max.age.ms": config["metadata_ms"],
        "partition.assignment.strategy": ASSIGNORS[config["assignor"]],
    }
    file = folder / f"{config['client_id']}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    common = ("--bootstrap-server", config["bootstrap"], "--command-config", str(file))
    if config["pattern"]:
        asked = ("--include", config["pattern"], "--group", config["group"], "--from-beginning")
        return run(CONSOLE, *common, *asked)
    instance = ("--group-instance-id", config["instance"]) if config["instance"] else ()
    (topic,) = config["topics"]
    return run(
        *(VERIFIABLE, *common, "--topic", topic, "--group-id", config["group"], *instance),
        *("--session-timeout", str(config["session_ms"])),
        *("--assignment-strategy", ASSIGNORS[config["assignor"]]),
    )


def translate(line: str) -> list[Event]:
    """Return the events of one line of either consumer."""
    if value := re.fullmatch(r"(\S+) (\d+) (\d+)", line):
        return [records(value[1], int(value[2]), [int(value[3])])]
    said = json.loads(line)
    return WORDS.get(said["name"], lambda _: [])(said)


def records(topic: str, partition: int, offsets: list[int]) -> Event:
    return {"event": "records", "partition": [topic, partition], "offsets": offsets}


def _consumed(said: Event) -> list[Event]:
    read = said["partitions"]
    return [records(p["topic"], p["partition"], list(range(p["minOffset"], p["maxOffset"] + 1))) for p in read]


def _committed(said: Event) -> list[Event]:
    if not said["success"]:
        return [{"event": "error", "error": said["error"]}]
    offsets = [[p["topic"], p["partition"], p["offset"]] for p in said["offsets"]]
    return [{"event": "committed", "offsets": offsets}]


def _moved(event: str) -> Callable[[Event], list[Event]]:
    def move(said: Event) -> list[Event]:
        return [{"event": event, "partitions": [[p["topic"], p["partition"]] for p in said["partitions"]]}]

    return move


WORDS: dict[str, Callable[[Event], list[Event]]] = {
    "partitions_assigned": _moved("assigned"),
    "partitions_revoked": _moved("revoked"),
    "records_consumed": _consumed,
    "offsets_committed": _committed,
}
