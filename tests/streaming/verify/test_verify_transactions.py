"""Tests of the checks of offsets inside transactions, over topics that a real shard has written."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from coordinator.common.authorizer import COORDINATOR
from coordinator.messages.group_records import OffsetRecord, Published
from coordinator.messages.requests import (
    DeleteGroup,
    EndedTransaction,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    OpenTransaction,
    SettleTransactions,
    TopicPartitions,
    TxnOffsetCommit,
)
from coordinator.messages.responses import JoinGroupAnswer, Reply
from streaming.verify.findings import Kind
from streaming.wire.records import decode_request, encode_request
from tests.streaming.verify.test_verify import judge, kinds
from tests.streaming.views.written import WrittenTopics


class Transacting(WrittenTopics):
    """A group without members, whose producers commit offsets inside transactions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settled_before = 0
        self.places: list[int] = []

    def commit(self, place: int, offset: int, partition: int = 0, **fields: Any) -> None:
        told = (OffsetToCommit("t", partition, offset),)
        self.places.append(place)
        of_seven = {"producer_id": 7, "producer_epoch": 0}
        self.ask(TxnOffsetCommit, "a", place=place, offsets=told, **{**of_seven, **fields})

    def commit_outside(self, offset: int, partition: int = 0) -> None:
        self.ask(OffsetCommit, "a", offsets=(OffsetToCommit("t", partition, offset),))

    def settle(self, before: int, *committed: int, topic_id: str = "id", replaces: str = "") -> None:
        places = [each for each in self.places if self.settled_before <= each < before]
        report = {"topic_id": topic_id, "replaces": replaces, "settled_before": before}
        report |= {"settled_from": self.settled_before, "ended": ended(places, *committed)}
        self.ask(SettleTransactions, "", **report, principal=COORDINATOR)
        self.settled_before = before

    def passes(self, chance: random.Random | None = None) -> None:
        self.batch(chance)
        self.now_ms += 100

    def change(self, kind: type[Any], **fields: Any) -> None:
        """Change the last request of a kind after the coordinator has handled it."""
        for index in reversed(range(len(self.requests))):
            request: Any = decode_request(self.requests[index].value)
            if isinstance(request, kind):
                from msgspec import structs

                value = encode_request(structs.replace(request, **fields))
                self.requests[index] = replace(self.requests[index], value=value)
                return
        raise AssertionError("no such request")


def ended(places: Iterable[int], *committed: int) -> tuple[EndedTransaction, ...]:
    """Return the transactions of these places, each alone in one. Those that are not committed are aborted."""
    return tuple(EndedTransaction(7, place, place, place in committed) for place in places)


def settled(*committed: int) -> Transacting:
    """Return the topics after two transactions, of which some were committed."""
    world = Transacting(["a"])
    world.commit(3, 10)
    world.commit(5, 20, partition=1)
    world.passes()
    world.settle(8, *committed)
    world.passes()
    return world


@pytest.mark.parametrize("committed", [(), (3,), (5,), (3, 5)])
def test_correct_transactions_have_no_finding(committed: tuple[int, ...]) -> None:
    assert judge(settled(*committed)) == []


def test_transactions_may_end_in_any_order() -> None:
    """The one whose record is later counts, although it has ended first."""
    world = Transacting(["a"])
    for place, producer_id in ((3, 7), (5, 8)):
        world.commit(place, 10 * place, producer_id=producer_id)
    world.passes()
    for begin, before, its_end in ((0, 8, EndedTransaction(8, 5, 6, True)), (8, 12, EndedTransaction(7, 3, 9, True))):
        still = (OpenTransaction(7, 3),) if before == 8 else ()
        report = {"topic_id": "id", "settled_from": begin, "settled_before": before, "ended": (its_end,), "open": still}
        world.ask(SettleTransactions, "", **report, principal=COORDINATOR)
        world.passes()
    assert judge(world) == []


def test_a_committed_transaction_whose_offsets_are_not_published_is_reported() -> None:
    """The coordinator dropped them as if the transaction were aborted."""
    world = settled(5)
    world.change(SettleTransactions, ended=ended((3, 5), 3, 5))
    (found,) = judge(world)
    assert (found.kind, found.group_id, found.place) == (Kind.COMMIT_LOST, "a", "requests-0@0")
    assert found.text == "10 was committed in a transaction for t-0, and neither it nor a later offset is published"


def test_an_aborted_transaction_whose_offsets_are_published_is_reported() -> None:
    """The coordinator stored them as if the transaction were committed."""
    world = settled(3, 5)
    world.change(SettleTransactions, ended=ended((3, 5), 5))
    (found,) = judge(world)
    assert (found.kind, found.group_id, found.place) == (Kind.ABORTED_KEPT, "a", "requests-0@0")
    assert found.text == "10 for t-0 is published, and its transaction was aborted"


def test_an_aborted_offset_is_recognized_after_a_later_commit() -> None:
    """A reader may have fetched it meanwhile."""
    world = settled(3)
    world.commit_outside(30)
    world.passes()
    world.change(SettleTransactions, ended=ended((3, 5)))
    assert kinds(judge(world)) == {Kind.ABORTED_KEPT}


REPLACING = {
    "a commit outside": lambda world: world.commit_outside(30),
    "a deletion of offsets": lambda world: world.ask(OffsetDelete, "a", topics=(TopicPartitions("t", (0,)),)),
    "a deletion of the group": lambda world: world.ask(DeleteGroup, "a"),
    "a later transaction": lambda world: (world.commit(9, 30), world.passes(), world.settle(10, 9)),
}


@pytest.mark.parametrize("replacing", REPLACING.values(), ids=REPLACING)
def test_a_later_request_replaces_a_committed_transaction(replacing: Any) -> None:
    world = settled(3, 5)
    replacing(world)
    world.passes()
    assert judge(world) == []


def test_a_commit_outside_replaces_a_transaction_that_is_committed_later() -> None:
    world = Transacting(["a"])
    world.commit(3, 10)
    world.passes()
    world.commit_outside(30)
    world.passes()
    world.settle(8, 3)
    world.passes()
    assert judge(world) == []


def test_a_transaction_may_end_after_a_rebalance() -> None:
    """Its offsets have the generation in which they were committed."""
    world = Transacting(["a"])
    world.join("a")
    (ana,) = (output.answer.member_id for output in world.batch() if is_a_join(output))
    world.commit(3, 10, generation_id=1, member_id=ana)
    world.join("a")
    world.join("a", ana)
    assert {output.answer.generation_id for output in world.batch() if is_a_join(output)} == {2}
    world.settle(8, 3)
    published = [output.record for output in world.batch() if isinstance(output, Published)]
    assert [record.generation_id for record in published if isinstance(record, OffsetRecord)] == [1]
    assert judge(world) == []


def is_a_join(output: Any) -> bool:
    return isinstance(output, Reply) and isinstance(output.answer, JoinGroupAnswer)


def test_an_offset_that_another_commit_has_too_is_not_taken_for_the_aborted_one() -> None:
    """The producer tries again after the abort."""
    world = Transacting(["a"])
    for place, committed in ((3, ()), (5, (5,))):
        world.commit(place, 10)
        world.passes()
        world.settle(place + 1, *committed)
        world.passes()
    assert judge(world) == []


def test_a_transactions_topic_that_was_made_anew_ends_all_transactions() -> None:
    """Places count from 0 again, so a report about the new topic says nothing of the old one."""
    world = Transacting(["a"])
    world.commit(3, 10)
    world.passes()
    world.settle(2)
    world.passes()
    world.settled_before = 0
    world.settle(4, 3, topic_id="another", replaces="id")
    world.passes()
    assert judge(world) == []


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_late_report_of_an_earlier_topic_ends_no_transaction(is_lost: bool) -> None:
    """The coordinator ignores it: its driver stood still while the topic was made anew."""
    world = Transacting(["a"])
    world.settle(0)
    world.settle(0, topic_id="another", replaces="id")
    world.commit(3, 10, topic_id="another")
    world.passes()
    world.settle(4)
    world.settled_before = 0
    world.settle(4, *(() if is_lost else (3,)), topic_id="another")
    world.passes()
    world.change(SettleTransactions, ended=ended((3,), 3))
    assert [found.kind for found in judge(world)] == [Kind.COMMIT_LOST] * is_lost


def test_a_report_without_its_response_is_not_judged() -> None:
    """It may have been refused."""
    world = settled(5)
    world.change(SettleTransactions, ended=ended((3, 5), 3, 5), request_id="another")
    assert Kind.COMMIT_LOST not in kinds(judge(world))


def test_requests_that_are_gone_cause_no_finding() -> None:
    """The commit of a place may be among them, and its offset may be the aborted one's."""
    world = settled(3)
    world.commit(9, 10)
    world.passes()
    world.settle(10)
    world.passes()
    world.expire("replies", 1)
    world.requests = world.requests[1:]
    assert judge(world) == []


@pytest.mark.parametrize("seed", range(40))
def test_random_transactions_have_no_finding(seed: int) -> None:
    """Batches are cut short and repeated; reports come again."""
    chance, world, place, open_ = random.Random(seed), Transacting(["a"]), 0, dict[int, bool]()
    for number in range(60):
        place += chance.randrange(1, 4)
        match chance.choice(["commit", "commit", "outside", "settle", "delete"]):
            case "commit":
                world.commit(place, number, chance.randrange(2))
                open_[place] = chance.random() < 0.6
            case "outside":
                world.commit_outside(number, chance.randrange(2))
            case "settle":
                before = chance.randrange(world.settled_before, place + 1)
                world.settle(before, *(each for each in open_ if open_[each]))
            case "delete" if chance.random() < 0.3:
                world.ask(DeleteGroup, "a")
        world.passes(chance)
    assert judge(world) == []
