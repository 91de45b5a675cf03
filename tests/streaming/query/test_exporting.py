"""The groups of a checkpoint as lines of an export, without Spark."""

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import MOVE_PART_BYTES
from coordinator.messages.requests import OffsetToCommit, TxnOffsetCommit
from coordinator.moves import transfer
from coordinator.moves.resume import lacks_addresses
from coordinator.state.codec import decode_shard
from streaming.errors import BadExport, CheckpointMismatch
from streaming.query.checkpoint import exporting
from streaming.query.checkpoint.exporting import Names
from streaming.query.operator.operator import Held, packed
from tests.coordinator.consumer.conversation import reconciling
from tests.coordinator.moving.pair import Pair
from tests.coordinator.scenario import Scenario
from tests.streaming.exports import every_phase, lines_of, names_of


def test_groups_in_every_phase_are_exported_as_they_are() -> None:
    s = every_phase()
    for line in lines_of(names_of(s.shard.to_bytes())):
        carried = line.carried
        if line.group_id == "removed":
            removed = decode_shard(s.shard.to_bytes()).removed_groups["removed"]
            assert (removed.generation_id, removed.token) == (2, 1_000_000)
            assert (carried, line.number) == (transfer.Tombstone(2, 1_000_000), 1_000_000)
            continue
        assert isinstance(carried, transfer.Living)
        group, before = transfer.group_of(carried), s.shard.group(line.group_id)
        assert before is not None
        assert (group.offsets, list(group.members)) == (before.offsets, list(before.members))
        assert (group.hot_state, group.token, group.version) == (before.hot_state, before.token, before.version)
        assert line.number == max(before.token, 1)
        assert not group.members or lacks_addresses(group)


def test_no_mailbox_of_a_member_or_of_a_parked_request_is_in_the_file() -> None:
    s = every_phase()
    assert s.shard.group("preparing").joins_parked == 1
    for line in lines_of(names_of(s.shard.to_bytes())):
        if isinstance(line.carried, transfer.Living):
            for member in transfer.group_of(line.carried).members.values():
                parked = (member.awaiting_join, member.awaiting_sync)
                assert {member.reply_to, *(each.reply_to for each in parked if each)} == {""}


def test_a_group_of_the_consumer_protocol_is_exported() -> None:
    c = reconciling()
    (line,) = lines_of(names_of(c.shard.to_bytes()))
    assert isinstance(line.carried, transfer.Living)
    group = transfer.group_of(line.carried)
    before = c.shard.consumer_group("g")
    assert before is not None
    assert (group.hot_state, group.targets) == (before.hot_state, before.targets)


def test_a_group_with_open_transactions_is_exported_and_named() -> None:
    s = Scenario.stable("a")
    offsets = (OffsetToCommit("t", 0, 5),)
    s.ask("p", TxnOffsetCommit, place=3, producer_id=1, producer_epoch=0, offsets=offsets, member_id="")
    s.hears(ErrorCode.NONE)
    names = names_of(s.shard.to_bytes())
    assert names.open_transactions == ["g"]
    (line,) = lines_of(names)
    assert isinstance(line.carried, transfer.Living)
    assert transfer.group_of(line.carried).pending_commits.keys() == {3}


def test_a_group_in_transit_is_named_and_not_exported() -> None:
    """The other coordinator may serve it."""
    pair = Pair.stable("c1")
    pair.a.at(10_000).release()
    names = names_of(pair.a.shard.to_bytes())
    assert (names.in_transit, names.by_id) == (["g"], {})


def test_a_removed_group_without_a_generation_is_not_exported() -> None:
    s = Scenario().commit_from_outside("x", {("t", 0): 1}).delete()
    assert decode_shard(s.shard.to_bytes()).removed_groups
    assert names_of(s.shard.to_bytes()).by_id == {}


def test_a_shard_without_data_has_no_groups() -> None:
    names = Names(4)
    names.add(0, packed(Held(None, 7)))
    assert lines_of(names) == []


@pytest.mark.parametrize("stored", ["?", "1 2 3 4", packed(Held(b"\x09" * 20))])
def test_a_shard_that_cannot_be_read_is_a_sentence(stored: str) -> None:
    with pytest.raises(CheckpointMismatch, match=r"Shard 2 cannot be read .*: restore the checkpoint from a back-up\."):
        Names(4).add(2, stored)


def test_a_group_of_another_shard_is_a_sentence() -> None:
    state = every_phase().shard.to_bytes()
    with pytest.raises(CheckpointMismatch, match=r"Shard 0 holds '.*', which is another shard's group"):
        names_of(state, shards=16)


def test_the_bound_of_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Scenario.stable("a").shard.to_bytes()
    (line,) = lines_of(names_of(state))
    assert exporting.STATE_BYTES_MAX == 64 * MOVE_PART_BYTES
    monkeypatch.setattr(exporting, "STATE_BYTES_MAX", line.bytes)
    assert lines_of(names_of(state)) == [line]
    monkeypatch.setattr(exporting, "STATE_BYTES_MAX", line.bytes - 1)
    with pytest.raises(BadExport, match=f"takes {line.bytes} bytes, and {line.bytes - 1} are allowed: delete offsets"):
        names_of(state)
