"""Tests of the partitions that wait for their owners, as group records show them; and of the bound of their memory."""

from msgspec import structs

from coordinator.messages.group_records import GroupRecord
from streaming.views.state import partition_moves as module
from streaming.views.state.partition_moves import WaitingPartitions, waiting_partitions
from tests.streaming.views.consumers import REVOKING_MS, life_at
from tests.streaming.views.test_waits import expired, group_of


def revoking() -> GroupRecord:
    """Return a record in which T 2-3 are ana's and planned for bo."""
    record = life_at(REVOKING_MS).groups["g"].record
    assert record is not None
    return record


def test_a_partition_moves_while_its_owner_is_not_the_planned_one() -> None:
    moves = [(place, owner.member_id, planned.member_id) for place, owner, planned in waiting_partitions(revoking())]
    assert moves == [(("T", 2), "ana", "bo"), (("T", 3), "ana", "bo")]


def test_nothing_moves_in_a_classic_group_nor_in_a_stable_one() -> None:
    record = structs.replace(revoking(), type="classic")
    assert list(waiting_partitions(record)) == []
    (last, *_) = reversed(expired().records)
    assert list(waiting_partitions(last)) == []


def test_a_wait_begins_once_and_again_after_its_end() -> None:
    moves, record = WaitingPartitions(), revoking()
    still = structs.replace(record, version=record.version + 1, assignment_epoch=4)
    over = structs.replace(record, version=record.version + 2, members=())
    again = structs.replace(record, version=record.version + 3, assignment_epoch=5)
    for each in (record, still, over, again):
        moves.add(each)
    assert [(period.version, period.assignment_epoch) for period in moves.periods] == [
        (record.version, 3), (record.version + 3, 5),
    ]  # fmt: skip
    assert moves.within(0, None)[("T", 2), "ana"] == 3
    assert moves.within(record.version, None)[("T", 2), "ana"] == 5
    assert moves.within(0, record.version) == {}


def test_the_periods_of_a_group_are_bounded() -> None:
    moves, record = WaitingPartitions(), revoking()
    for number in range(module.PLACES_MAX):
        moves.add(structs.replace(record, version=2 * number, assignment_epoch=number))
        moves.add(structs.replace(record, version=2 * number + 1, members=()))
    assert moves.places == sum(len(period.owners) for period in moves.periods) == module.PLACES_MAX
    assert moves.periods[-1].assignment_epoch == module.PLACES_MAX - 1


def test_the_periods_end_with_the_events_of_their_time() -> None:
    group = group_of(expired())
    assert group.waiting_partitions.periods
    group.forget(1)
    assert (group.waiting_partitions.periods, group.waiting_partitions.places) == ([], 0)
