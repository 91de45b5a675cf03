"""The time that a leader needs to compute assignments.

One group has 1,000 members and 10,000 partitions. A smaller group is also timed with the sticky assignor of
kafka-python, for comparison.

Each group has three assignments: the first one, one after a member has left and one after another member has joined.
In the second and the third case, the members own the partitions of the first assignment. Only the computation is timed,
not the conversion from and to bytes.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from time import perf_counter
from typing import Any, NamedTuple

from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from coordinator.assignors import ASSIGNORS, Cluster, Plan, Subscriber
from coordinator.base.consumer_protocol import Subscription
from tests.benchmarks import bench
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures

MEMBERS, TOPICS, PARTITIONS = 1_000, 100, 100
SMALL_MEMBERS, SMALL_TOPICS, SMALL_PARTITIONS = 100, 15, 100
ROUNDS = 3
GENERATION = 1

CASES = ("fresh", "left", "joined")
KINDS: dict[str, Callable[[int, Sequence[str]], Sequence[str]]] = {
    "alike": lambda number, topics: topics,
    "differing": lambda number, topics: Random(number).sample(topics, len(topics) // 2),
}

TopicsOf = Mapping[str, Sequence[str]]
Solve = Callable[[TopicsOf, Plan], tuple[Plan, float]]


def measure(options: argparse.Namespace) -> Figures:
    """Time each computation three times, and keep its best time."""
    say(f"Assigning {TOPICS * PARTITIONS} partitions to {MEMBERS} members, without Spark and Kafka.")
    cluster = Cluster({f"topic-{i:03}": PARTITIONS for i in range(TOPICS)})
    figures: dict[str, float] = {}
    for name in "sticky", "cooperative-sticky":
        for kind in KINDS:
            seconds = _three_assignments(MEMBERS, cluster, kind, _ours(name, cluster))
            prefix = f"assignors_{name.replace('-', '_')}_{kind}"
            figures |= {f"{prefix}_{case}_s": best for case, best in zip(CASES, seconds, strict=True)}
    small = Cluster({f"topic-{i:03}": SMALL_PARTITIONS for i in range(SMALL_TOPICS)})
    for kind in KINDS:
        ours = _three_assignments(SMALL_MEMBERS, small, kind, _ours("sticky", small))
        theirs = _three_assignments(SMALL_MEMBERS, small, kind, _kafka_pythons(small))
        for case, mine, other in zip(CASES, ours, theirs, strict=True):
            figures[f"assignors_ratio_{kind}_{case}"] = mine / other
    return figures


def _three_assignments(count: int, cluster: Cluster, kind: str, solve: Solve) -> list[float]:
    """Return the time of each of the three assignments, in seconds."""
    topics = sorted(cluster.partitions)
    members = {f"member-{i:04}": KINDS[kind](i, topics) for i in range(count + 1)}
    *others, newcomer = members
    first, _ = solve({m: members[m] for m in others}, {})
    groups: list[tuple[Iterable[str], Plan]] = [(others, {}), (others[1:], first), ([*others, newcomer], first)]
    return [min(solve({m: members[m] for m in each}, had)[1] for _ in range(ROUNDS)) for each, had in groups]


def _ours(name: str, cluster: Cluster) -> Solve:
    assignor = ASSIGNORS[name]()

    def solve(topics_of: TopicsOf, had: Plan) -> tuple[Plan, float]:
        subscribers = [
            Subscriber(m, None, _subscription(assignor.user_data, topics, had.get(m, {})))
            for m, topics in topics_of.items()
        ]
        started = perf_counter()
        assignment = assignor.assign(cluster, subscribers)
        return assignment, perf_counter() - started

    return solve


def _subscription(user_data: Callable[..., bytes | None], topics: Sequence[str], owned: Any) -> Subscription:
    generation_id = GENERATION if owned else -1
    return Subscription(tuple(topics), user_data(owned, generation_id), owned, generation_id)


class _Member(NamedTuple):
    member_id: str
    metadata: Any


class _Cluster:
    """The part of kafka-python's cluster metadata that its assignor reads."""

    def __init__(self, cluster: Cluster) -> None:
        self._partitions = {topic: set(range(count)) for topic, count in cluster.partitions.items()}

    def topics(self) -> set[str]:
        return set(self._partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self._partitions.get(topic)


def _kafka_pythons(cluster: Cluster) -> Solve:
    theirs = _Cluster(cluster)

    def solve(topics_of: TopicsOf, had: Plan) -> tuple[Plan, float]:
        members = []
        for m, topics in topics_of.items():
            owned = StickyAssignorUserData(list(had[m].items()), GENERATION) if m in had else b""
            members.append(_Member(m, ConsumerProtocolSubscription(0, list(topics), owned)))
        assignor = StickyPartitionAssignor()
        started = perf_counter()
        parts = assignor.assign(theirs, members)
        seconds = perf_counter() - started
        return {
            m: {t: sorted(numbers) for t, numbers in part.assigned_partitions} for m, part in parts.items()
        }, seconds

    return solve


if __name__ == "__main__":
    bench.main(measure)
