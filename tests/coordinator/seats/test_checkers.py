"""Checkers of seats find what simulations seldom meet, and a group without policies has the bytes of before."""

import zlib
from pathlib import Path

import msgspec
import pytest

from coordinator.base.policies import Settle, Succession
from coordinator.messages.events import MemberLeft
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Received, SyncGroup
from coordinator.messages.responses import Reply, SyncGroupAnswer
from coordinator.state import codec
from coordinator.state.classic_group import Group
from tests.coordinator.invariants.agreements import SeatsHaveOneHolder
from tests.coordinator.invariants.step import Step
from tests.coordinator.scenario import Scenario
from tests.coordinator.seats.deploy import Deploy
from tests.coordinator.wire import assignment
from tests.simulation.bugs import BUGS

STATES = Path(__file__).parents[1] / "states"


def synced(member_id: str, partition: int, generation_id: int = 2) -> tuple[Received, Reply]:
    """Return a sync, and the response that assigns a partition to its member."""
    request = SyncGroup(
        request_id=f"{member_id} {partition}", reply_to=member_id, group_id="g", client_id=member_id,
        generation_id=generation_id, member_id=member_id,
    )  # fmt: skip
    answer = SyncGroupAnswer(request_id=request.request_id, assignment=assignment({"t": [partition]}))
    return Received(1, 1, request), Reply(member_id, answer)


def left(member_id: str) -> MemberLeft:
    return MemberLeft(
        group_id="g", version=1, at_ms=1, generation_id=2, member_id=member_id, group_instance_id=None,
        client_id=member_id, client_host="", reason=None,
    )  # fmt: skip


def watch(*happened: tuple[Received, Reply] | Output) -> None:
    """Show outputs and requests to the checker, each as a step."""
    checker = SeatsHaveOneHolder()
    for each in happened:
        received, outputs = ([each[0]], [each[1]]) if isinstance(each, tuple) else ([], [each])
        checker.watch(Step(received, outputs, 1))


def test_a_partition_of_two_members_at_a_moment_is_found():
    """policies.md P1: within a generation, also if nobody published who owns it."""
    with pytest.raises(AssertionError, match="'s and b's"):
        watch(synced("a", 0), synced("b", 0))


def test_a_partition_may_pass_on_when_its_member_is_gone():
    """policies.md P1: then, and in another generation."""
    watch(synced("a", 0), synced("b", 1), left("a"), synced("b", 0))
    watch(synced("a", 0), synced("b", 0, generation_id=3))


def test_a_called_member_that_is_not_told_so_is_found(monkeypatch: pytest.MonkeyPatch):
    """policies.md 1.2: up to the end of its offer, not in the step of the end."""
    s = Deploy.of(succession=Succession(standby_ms=600_000)).at(1_500).new("a").new("b").leave("c2")
    offered_ms = s.group.policy_state.offers[s.ids["a"]].until_ms
    BUGS["a called member is not told so"].plant(monkeypatch)
    with pytest.raises(AssertionError, match="the response is 0, not 27"):
        s.at(offered_ms - 1).heartbeat("a")


def test_a_group_without_effects_of_policies_has_no_byte_for_them():
    """policies.md P8: neither in its hot state nor in its rest; also if a policy is in force, until it acts."""
    for is_set in (False, True):
        s = Scenario.stable("a", "b")
        s = s.policy(settle=Settle()).at(1_000).heartbeat("a") if is_set else s
        stored = codec.decode_shard(s.shard.to_bytes()).groups["g"]
        assert len(msgspec.msgpack.decode(stored.hot_state)) == 13
        rest = msgspec.msgpack.decode(zlib.decompress(stored.rest), strict=False)
        assert len(rest) == len(Group.__struct_fields__) - 1 == 23


def test_a_called_member_is_written_as_its_place():
    """A member id takes some fifty bytes, and thousands may be called at once."""
    kept = codec.decode_shard((STATES / "codec-8.bin").read_bytes())
    group = codec.decode_group(kept.groups["g"])
    (called,) = group.hot_state.called  # type: ignore[union-attr]
    assert called.encode() not in kept.groups["g"].hot_state
    assert msgspec.msgpack.decode(kept.groups["g"].hot_state)[-1] == [list(group.members).index(called)]
