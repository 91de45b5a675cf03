"""1,000 groups move to another coordinator, and back, while the member of each commits through a gateway.

Each member waits for the response to its commit, pauses, and commits the next offset. The pause of a group is its
longest wait for a response while the groups move. Both coordinators run on one machine and one broker, with the default
number of shards.
"""

import argparse
import asyncio
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from kafka import KafkaAdminClient
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest

from streaming.config.settings import Settings
from streaming.kafka import topics
from streaming.views.reading import Reading
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.gateway_load import Member

TOPIC = "orders"
PAUSE_S = 3.0
WARM_UP_S, REST_S = 60.0, 10.0
JOIN_AT_ONCE = 100
RUNS_MAX = 5
HERE, THERE = "here", "there"


class Committing:
    """The member of a group, which commits growing offsets one after another.

    Attributes:
        acknowledged: The last offset whose commit was answered without an error.
        longest_s: The longest wait for a response since `begin`.
    """

    def __init__(self, member: Member) -> None:
        self._member, self.acknowledged, self.longest_s, self.errors = member, 0, 0.0, 0

    def begin(self) -> None:
        self.longest_s = 0.0

    async def run(self, stopping: asyncio.Event) -> None:
        """Commit until `stopping` is set."""
        while not stopping.is_set():
            began_s = time.monotonic()
            response = await self._member.call(_commit(self._member.who, self.acknowledged + 1))
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)
            if response.topics[0].partitions[0].error_code:
                self.errors += 1
            else:
                self.acknowledged += 1
            await asyncio.sleep(PAUSE_S)

    async def fetched(self) -> int:
        """Return the committed offset of the group."""
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        response = await self._member.call(
            OffsetFetchRequest(version=5, group_id=self._member.who["group_id"], topics=[topic])
        )
        return int(response.topics[0].partitions[0].committed_offset)


def _commit(who: Mapping[str, Any], offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    return OffsetCommitRequest(
        version=6,
        group_id=who["group_id"],
        generation_id_or_member_epoch=who["generation_id"],
        member_id=who["member_id"],
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )


def measure(options: argparse.Namespace) -> Figures:
    """Move all groups there and back, and compare what their members and the events show."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-moving-", ignore_cleanup_errors=True) as name,
    ):
        folder, servers = Path(name), broker.bootstrap_servers
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics({TOPIC: {"num_partitions": 1}}, wait_for_metadata=True)
        with (
            pair(servers, folder) as sides,
            bench.gateway(servers, folder / "gateway", COORDINATOR_TOPIC_PREFIX=HERE) as (_, address),
        ):
            return asyncio.run(_moves(sides, address, options.moved_groups))


@contextmanager
def pair(servers: str, folder: Path) -> Iterator[Mapping[str, Settings]]:
    """Run two coordinators that are peers; yield the settings of each by its prefix. The first one has all slots."""
    (folder / "key").write_text(secrets.token_hex(32))
    sides = {prefix: _settings(servers, folder, prefix) for prefix in (HERE, THERE)}
    with _coordinator(sides[HERE], folder, THERE, "all"), _coordinator(sides[THERE], folder, HERE, "none"):
        yield sides


def _settings(servers: str, folder: Path, prefix: str) -> Settings:
    (folder / prefix).mkdir()
    settings = Settings.load(
        bootstrap_servers=servers,
        topic_prefix=prefix,
        checkpoint=str(folder / prefix / "checkpoint"),
        replication_factor=1,
    )
    topics.ensure(settings)
    return settings


@contextmanager
def _coordinator(settings: Settings, folder: Path, peer: str, slots: str) -> Iterator[None]:
    os.environ |= {
        "COORDINATOR_PEERS": f'["{peer}"]',
        "COORDINATOR_PEER_KEY_FILE": str(folder / "key"),
        "COORDINATOR_SLOTS": slots,
    }
    with bench.coordinator(settings, folder / settings.topic_prefix):
        for name in ("PEERS", "PEER_KEY_FILE", "SLOTS"):
            del os.environ[f"COORDINATOR_{name}"]
        yield


async def _moves(sides: Mapping[str, Settings], address: str, count: int) -> Figures:
    say(f"{count} groups of one member join at {address}.")
    groups: list[Committing] = []
    for first in range(0, count, JOIN_AT_ONCE):
        names = [f"moving-{number}" for number in range(first, min(first + JOIN_AT_ONCE, count))]
        groups += map(Committing, await asyncio.gather(*(Member.join(address, name) for name in names)))
    stopping = asyncio.Event()
    running = [asyncio.create_task(group.run(stopping)) for group in groups]
    await asyncio.sleep(WARM_UP_S)
    rest_s = await _longest(groups, asyncio.sleep(REST_S))
    before = {prefix: events(settings) for prefix, settings in sides.items()}
    took_s, pauses_s = [], list[float]()
    for prefix, target in ((HERE, THERE), (THERE, HERE)):
        began_s = time.monotonic()
        pauses_s += await _longest(groups, moved(sides[prefix], target))
        took_s.append(time.monotonic() - began_s)
        say(f"All groups have moved in {took_s[-1]:.1f} s.")
        await asyncio.sleep(REST_S)
    stopping.set()
    await asyncio.gather(*running)
    rebalances = sum((events(sides[prefix]) - before[prefix])["rebalance_started"] for prefix in sides)
    lost = sum(group.acknowledged - fetched for group, fetched in zip(groups, await _fetched(groups), strict=True))
    if errors := sum(group.errors for group in groups):
        raise BenchFailed(f"{errors} commits had an error")
    return {
        "move_groups": count,
        "move_s": max(took_s),
        "move_pause_p50_s": percentile(sorted(pauses_s), 50),
        "move_pause_p99_s": percentile(sorted(pauses_s), 99),
        "move_rest_p99_s": percentile(sorted(rest_s), 99),
        "move_rebalances": rebalances,
        "move_commits_lost": lost,
    }


async def _fetched(groups: Sequence[Committing]) -> list[int]:
    """Return the committed offset of each group. Sessions must not end meanwhile, so all are fetched together."""
    return await asyncio.gather(*(group.fetched() for group in groups))


async def _longest(groups: Sequence[Committing], during: Any) -> list[float]:
    """Return the longest wait of each group for a response while something lasts."""
    for group in groups:
        group.begin()
    await during
    await asyncio.sleep(PAUSE_S)
    return [group.longest_s for group in groups]


async def moved(source: Settings, target: str) -> None:
    """Move all groups. The command stops at a response that is late, and continues with the next run."""
    where = ("-b", str(source.bootstrap_servers), "--topic-prefix", source.topic_prefix)
    command = (sys.executable, "-m", "streaming", "move", *where, "--to", target, "--all", "--yes", "-o", "json")
    for _ in range(RUNS_MAX):
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        if not await process.wait():
            return
    raise BenchFailed(f"the groups have not all moved after {RUNS_MAX} runs of the command")


def events(settings: Settings) -> Counter[str]:
    """Return the number of events of each kind."""
    with Reading(settings, topics=("events",)) as reading:
        return Counter(msgspec.json.decode(raw.value or b"{}").get("event", "") for raw in reading.backlog())


if __name__ == "__main__":
    bench.main(measure)
