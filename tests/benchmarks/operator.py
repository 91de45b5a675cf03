"""The cost of a heartbeat in a shard, without Spark and Kafka: the parts of one shard's batch.

The groups are spread over 16 shards, and this is one of them. A batch has the shard's heartbeats of one second, which
come from a third of its members. The same number of heartbeats then comes from members of the consumer protocol
(KIP-848), in a shard of as many groups and members. The goal is a ratio of the two kinds, measured in turn.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

from coordinator.base.config import Config
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Received, Request
from coordinator.messages.responses import ConsumerGroupHeartbeatAnswer, HeartbeatAnswer, JoinGroupAnswer, Reply
from coordinator.shard.shard import Shard
from coordinator.state.member_index import MemberIndexCache
from streaming.wire.records import OutputTopics, decode_request, encode_request, pack
from tests.benchmarks import bench, next_members
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures
from tests.benchmarks.members import HEARTBEAT_INTERVAL_S, Member, members
from tests.coordinator.waking import wake

SHARDS = 16
ROUNDS = 15
ROUND_MS = 1_000  # as long as the interval between two target assignments
HEARTBEAT_ANSWERS = (HeartbeatAnswer, ConsumerGroupHeartbeatAnswer)
TOPICS = OutputTopics("replies", "groups", "events", "requests")
CONFIG = Config()
PARTS = ("decode", "load", "step", "state", "rows")

T = TypeVar("T")


@dataclass
class _Log:
    """The request partition of one shard, with the next offset."""

    offset: int = 0

    def receive(self, requests: Iterable[Request], at_ms: int) -> list[Received]:
        received = [Received(self.offset + i, at_ms, request) for i, request in enumerate(requests)]
        self.offset += len(received)
        return received


def measure(options: argparse.Namespace) -> Figures:
    """Time the parts of a batch separately, several times, and keep the best time of each part."""
    groups = max(1, options.groups // SHARDS)
    say(f"One shard of {groups} groups x {options.members} members, without Spark and Kafka.")
    everybody, state, now_ms = _stable(groups, options.members)
    member_indexes = MemberIndexCache()  # of the worker, so it outlives a batch
    values = [encode_request(m.heartbeat(f"{i:012}")) for i, m in enumerate(everybody) if i % HEARTBEAT_INTERVAL_S == 0]
    next_state, next_now_ms, next_values = _settled(groups, options.members)
    rounds = [
        (_batch(values, state, now_ms, member_indexes), _batch(next_values, next_state, next_now_ms, member_indexes))
        for _ in range(ROUNDS)
    ]
    us = _best_us([classic for classic, _ in rounds], len(values))
    next_us = _best_us([of_consumers for _, of_consumers in rounds], len(next_values))
    return {
        "operator_us_per_heartbeat": sum(us),
        **{f"operator_{part}_us": cost for part, cost in zip(PARTS, us, strict=True)},
        "operator_next_us_per_heartbeat": sum(next_us),
        "operator_next_per_s": 1e6 / sum(next_us),
        "operator_next_ratio": sum(us) / sum(next_us),
        "operator_groups": groups,
        "state_bytes_per_member": len(state) / len(everybody),
        "state_mb": SHARDS * len(state) / 1e6,
    }


def _stable(groups: int, each: int) -> tuple[list[Member], bytes, int]:
    """Make a shard's groups Stable, and return the members, the shard's state and the time."""
    shard, log, everybody = Shard(0, 1, b"x" * 32, CONFIG), _Log(), members(groups, each)
    outputs = shard.step(log.receive([m.join_group(str(i)) for i, m in enumerate(everybody)], 0), 0)
    now_ms = 0
    while not (replies := [output for output in outputs if isinstance(output, Reply)]):
        now_ms += 1_000  # the initial delay passes, and it is extended once
        outputs = shard.step([wake(now_ms)], now_ms)
    for reply in replies:
        assert isinstance(reply.answer, JoinGroupAnswer), f"the response to a join is {reply.answer}"
        everybody[int(reply.answer.request_id or 0)].take(reply.answer)
    shard.step(log.receive([m.sync_group(str(i)) for i, m in enumerate(everybody)], now_ms), now_ms)
    return everybody, shard.to_bytes(), now_ms


def _settled(groups: int, each: int) -> tuple[bytes, int, list[bytes]]:
    """Make a shard's groups of the consumer protocol Stable.

    Returns:
        The shard's state, the time, and plain heartbeats of a third of the members.
    """
    shard, log, now_ms = Shard(0, 1, b"x" * 32, CONFIG), _Log(), 0
    everybody = next_members.members(groups, each)
    while not all(member.is_settled for member in everybody):
        assert now_ms < CONFIG.group_consumer_session_timeout_ms, "the groups are not Stable in time"
        now_ms += ROUND_MS
        asked = log.receive([member.request(str(i)) for i, member in enumerate(everybody)], now_ms)
        for output in shard.step(asked, now_ms):
            if isinstance(output, Reply) and output.answer.request_id:
                assert isinstance(output.answer, ConsumerGroupHeartbeatAnswer), f"the response is {output.answer}"
                everybody[int(output.answer.request_id)].take(output.answer)
    assert sum(len(member.owned) for member in everybody) == groups * each, "each partition has an owner"
    beating = everybody[::HEARTBEAT_INTERVAL_S]
    return shard.to_bytes(), now_ms, [encode_request(m.request(f"{i:012}")) for i, m in enumerate(beating)]


def _best_us(rounds: Sequence[Sequence[float]], heartbeats: int) -> list[float]:
    """Return the best time of each part, in microseconds for each heartbeat."""
    return [1e6 * min(seconds) / heartbeats for seconds in zip(*rounds, strict=True)]


def _batch(values: list[bytes], state: bytes, now_ms: int, member_indexes: MemberIndexCache) -> list[float]:
    """Run the operator's work for a batch of heartbeats, and return the seconds of each part."""
    decoded, decode_s = _timed(lambda: [Received(i, now_ms, decode_request(v)) for i, v in enumerate(values)])
    shard, load_s = _timed(lambda: Shard(0, 1, b"x" * 32, CONFIG, state, member_indexes))
    outputs, step_s = _timed(lambda: shard.step(decoded, now_ms))
    _, state_s = _timed(shard.to_bytes)
    _, rows_s = _timed(lambda: [(*packed, None) for packed in pack(outputs, TOPICS, 0)])
    assert all(_is_well(output) for output in outputs), "a heartbeat was refused"
    return [decode_s, load_s, step_s, state_s, rows_s]


def _is_well(output: Output) -> bool:
    return isinstance(output, Reply) and isinstance(output.answer, HEARTBEAT_ANSWERS) and output.answer.code == 0


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = perf_counter()
    done = work()
    return done, perf_counter() - started


if __name__ == "__main__":
    bench.main(measure)
