"""A coordinator's topics without Kafka: a real shard writes them batch by batch.

Batches may be cut short and repeated, as after a crash; the groups topic may be compacted, and events may expire.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import CONSUMERS, Subscription, write_assignment, write_subscription
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.outputs import Output
from coordinator.messages.requests import (
    Assignment,
    DeleteGroup,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    Received,
    Request,
    SyncGroup,
)
from coordinator.messages.responses import JoinGroupAnswer, Reply
from coordinator.shard.shard import Shard
from streaming.views import Raw
from streaming.wire.records import OutputTopics, encode_request, to_row
from tests.coordinator.waking import wake

TOPICS = OutputTopics("replies", "groups", "events", "requests")
CONFIG = Config(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=1_000, clock_slack_ms=0)
PARTITIONS = 6
REQUEST_KINDS = ["join", "rejoin", "sync", "sync", "commit", "commit", "leave", "delete", "beat", "fetch"]


@dataclass(frozen=True)
class Written:
    """The part of a Kafka record that a reader uses."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]

    @property
    def raw(self) -> Raw:
        """The record as the views take it."""
        headers = {name: int(value) for name, value in self.headers}
        return Raw(self.topic, self.partition, self.offset, self.timestamp, self.key, self.value,
                   headers.get("version"), headers.get("at_ms"))  # fmt: skip


Row = tuple[str, bytes, bytes | None, list[tuple[str, bytes]]]
"""A record before it is written: topic, key, value and headers."""


@dataclass
class WrittenTopics:
    """One shard, its log, and its topics. All groups of `group_ids` belong to the shard."""

    group_ids: list[str]
    now_ms: int = 1_000_000
    requests: list[Written] = field(default_factory=list)
    topics: dict[str, list[Written]] = field(default_factory=lambda: {name: [] for name in TOPICS})
    log: list[Received] = field(default_factory=list)
    begins: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    group_of: dict[str | None, str] = field(default_factory=dict)
    batches: list[list[Row]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shard = Shard(0, 1, bytes(16), CONFIG)
        self.asked = 0

    # -- requests ------------------------------------------------------------------------------------------------------

    def ask(self, kind: type[Any], group_id: str, **fields: Any) -> str:
        self.asked += 1
        request: Request = kind(request_id=f"r{self.asked}", reply_to="inbox", group_id=group_id, **fields)
        offset = len(self.requests)
        self.requests.append(
            Written("requests", 0, offset, self.now_ms, group_id.encode(), encode_request(request), [])
        )
        self.group_of[request.request_id] = group_id
        self.log.append(Received(offset, self.now_ms, request))
        return f"r{self.asked}"

    def join(self, group_id: str, member_id: str = "", **fields: Any) -> str:
        metadata = write_subscription(Subscription(("t",)))
        wanted: dict[str, Any] = {
            "session_timeout_ms": 6_000, "rebalance_timeout_ms": 6_000, "protocol_type": CONSUMERS,
            "protocols": (Protocol("range", metadata),), "require_known_member_id": False, **fields,
        }  # fmt: skip
        return self.ask(JoinGroup, group_id, member_id=member_id, **wanted)

    def sync(self, group_id: str, generation_id: int, member_id: str, plan: dict[str, list[int]]) -> str:
        assignments = tuple(Assignment(who, write_assignment({"t": numbers})) for who, numbers in plan.items())
        return self.ask(SyncGroup, group_id, generation_id=generation_id, member_id=member_id, assignments=assignments)

    # -- batches -------------------------------------------------------------------------------------------------------

    def batch(self, chance: random.Random | None = None) -> list[Output]:
        """Run one batch over the log; with `chance`, the batch may be cut short and repeated."""
        outputs = self.shard.step([*self.log, wake(self.now_ms)], self.now_ms)
        self.log = []
        rows = [(row.topic, row.key, row.value, row.headers or []) for row in (to_row(o, TOPICS, 0) for o in outputs)]
        self.batches.append(rows)
        while chance and chance.random() < 0.3:
            reach = {topic: chance.randrange(len(rows) + 1) for topic in TOPICS}
            for topic in TOPICS:
                self._write([row for row in rows if row[0] == topic][: reach[topic]])
            self.now_ms += chance.randrange(60_000)
        self._write(rows)
        return outputs

    def repeat(self, batch: int, topics: Collection[str] = TOPICS) -> None:
        """Write a batch again after all later ones, as a paused writer does."""
        self._write([row for row in self.batches[batch] if row[0] in topics])

    def _write(self, rows: list[Row]) -> None:
        for topic, key, value, headers in rows:
            records = self.topics[topic]
            records.append(Written(topic, 0, len(records), self.now_ms, key, value, headers))

    # -- compaction, expiry and loss -----------------------------------------------------------------------------------

    def compact(self, until: int, *, tombstones_too: bool = False) -> None:
        """Remove from the groups topic the records before an offset that have a successor there."""
        records = self.topics["groups"]
        head = [r for r in records if r.offset < until]
        latest = {r.key: r.offset for r in head}
        kept = [r for r in head if latest[r.key] == r.offset and (r.value is not None or not tombstones_too)]
        self.topics["groups"] = kept + [r for r in records if r.offset >= until]

    def expire(self, topic: str, until: int) -> None:
        self.topics[topic] = [r for r in self.topics[topic] if r.offset >= until]
        self.begins[topic] = until

    def lose(self, topic: str, index: int) -> Written:
        """Remove a record as if it had never been written; later records get lower offsets."""
        records = self.topics[topic]
        lost = records.pop(index)
        records[index:] = [replace(r, offset=r.offset - 1) for r in records[index:]]
        return lost


def converse(world: WrittenTopics, chance: random.Random, batches: int) -> None:
    """Send random requests: members join, sync, commit, fetch, leave and become silent, and groups are deleted."""
    members: dict[str, dict[str, int]] = {group_id: {} for group_id in world.group_ids}
    for _ in range(batches):
        for _ in range(chance.randrange(1, 6)):
            group_id = chance.choice(world.group_ids)
            known = members[group_id]
            who = chance.choice(list(known)) if known else ""
            offset = OffsetToCommit("t", chance.randrange(PARTITIONS), chance.randrange(1_000))
            match chance.choice(REQUEST_KINDS):
                case "join":
                    world.join(group_id)
                case "rejoin" if who:
                    world.join(group_id, who)
                case "sync" if who:
                    share = PARTITIONS // len(known)
                    plan = {m: list(range(i * share, (i + 1) * share)) for i, m in enumerate(known)}
                    world.sync(group_id, known[who], who, plan)
                case "commit":
                    who, generation = (who, known[who]) if who and chance.random() < 0.8 else ("", -1)
                    world.ask(OffsetCommit, group_id, member_id=who, generation_id=generation, offsets=(offset,))
                case "leave" if who:
                    world.ask(LeaveGroup, group_id, members=(Leaving(who),))
                    del known[who]
                case "delete":
                    world.ask(DeleteGroup, group_id)
                case "beat" if who:
                    world.ask(Heartbeat, group_id, generation_id=known[who], member_id=who)
                case _:
                    world.ask(OffsetFetch, group_id)
            world.now_ms += chance.choice([0, 1, 50])
        for output in world.batch(chance):
            if isinstance(output, Reply) and isinstance(output.answer, JoinGroupAnswer) and output.answer.code == 0:
                members[world.group_of[output.answer.request_id]][output.answer.member_id] = output.answer.generation_id
        world.now_ms += chance.choice([1, 100, 2_000, 7_000])
