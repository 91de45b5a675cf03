"""Groups that the page shows, without Kafka: a real shard handles their requests; a `LiveViews` gets its records."""

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
    OffsetToCommit,
    Protocol,
    SyncGroup,
)
from coordinator.messages.responses import JoinGroupAnswer, Reply
from coordinator.shard.shard import Shard
from streaming.dashboard.live import LiveViews, Phase, Status
from tests.streaming.views.written import WrittenTopics

SESSION_MS = 45_000
TICK_MS = 2_000
CONFIG = Config(group_initial_rebalance_delay_ms=1_000, clock_slack_ms=0)
PartitionKey = tuple[str, int]


class Stage:
    """Members join, assign partitions, commit, become silent and leave; published records are shown at once."""

    def __init__(self, live: LiveViews, now_ms: int) -> None:
        self.live = live
        self.world = WrittenTopics([], now_ms=now_ms)
        self.world.shard = Shard(0, 1, bytes(16), CONFIG)
        self.members: dict[str, list[str]] = {}
        self.generations: dict[str, int] = {}
        self._joined: dict[str, JoinGroupAnswer] = {}
        self._shown = {"groups": 0, "events": 0}

    def begins(self) -> "Stage":
        """Set the page's status to caught up."""
        self.live.set_status(Status(Phase.LIVE))
        return self

    @property
    def now_ms(self) -> int:
        return self.world.now_ms

    def passes(self, wait_ms: int) -> None:
        """Advance the time, with a batch every two seconds at least; a silent member may be dropped meanwhile."""
        until_ms = self.world.now_ms + wait_ms
        while self.world.now_ms < until_ms:
            self.world.now_ms = min(until_ms, self.world.now_ms + TICK_MS)
            self._step()

    def joins(self, group_id: str, *client_ids: str, topics: tuple[str, ...] = ("orders",), **fields: Any) -> list[str]:
        """Send joins of new members, and of all present members again; return the new members' ids."""
        metadata = write_subscription(Subscription(topics))
        wanted: dict[str, Any] = {
            "session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": 300_000, "protocol_type": CONSUMERS,
            "protocols": (Protocol("range", metadata),), "require_known_member_id": False,
            "client_host": "/10.4.0.17", "reason": "", **fields,
        }  # fmt: skip
        known = self.members.setdefault(group_id, [])
        request_ids = [
            self.world.ask(JoinGroup, group_id, member_id="", client_id=each, **wanted) for each in client_ids
        ]
        self._step()
        if known:
            self.world.now_ms += 40
            request_ids += [
                self.world.ask(JoinGroup, group_id, member_id=each, client_id=each.rsplit("-", 5)[0], **wanted)
                for each in known
            ]
            self._step()
        self.passes(3_000)
        answers = [self._joined[request_id] for request_id in request_ids if request_id in self._joined]
        new = [a.member_id for a in answers if a.member_id not in known]
        known.extend(new)
        self.generations[group_id] = max(a.generation_id for a in answers)
        return new

    def joins_alone(self, group_ids: list[str]) -> None:
        """Send one join to each of many groups, all in one batch."""
        for group_id in group_ids:
            self.world.join(group_id, client_id="ana")
        self.passes(3_000)

    def shares(self, group_id: str, places: list[PartitionKey]) -> None:
        """Send the members' syncs with the leader's assignments: consecutive partitions for each member in turn."""
        generation, members = self.generations[group_id], self.members[group_id]
        plan: dict[str, dict[str, list[int]]] = {member: {} for member in members}
        for index, (topic, partition) in enumerate(places):
            plan[members[index * len(members) // len(places)]].setdefault(topic, []).append(partition)
        assignments = tuple(Assignment(who, write_assignment(each)) for who, each in plan.items())
        for member in members:
            self.world.ask(SyncGroup, group_id, generation_id=generation, member_id=member, assignments=assignments)
        self.passes(60)

    def leaves(self, group_id: str, member_id: str, reason: str | None = None) -> None:
        self.members[group_id].remove(member_id)
        self.world.ask(LeaveGroup, group_id, members=(Leaving(member_id, None, reason),))
        self.passes(10)

    def deletes(self, group_id: str) -> None:
        self.world.ask(DeleteGroup, group_id)
        self.passes(10)

    def beats(self, group_id: str, *but: str) -> None:
        """Send a heartbeat of every member except these."""
        for member in self.members[group_id]:
            if member not in but:
                self.world.ask(Heartbeat, group_id, generation_id=self.generations[group_id], member_id=member)
        self.passes(10)

    def commits(
        self, group_id: str, member_id: str, offsets: dict[PartitionKey, int], generation: int | None = None
    ) -> None:
        self.world.ask(
            OffsetCommit,
            group_id,
            member_id=member_id,
            generation_id=self.generations[group_id] if generation is None else generation,
            offsets=tuple(OffsetToCommit(topic, partition, offset) for (topic, partition), offset in offsets.items()),
        )
        self.passes(10)

    def _step(self) -> list[Output]:
        outputs = self.world.batch()
        for output in outputs:
            if isinstance(output, Reply) and isinstance(output.answer, JoinGroupAnswer) and output.answer.code == 0:
                self._joined[str(output.answer.request_id)] = output.answer
        self._show()
        return outputs

    def _show(self) -> None:
        for topic in ("groups", "events"):
            records = self.world.topics[topic][self._shown[topic] :]
            self._shown[topic] += len(records)
            for r in records:
                self.live.handle(r.raw)
