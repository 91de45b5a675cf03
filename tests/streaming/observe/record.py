"""Record what a real broker writes to `__consumer_offsets` for the groups of real clients.

    python -m tests.streaming.observe.record [SCENARIO ...]

Each scenario runs on a broker of its own, and becomes a file of `recorded`: a line for each record of the partition of
its group, with its offset, time, key and value, and a line for what the broker itself said of the group at that place.
`test_recorded.py` translates the files, and compares all that follows with the texts beside them.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from streaming.embedded import Broker, Bundle
from tests.clients.java import CONSUMER_GROUPS, SHARE, run
from tests.clients.streams import STREAMS_PROTOCOL, WordCounts
from tests.compatibility.columns import BROKERS as OF_THE_TABLE
from tests.compatibility.columns import NEWEST
from tests.system.waiting import wait_until

HERE = Path(__file__).parent / "recorded"
BROKERS = {**OF_THE_TABLE, "4.1": Bundle("broker-4.1", "a broker of Kafka 4.1", Path(__file__).parent)}
"""The brokers by version. 4.1 is the first one with metadata hashes."""

OFFSETS = "__consumer_offsets"
GROUP = "counting"
LINES, SINK = "lines", "counts"

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.streams.session.timeout.ms": "10000",
    "group.streams.min.session.timeout.ms": "10000",
    "group.streams.initial.rebalance.delay.ms": "500",
    "group.streams.heartbeat.interval.ms": "1000",
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.share.session.timeout.ms": "10000",
    "group.share.min.session.timeout.ms": "10000",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1000",
}
WAIT_S = 60.0


class Recording:
    """A scenario on a broker."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.bootstrap, self.folder = broker.bootstrap_servers, folder
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.marks: dict[int, list[str]] = {}

    def topics(self, **partitions: int) -> None:
        for future in self.admin.create_topics([NewTopic(t, n, 1) for t, n in partitions.items()]).values():
            future.result()

    def grow(self, topic: str, partitions: int) -> None:
        for future in self.admin.create_partitions([NewPartitions(topic, partitions)]).values():
            future.result()

    def delete(self, topic: str) -> None:
        for future in self.admin.delete_topics([topic]).values():
            future.result()

    def configure(self, group: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result()

    def write(self, topic: str, records: int = 60) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(records):
            producer.produce(topic, f"one two {number % 7}".encode(), str(number).encode())
        producer.flush()

    def records(self) -> list[tuple[int, int, str, str | None]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        with closing(consumer):
            consumer.assign([TopicPartition(OFFSETS, 0, OFFSET_BEGINNING)])
            found: list[tuple[int, int, str, str | None]] = []
            quiet_s = time.monotonic()
            while time.monotonic() < quiet_s + 2:
                for message in consumer.consume(500, 0.2):
                    assert not message.error(), message.error()
                    key, value = message.key() or b"", message.value()
                    found.append(
                        (message.offset(), message.timestamp()[1], key.hex(), None if value is None else value.hex())
                    )
                    quiet_s = time.monotonic()
            return found

    def tool(self, kind: str, *arguments: str) -> str:
        of = {
            "streams": "org.apache.kafka.tools.streams.StreamsGroupCommand",
            "share": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
            "consumer": CONSUMER_GROUPS,
        }[kind]
        done = subprocess.run(
            run(of, "--bootstrap-server", self.bootstrap, *arguments), capture_output=True, text=True, timeout=60
        )
        return done.stdout + done.stderr

    def state(self, kind: str, group: str) -> list[str]:
        text = self.tool(kind, "--describe", "--state", "--group", group)
        line = next((line for line in text.splitlines() if line.startswith(group)), "")
        return line.split()

    def until(self, kind: str, group: str, state: str, members: int) -> None:
        """Wait until the broker says so, and note it."""
        wait_until(
            lambda: (found := self.state(kind, group))[-2:] == [state, str(members)],
            WAIT_S,
            lambda: f"{self.state(kind, group)}; {self.tool(kind, '--describe', '--members', '--group', group)}",
        )
        self.mark(state, str(members))

    def mark(self, *said: str) -> None:
        self.marks[len(self.records())] = list(said)

    def save(self, name: str) -> None:
        HERE.mkdir(exist_ok=True)
        lines = []
        for number, record in enumerate(records := self.records()):
            if number in self.marks:
                lines.append({"said": self.marks[number]})
            lines.append(record)
        if len(records) in self.marks:
            lines.append({"said": self.marks[len(records)]})
        (HERE / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def epochs(self, kind: int) -> int:
        return sum(key.startswith(f"{kind:04x}") for _, _, key, _ in self.records())

    @contextmanager
    def next_epoch(self, kind: int) -> Iterator[None]:
        """Wait at the end of the block until the broker has raised the epoch of the group."""
        before = self.epochs(kind)
        yield
        wait_until(lambda: self.epochs(kind) > before, WAIT_S)


CONSUMER_EPOCH, SHARE_EPOCH, STREAMS_EPOCH = 3, 11, 17


@contextmanager
def killed(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def streams(recording: Recording) -> None:
    """An application of Kafka Streams: a second instance, a standby, a stop, a kill, a missing topic, the end."""
    recording.topics(lines=3, counts=1)
    recording.write(LINES)
    words = WordCounts(recording.folder, recording.bootstrap, GROUP, LINES, SINK, settings=STREAMS_PROTOCOL)
    with killed(words.start(1, client_id="one")) as one:
        recording.until("streams", GROUP, "Stable", 1)
        with killed(words.start(2, client_id="two")) as two:
            recording.until("streams", GROUP, "Stable", 2)
            with recording.next_epoch(STREAMS_EPOCH):
                recording.configure(GROUP, "streams.num.standby.replicas", "1")
            recording.until("streams", GROUP, "Stable", 2)
            two.terminate()
            recording.until("streams", GROUP, "Stable", 1)
        with killed(words.start(3, client_id="three")):
            recording.until("streams", GROUP, "Stable", 2)
        recording.until("streams", GROUP, "Stable", 1)
        with recording.next_epoch(STREAMS_EPOCH):
            recording.grow(LINES, 4)
        recording.until("streams", GROUP, "NotReady", 1)
        one.terminate()
        recording.until("streams", GROUP, "Empty", 0)


def streams_to_classic(recording: Recording) -> None:
    """An empty streams group, whose id a classic consumer takes."""
    recording.topics(lines=3, counts=1)
    recording.write(LINES)
    words = WordCounts(recording.folder, recording.bootstrap, GROUP, LINES, SINK, settings=STREAMS_PROTOCOL)
    with killed(words.start(1, client_id="one")) as one:
        recording.until("streams", GROUP, "Stable", 1)
        one.terminate()
        recording.until("streams", GROUP, "Empty", 0)
    with closing(
        Consumer({"bootstrap.servers": recording.bootstrap, "group.id": GROUP, "client.id": "ana"})
    ) as consumer:
        consumer.subscribe([LINES])
        wait_until(lambda: consumer.poll(0.5) is None and consumer.assignment(), WAIT_S)


def share(recording: Recording) -> None:
    """Share consumers of Java and librdkafka: the share state, a topic that grows, a stop and a kill."""
    recording.topics(lines=2)
    recording.write(LINES)

    def console(client_id: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            run(
                SHARE,
                "--bootstrap-server",
                recording.bootstrap,
                "--topic",
                LINES,
                "--group",
                GROUP,
                "--command-property",
                f"client.id={client_id}",
            ),
            stdout=subprocess.DEVNULL,
        )

    with killed(console("one")) as one:
        recording.until("share", GROUP, "Stable", 1)
        wait_until(lambda: recording.epochs(SHARE_EPOCH) >= 2, WAIT_S)
        with killed(console("two")):
            recording.until("share", GROUP, "Stable", 2)
            before = recording.epochs(SHARE_EPOCH)
            recording.grow(LINES, 4)
            wait_until(lambda: recording.epochs(SHARE_EPOCH) >= before + 2, WAIT_S)
            recording.until("share", GROUP, "Stable", 2)
        recording.until("share", GROUP, "Stable", 1)
        with closing(
            ShareConsumer({"bootstrap.servers": recording.bootstrap, "group.id": GROUP, "client.id": "three"})
        ) as three:
            three.subscribe([LINES])
            wait_until(lambda: (three.poll(0.2), recording.state("share", GROUP)[-1:] == ["2"])[1], WAIT_S)
            recording.mark("Stable", "2")
        recording.until("share", GROUP, "Stable", 1)
        one.terminate()
        recording.until("share", GROUP, "Empty", 0)


def consumers(recording: Recording) -> None:
    """Consumers of librdkafka with the consumer protocol: each cause of an epoch that all brokers since 4.0 record."""
    recording.topics(lines=4, extra=2)
    members: dict[str, Consumer] = {}

    def settle() -> None:
        """Poll until each partition is owned by a member, as in Kafka's own description, and note it."""

        def is_settled() -> bool:
            for member in members.values():
                member.poll(0.1)
            return recording.state("consumer", GROUP)[-2:] == ["Stable", str(len(members))]

        wait_until(is_settled, WAIT_S, lambda: recording.state("consumer", GROUP))
        recording.mark("Stable", str(len(members)))

    def join(name: str, *topics: str) -> None:
        config = {"bootstrap.servers": recording.bootstrap, "group.id": GROUP, "group.protocol": "consumer"}
        members[name] = Consumer({**config, "client.id": name, "enable.auto.commit": False})
        members[name].subscribe(list(topics))

    def after(kind: int, change: Callable[[], object]) -> None:
        before = recording.epochs(kind)
        change()

        def is_raised() -> bool:
            for member in members.values():
                member.poll(0.1)
            return recording.epochs(kind) > before

        wait_until(is_raised, WAIT_S)
        settle()

    join("ana", LINES)
    settle()
    join("bob", LINES)
    settle()
    after(CONSUMER_EPOCH, lambda: recording.grow(LINES, 6))
    after(CONSUMER_EPOCH, lambda: members["ana"].subscribe([LINES, "extra"]))
    after(CONSUMER_EPOCH, lambda: recording.delete("extra"))
    after(CONSUMER_EPOCH, lambda: members.pop("bob").close())
    members.pop("ana").close()
    recording.until("consumer", GROUP, "Empty", 0)


def classics(recording: Recording) -> None:
    """Classic consumers of librdkafka, as all brokers record them."""
    recording.topics(lines=4)
    config = {"bootstrap.servers": recording.bootstrap, "group.id": GROUP, "session.timeout.ms": 6_000}
    with closing(Consumer({**config, "client.id": "ana"})) as ana:
        ana.subscribe([LINES])
        wait_until(lambda: (ana.poll(0.1), len(ana.assignment()) == 4)[1], WAIT_S)
        recording.until("consumer", GROUP, "Stable", 1)
        with closing(Consumer({**config, "client.id": "bob"})) as bob:
            bob.subscribe([LINES])
            wait_until(lambda: (ana.poll(0.1), bob.poll(0.1), len(bob.assignment()) == 2)[2], WAIT_S)
            recording.until("consumer", GROUP, "Stable", 2)
        wait_until(lambda: (ana.poll(0.1), len(ana.assignment()) == 4)[1], WAIT_S)
        recording.until("consumer", GROUP, "Stable", 1)
    recording.until("consumer", GROUP, "Empty", 0)


class Scenario(NamedTuple):
    """A scenario, and the version of the broker on which it runs."""

    play: Callable[[Recording], None]
    kafka: str = NEWEST


SCENARIOS: Mapping[str, Scenario] = {
    **{each.__name__: Scenario(each) for each in (streams, streams_to_classic, share)},
    **{f"consumers_{version}": Scenario(consumers, version) for version in ("4.0", "4.1", "4.3", NEWEST)},
    "classics_3.9": Scenario(classics, "3.9"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], default=list(SCENARIOS))
    for name in parser.parse_args().scenario:
        play, version = SCENARIOS[name]
        with (
            tempfile.TemporaryDirectory(prefix=f"record-{name}-") as folder,
            Broker(Path(folder) / "broker", properties=SETTINGS, bundle=BROKERS[version]) as broker,
        ):
            recording = Recording(broker, Path(folder))
            try:
                play(recording)
            finally:
                recording.save(name)


if __name__ == "__main__":
    main()
