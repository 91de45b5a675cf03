"""Tests of groups with open transactions: a release waits for their ends (moving.md 2.7)."""

from typing import Any

import pytest
from msgspec import structs

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import MOVE_DRAIN_MS
from coordinator.messages.requests import OffsetToCommit as ToCommit
from coordinator.messages.requests import SettleTransactions, TxnOffsetCommit
from coordinator.messages.responses import ReleaseGroupAnswer, Reply, SettleTransactionsAnswer, TxnOffsetCommitAnswer
from coordinator.moves import source
from coordinator.moves.custody import Custody
from coordinator.moves.drain import SUPERSEDED, TOO_LONG
from coordinator.shard import budget
from tests.coordinator.moving.pair import Coordinator, Pair
from tests.coordinator.reports import report


def commit(side: Coordinator, place: int, *, offset: int = 5, partition: int = 0) -> ErrorCode:
    """Commit an offset inside a transaction, and return the error of the partition."""
    offsets = (ToCommit("t", partition, offset),)
    side.ask("p", TxnOffsetCommit, place=place, producer_id=1, producer_epoch=0, offsets=offsets, member_id="")
    (answer,) = answers(side, TxnOffsetCommitAnswer)
    (answered,) = answer.partitions
    return ErrorCode[answered.error]


def settle(side: Coordinator, before: int, *committed: int, topic_id: str = "T") -> None:
    """Report the ends of all transactions before a place."""
    side.ask("driver", SettleTransactions, **report(side.shard, before, committed, topic_id=topic_id))
    (answer,) = answers(side, SettleTransactionsAnswer)
    assert answer.settled_before == before


def answers(side: Coordinator, of: type[Any]) -> list[Any]:
    """Return the responses of one type that the last step has sent."""
    return [output.answer for output in side.latest if isinstance(output, Reply) and isinstance(output.answer, of)]


def draining(*places: int) -> Pair:
    """Return a pair of which A has been asked, at 20,000, to release a group with these pending commits."""
    pair = Pair.stable("c1", "c2")
    pair.a.at(20_000)
    for place in places:
        assert commit(pair.a, place, offset=place, partition=place) is ErrorCode.NONE
    pair.a.release()
    assert answers(pair.a, ReleaseGroupAnswer) == []
    assert pair.a.written == []
    return pair


def committed(side: Coordinator) -> dict[int, int]:
    """Return the committed offsets of the topic t."""
    return {partition: offset.offset for _, partition, offset in side.group.all_offsets()}


def test_a_group_moves_when_its_open_transactions_have_ended():
    pair = draining(3, 4)
    a, b = pair.a, pair.b
    settle(a.at(20_500), 4, 3)
    assert (a.written, a.custody("g")) == ([], Custody.HERE)
    settle(a.at(21_000), 5)
    record = pair.adopt_record()
    assert (record.move_id.split("/")[:2], record.released_ms) == (["A", "0"], 21_000)
    assert a.custody("g") is Custody.IN_TRANSIT
    b.at(21_100)
    pair.carry()
    (answer,) = answers(a, ReleaseGroupAnswer)
    assert (answer.error, answer.move_id) == ("NONE", record.move_id)
    assert committed(b) == {3: 3}
    b.is_("Stable", members="c1 c2")


def test_all_other_requests_are_served_meanwhile():
    pair = draining(3)
    a = pair.a.at(20_100).heartbeat("c1").hears(ErrorCode.NONE)
    a.commit("c1", {("t", 7): 70}).hears(ErrorCode.NONE)
    a.join("d1", member_id="").sync("c1")
    assert a.is_("PreparingRebalance").shard.draining


def test_further_commits_in_transactions_are_refused_and_a_repeat_is_answered():
    pair = draining(3)
    assert commit(pair.a.at(20_100), 3) is ErrorCode.NONE
    assert commit(pair.a, 4) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert list(pair.a.group.pending_commits) == [3]


def test_a_producer_goes_on_at_the_target():
    pair = draining(3)
    settle(pair.a.at(20_500), 4, 3)
    assert commit(pair.a, 9) is ErrorCode.NOT_COORDINATOR
    pair.b.at(21_000)
    pair.carry()
    assert commit(pair.b, 0) is ErrorCode.NONE


def test_a_release_is_refused_when_its_transactions_last_too_long():
    """At the bound and below it; then the group accepts commits again."""
    pair = draining(3)
    a = pair.a.until(20_000 + MOVE_DRAIN_MS - 1)
    assert commit(a, 4) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    a.until(20_000 + MOVE_DRAIN_MS)
    (answer,) = answers(a, ReleaseGroupAnswer)
    assert (answer.error, answer.error_message) == ("INVALID_REQUEST", TOO_LONG)
    assert commit(a, 4) is ErrorCode.NONE
    assert a.written == []


def test_the_shard_wakes_for_the_end_of_the_wait():
    pair = draining(3)
    assert pair.a.shard.next_deadline_ms == 20_000 + MOVE_DRAIN_MS


@pytest.mark.parametrize("asked", ["commit", "settle", "release"])
def test_the_end_of_the_wait_comes_before_a_request_of_its_time(asked: str):
    """A request may have this time in a batch that has no earlier one: the outputs do not depend on batches."""
    pair = draining(3)
    a = pair.a.at(20_000 + MOVE_DRAIN_MS)
    match asked:
        case "commit":
            assert commit(a, 4) is ErrorCode.NONE
        case "settle":
            settle(a, 4, 3)
            assert a.written == []
        case "release":
            a.release()
            assert a.shard.draining["g"].until_ms == 20_000 + 2 * MOVE_DRAIN_MS
    (answer,) = answers(a, ReleaseGroupAnswer)
    assert answer.error_message == TOO_LONG


def test_a_repeated_release_does_not_extend_the_wait():
    """A script that asks again and again must not stop the commits for good."""
    pair = draining(3)
    a = pair.a.at(23_000).release()
    (answer,) = answers(a, ReleaseGroupAnswer)
    assert (answer.error, answer.error_message) == ("INVALID_REQUEST", SUPERSEDED)
    assert a.shard.draining["g"].until_ms == 20_000 + MOVE_DRAIN_MS


def test_a_release_to_another_coordinator_is_refused_meanwhile():
    pair = draining(3)
    a = with_settings(pair.a, peers=("B", "C"))
    a.at(20_100).release(to="C").hears(ErrorCode.INVALID_REQUEST)
    assert "moves to B" in a.said.error_message
    settle(a, 4)
    assert pair.adopt_record().to == "B"


def test_a_target_that_is_no_peer_any_more_gets_no_group():
    """The coordinator was started with other peers while the group waited."""
    pair = draining(3)
    a = with_settings(pair.a, peers=("C",))
    settle(a.at(20_100), 4)
    (answer,) = answers(a, ReleaseGroupAnswer)
    assert (answer.error, answer.error_message) == ("INVALID_REQUEST", "B is no peer of this coordinator")
    assert a.custody("g") is Custody.HERE


def test_transactions_whose_topic_was_deleted_end_the_wait():
    pair = Pair.stable("c1")
    settle(pair.a.at(20_000), 1, topic_id="T")
    commit(pair.a, 3)
    pair.a.release()
    settle(pair.a, 1, topic_id="another")
    assert pair.adopt_record().group_id == "g"


def test_an_empty_group_that_is_deleted_meanwhile_moves_without_a_group():
    """A further commit does not create it again where it was."""
    pair = Pair.blank()
    a = pair.a.at(20_000)
    commit(a, 3)
    a.release().delete().hears(ErrorCode.NONE)
    assert (a.custody("g"), a.shard.draining) == (Custody.IN_TRANSIT, {})
    assert commit(a, 4) is ErrorCode.NOT_COORDINATOR
    pair.b.at(30_000)
    pair.carry()
    assert pair.b.custody("g") is Custody.HERE


def test_names_that_wait_count_as_names_in_transit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(source, "SENT_MAX", 2)
    pair = draining(3)
    pair.a.release(group_id="free")
    assert pair.a.custody("free") is Custody.IN_TRANSIT
    pair.a.release(group_id="next").hears(ErrorCode.INVALID_REQUEST)
    assert "in transit already" in pair.a.said.error_message


def test_time_does_not_pass_for_a_name_with_requests_that_wait_for_the_next_step(monkeypatch: pytest.MonkeyPatch):
    """The commit has an earlier time than the end of the wait, so it is refused, though the batch has a later time."""
    pair = draining(3)
    a = pair.a.at(20_100).away()
    a.describe()
    offsets = (ToCommit("t", 0, 5),)
    a.ask("p", TxnOffsetCommit, place=4, producer_id=1, producer_epoch=0, offsets=offsets, member_id="")
    monkeypatch.setattr(budget, "GROUP_STEP_BYTES_MAX", 1)
    a.back(40_000)
    assert (len(a.shard.deferred), answers(a, ReleaseGroupAnswer)) == (1, [])
    deferred = a.shard.deferred
    a.step(deferred, 40_000)
    (refused,) = answers(a, TxnOffsetCommitAnswer)
    assert refused.error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name
    (answer,) = answers(a, ReleaseGroupAnswer)
    assert answer.error_message == TOO_LONG


def with_settings(side: Coordinator, **config: Any) -> Coordinator:
    """Start a coordinator anew with other settings."""
    side.config = structs.replace(side.config, **config)
    side._living = side.new_shard(side.shard.to_bytes())
    return side
