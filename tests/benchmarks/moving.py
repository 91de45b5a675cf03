"""1,000 groups move to another coordinator, and back, while the member of each commits through a gateway.

Each member waits for the response to its commit, pauses, and commits the next offset. The pause of a group is the
longest wait for a response to a request that the group's move delayed: one that was unanswered when the group was
released, or sent later, up to the first one that was answered after its arrival. The first moves are to a coordinator
that has just been started, whose Java compiles meanwhile; their pauses are figures of their own. Both coordinators run
on one machine and one broker.
"""

import argparse
import asyncio
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from kafka import KafkaAdminClient
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest

from streaming.config.settings import Settings
from streaming.kafka import topics
from streaming.views.api.view_reader import ViewReader
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.gateway_load import Member

TOPIC = "orders"
PAUSE_S = 3.0
WARM_UP_S, REST_S = 60.0, 10.0
JOIN_AT_ONCE = 100
RUNS_MAX = 5
SHARDS = 4
"""The number of shards of both coordinators: that of `coordinator up`."""

SIDES = HERE, THERE = "here", "there"
WAYS = ((HERE, THERE), (THERE, HERE)) * 2


class Wait(NamedTuple):
    """The time of a request, and that of its response, seconds since 1970."""

    sent_s: float
    answered_s: float


class Committing:
    """The member of a group, which commits growing offsets one after another.

    Attributes:
        acknowledged: The last offset whose commit was answered without an error.
        waits: The times of each commit and of its response, in the clock of the records.
    """

    def __init__(self, member: Member) -> None:
        self._member, self.acknowledged, self.errors = member, 0, 0
        self.waits: list[Wait] = []

    @property
    def group_id(self) -> str:
        return str(self._member.who["group_id"])

    async def run(self, stopping: asyncio.Event) -> None:
        """Commit until `stopping` is set."""
        while not stopping.is_set():
            sent_s = time.time()
            response = await self._member.call(_commit(self._member.who, self.acknowledged + 1))
            self.waits.append(Wait(sent_s, time.time()))
            if response.topics[0].partitions[0].error_code:
                self.errors += 1
            else:
                self.acknowledged += 1
            await asyncio.sleep(PAUSE_S)

    async def fetched(self) -> int:
        """Return the committed offset of the group."""
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        response = await self._member.call(OffsetFetchRequest(version=5, group_id=self.group_id, topics=[topic]))
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
        folder, servers, shards = Path(name), broker.bootstrap_servers, options.moved_shards or SHARDS
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics({TOPIC: {"num_partitions": 1}}, wait_for_metadata=True)
        with (
            pair(servers, folder, shards, shards) as sides,
            bench.gateway(servers, folder / "gateway", COORDINATOR_TOPIC_PREFIX=HERE) as (_, address),
        ):
            return asyncio.run(_moves(sides, address, options.moved_groups))


@contextmanager
def pair(servers: str, folder: Path, *shards: int) -> Iterator[Mapping[str, Settings]]:
    """Run two coordinators that are peers; yield the settings of each by its prefix.

    Args:
        shards: The number of shards of the first one, which has all slots, and of the second one.
    """
    (folder / "key").write_text(secrets.token_hex(32))
    sides = {prefix: _settings(servers, folder, prefix, count) for prefix, count in zip(SIDES, shards, strict=True)}
    with _coordinator(sides[HERE], folder, THERE, "all"), _coordinator(sides[THERE], folder, HERE, "none"):
        yield sides


def _settings(servers: str, folder: Path, prefix: str, shards: int) -> Settings:
    (folder / prefix).mkdir()
    settings = Settings.load(
        bootstrap_servers=servers,
        topic_prefix=prefix,
        request_partitions=shards,
        checkpoint=str(folder / prefix / "checkpoint"),
        replication_factor=1,
    )
    topics.ensure(settings)
    return settings


@contextmanager
def _coordinator(settings: Settings, folder: Path, peer: str, slots: str) -> Iterator[None]:
    environment = {
        "COORDINATOR_PEERS": f'["{peer}"]',
        "COORDINATOR_PEER_KEY_FILE": str(folder / "key"),
        "COORDINATOR_SLOTS": slots,
        "COORDINATOR_REQUEST_PARTITIONS": str(settings.request_partitions),
    }
    os.environ |= environment
    with bench.coordinator(settings, folder / settings.topic_prefix):
        for name in environment:
            del os.environ[name]
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
    rest_from_s = time.time()
    await asyncio.sleep(REST_S)
    rest_s = [pause(group.waits, rest_from_s, rest_from_s + REST_S / 2) for group in groups]
    before = {prefix: events(settings) for prefix, settings in sides.items()}
    runs = [await _move_all(sides[source], target) for source, target in WAYS]
    stopping.set()
    await asyncio.gather(*running)
    rebalances = sum((events(sides[prefix]) - before[prefix])["rebalance_started"] for prefix in sides)
    lost = sum(group.acknowledged - fetched for group, fetched in zip(groups, await _fetched(groups), strict=True))
    if errors := sum(group.errors for group in groups):
        raise BenchFailed(f"{errors} commits had an error")
    return {
        "move_groups": count,
        **_times(groups, sides, runs),
        "move_rest_p99_s": percentile(sorted(rest_s), 99),
        "move_rebalances": rebalances,
        "move_commits_lost": lost,
    }


async def _move_all(source: Settings, target: str) -> tuple[float, float]:
    """Move all groups; return the time of the begin, seconds since 1970, and the seconds that it took."""
    began_s = time.time()
    await moved(source, target)
    took_s = time.time() - began_s
    say(f"All groups have moved in {took_s:.1f} s.")
    await asyncio.sleep(REST_S)
    return began_s, took_s


def _times(groups: Sequence[Committing], sides: Mapping[str, Settings], runs: Sequence[tuple[float, float]]) -> Figures:
    waits = {group.group_id: group.waits for group in groups}
    first, *others = (
        list(pauses(waits, sides[source], sides[target], began_s))
        for (source, target), (began_s, _) in zip(WAYS, runs, strict=True)
    )
    pauses_s = sorted(chain.from_iterable(others))
    return {
        "move_first_s": runs[0][1],
        "move_s": max(took_s for _, took_s in runs[1:]),
        "move_pause_p50_s": percentile(pauses_s, 50),
        "move_pause_p99_s": percentile(pauses_s, 99),
        "move_first_pause_p50_s": percentile(sorted(first), 50),
        "move_first_pause_p99_s": percentile(sorted(first), 99),
    }


async def _fetched(groups: Sequence[Committing]) -> list[int]:
    """Return the committed offset of each group. Sessions must not end meanwhile, so all are fetched together."""
    return await asyncio.gather(*(group.fetched() for group in groups))


def pauses(waits: Mapping[str, Iterable[Wait]], source: Settings, target: Settings, from_s: float) -> Iterator[float]:
    """Yield the pause of each group in its first move since a time, seconds.

    Args:
        waits: Those of each group, in the order of the responses.
    """
    released, arrived = times(source, "group_released", from_s), times(target, "group_arrived", from_s)
    for group_id, waits_of_group in waits.items():
        yield pause(waits_of_group, released[group_id], arrived[group_id])


def pause(waits: Iterable[Wait], from_s: float, until_s: float) -> float:
    """Return the longest wait for a response after `from_s`, up to the first one after `until_s`, seconds.

    Raises:
        BenchFailed: No response came after `until_s`.
    """
    longest_s = 0.0
    for sent_s, answered_s in waits:
        if answered_s > from_s:
            longest_s = max(longest_s, answered_s - sent_s)
        if answered_s > until_s:
            return longest_s
    raise BenchFailed("a member got no response after its group had moved")


def times(settings: Settings, kind: str, from_s: float) -> Mapping[str, float]:
    """Return the time of the first event of a kind since `from_s`, by its group, seconds since 1970."""
    first: dict[str, float] = {}
    with ViewReader(settings, topics=("events",)) as reading:
        for raw in reading.backlog():
            event = msgspec.json.decode(raw.value or b"{}")
            if event.get("event") == kind and (at_s := event["at_ms"] / 1000) >= from_s:
                first.setdefault(event["group_id"], at_s)
    return first


async def moved(source: Settings, target: str, *options: str) -> None:
    """Move all groups. The command stops at a response that is late, and continues with the next run."""
    where = ("-b", str(source.bootstrap_servers), "--topic-prefix", source.topic_prefix)
    what = ("--to", target, "--all", "--yes", "-o", "json", *options)
    command = (sys.executable, "-m", "streaming", "move", *where, *what)
    for _ in range(RUNS_MAX):
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        if not await process.wait():
            return
    raise BenchFailed(f"the groups have not all moved after {RUNS_MAX} runs of the command")


def events(settings: Settings) -> Counter[str]:
    """Return the number of events of each kind."""
    with ViewReader(settings, topics=("events",)) as reading:
        return Counter(msgspec.json.decode(raw.value or b"{}").get("event", "") for raw in reading.backlog())


if __name__ == "__main__":
    bench.main(measure)
