"""The views: the records that they process a second, and the time of `coordinator groups list` with 1,000 groups."""

import argparse
import subprocess
import sys
from collections.abc import Iterable
from statistics import median
from time import perf_counter

from confluent_kafka import Producer

from coordinator.base.hashing import shard_of
from coordinator.messages.requests import OffsetCommit, OffsetToCommit
from coordinator.messages.responses import JoinGroupAnswer, Reply
from streaming.config.settings import Settings
from streaming.kafka.topics import ensure
from streaming.views import Raw, Views
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.figures import Figures
from tests.streaming.views.written import Written, WrittenTopics

GROUPS = 1_000
MEMBERS = 3
REBALANCES = 3
COMMITS = 30
PARTITIONS = 6
ROUNDS = 5


def measure(_: argparse.Namespace) -> Figures:
    """Process the records that a shard has published for many groups, then list the groups from a real broker."""
    world = _world_with_groups()
    records = [_raw(record) for topic in ("groups", "events") for record in world.topics[topic]]
    say(f"Processing {len(records)} records of {GROUPS} groups, {ROUNDS} times.")
    fold_s = min(_fold_s(records) for _ in range(ROUNDS))
    with bench.broker() as broker:
        settings = Settings(bootstrap_servers=broker.bootstrap_servers, replication_factor=1)
        ensure(settings)
        _publish(settings, [*world.topics["groups"], *world.topics["events"]])
        say(f"Running `coordinator groups list` {ROUNDS} times.")
        list_s = [_list_s(settings) for _ in range(ROUNDS)]
    return {
        "views_records_per_s": len(records) / fold_s,
        "views_records": len(records),
        "groups_list_s": median(list_s),
        "groups_list_longest_s": max(list_s),
    }


def _world_with_groups() -> WrittenTopics:
    world = WrittenTopics([f"group-{n:04}" for n in range(GROUPS)])
    for group_id in world.group_ids:
        members: dict[str, int] = {}
        for number in range(MEMBERS + REBALANCES):
            if number < MEMBERS:
                world.join(group_id, client_id=f"client-{number}")
            for member_id in members:
                world.join(group_id, member_id)
            members |= _joined(world)
            leader = next(iter(members))
            assignments = {who: [2 * place, 2 * place + 1] for place, who in enumerate(members)}
            world.sync(group_id, members[leader], leader, assignments)
        for commit in range(COMMITS):
            offsets = tuple(OffsetToCommit("t", partition, commit) for partition in range(PARTITIONS))
            world.ask(OffsetCommit, group_id, member_id=leader, generation_id=members[leader], offsets=offsets)
            world.now_ms += 10
        world.batch()
    return world


def _joined(world: WrittenTopics) -> dict[str, int]:
    answers = [output.answer for output in world.batch() if isinstance(output, Reply)]
    return {a.member_id: a.generation_id for a in answers if isinstance(a, JoinGroupAnswer) and not a.code}


def _raw(record: Written) -> Raw:
    return Raw(record.topic, 0, record.offset, record.timestamp, record.key, record.value)  # type: ignore[arg-type]


def _fold_s(records: Iterable[Raw]) -> float:
    views, began_s = Views(is_live=True), perf_counter()
    for record in records:
        views.fold(record, 0)
    took_s = perf_counter() - began_s
    if len(views.present()) != GROUPS or views.alarms:
        raise BenchFailed(f"the views have {len(views.present())} groups and {len(views.alarms)} alarms")
    return took_s


def _publish(settings: Settings, records: Iterable[Written]) -> None:
    producer = Producer({**settings.librdkafka_arguments(), "queue.buffering.max.messages": 1_000_000})
    for record in records:
        group_id = str(record.key, "utf-8") if record.topic == "events" else str(record.key).split('"')[3]
        topic = f"{settings.topic_prefix}.{record.topic}"
        producer.produce(topic, record.value, record.key, shard_of(group_id, settings.request_partitions))
        producer.poll(0)
    if left := producer.flush(60):
        raise BenchFailed(f"{left} records were not written")


def _list_s(settings: Settings) -> float:
    command = [sys.executable, "-m", "streaming", "groups", "list", "-b", settings.bootstrap_servers]
    began_s = perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    took_s = perf_counter() - began_s
    if done.returncode or len(done.stdout.splitlines()) != GROUPS + 1:
        raise BenchFailed(f"`groups list` wrote {len(done.stdout.splitlines())} lines: {done.stderr.strip()[-300:]}")
    return took_s


if __name__ == "__main__":
    bench.main(measure)
