"""`cooperative-sticky`: the assignments of `sticky` in two rounds (protocol.md 7.5), and its user data (7.6)."""

from collections import Counter

import pytest
from hypothesis import given

from coordinator.assignors import Cluster, CooperativeSticky, Plan, RebalanceProtocol, Sticky, Subscriber
from coordinator.base.consumer_protocol import Subscription
from tests.coordinator.assignors.groups import (
    GENERATION,
    Drawn,
    check_evenness,
    check_every_partition_has_one_owner,
    check_order_is_free,
    draw,
    flat,
    groups,
    plan,
    subscriber,
    subscribers,
)

NAME = "cooperative-sticky"

EXAMPLES = {
    "fresh": ({"t": 3}, "C1 t; C2 t", "", "C1 t-0 t-2; C2 t-1", "C1 t-0 t-2; C2 t-1"),
    "one joins": ({"t": 3}, "C1 t; C2 t", "C1 t-0 t-1 t-2", "C1 t-0 t-1; C2", "C1 t-0 t-1; C2 t-2"),
    "a third one joins": (
        {"t": 6}, "C1 t; C2 t; C3 t", "C1 t-0 t-2 t-4; C2 t-1 t-3 t-5",
        "C1 t-0 t-2; C2 t-1 t-3; C3", "C1 t-0 t-2; C2 t-1 t-3; C3 t-4 t-5",
    ),
    "different subscriptions": (
        {"a": 2, "b": 2}, "C1 a b; C2 b", "C1 a-0 a-1 b-0 b-1",
        "C1 a-0 a-1; C2", "C1 a-0 a-1; C2 b-0 b-1",
    ),
    "one leaves, and nobody has to wait": (
        {"t": 3}, "C1 t; C2 t", "C1 t-0; C2 t-1",
        "C1 t-0 t-2; C2 t-1", "C1 t-0 t-2; C2 t-1",
    ),
    "a topic not subscribed to any more": (
        {"t": 2, "u": 1}, "C1 t; C2 t u", "C1 u-0 t-0; C2 t-1",
        "C1 t-0; C2 t-1", "C1 t-0; C2 t-1 u-0",
    ),
}  # fmt: skip


def join_with(topics: dict[str, tuple[str, ...]], owned: Plan, generation_id: int) -> list[Subscriber]:
    return [subscriber(m, each, owned[m], generation_id) for m, each in topics.items()]


@pytest.mark.parametrize(("partitions", "topics", "owned", "first", "second"), EXAMPLES.values(), ids=EXAMPLES)
def test_examples(partitions: dict[str, int], topics: str, owned: str, first: str, second: str):
    """S133: the assignments of both rounds are those of the examples."""
    group = subscribers(NAME, topics, owned)
    round_1 = CooperativeSticky().assign(Cluster(partitions), group)
    assert round_1 == plan(first)
    again = join_with({s.member_id: s.subscription.topics for s in group}, round_1, GENERATION + 1)
    assert CooperativeSticky().assign(Cluster(partitions), again) == plan(second)


@pytest.mark.parametrize("topics", [["t"], ["t", "u"]], ids=["alike", "different"])
def test_a_partition_with_two_claims_is_assigned_in_the_second_round(topics: list[str]):
    """S133: either member may be reading it. If subscriptions differ, Kafka leaves it with one of them."""
    group = [subscriber("C1", ["t"], {"t": [0, 1]}, 4), subscriber("C2", topics, {"t": [1, 2]}, 4)]
    assert CooperativeSticky().assign(Cluster({"t": 4}), group) == plan("C1 t-0; C2 t-2 t-3")


def test_a_claim_of_an_older_generation_delays_nothing():
    """S133, KIP-792: the owner of the higher generation continues to read; the other member revokes the partition."""
    group = [subscriber("C1", "t", {"t": [0, 1]}, 3), subscriber("C2", "t", {"t": [0, 1]}, 4)]
    assert CooperativeSticky().assign(Cluster({"t": 4}), group) == plan("C1 t-2 t-3; C2 t-0 t-1")


# -- the generation ----------------------------------------------------------------------------------------------------


def test_user_data():
    """S133, protocol.md 7.6: this includes a member without an assignment so far."""
    assert CooperativeSticky().user_data({"t": [0]}, 5) == bytes.fromhex("00000005")
    assert CooperativeSticky().user_data({}, -1) == bytes.fromhex("ffffffff")


@pytest.mark.parametrize(
    ("field", "user_data", "generation_id"),
    [(5, b"\x00\x00\x00\x04", 5), (-1, b"\x00\x00\x00\x04", 4), (-1, None, -1), (-1, b"", -1), (-1, b"\x00\x04", -1)],
)
def test_the_generation_is_in_its_field_or_else_in_the_user_data(
    field: int, user_data: bytes | None, generation_id: int
):
    """Protocol.md 7.3: version 1 of subscriptions has no such field."""
    subscription = Subscription(("t",), user_data, {"t": [0]}, field)
    assert CooperativeSticky().claim(subscription).generation_id == generation_id


def test_it_supports_both_protocols():
    """S134: so it may be offered beside `range`, as long as that is offered."""
    assert set(CooperativeSticky.supported_protocols) == set(RebalanceProtocol)
    assert Sticky.supported_protocols == (RebalanceProtocol.EAGER,)


# -- random groups -----------------------------------------------------------------------------------------------------


@given(groups(NAME))
def test_any_group(drawn: Drawn):
    """S133: an assigned partition is the member's own or unclaimed; the others are assigned in the next round."""
    plan = CooperativeSticky().assign(drawn.cluster, drawn.subscribers)
    claims = Counter(partition for claimed in drawn.claims.values() for partition in claimed)
    shares = flat(plan)
    assert all(p in drawn.claims[m] or not claims[p] for m, share in shares.items() for p in share)
    given_away = {p for share in shares.values() for p in share}
    check_every_partition_has_one_owner(drawn, plan, withheld=claims.keys() - given_away)
    check_order_is_free(drawn, NAME, plan)

    again = join_with({s.member_id: s.subscription.topics for s in drawn.subscribers}, plan, GENERATION)
    next_plan = CooperativeSticky().assign(drawn.cluster, again)
    check_every_partition_has_one_owner(drawn, next_plan)
    check_evenness(drawn, next_plan)


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
@pytest.mark.parametrize("seed", range(50))
def test_two_rounds_give_the_assignments_of_sticky(seed: int, alike: bool):
    """S133: no further partition moves. If subscriptions differ, only the sizes are those of sticky."""
    drawn, eager = draw(seed, NAME, alike=alike), draw(seed, "sticky", alike=alike)
    round_1 = CooperativeSticky().assign(drawn.cluster, drawn.subscribers)
    at_once = Sticky().assign(eager.cluster, eager.subscribers)
    assert all(share <= flat(at_once)[m] for m, share in flat(round_1).items())
    again = join_with({s.member_id: s.subscription.topics for s in drawn.subscribers}, round_1, GENERATION + 1)
    round_2 = CooperativeSticky().assign(drawn.cluster, again)
    assert all(share <= flat(round_2)[m] for m, share in flat(round_1).items())
    assert sorted(map(len, flat(round_2).values())) == sorted(map(len, flat(at_once).values()))
