"""The steps that the installed product does in each column: they use each command that a version may break."""

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.system.conftest import kill_family
from tests.system.installed import Environment
from tests.system.waiting import HANG_S, wait_until

RECORDS = 5
TOPIC, OBSERVED = "orders", "observed"

OWN_CLIENT = """
import sys
from streaming.client import GroupConsumer
servers, protocol = sys.argv[1:]
options = {"bootstrap_servers": servers, "group_protocol": protocol, "auto_offset_reset": "earliest"}
with GroupConsumer("orders", group_id=f"own-{protocol}", **options) as consumer:
    for number, record in enumerate(consumer, 1):
        if number == 5:
            break
    consumer.commit()
print("read", number)
"""

STOCK_CLIENT = """
import sys
from confluent_kafka import Consumer
servers, group = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
read = 0
while read < 5:
    record = consumer.poll(1)
    read += record is not None and record.error() is None
consumer.commit(asynchronous=False)
consumer.close()
print("read", read)
"""
READ = f"read {RECORDS}\n"


@dataclass
class Site:
    """An installed product beside a broker.

    Args:
        broker: The broker's address.
    """

    environment: Environment
    broker: str
    folder: Path
    running: list[psutil.Process] = field(default_factory=list)

    def produce(self) -> None:
        """Create the topic with its records."""
        admin = AdminClient({"bootstrap.servers": self.broker})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(HANG_S)
        producer = Producer({"bootstrap.servers": self.broker})
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number).encode())
        assert producer.flush(HANG_S) == 0

    def start(self, *words: str, **options: str) -> dict[str, str]:
        """Start a command that serves, and return the content of its ready file. `stop` stops it."""
        pairs = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
        process, _, ready = self.environment.start(*words, "-b", self.broker, *pairs)
        self.running.append(psutil.Process(process.pid))
        return ready

    def start_coordinator(self) -> None:
        self.start("run", replication_factor="1", checkpoint=str(self.folder / "checkpoint"))

    def command(self, *words: str) -> str:
        """Return the output of a command that must exit with 0."""
        done = self.environment.command(*words, "-b", self.broker)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def kill(self, process: psutil.Process) -> None:
        """Kill a command and the Java process that it started."""
        kill_family(process.pid)
        self.running.remove(process)

    def stop(self) -> None:
        """Stop everything, the youngest first."""
        while self.running:
            process = self.running.pop()
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(HANG_S) == 0


def fetched(url: str) -> str:
    """Return the content; an empty string while the page still reads the topics."""
    try:
        with urllib.request.urlopen(url, timeout=HANG_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return ""
        raise


def own_clients(site: Site) -> None:
    for protocol in ("classic", "consumer"):
        assert site.environment.python(OWN_CLIENT, site.broker, protocol) == READ


def stock_client(site: Site) -> None:
    ready = site.start("gateway", port="0")
    assert site.environment.python(STOCK_CLIENT, ready["gateway"], "stock") == READ


def page(site: Site) -> None:
    ready = site.start("dashboard", port="0")
    wait_until(lambda: "own-classic" in fetched(f"{ready['dashboard']}/api/groups"))


def commands(site: Site) -> None:
    assert "own-consumer" in site.command("groups", "list")
    assert "joined" in site.command("groups", "timeline", "own-classic")
    assert TOPIC in site.command("groups", "offsets", "stock")
    site.command("verify")


def history(site: Site) -> None:
    output = site.folder / "history"
    site.command("export", "--output", str(output))
    assert len(list(output.glob("*.parquet"))) == 3


def killed(site: Site) -> None:
    (driver,) = (each for each in site.running if "run" in each.cmdline())
    site.kill(driver)
    site.start_coordinator()
    assert TOPIC in site.command("groups", "offsets", "own-classic")
    assert site.environment.python(OWN_CLIENT.replace("own-", "again-"), site.broker, "classic") == READ


def observed(site: Site) -> None:
    assert site.environment.python(STOCK_CLIENT, site.broker, "kafkas") == READ
    site.start("observe", replication_factor="1", checkpoint=str(site.folder / "observed"), topic_prefix=OBSERVED)
    wait_until(lambda: "kafkas" in site.command("groups", "list", "--topic-prefix", OBSERVED))


STEPS: dict[str, Callable[[Site], None]] = {
    "`GroupConsumer`, both protocols": own_clients,
    "librdkafka through the gateway": stock_client,
    "the page": page,
    "commands that read, and `verify`": commands,
    "`export`": history,
    "`kill -9` of the driver, and a start": killed,
    "`observe`": observed,
}
"""What is done in each column, in this order."""
