"""AloneIsUnchanged: without peers, outputs and state have the bytes of a coordinator without moves (moving.md 6).

A change of the protocol or of the codec changes the digests; a move must not. Slots do not change the bytes of groups
that move singly.
"""

from hashlib import blake2b
from typing import Any

import msgspec

from coordinator.base.policies import Settle
from coordinator.messages.outputs import Output, ToPeer
from coordinator.messages.responses import Reply
from tests.coordinator.consumer.conversation import Conversation
from tests.coordinator.moving.pair import Pair
from tests.coordinator.scenario import Scenario

CLASSIC = "613612cae010ef94756275bce19dc578"
CONSUMER = "f65a44f0a10c135fcba93cbf7e9b250a"
MOVED = "97577ac5e2764d8fb4b6913b9af3c0ae"


def digest(outputs: list[Output], state: bytes) -> str:
    """Return a digest of records and state."""
    values = [(o.to, o.answer) if isinstance(o, Reply) else o.record if isinstance(o, ToPeer) else o for o in outputs]
    return blake2b(b"\n".join([*map(msgspec.json.encode, values), state]), digest_size=16).hexdigest()


def classic(**config: Any) -> str:
    """Play a conversation with a classic group, and return the digest of everything that came out."""
    s = Scenario.stable("a", "b", **config).commit("a", {("t", 0): 5}, metadata="ü").heartbeat("b")
    s.policy(settle=Settle(join_quiet_ms=1_000)).at(2_000).join("c", require_known_member_id=True).join("c")
    s.until(9_000).join("a").join("b").join("c").sync("a", plan={"a": {"t": [0]}}).sync("b").sync("c")
    s.join("d", group_instance_id="i1", group_id="h").commit_from_outside("x", {("t", 1): 7}, group_id="k")
    s.fetch("a", {"t": [0, 1]}).describe().list_groups().heartbeat("nobody").heartbeat("a", group_id="missing")
    s.leave("a").expel("b").until(400_000).delete(group_id="k").delete()
    return digest(s.outputs, s.shard.to_bytes())


def consumer() -> str:
    """Play a conversation with a group of the consumer protocol, and return the digest of everything that came out."""
    c = Conversation().plays("""
        T:4
        A 0               -> 2 {0 1 2 3}
        -- 1000
        B(i) 0            -> 3 {}
        A 2               -> 2 {0 1}
        = Reconciling 3 3
        A 2 own 0 1       -> 3
        B(i) 3            -> 3 {2 3}
        -- 60000
    """)
    return digest(c.outputs, c.shard.to_bytes())


def moved() -> str:
    """Move a group there and back half of the way, and return the digest of everything that came out."""
    pair = Pair.stable("c1", "c2")
    pair.a.at(10_000).commit("c1", {("t", 0): 5}).release()
    pair.b.at(10_100)
    pair.carry()
    pair.b.at(20_000).release().at(20_100).release(group_id="h")
    return digest([*pair.a.outputs, *pair.b.outputs], pair.a.shard.to_bytes() + pair.b.shard.to_bytes())


def test_a_classic_group_is_unchanged():
    assert classic() == CLASSIC


def test_a_shard_with_peers_is_unchanged_while_nothing_moves():
    assert classic(prefix="A", peers=("B",), peer_partitions={"B": 4}) == CLASSIC


def test_groups_that_move_singly_are_unchanged():
    assert moved() == MOVED


def test_a_group_of_the_consumer_protocol_is_unchanged():
    assert consumer() == CONSUMER
