"""AloneIsUnchanged: without peers, outputs and state have the bytes of the build before moves (moving.md 6).

The digests were computed by that build. A change of the protocol or of the codec changes them; a move must not.
"""

from hashlib import blake2b

import msgspec

from coordinator.outputs import Output, Reply
from coordinator.policies import Settle
from tests.coordinator.consumer.conversation import Conversation
from tests.coordinator.scenario import Scenario

CLASSIC = "d4b8399934f112b7aa3f7d2196dd6aab"
CONSUMER = "c03e530dc5be48946edede9570d2c274"


def digest(outputs: list[Output], state: bytes) -> str:
    """Return a digest of records and state."""
    records = [msgspec.json.encode((o.to, o.answer) if isinstance(o, Reply) else o) for o in outputs]
    return blake2b(b"\n".join([*records, state]), digest_size=16).hexdigest()


def classic() -> str:
    """Play a conversation with a classic group, and return the digest of everything that came out."""
    s = Scenario.stable("a", "b").commit("a", {("t", 0): 5}, metadata="ü").heartbeat("b")
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


def test_a_classic_group_is_unchanged():
    assert classic() == CLASSIC


def test_a_group_of_the_consumer_protocol_is_unchanged():
    assert consumer() == CONSUMER
