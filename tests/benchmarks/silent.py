"""The time of a batch beside silent groups: groups that are in the state and send no requests.

A silent group has no members, only one committed offset, as a group that runs occasionally has. Offset commits without
a member id create the silent groups, ten times as many in each step. In each step, 16 other groups, one in each shard,
send heartbeats: first one shard's in each batch, then those of all shards in each batch. "Added" means the difference
to the same batches without silent groups, in the same run.
"""

import argparse
import random
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from coordinator.base.config import Config
from coordinator.messages.requests import OffsetCommit, OffsetToCommit, Received
from coordinator.shard.shard import Shard
from streaming.config.settings import Settings
from tests.benchmarks import bench, crowd
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.crowd import Crowd
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.members import TOPIC, Member
from tests.benchmarks.usage import Usage

SILENT: Mapping[str, int] = {"0": 0, "1k": 1_000, "10k": 10_000, "100k": 100_000}
METADATA_BYTES = 208  # random, so that compression does not remove them: 300 bytes of state for each group
WARM_UP = 100  # of both kinds of batch; a young JVM compiles for that long
BATCHES = 60
FOUNDED_AT_ONCE = 10_000


def measure(options: argparse.Namespace) -> Figures:
    """Run a coordinator, and measure its batches beside a growing number of silent groups."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-silent-", ignore_cleanup_errors=True) as name,
    ):
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        say("Starting the coordinator.")
        with bench.coordinator(settings, Path(name)) as coordinator, Crowd(settings) as asker:
            roles = {"broker": broker.pid, "coordinator": coordinator.pid}
            with Usage(roles, weighed="coordinator") as usage:
                usage.begin()
                took_ms = _took_ms(asker, crowd.one_in_each_shard(settings.request_partitions), Path(name) / "log")
                usage.end()
    return {
        "silent_bytes_per_group": _bytes_per_group(),
        "silent_others_cpu_percent": usage.others_cpu_percent(),
        "silent_0_one_ms": took_ms["0"][0],
        "silent_0_all_ms": took_ms["0"][1],
        **{f"silent_{size}_one_added_ms": took_ms[size][0] - took_ms["0"][0] for size in SILENT if size != "0"},
        **{f"silent_{size}_all_added_ms": took_ms[size][1] - took_ms["0"][1] for size in SILENT if size != "0"},
        "silent_100k_added_ms": took_ms["100k"][1] - took_ms["0"][1],
    }


def _took_ms(asker: Crowd, beating: Sequence[Member], log_file: Path) -> dict[str, tuple[float, float]]:
    """Return, for each number of silent groups, the time of batches that touch one shard, and all shards."""
    asker.settle(beating)
    for _ in range(WARM_UP):
        asker.ask(beating[0].heartbeat)
        asker.ask(*(member.heartbeat for member in beating))
    took_ms: dict[str, tuple[float, float]] = {}
    founded = 0
    for size, groups in SILENT.items():
        for begin in range(founded, groups, FOUNDED_AT_ONCE):
            end = min(groups, begin + FOUNDED_AT_ONCE)
            crowd.check_no_errors(asker.ask(*(partial(_commit, number) for number in range(begin, end))))
        founded = groups
        one = _median_ms(asker, [[member] for member in beating], log_file)
        all_of_them = _median_ms(asker, [beating], log_file)
        took_ms[size] = one, all_of_them
        say(f"Beside {groups:,} silent groups a batch takes {one} ms, and {all_of_them} ms if it touches all shards.")
    return took_ms


def _median_ms(asker: Crowd, turns: Sequence[Sequence[Member]], log_file: Path) -> float:
    """Send each turn's heartbeats together; return the median time of the batches with all heartbeats of a turn."""
    at_once = len(turns[0])
    with crowd.batches(log_file) as batches:
        for members in islice(cycle(turns), BATCHES + 1):
            crowd.check_no_errors(asker.ask(*(member.heartbeat for member in members)))
    took_ms = sorted(batch.duration_ms for batch in batches[1:] if batch.requests == at_once)
    if len(took_ms) < BATCHES / 2:
        raise BenchFailed(f"only {len(took_ms)} of {BATCHES} batches had {at_once} heartbeats: {batches}")
    return percentile(took_ms, 50)


def _commit(number: int, request_id: str) -> OffsetCommit:
    """Return an offset commit for a group without members. It creates the group."""
    metadata = random.Random(number).randbytes(METADATA_BYTES // 2).hex()
    offset = OffsetToCommit(topic=TOPIC.decode(), partition=0, offset=number, metadata=metadata)
    return OffsetCommit(request_id=request_id, reply_to="silent", group_id=f"silent-{number:06}", offsets=(offset,))


def _bytes_per_group(groups: int = 1_000) -> float:
    """Return the size of a silent group's state, computed from a shard that has no other groups."""
    shard = Shard(0, 1, b"x" * 32, Config())
    shard.step([Received(number, 0, _commit(number, str(number))) for number in range(groups)], 0)
    return len(shard.to_bytes()) / groups


if __name__ == "__main__":
    bench.main(measure)
