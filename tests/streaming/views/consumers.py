"""A group of the consumer protocol that a real shard writes: its members join, give up partitions and expire.

`life` plays one life whose records the tests of the views, the tools, the metrics, the tables and `verify` read.
"""

import random
from typing import Any, NamedTuple

from coordinator.base.consumer_protocol import Subscription, assigned_partitions, write_subscription
from coordinator.messages.consumer_requests import (
    ConsumerGroupHeartbeat,
    GroupTopics,
    OwnedPartitions,
    ResolvedPattern,
    TopicFact,
)
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    DeleteGroup,
    JoinGroup,
    OffsetCommit,
    OffsetToCommit,
    Protocol,
    RebalanceGroup,
    SyncGroup,
)
from coordinator.messages.responses import (
    AssignedTopic,
    ConsumerGroupHeartbeatAnswer,
    HeartbeatAnswer,
    JoinGroupAnswer,
    Reply,
    SyncGroupAnswer,
)
from streaming.views import Views
from tests.coordinator.consumer.conversation import topic_id
from tests.streaming.views.written import WrittenTopics

ROUNDS_MAX = 20
REBALANCE_TIMEOUT_MS = 30_000


class Member(NamedTuple):
    """A member as its last answer left it: its epoch or generation, and its partitions."""

    epoch: int
    owned: dict[str, tuple[int, ...]]


class ConsumerTopics(WrittenTopics):
    """A coordinator's topics, and the clients of one group of the consumer protocol.

    Attributes:
        records: Each record of the group, in the order in which it was published.
    """

    def __init__(self, group_id: str = "g", chance: random.Random | None = None, **counts: int) -> None:
        super().__init__([group_id])
        self.chance = chance
        self.group_id, self.counts = group_id, counts
        self.members: dict[str, Member] = {}
        self.classic: dict[str, Member] = {}
        self.records: list[GroupRecord] = []

    def join(self, name: str, *topics: str, **fields: Any) -> None:  # type: ignore[override]
        """Send a member's first heartbeat: it subscribes to topics, or to `regex` with the topics `matching` it."""
        wanted: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, "topic_partitions": ()}
        wanted["subscribed_topic_names"] = topics or None
        if (regex := fields.pop("regex", None)) is not None:
            wanted |= {"subscribed_topic_regex": regex, "regex_topics": fields.pop("matching")}
        named = (*topics, *(wanted.get("regex_topics") or ()))
        wanted["topics"] = tuple(TopicFact(each, topic_id(each), self.counts[each]) for each in named)
        self.members[name] = Member(0, {})
        self._say(name, 0, **{**wanted, **fields})

    def beat(self, name: str, *, owns: bool = True, **fields: Any) -> None:
        """Send a heartbeat of a member, with the partitions that it owns unless it says nothing of them."""
        member = self.members[name]
        if owns:
            owned = tuple(OwnedPartitions(topic_id(topic), numbers) for topic, numbers in member.owned.items())
            fields = {"topic_partitions": owned, **fields}
        self._say(name, member.epoch, **fields)

    def leave(self, name: str, epoch: int = -1, **fields: Any) -> None:
        """Send a member's last heartbeat, or with epoch -2 that it goes away for a while."""
        self._say(name, epoch, **fields)
        if epoch == -1:
            self.members.pop(name, None)

    def tell_topics(self, **counts: int) -> None:
        """Send the group other partition counts; 0 for a topic that was deleted."""
        self.counts |= counts
        facts = tuple(TopicFact(each, topic_id(each) if n else None, n) for each, n in counts.items())
        self.ask(GroupTopics, self.group_id, topics=facts)
        self._answers()

    def resolve(self, name: str, regex: str, *matching: str) -> None:
        """Send the group the topics that a member's pattern matches."""
        facts = tuple(TopicFact(each, topic_id(each), self.counts[each]) for each in matching)
        self.ask(GroupTopics, self.group_id, regexes=(ResolvedPattern(regex, matching, name),), topics=facts)
        self._answers()

    def _say(self, name: str, epoch: int, **fields: Any) -> None:
        who = {"client_id": f"client-{name}", "client_host": f"/{name}"}
        self.ask(ConsumerGroupHeartbeat, self.group_id, member_id=name, member_epoch=epoch, **{**who, **fields})
        for answer in self._answers():
            if not isinstance(answer, ConsumerGroupHeartbeatAnswer) or name not in self.members:
                continue
            if answer.code:
                self.members.pop(name, None)
            else:
                before = self.members[name]
                owned = before.owned if answer.assignment is None else _owned(answer.assignment)
                self.members[name] = Member(answer.member_epoch, owned)

    def join_classic(self, name: str, topic: str) -> None:
        """Send a JoinGroup of a cooperative member of the classic protocol, and its SyncGroup."""
        owned = {topic: list(self.classic[name].owned.get(topic, ()))} if name in self.classic else {}
        metadata = write_subscription(Subscription((topic,), None, owned, -1, None), 1)
        self.ask(
            JoinGroup, self.group_id, member_id=name, session_timeout_ms=10_000, protocol_type="consumer",
            rebalance_timeout_ms=20_000, protocols=(Protocol("range", metadata),), require_known_member_id=False,
            client_id=f"client-{name}", client_host=f"/{name}",
            topics=(TopicFact(topic, topic_id(topic), self.counts[topic]),),
        )  # fmt: skip
        self.classic.pop(name, None)
        for joined in self._answers():
            if isinstance(joined, JoinGroupAnswer) and not joined.code:  # in a classic group it comes later
                self._sync(name, joined.generation_id)

    def _sync(self, name: str, generation_id: int) -> None:
        self.ask(SyncGroup, self.group_id, member_id=name, generation_id=generation_id)
        for synced in self._answers():
            if isinstance(synced, SyncGroupAnswer) and not synced.code:
                assigned = assigned_partitions(synced.assignment) or {}
                self.classic[name] = Member(generation_id, {t: tuple(numbers) for t, numbers in assigned.items()})

    def beat_classic(self, name: str) -> None:
        """Send a heartbeat of a member of the classic protocol. If it has to, the member joins again."""
        self.ask(Heartbeat, self.group_id, member_id=name, generation_id=self.classic[name].epoch)
        if any(isinstance(each, HeartbeatAnswer) and each.code for each in self._answers()):
            self.join_classic(name, "T")

    def commit(self, name: str, topic: str, partition: int, offset: int) -> None:
        """Commit an offset as a member."""
        told = (OffsetToCommit(topic, partition, offset),)
        who = {"member_id": name, "generation_id": self.members[name].epoch, "version": 9}
        self.ask(OffsetCommit, self.group_id, offsets=told, **who)
        self._answers()

    def passes(self, ms: int) -> None:
        """Move the time on, and run a batch."""
        self.now_ms += ms
        self._answers()

    def settle(self) -> None:
        """Send heartbeats of all members until the group is Stable, 100 ms apart."""
        for _ in range(ROUNDS_MAX):
            if self.records[-1].state.value == "Stable":
                return
            for name in list(self.members):
                self.now_ms += 100
                self.beat(name)
            for name in list(self.classic):
                self.now_ms += 100
                self.beat_classic(name)
        raise AssertionError(f"the group is {self.records[-1].state}")

    def _answers(self) -> list[Any]:
        outputs = self.batch(self.chance)
        self.records += [o.record for o in outputs if isinstance(o, Published) and isinstance(o.record, GroupRecord)]
        return [output.answer for output in outputs if isinstance(output, Reply)]


def _owned(assignment: tuple[AssignedTopic, ...]) -> dict[str, tuple[int, ...]]:
    return {each.topic: each.partitions for each in assignment}


STEPS = ["join"] * 3 + ["pattern", "classic", "beat", "leave", "away", "grow", "commit", "silence", "delete", "other"]


def converse_consumers(world: ConsumerTopics, chance: random.Random, steps: int) -> None:
    """Send random requests: members of both protocols come and go, topics grow, and the group is deleted."""
    for number in range(steps):
        _step(world, chance, number)
        for each in list(world.members):
            if chance.random() < 0.7:
                world.beat(each, owns=chance.random() < 0.9)
        for each in list(world.classic):
            world.beat_classic(each)
        world.passes(chance.choice([1, 100, 1_500]))


def _step(world: ConsumerTopics, chance: random.Random, number: int) -> None:
    name = chance.choice(list(world.members)) if world.members else ""
    match chance.choice(STEPS):
        case "join":
            instance = chance.choice([None, "desk"])
            world.join(f"m{number}", *chance.choice([("T",), ("U",), ("T", "U")]), group_instance_id=instance)
        case "pattern":
            world.join(f"m{number}", regex="^U.*", matching=("U",))
        case "classic":
            world.join_classic(f"c{number}", "T")
        case "leave" if name:
            world.leave(name)
        case "away" if name:
            world.leave(name, -2, group_instance_id="desk")
        case "grow":
            topic = chance.choice(["T", "U"])
            world.tell_topics(**{topic: min(world.counts[topic] + chance.randrange(3), 12)})
        case "commit" if name:
            world.commit(name, "T", chance.randrange(4), number)
        case "silence" if name:
            del world.members[name]
            world.passes(chance.choice([100, 50_000]))
        case "delete":
            for each in list(world.members):
                world.leave(each)
            world.passes(50_000)
            world.ask(DeleteGroup, world.group_id)
            world.passes(chance.choice([100, 1_000]))
        case "other":
            world.ask(RebalanceGroup, world.group_id, reason="a test")


GIVES_UP_AFTER_MS = 3_200
REVOKING_MS = 1_003_000
"""A time of `life` when ana has to give up partitions, and bo waits for them."""
JOINED_AND_FREE_MS = 1_005_200
"""A time when ana has given them up, and bo has not got them yet."""

ENDED_MS = 1_070_000


def life_at(at_ms: int) -> Views:
    """Return the views of the records of `life` up to a time."""
    views = Views(is_live=True)
    world = life()
    records = sorted([*world.topics["groups"], *world.topics["events"]], key=lambda record: record.timestamp)
    for each in records:
        if each.timestamp <= at_ms:
            views.fold(each.raw, 0)
    return views


def life() -> ConsumerTopics:
    """Return the topics after a life with two members, a revocation, a pattern, a classic member and an expiry.

    ana reads T alone, bo joins and waits for two partitions of T until ana gives them up. cy subscribes by a pattern
    to U. dan joins by the classic protocol. Then bo is silent until its session ends.
    """
    world = ConsumerTopics(T=4, U=2)
    world.join("ana", "T")
    world.commit("ana", "T", 0, 42)
    world.now_ms += 2_000
    world.join("bo", "T")
    world.beat("ana", owns=False)
    world.now_ms += GIVES_UP_AFTER_MS
    world.beat("ana")
    world.now_ms += 100
    world.beat("bo")
    world.now_ms += 5_000
    world.join("cy", regex="^U.*", matching=("U",), rack_id="rack-1")
    world.settle()
    world.now_ms += 5_000
    world.join_classic("dan", "T")
    world.settle()
    for _ in range(6):
        world.now_ms += 8_000
        for name in ("ana", "cy"):
            world.beat(name)
        world.beat_classic("dan")
    del world.members["bo"]
    world.passes(2_000)
    world.settle()
    return world
