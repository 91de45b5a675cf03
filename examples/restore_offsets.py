"""Commit offsets, commit wrong ones by mistake, and restore the offsets as of the time before the mistake:

    python examples/restore_offsets.py --bootstrap-servers localhost:9092

Output:

    committed 40
    committed 0
    GROUP           TOPIC                    PARTITION NEW-OFFSET
    restore-offsets restore-offsets-invoices 0         40
    the group reads on from 40
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime

from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from streaming.client import GroupConsumer

GROUP = "restore-offsets"
INVOICES = TopicPartition("restore-offsets-invoices", 0)
RECORDS = 50
POLL_MS = 200
ROUNDS_MAX = 300
"""The most polls until the member owns the partition."""


def produce(servers: str) -> None:
    """Produce records, so that the offsets exist."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    with suppress(TopicAlreadyExistsError), closing(admin):
        admin.create_topics([NewTopic(INVOICES.topic, 1, 1)])
    with closing(KafkaProducer(bootstrap_servers=servers)) as producer:
        for number in range(RECORDS):
            producer.send(INVOICES.topic, b"invoice %d" % number, partition=INVOICES.partition)


@contextmanager
def owner(settings: dict[str, str]) -> Iterator[GroupConsumer]:
    """Join the group, wait until the member owns the partition, and leave the group at the end."""
    with GroupConsumer(INVOICES.topic, group_id=GROUP, enable_auto_commit=False, **settings) as consumer:
        for _ in range(ROUNDS_MAX):
            consumer.poll(POLL_MS)
            if INVOICES in consumer.assignment():
                break
        else:
            raise TimeoutError(f"{INVOICES} is not assigned after {ROUNDS_MAX} polls")
        yield consumer


def commit(settings: dict[str, str], offset: int) -> None:
    """Commit an offset of the partition."""
    with owner(settings) as consumer:
        consumer.commit({INVOICES: OffsetAndMetadata(offset, "", -1)})
    print("committed", offset, flush=True)


def run(*arguments: str) -> None:
    """Run a command of groupcoord, which prints its result."""
    subprocess.run([sys.executable, "-m", "streaming", *arguments], check=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Commit, commit wrong offsets, and restore."""
    parser = argparse.ArgumentParser(description="Restore offsets as of a time.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic-prefix", default="coordinator", help="the prefix of the coordinator's topics")
    options = parser.parse_args(arguments)
    place = ("--bootstrap-servers", options.bootstrap_servers, "--topic-prefix", options.topic_prefix)
    settings = {"bootstrap_servers": options.bootstrap_servers, "topic_prefix": options.topic_prefix}
    produce(options.bootstrap_servers)
    commit(settings, 40)
    before = datetime.now(UTC).isoformat(timespec="milliseconds")
    commit(settings, 0)
    run("groups", "reset-offsets", GROUP, "--all-topics", "--as-of", before, "--execute", *place)
    with owner(settings) as consumer:
        print("the group reads on from", consumer.committed(INVOICES))


if __name__ == "__main__":
    main()
