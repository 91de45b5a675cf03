"""Kafka's own server assignors, in a JVM that has only Kafka's jars; this project's are compared with them.

All groups of a run have topics of one pool, because the metadata of a topic are made partition by partition.
"""

import random
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from py4j.java_gateway import JavaGateway

from coordinator.assignors.server import GroupSpec, MemberSpec, Target, Targets
from coordinator.assignors.server.order import BUCKETS_MIN, bucket, id_hash
from coordinator.base.hashing import java_hash

T = TypeVar("T")

CLASSES = {"uniform": "UniformAssignor", "range": "RangeAssignor"}

POOL_SEED = 848
POOL = 60
PARTITIONS_MAX = 24
MEMBERS_MAX = 14
IDS_DRAWN = 100  # enough for MEMBERS_MAX different buckets


def pool() -> dict[str, tuple[str, int]]:
    """Return the topics of all groups: id and number of partitions, by name."""
    drawn = random.Random(POOL_SEED)
    return {
        f"topic-{number}": (
            urlsafe_b64encode(drawn.randbytes(16)).rstrip(b"=").decode(),
            drawn.randint(1, PARTITIONS_MAX),
        )
        for number in range(POOL)
    }


class JavaServerAssignors:
    """Kafka's classes, with this project's types as arguments and results."""

    def __init__(self, gateway: JavaGateway) -> None:
        jvm = gateway.jvm
        self._util, self._common = jvm.java.util, jvm.org.apache.kafka.common
        self._group = jvm.org.apache.kafka.coordinator.group
        self._uuids = {topic_id: self._common.Uuid.fromString(topic_id) for topic_id, _ in pool().values()}
        image = jvm.org.apache.kafka.image
        metadata = jvm.org.apache.kafka.common.metadata
        delta = image.MetadataDelta.Builder().build()
        for name, (topic_id, count) in pool().items():
            uuid = self._uuids[topic_id]
            delta.replay(metadata.TopicRecord().setName(name).setTopicId(uuid))
            for number in range(count):
                delta.replay(metadata.PartitionRecord().setTopicId(uuid).setPartitionId(number).setLeader(0))
        whole = jvm.org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage(
            delta.apply(image.MetadataProvenance.EMPTY)
        )
        self._image = whole
        self._topics = self._group.modern.SubscribedTopicDescriberImpl(whole)
        self._empty = self._util.Optional.empty()

    def targets(self, name: str, spec: GroupSpec, unknown: int = 0) -> Targets:
        """Return the targets that Kafka's assignor of that name computes.

        Args:
            unknown: How many topics each member subscribes to that do not exist.
        """
        members, held = self._util.HashMap(), self._util.HashMap()
        subscriptions: dict[frozenset[str], Any] = {}
        for member in spec.members:
            topics = subscriptions.get(member.topic_ids)
            if topics is None:
                topics = subscriptions[member.topic_ids] = self._topic_ids(spec, member, unknown)
            for topic_id, numbers in member.target.items():
                by_number = held.get(self._uuids[topic_id])
                if by_number is None:
                    by_number = self._util.HashMap()
                    held.put(self._uuids[topic_id], by_number)
                for number in numbers:
                    by_number.put(number, member.member_id)
            members.put(
                member.member_id,
                self._group.modern.MemberSubscriptionAndAssignmentImpl(
                    self._empty,
                    self._util.Optional.ofNullable(member.group_instance_id),
                    topics,
                    self._group.modern.Assignment(self._partitions(member.target)),
                ),
            )
        kind = self._group.api.assignor.SubscriptionType.valueOf(
            "HOMOGENEOUS" if spec.is_homogeneous else "HETEROGENEOUS"
        )
        assignor = getattr(self._group.assignor, CLASSES[name])()
        plan = assignor.assign(self._group.modern.GroupSpecImpl(members, kind, held), self._topics).members()
        return {m.member_id: self._target(plan.get(m.member_id)) for m in spec.members}

    def _topic_ids(self, spec: GroupSpec, member: MemberSpec, unknown: int) -> Any:
        names = self._util.HashSet([spec.names[topic_id] for topic_id in member.topic_ids])
        for number in range(unknown):
            names.add(f"unknown-{number}")
        return self._group.modern.TopicIds(names, self._image)

    def _partitions(self, target: Mapping[str, Any]) -> Any:
        partitions = self._util.HashMap()
        for topic_id, numbers in target.items():
            partitions.put(self._uuids[topic_id], self._util.HashSet(self._util.ArrayList(list(numbers))))
        return partitions

    def _target(self, assignment: Any) -> Target:
        if assignment is None:
            return {}
        found = {str(each.getKey()): sorted(each.getValue()) for each in assignment.partitions().entrySet()}
        return {topic_id: numbers for topic_id, numbers in found.items() if numbers}


def draw(seed: int, *, may_tie: bool) -> tuple[GroupSpec, int]:
    """Draw a group in the middle of its life: members came and left, topics grew and subscriptions changed.

    Args:
        may_tie: Whether a hash table of Kafka may have two members, or two topics, in one bucket.

    Returns:
        The group, and how many topics that do not exist each member subscribes to.
    """
    drawn = random.Random(seed)
    topics, ids = _topics_and_ids(drawn, may_tie)
    counts = dict(topics.values())
    is_homogeneous = drawn.random() < 0.6
    leavers = [_member_id(drawn) for _ in range(drawn.randint(0, 3))]
    before: Targets = {member_id: {} for member_id in (*ids, *leavers)}
    for topic_id, count in counts.items():
        is_new = drawn.random() < 0.2
        for number in range(count):
            holder = drawn.choice([*ids, *leavers, None])
            if holder is not None and not is_new:
                before[holder].setdefault(topic_id, []).append(number)
    chosen = frozenset(counts)
    members = [
        MemberSpec(
            member_id,
            f"instance-{drawn.randint(0, 10**6)}" if drawn.random() < 0.2 else None,
            chosen if is_homogeneous else frozenset(t for t in counts if drawn.random() < 0.6),
            before[member_id],
        )
        for member_id in ids
    ]
    names = {topic_id: name for name, (topic_id, _) in topics.items()}
    is_alike = len({member.topic_ids for member in members}) == 1
    unknown = drawn.randint(0, 2) if is_alike else 0
    return GroupSpec(members, counts, names, is_alike, len(members[0].topic_ids) + unknown), unknown


def _topics_and_ids(drawn: random.Random, may_tie: bool) -> tuple[dict[str, tuple[str, int]], list[str]]:
    """Draw a group's topics, as in `pool`, and its member ids."""
    topics = drawn.sample(sorted(pool().items()), drawn.randint(1, 8))
    ids = [_member_id(drawn) for _ in range(IDS_DRAWN)]
    if not may_tie:
        topics = _one_per_bucket(topics, lambda topic: id_hash(topic[1][0]))
        ids = _one_per_bucket(ids, java_hash)
    return dict(topics), ids[: drawn.randint(1, MEMBERS_MAX)]


def _one_per_bucket(drawn: Iterable[T], hashed: Callable[[T], int]) -> list[T]:
    """Return one drawn thing for each bucket of the smallest hash table, so that larger tables separate them too."""
    return list({bucket(hashed(each), BUCKETS_MIN): each for each in drawn}.values())


def _member_id(drawn: random.Random) -> str:
    return urlsafe_b64encode(drawn.randbytes(16)).rstrip(b"=").decode()
