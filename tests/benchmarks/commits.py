"""Commits: one that is waited for at rest, ten members that commit in a loop, and a client that does not wait.

A commit through the topics is a record that is written and answered by hand. Through the gateway, and with Kafka's own
coordinator, it is a request over a plain socket. All use one broker. No two are measured at the same time.
"""

import argparse
import asyncio
import random
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from kafka import KafkaAdminClient
from kafka.protocol.consumer.group import OffsetCommitRequest

from streaming.config.settings import Settings
from tests.benchmarks import bench, crowd
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.gateway_load import Member
from tests.benchmarks.rest import PAUSE_S, Client, settled

TOPIC = "orders"
WARM_UP = 120
TEN = 10
IN_FLIGHT = 4_000
LOOP_S = 15.0
SETTLE_S = 2.0


class Committing(NamedTuple):
    """What members that commit have seen."""

    rest_ms: list[float]
    """The times from commit to response of one member with pauses, sorted."""

    pipelined_per_s: float
    """Commits a second of one member with `IN_FLIGHT` of them without a response."""


def measure(options: argparse.Namespace) -> Figures:
    """Measure commits through the topics, through a gateway and with Kafka's own coordinator."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-commits-", ignore_cleanup_errors=True) as name,
    ):
        folder, servers = Path(name), broker.bootstrap_servers
        settings = Settings.load(bootstrap_servers=servers, checkpoint=f"{name}/checkpoint")
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics({TOPIC: {"num_partitions": 1}}, wait_for_metadata=True)
        with bench.coordinator(settings, folder):
            rest_ms = _through_topics(settings, options.samples)
            with bench.gateway(servers, folder / "gateway") as (_, address):
                through = asyncio.run(_over_sockets(address, options.samples))
                batches = {members: _batches(address, members, folder / "log") for members in (1, TEN)}
        kafkas = asyncio.run(_over_sockets(servers, options.samples))
    return {
        "commit_rest_p50_ms": percentile(rest_ms, 50),
        "commit_rest_p99_ms": percentile(rest_ms, 99),
        "commit_gateway_p50_ms": percentile(through.rest_ms, 50),
        "commit_gateway_p99_ms": percentile(through.rest_ms, 99),
        "commit_kafka_p50_ms": percentile(kafkas.rest_ms, 50),
        "commits_per_s_pipelined": through.pipelined_per_s,
        "commits_per_s_pipelined_kafka": kafkas.pipelined_per_s,
        "commits_loop_batches_ratio": batches[TEN] / batches[1],
    }


def _through_topics(settings: Settings, samples: int) -> list[float]:
    say("One member commits through the topics, with pauses.")
    pauses, took_ms = random.Random(1), list[float]()
    with closing(Client(settings)) as client:
        member = settled(client)
        for _ in range(WARM_UP + samples):
            time.sleep(pauses.uniform(*PAUSE_S))
            took_ms.append(client.ask(member.commit)[1])
    return sorted(took_ms[WARM_UP:])


async def _over_sockets(servers: str, samples: int) -> Committing:
    say(f"One member commits at {servers}, with pauses, then without a wait.")
    (member,) = await _joined(servers, 1, "alone")
    pauses = random.Random(1)
    for number in range(WARM_UP + samples):
        await asyncio.sleep(pauses.uniform(*PAUSE_S))
        member.beat()
        await _answered(member, number + 1)
    rest_ms = sorted(1_000 * took_s for took_s in member.took_s[WARM_UP:])
    member.took_s.clear()
    rush = await _loop([member], IN_FLIGHT)
    return Committing(rest_ms, rush / LOOP_S)


async def _joined(servers: str, count: int, name: str) -> list[Member]:
    """Return members of groups of their own, whose repeated request is a commit."""
    members = await asyncio.gather(*(Member.join(servers, f"commits-{name}-{number}") for number in range(count)))
    partition = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    for member in members:
        member.repeat(
            lambda who: OffsetCommitRequest(
                version=6,
                group_id=who["group_id"],
                generation_id_or_member_epoch=who["generation_id"],
                member_id=who["member_id"],
                topics=[topic],
            )
        )
    return members


async def _answered(member: Member, count: int) -> None:
    until_s = time.monotonic() + crowd.SILENCE_S
    while len(member.took_s) < count:
        if time.monotonic() > until_s:
            raise BenchFailed(f"no response to a commit for {crowd.SILENCE_S} s")
        await asyncio.sleep(0.001)
    if member.errors:
        raise BenchFailed(f"{member.errors} commits had an error")


async def _loop(members: list[Member], in_flight: int) -> int:
    """Commit again at each response, for a time; return the number of responses."""
    for member in members:
        member.rushes_until_s = time.monotonic() + LOOP_S
        member.beat(in_flight)
    await asyncio.sleep(LOOP_S)
    if errors := sum(member.errors for member in members):
        raise BenchFailed(f"{errors} commits had an error")
    return sum(len(member.took_s) for member in members)


def _batches(address: str, count: int, log_file: Path) -> float:
    """Return the batches for each round of commits of members that wait for each one."""

    async def run() -> float:
        members = await _joined(address, count, f"loop-{count}")
        await asyncio.sleep(SETTLE_S)
        with crowd.batches(log_file) as batches:
            rounds = await _loop(members, 1) / count
        return len(batches) / rounds

    say(f"{count} members commit in a loop.")
    return asyncio.run(run())


if __name__ == "__main__":
    bench.main(measure)
