"""One group of thousands of members: the time from the first join to the last sync, and the core's part of that time.

All members join at the same time, each with its own JoinGroup without an id. The round lasts six seconds: the initial
delay and one extension. Then the leader computes the assignments as our client does, with `range` and two partitions
for each member, and each member sends its own SyncGroup. The largest group has the 10,000 members that the default and
the maximum of `group_max_size` allow.

This is measured with the core alone, step by step, at several sizes, and then with the real coordinator. In the core,
the cost of a member must not grow with the number of members. For the core alone it is also measured that all members
send a heartbeat, leave and expire, each time all together.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coordinator.base.config import Config
from coordinator.base.states import Phase
from coordinator.messages.requests import Assignment, DescribeGroup, LeaveGroup, Leaving, Received, Request
from coordinator.messages.responses import AnyAnswer, DescribeGroupAnswer, JoinedMember, JoinGroupAnswer, Reply
from coordinator.shard.shard import Shard
from coordinator.state.member_index import MemberIndexCache
from streaming.client.plans import make_plan, resolve
from streaming.config.settings import Settings
from tests.benchmarks import bench, crowd
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.crowd import Crowd
from tests.benchmarks.figures import Figures
from tests.benchmarks.members import SESSION_TIMEOUT_MS, Member
from tests.coordinator.waking import wake

CONFIG = Config()
SIZES = {1_000: "big_group_1000", 5_000: "big_group_5000", 10_000: "crowd_10000"}  # with the names of their figures
CORE_SIZES = (1_000, 2_000, 4_000, 5_000)
ROUNDS = 3
WARM_UP = (50, 500)  # sizes of the groups that are run first and are not measured
ROUND_MS_MAX = 60_000
PARTITIONS_EACH = 2
(RANGE,) = resolve(["range"])


@dataclass
class Planner(Member):
    """A member that computes the assignments as our client does if it leads."""

    joined: tuple[JoinedMember, ...] = ()

    def take(self, answer: JoinGroupAnswer) -> None:
        """Store the member's id, its generation and, for the leader, the members with their subscriptions."""
        super().take(answer)
        self.joined = answer.members

    def assignments(self) -> tuple[Assignment, ...]:
        """Return the leader's assignments, `PARTITIONS_EACH` partitions for each member. A follower has none."""
        partitions = range(PARTITIONS_EACH * len(self.joined))
        return tuple(make_plan(RANGE, self.joined, lambda topic: partitions)) if self.joined else ()


def measure(options: argparse.Namespace) -> Figures:
    """Measure the core alone, then the running coordinator."""
    core_us = {size: core_alone_us(size) for size in CORE_SIZES}
    smallest = core_us[CORE_SIZES[0]]
    for size, us in core_us.items():
        say(f"Core, microseconds for each of {size} members: {', '.join(f'{p} {t:.1f}' for p, t in us.items())}.")
    return {
        **{f"big_group_core_us_{size}": sum(us.values()) for size, us in core_us.items()},
        **{f"big_group_core_{part}_growth": core_us[CORE_SIZES[-1]][part] / us for part, us in smallest.items()},
        **_storms(),
    }


# -- the real coordinator ----------------------------------------------------------------------------------------------


def _storms() -> Figures:
    found: dict[str, float] = {}
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-big-group-", ignore_cleanup_errors=True) as name,
    ):
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        say("Starting the coordinator.")
        with bench.coordinator(settings, Path(name)), Crowd(settings) as asker:
            for size in (*WARM_UP, *SIZES):
                with crowd.batches(Path(name) / "log") as batches:
                    took_s = _storm(asker, size)
                busy_ms = [batch.duration_ms for batch in batches if batch.requests]
                say(f"{size} members were Stable after {took_s:.2f} s; batches with requests took {busy_ms} ms.")
                if figure := SIZES.get(size):
                    found[f"{figure}_s"] = took_s
                    found[f"{figure}_batch_max_ms"] = max(batch.duration_ms for batch in batches)
                    found[f"{figure}_batches"] = len(busy_ms)
    return found


def _storm(asker: Crowd, size: int) -> float:
    """Make `size` members join a new group at the same time; return the seconds until all are synced."""
    everybody = _members(size)
    began_s = time.monotonic()
    asker.settle(everybody)
    took_s = time.monotonic() - began_s
    group_id = everybody[0].group_id
    (answer,) = asker.ask(lambda request_id: DescribeGroup(request_id=request_id, reply_to="big", group_id=group_id))
    assert isinstance(answer, DescribeGroupAnswer), f"the response to DescribeGroup is {answer}"
    if (answer.state, answer.generation_id, len(answer.members)) != (Phase.STABLE, 1, size):
        raise BenchFailed(f"the group is {answer.state} with {len(answer.members)} of {size} members")
    return took_s


def _members(size: int) -> list[Planner]:
    return [Planner(f"big-{size}", number) for number in range(size)]


# -- the core alone ----------------------------------------------------------------------------------------------------


def core_alone_us(size: int) -> Mapping[str, float]:
    """Return the time of each part for each member, in microseconds: the best of several rounds."""
    rounds = [_Core(size).parts_s() for _ in range(ROUNDS)]
    return {part: 1e6 * min(parts_s[part] for parts_s in rounds) / size for part in rounds[0]}


class _Core:
    """A shard with one group. Each step begins and ends with the state as bytes, as a batch does."""

    def __init__(self, size: int) -> None:
        self._everybody = _members(size)
        self._state: bytes | None = None
        self._rosters = MemberIndexCache()
        self._offset = self._now_ms = 0

    def parts_s(self) -> Mapping[str, float]:
        """Run the parts from the first join to Stable, then the later parts; return the seconds of each part."""
        parts_s = {}
        parts_s["join"], _ = self._step([m.join_group(str(i)) for i, m in enumerate(self._everybody)])
        answers: list[AnyAnswer] = []
        while not answers:  # the initial delay passes, and it is extended once
            assert self._now_ms < ROUND_MS_MAX, "the join round does not end"
            parts_s["joined"], answers = self._step(passed_ms=1_000)
        for answer in answers:
            assert isinstance(answer, JoinGroupAnswer), f"the response to a join is {answer}"
            self._everybody[int(answer.request_id or 0)].take(answer)
        parts_s["sync"], _ = self._step([m.sync_group(str(i)) for i, m in enumerate(self._everybody)])
        stable = self._state
        for part, requests, passed_ms in (
            ("heartbeat", [m.heartbeat(str(i)) for i, m in enumerate(self._everybody)], 0),
            ("leave", [_leave(m, str(i)) for i, m in enumerate(self._everybody)], 0),
            ("expire", [], SESSION_TIMEOUT_MS + CONFIG.clock_slack_ms),
        ):
            self._state = stable
            parts_s[part], _ = self._step(requests, passed_ms)
        return parts_s

    def _step(self, requests: Sequence[Request] = (), passed_ms: int = 0) -> tuple[float, list[AnyAnswer]]:
        """Run one batch of the shard; return its seconds and the responses."""
        self._now_ms += passed_ms
        log = [Received(self._offset + i, self._now_ms, request) for i, request in enumerate(requests)]
        self._offset += len(log)
        log.append(wake(self._now_ms))
        started = time.perf_counter()
        shard = Shard(0, 1, b"x" * 32, CONFIG, self._state, self._rosters)
        outputs = shard.step(log, self._now_ms)
        self._state = shard.to_bytes()
        took_s = time.perf_counter() - started
        answers = [output.answer for output in outputs if isinstance(output, Reply) and output.answer.request_id]
        refused = [answer for answer in answers if answer.code]
        assert not refused, f"{len(refused)} requests were refused, the first one with {refused[0]}"
        return took_s, answers


def _leave(member: Member, request_id: str) -> Request:
    leaving = (Leaving(member.member_id),)
    return LeaveGroup(request_id=request_id, reply_to=member.inbox, group_id=member.group_id, members=leaving)


if __name__ == "__main__":
    bench.main(measure)
