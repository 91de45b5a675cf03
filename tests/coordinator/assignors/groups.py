"""Groups for tests of assignors, written by hand or drawn from a seed; measures and checks of assignments."""

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from hypothesis import strategies as st

from coordinator.assignors import ASSIGNORS, Cluster, Plan, Subscriber
from coordinator.assignors.assignor import TopicPartition, by_topic
from coordinator.base.consumer_protocol import Subscription

GENERATION = 5

# -- written by hand ---------------------------------------------------------------------------------------------------


def plan(text: str) -> Plan:
    """Parse assignments such as "C0 t0-0 t0-1; C1"."""
    return {member: by_topic(map(_partition, parts)) for member, *parts in (each.split() for each in text.split(";"))}


def _partition(word: str) -> TopicPartition:
    topic, _, number = word.rpartition("-")
    return topic, int(number)


def subscriber(
    member_id: str,
    topics: Iterable[str],
    owned: Mapping[str, Sequence[int]] | None = None,
    generation_id: int = -1,
    *,
    assignor: str = "cooperative-sticky",
    instance: str | None = None,
    rack: str | None = None,
) -> Subscriber:
    """Return a member as it joins, with its owned partitions in the form that its assignor needs."""
    user_data = ASSIGNORS[assignor]().user_data(owned or {}, generation_id)
    told = {} if assignor == "sticky" else owned or {}
    return Subscriber(member_id, instance, Subscription(tuple(topics), user_data, told, generation_id, rack))


def subscribers(assignor: str, topics: str, owned: str = "") -> list[Subscriber]:
    """Return members with their topics, "C0 t0 t1; C1 t0", that own the partitions of `owned` in one generation."""
    before = plan(owned) if owned else {}
    return [
        subscriber(member, each, before.get(member), GENERATION if member in before else -1, assignor=assignor)
        for member, *each in (each.split() for each in topics.split(";"))
    ]


# -- drawn from a seed -------------------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """A group as it joins, and the claims of each member."""

    cluster: Cluster
    subscribers: list[Subscriber]
    claims: dict[str, set[TopicPartition]]


def draw(
    seed: int,
    assignor: str,
    *,
    alike: bool,
    racks: bool = False,
    stale: bool = False,
    most: int = 7,
    grows: bool = True,
) -> Drawn:
    """Draw a group after a first assignment; since then members left and joined, topics grew and subscriptions changed.

    Args:
        alike: All members subscribe to the same topics.
        racks: Replicas and most members have racks.
        stale: Some members claim partitions of an older generation, or partitions of another member.
        most: The largest number of topics.
        grows: A topic may have got more partitions, or may be gone.
    """
    rng = random.Random(seed)
    topics = [f"t{i}" for i in range(rng.randint(1, most))]
    before = {topic: rng.randint(1, 9) for topic in topics}
    now = {topic: count + rng.choice((0, 0, 0, 1, 3)) * grows for topic, count in before.items()}
    if grows and rng.random() < 0.2:
        del now[rng.choice(topics)]
    everybody = [f"m{i}" for i in range(rng.randint(1, most + 2))]
    shared = rng.sample(topics, rng.randint(1, len(topics)))

    def some_topics() -> list[str]:
        return shared if alike else rng.sample(topics, rng.randint(1, len(topics)))

    topics_of = {m: some_topics() for m in everybody}
    old = [subscriber(m, topics_of[m], assignor=assignor) for m in everybody if rng.random() < 0.8]
    had = ASSIGNORS[assignor]().assign(Cluster(before), old) if rng.random() < 0.8 else {}
    drawn = Drawn(Cluster(now, _racks(rng, now) if racks else {}), [], {})
    for m in rng.sample(everybody, len(everybody)):
        if m in had and drawn.subscribers and rng.random() < 0.25:
            continue  # it left
        owned, generation_id = had.get(m, {}), GENERATION if m in had else -1
        if stale and rng.random() < 0.4:
            topic = rng.choice(topics)
            owned = {**owned, topic: sorted({*owned.get(topic, ()), rng.randrange(before[topic])})}
            generation_id = rng.randint(GENERATION - 2, GENERATION)
        drawn.claims[m] = {(topic, n) for topic, numbers in owned.items() for n in numbers}
        drawn.subscribers.append(
            subscriber(
                m,
                some_topics() if rng.random() < 0.3 else topics_of[m],
                owned,
                generation_id,
                assignor=assignor,
                instance=f"i{rng.randrange(100):02}-{m}" if rng.random() < 0.3 else None,
                rack=rng.choice(("a", "b", "c", None)) if racks else None,
            )
        )
    return drawn


def _racks(rng: random.Random, counts: Mapping[str, int]) -> dict[str, list[frozenset[str]]]:
    replicas = rng.randint(1, 3)
    return {topic: [frozenset(rng.sample("abc", replicas)) for _ in range(n)] for topic, n in counts.items()}


_topic = st.sampled_from(["t0", "t1", "t2", "gone"])
_claimed = st.dictionaries(_topic, st.lists(st.integers(0, 6), max_size=6), max_size=3)
_member = st.tuples(
    st.sets(_topic, max_size=4),
    _claimed,
    st.integers(-1, 3),
    st.none() | st.text("ab", min_size=1),
    st.sampled_from("ab"),
)


@st.composite
def groups(draw: st.DrawFn, assignor: str) -> Drawn:
    """Draw any group: members may claim any partitions, from any generation, their own or not."""
    counts = {topic: draw(st.integers(0, 5)) for topic in ("t0", "t1", "t2")}
    racks = {topic: [frozenset(draw(st.sets(st.sampled_from("abc")))) for _ in range(n)] for topic, n in counts.items()}
    drawn = Drawn(Cluster(counts, racks), [], {})
    for i, (topics, owned, generation_id, instance, rack) in enumerate(draw(st.lists(_member, min_size=1, max_size=6))):
        instance = instance and f"{instance}-{i}"
        drawn.subscribers.append(
            subscriber(f"m{i}", topics, owned, generation_id, assignor=assignor, instance=instance, rack=rack)
        )
        drawn.claims[f"m{i}"] = {(topic, n) for topic, numbers in owned.items() for n in numbers}
    return drawn


# -- measures and checks of assignments --------------------------------------------------------------------------------


def flat(plan: Plan) -> dict[str, set[TopicPartition]]:
    return {m: {(topic, n) for topic, numbers in share.items() for n in numbers} for m, share in plan.items()}


def imbalance(plan: Plan) -> int:
    """Return the sum of the differences in size of all pairs of members."""
    sizes = sorted(map(len, flat(plan).values()))
    return sum(b - a for a, b in combinations(sizes, 2))


def kept(plan: Plan, claims: Mapping[str, Collection[TopicPartition]]) -> int:
    """Return the number of partitions that stay with a member that claims them."""
    return sum(len(share & set(claims.get(m, ()))) for m, share in flat(plan).items())


def check_every_partition_has_one_owner(drawn: Drawn, plan: Plan, withheld: Collection[TopicPartition] = ()) -> None:
    """Check that every subscribed partition has one owner, a subscriber, and that no other partition is assigned."""
    topics_of = {s.member_id: set(s.subscription.topics) for s in drawn.subscribers}
    wanted = set().union(*topics_of.values())
    there = {(t, n) for t, count in drawn.cluster.partitions.items() if t in wanted for n in range(count)}
    given = Counter(partition for share in flat(plan).values() for partition in share)
    assert plan.keys() == topics_of.keys(), "every member has an assignment, which may be empty"
    assert given == Counter(there - set(withheld))
    assert all(topic in topics_of[m] for m, share in plan.items() for topic in share)
    assert all(numbers == sorted(set(numbers)) != [] for share in plan.values() for numbers in share.values())


def check_evenness(drawn: Drawn, plan: Plan) -> None:
    """Check that no member could take a partition from a member with at least two more (protocol.md 7.5)."""
    topics_of = {s.member_id: set(s.subscription.topics) for s in drawn.subscribers}
    sizes = {m: len(share) for m, share in flat(plan).items()}
    for holder, share in plan.items():
        for topic in share:
            fewest = min(sizes[m] for m, topics in topics_of.items() if topic in topics)
            assert sizes[holder] <= fewest + 1, (
                f"{holder} has {sizes[holder]}, and {topic} could go to a member with {fewest}"
            )


def check_order_is_free(drawn: Drawn, assignor: str, plan: Plan) -> None:
    """Check that the order of the members does not change the assignments."""
    assert ASSIGNORS[assignor]().assign(drawn.cluster, drawn.subscribers[::-1]) == plan
