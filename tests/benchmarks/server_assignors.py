"""The time that the coordinator needs to make a plan of the consumer protocol.

One group has 1,000 members and 50,000 partitions of 100 topics. Each assignor makes three plans: the first one, one
after a member has left and one after another member has joined. In the second and the third case, the members have the
targets of the first plan. With different subscriptions, each member subscribes to half of the topics.
"""

import argparse
from base64 import urlsafe_b64encode
from random import Random
from time import perf_counter

from coordinator.assignors.server import SERVER_ASSIGNORS, GroupSpec, MemberSpec, Targets
from tests.benchmarks import bench
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures

MEMBERS, TOPICS, PARTITIONS = 1_000, 100, 500
ROUNDS = 3

CASES = ("fresh", "left", "joined")
KINDS = ("alike", "differing")


def measure(options: argparse.Namespace) -> Figures:
    """Time each plan three times, and keep its best time."""
    say(f"Planning {TOPICS * PARTITIONS} partitions for {MEMBERS} members, without Spark and Kafka.")
    figures: dict[str, float] = {}
    for name in SERVER_ASSIGNORS:
        for kind in KINDS:
            for case, seconds in zip(CASES, _three_plans(name, kind), strict=True):
                figures[f"plan_{name}_{kind}_{case}_s"] = seconds
    return figures


def _three_plans(name: str, kind: str) -> list[float]:
    """Return the time of each of the three plans, in seconds."""
    drawn = Random(1)
    names = {_id(drawn): f"topic-{number:03}" for number in range(TOPICS)}
    members = {
        _id(drawn): frozenset(names if kind == "alike" else drawn.sample(sorted(names), TOPICS // 2))
        for _ in range(MEMBERS + 1)
    }
    *others, newcomer = members
    first, _ = _plan(name, names, {m: members[m] for m in others}, {})
    return [
        min(_plan(name, names, {m: members[m] for m in group}, before)[1] for _ in range(ROUNDS))
        for group, before in ((others, {}), (others[1:], first), ([*others, newcomer], first))
    ]


def _plan(
    name: str, names: dict[str, str], members: dict[str, frozenset[str]], before: Targets
) -> tuple[Targets, float]:
    spec = GroupSpec(
        [MemberSpec(member_id, None, topics, before.get(member_id, {})) for member_id, topics in members.items()],
        dict.fromkeys(names, PARTITIONS),
        names,
        len(set(members.values())) == 1,
        len(names),
    )
    started = perf_counter()
    targets = SERVER_ASSIGNORS[name](spec)
    return targets, perf_counter() - started


def _id(drawn: Random) -> str:
    return urlsafe_b64encode(drawn.randbytes(16)).rstrip(b"=").decode()


if __name__ == "__main__":
    bench.main(measure)
