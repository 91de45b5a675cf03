"""Tests of the offsets that are set while a group has no members."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.messages.observed_events import OffsetsSet, SetOffset
from streaming.observe.commits import OFFSETS_SET_MAX, SETS_FORWARD_MAX
from streaming.observe.schemas import Kind
from tests.streaming.observe.log import HELD, Log, events, told, translated, without_versions
from tests.streaming.observe.test_classic import ALL
from tests.streaming.observe.test_streams_and_share import of_one as of_streams
from tests.streaming.observe.writing import (
    classic,
    commit,
    consumer,
    current,
    epoch,
    forgotten,
    founded,
    gone,
    member,
    streams_group,
    target_epoch,
)

STREAMS_MEMBERS = Kind.STREAMS_CURRENT, Kind.STREAMS_TARGET, Kind.STREAMS_MEMBER


def emptied(**span: int) -> Log:
    """Return the log of a classic group whose only member has committed 4241 and 17, and is gone."""
    log = Log(**span).append(1_000, founded("g", 990)).append(4_000, classic("g", 1, 3_990, member("a", ALL)))
    log.append(9_000, commit("g", 0, 4_241, 9_000), commit("g", 1, 17, 9_000))
    return log.append(20_000, classic("g", 2, 19_990))


def reset(log: Log, at_ms: int, *offsets: int) -> Log:
    return log.append(at_ms, *(commit("g", partition, offset, at_ms) for partition, offset in enumerate(offsets)))


def sets(log: Log) -> list[OffsetsSet]:
    log.read()
    return events(log.outputs, OffsetsSet)


def test_offsets_of_a_group_without_members_are_set_back() -> None:
    """Recorded: kafka-consumer-groups --reset-offsets commits the offsets of all partitions at once."""
    log = reset(emptied(), 30_000, 100, 17)
    (event,) = sets(log)
    assert (event.partitions, event.offsets_set, event.set_back) == ((SetOffset("orders", 0, 4_241, 100),), 1, 1)
    assert (event.at_ms, event.generation_id) == (30_000, 2)


@pytest.mark.parametrize("offsets", [(4_241, 17), (4_241,)])
def test_same_offsets_are_no_news(offsets: tuple[int, ...]) -> None:
    assert sets(reset(emptied(), 30_000, *offsets)) == []


def test_offsets_of_members_are_their_own() -> None:
    log = emptied().append(30_000, classic("g", 3, 29_990, member("b", ALL)))
    assert sets(reset(log, 31_000, 100, 18)) == []


def test_group_of_which_only_offsets_are_known_may_have_members() -> None:
    log = Log().append(1_000, commit("g", 0, 4_241, 1_000)).append(2_000, commit("g", 0, 100, 2_000))
    assert sets(log) == []


def test_offset_before_is_known_from_an_earlier_batch() -> None:
    log = emptied()
    log.read()
    assert [each.partitions[0].before for each in sets(reset(log, 30_000, 100))] == [4_241]
    assert [each.partitions[0].before for each in sets(reset(log, 31_000, 50))][1:] == [100]


def test_offset_before_that_was_not_read_is_unknown() -> None:
    """The log was compacted, or the offset was committed before the observer kept offsets."""
    log = Log().append(20_000, classic("g", 2, 19_990))
    (event,) = sets(reset(log, 30_000, 100))
    assert (event.partitions, event.set_back) == ((SetOffset("orders", 0, None, 100),), 0)


def test_offset_before_a_forgotten_one_is_unknown() -> None:
    log = emptied().append(25_000, forgotten("g", 0))
    log.read()
    assert sets(reset(log, 30_000, 100))[0].partitions == (SetOffset("orders", 0, None, 100),)


def test_group_that_is_founded_again_has_no_offsets() -> None:
    log = emptied()
    log.read()
    log.append(25_000, gone(Kind.CLASSIC_GROUP, "g"))
    log.read()
    assert log.partition is not None
    assert log.partition.stored.offsets == {}
    log.append(26_000, founded("g", 25_990))
    assert sets(reset(log, 30_000, 100))[0].partitions[0].before is None


def test_group_of_the_consumer_protocol_without_members() -> None:
    log = Log().append(1_000, consumer("g", "a"), epoch("g", 2), target_epoch("g", 2), current("g", "a", 2, [0]))
    log.append(2_000, commit("g", 0, 9, 2_000))
    log.append(3_000, *(gone(kind, "g", "a") for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER)), epoch("g", 3))
    (event,) = sets(reset(log, 30_000, 4))
    assert (event.partitions, event.generation_id) == ((SetOffset("orders", 0, 9, 4),), 3)


def test_streams_group_without_members() -> None:
    log = of_streams().append(2_000, commit("w", 0, 9, 2_000))
    log.append(3_000, *(gone(kind, "w", "A") for kind in STREAMS_MEMBERS), streams_group("w", 3, 7))
    (event,) = sets(log.append(30_000, commit("w", 0, 4, 30_000)))
    assert event.partitions == (SetOffset("orders", 0, 9, 4),)


def test_group_whose_epoch_was_not_read_may_have_members() -> None:
    """Of a log that was compacted, the records of members may come later."""
    log = Log().append(1_000, target_epoch("g", 7)).append(2_000, commit("g", 0, 9, 2_000))
    assert sets(log) == []


def test_each_request_is_one_event() -> None:
    log = reset(reset(emptied(), 30_000, 100, 5), 30_000 + 1, 200, 6)
    assert [(each.offsets_set, each.set_back) for each in sets(log)] == [(2, 2), (2, 0)]


def test_event_names_only_some_of_many_partitions() -> None:
    log = reset(emptied(), 30_000, *range(OFFSETS_SET_MAX + 20))
    (event,) = sets(log)
    assert (len(event.partitions), event.offsets_set, event.set_back) == (OFFSETS_SET_MAX, OFFSETS_SET_MAX + 20, 2)


def test_client_that_commits_without_being_a_member_does_not_flood_the_events() -> None:
    """Until the group has members again, only offsets that are set back are told."""
    log = emptied()
    for number in range(SETS_FORWARD_MAX + 5):
        reset(log, 30_000 + number, 5_000 + number)
        log.read()
    assert len(sets(log)) == SETS_FORWARD_MAX
    assert [each.set_back for each in sets(reset(log, 40_000, 7))][SETS_FORWARD_MAX:] == [1]
    log.append(41_000, classic("g", 3, 40_990, member("b", ALL))).append(42_000, classic("g", 4, 41_990))
    assert len(sets(reset(log, 43_000, 9_000))) == SETS_FORWARD_MAX + 2


def test_set_offsets_that_may_be_cut_wait_for_the_next_records() -> None:
    log = reset(emptied(end=HELD), 30_000, 100)
    assert sets(log) == []
    log.append(30_000, commit("g", 1, 2, 30_000))
    assert sets(log) == []
    log.append(30_001, commit("other", 0, 1, 30_001))
    assert told(log.read())[0] == "!! 30000 offsets_set partitions=0:4241>100,1:17>2 offsets_set=2 set_back=2"


@given(st.lists(st.integers(0, 12), max_size=6))
def test_set_offsets_do_not_depend_on_the_cuts_between_batches(cuts: list[int]) -> None:
    log = reset(reset(emptied(), 30_000, 100, 5), 30_000, 100, 5)
    rows = (
        log.append(40_000, forgotten("g", 0)).append(41_000, commit("g", 0, 3, 41_000), commit("h", 0, 1, 41_000)).rows
    )
    whole, cut = translated(rows), translated(rows, [each for each in cuts if each <= len(rows)])
    assert without_versions(cut) == without_versions(whole)
    assert len(events(whole, OffsetsSet)) == 2
