"""Tests of a partition of `__consumer_offsets`: runs, batches, names, unreadable records and the state."""

import random
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.base.errors import CorruptState
from coordinator.messages.events import Rejected
from coordinator.messages.group_records import Published
from coordinator.messages.observed_events import ObservationBegan, TopicNamed
from streaming.observe.partition import REJECTED_MAX, Partition, Span
from streaming.observe.schemas import Kind
from streaming.observe.state import DEFLATED_FROM_BYTES, ENDED_MAX, Row, Stored, from_bytes, unpack_group
from tests.streaming.observe import vectors as v
from tests.streaming.observe.log import HELD, Log, events, groups, offsets, told, translated, without_versions
from tests.streaming.observe.test_consumers import NAMED, founding, of_one
from tests.streaming.observe.test_converting import classic_of_two, upgrade
from tests.streaming.observe.writing import (
    ORDERS_TEXT,
    Written,
    classic,
    commit,
    consumer,
    current,
    epoch,
    forgotten,
    founded,
    gone,
    member,
    target,
    target_epoch,
    write,
)

ALL = {"orders": [0, 1, 2, 3]}


# -- a long log of all stories -----------------------------------------------------------------------------------------


def story(log: Log, chance: random.Random, group: str, at_ms: int) -> int:
    """Append a random piece of the life of a group, and return the time after it."""
    kind, generation = chance.randrange(8), chance.randrange(1, 9)
    names = [f"{name}-{chance.randrange(2)}" for name in ("ana", "bo", "cy")[: chance.randrange(4)]]
    parts = {name: {"orders": [n, n + 3]} for n, name in enumerate(names)}
    match kind:
        case 0:
            log.append(at_ms, founded(group, at_ms - 5))
        case 1 | 2:
            log.append(at_ms, classic(group, generation, at_ms - 9, *(member(n, parts[n]) for n in names)))
        case 3:
            log.append(at_ms, *(commit(group, n, at_ms % 97, at_ms) for n in range(chance.randrange(1, 4))))
        case 4:
            log.append(at_ms, *(forgotten(group, n) for n in range(3)), gone(Kind.CLASSIC_GROUP, group))
        case 5:
            joining = [consumer(group, n) for n in names]
            log.append(at_ms, *joining, epoch(group, generation), target_epoch(group, generation))
        case 6:
            log.append(at_ms, *(current(group, n, generation, parts[n]["orders"]) for n in names))
        case 7:
            leaving = [gone(kind, group, n) for n in names for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER)]
            log.append(at_ms, *leaving, epoch(group, generation + 1))
    if chance.random() < 0.1:
        log.hole()
    return at_ms + chance.choice([0, 1, 40, 2_000])


def random_log(seed: int, pieces: int = 40) -> list[Row]:
    chance, log, at_ms = random.Random(seed), Log(), 1_000_000
    for _ in range(pieces):
        at_ms = story(log, chance, chance.choice("gh"), at_ms)
    if chance.random() < 0.5:
        log.append(at_ms, gone(Kind.CLASSIC_GROUP, "g"), *upgrade()[1:], (struct.pack(">h", 99), b"?"), (b"", b""))
    return log.append(at_ms + 1, commit("last", 0, 0, at_ms)).rows


@given(st.integers(0, 10**9), st.data())
def test_groups_and_events_do_not_depend_on_the_cuts_between_batches(seed: int, data: st.DataObject) -> None:
    """Wherever the log is cut, also inside a run: groups and events are the same, and each commit is counted once."""
    rows = random_log(seed)
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=12))
    whole, cut = translated(rows), translated(rows, cuts)
    assert without_versions(cut) == without_versions(whole)
    last = {record.partition: record.offset for record in offsets(whole) if record.group_id == "g"}
    assert {record.partition: record.offset for record in offsets(cut) if record.group_id == "g"} == {
        **last,
        **{k: v for k, v in _all_offsets(cut).items() if k not in last},
    }


def _all_offsets(outputs: list[object]) -> dict[int, int]:
    return {r.partition: r.offset for r in offsets(outputs) if r.group_id == "g"}  # type: ignore[arg-type]


@given(st.integers(0, 10**9))
def test_versions_of_a_group_have_no_gap(seed: int) -> None:
    """1, 2, 3 and so on, anew after each end of the group."""
    versions: dict[str, int] = {}
    for each in translated(random_log(seed)):
        group_id = each.group_id  # type: ignore[union-attr]
        if group_id is not None:
            assert each.version == versions.get(group_id, 0) + 1  # type: ignore[union-attr]
            versions[group_id] = each.version  # type: ignore[union-attr, assignment]
            if isinstance(each, Published) and each.record is None and each.key[0] == "group":
                versions[group_id] = 0


@given(st.integers(0, 10**9))
def test_times_of_a_group_never_decrease(seed: int) -> None:
    times: dict[str, int] = {}
    for each in events(translated(random_log(seed))):
        if each.group_id is not None:
            assert each.at_ms >= times.get(each.group_id, 0) + (each.version == 1)
            times[each.group_id] = each.at_ms


@given(st.integers(0, 10**9), st.integers(0, 40))
def test_batch_that_is_repeated_gives_equal_outputs(seed: int, cut: int) -> None:
    rows = random_log(seed)
    first = Partition(7, None)
    first.read(rows[:cut])
    stored = first.to_bytes()
    twice = [Partition(7, stored), Partition(7, stored)]
    for each in twice:
        each.read(rows[cut:])
    assert twice[0].outputs == twice[1].outputs
    assert twice[0].to_bytes() == twice[1].to_bytes()


def test_records_that_were_read_before_are_left_alone() -> None:
    log = of_one().append(3_000, commit("m", 0, 1, 3_000))
    rows = list(log.rows)
    log.read()
    log.rows = rows
    assert log.read() == []
    assert log.partition is not None
    assert log.partition.counts["replayed"] == 1


# -- runs that are cut -------------------------------------------------------------------------------------------------


def test_run_that_may_be_cut_waits_for_the_next_records() -> None:
    """A first start reads far, and a bound on its batches may cut an upgrade behind the tombstone of the group."""
    log = classic_of_two()
    log.span = Span(end=HELD)
    log.append(9_000, *upgrade()[:1])
    assert log.read() == []
    log.append(9_000, *upgrade()[1:])
    assert log.read() == []
    log.append(9_001, commit("m", 0, 2, 9_001))
    assert told(log.read())[0] == "!! 9000 group_converted group_type=consumer generation_before=1"


@pytest.mark.parametrize(("before_end", "outputs"), [(0, 1), (1, 0)])
def test_run_at_the_end_of_the_source_is_whole(before_end: int, outputs: int) -> None:
    log = Log().append(1_000, founded("g", 990))
    log.read()
    log.append(2_000, gone(Kind.CLASSIC_GROUP, "g"))
    log.span = Span(end=log.next_offset + before_end)
    assert len([each for each in told(log.read()) if "group_deleted" in each]) == outputs


def test_generation_of_a_classic_group_waits_for_nothing() -> None:
    log = Log(end=HELD).append(1_000, founded("g", 990))
    assert len(log.read()) == 2


# -- names of topic ids ------------------------------------------------------------------------------------------------


def test_id_stands_for_a_name_until_the_name_is_known() -> None:
    log = Log().append(1_000, *founding())
    log.read()
    assert log.partition is not None
    assert list(log.partition.names.unnamed) == [ORDERS_TEXT]
    assert groups(log.outputs)[-1].members[0].assigned == {ORDERS_TEXT: [0, 1, 2, 3]}
    log.read(NAMED)
    assert log.partition.names.unnamed == {}
    assert groups(log.outputs)[-1].members[0].assigned == ALL
    (named,) = events(log.outputs[-2:])
    assert isinstance(named, TopicNamed)
    assert (named.topic_id, named.topic_name) == (ORDERS_TEXT, "orders")


def test_commit_names_the_id_of_its_topic() -> None:
    log = Log().append(1_000, *founding()).append(2_000, commit("other", 0, 1, 2_000))
    log.read()
    assert groups(log.outputs)[-1].members[0].assigned == ALL


def test_records_of_older_brokers_name_ids() -> None:
    topic = {"topic_id": bytes(15) + b"\1", "topic_name": "orders", "num_partitions": 4, "partition_metadata": []}
    log = Log().append(1_000, write(Kind.OLD_TOPICS, ["m"], {"topics": [topic]}))
    log.read()
    assert log.partition is not None
    assert log.partition.names.known == {"AAAAAAAAAAAAAAAAAAAAAQ": "orders"}


def test_name_that_nobody_missed_publishes_nothing() -> None:
    log = of_one()
    assert log.read(("AAAAAAAAAAAAAAAAAAAAAQ", "refunds")) == []


# -- other records -----------------------------------------------------------------------------------------------------


def test_oldest_record_of_a_classic_group_has_no_rebalance_timeout() -> None:
    log = Log().append(1_000, v.GROUP_0)
    log.read()
    assert [member.rebalance_timeout_ms for member in groups(log.outputs)[-1].members] == [None]


def test_record_that_cannot_be_read_is_counted_and_passed_over() -> None:
    """A later version, bytes that are cut, and a type that is not known."""
    key, value = founded("g", 990)
    later: Written = key, b"\0\5" + (value or b"")[2:]
    log = Log().append(1_000, later, (b"\0\2\0", b""), (struct.pack(">h", 99), b"?"), founded("h", 990))
    log.read()
    rejected = events(log.outputs, Rejected)
    assert [(each.partition, each.offset, each.group_id, each.version) for each in rejected] == [
        (7, 0, "g", None),
        (7, 1, None, None),
    ]
    assert rejected[0].why == "a value of type 2 has version 5, which is not known"
    assert [each.group_id for each in events(log.outputs, ObservationBegan)] == ["h"]
    assert log.partition is not None
    assert log.partition.counts == {"unreadable": 2, "99": 1, "2": 1}


@pytest.mark.parametrize("records", [REJECTED_MAX, REJECTED_MAX + 1])
def test_events_about_unreadable_records_are_bounded(records: int) -> None:
    log = Log().append(1_000, *[(b"\0\2", b"")] * records)
    assert len(events(log.read(), Rejected)) == REJECTED_MAX
    assert log.partition is not None
    assert log.partition.counts["unreadable"] == records


def test_records_of_a_held_run_are_counted_once() -> None:
    log = classic_of_two()
    log.span = Span(end=HELD)
    log.append(9_000, *upgrade())
    log.read()
    assert log.partition is not None
    counted = dict(log.partition.counts)
    log.append(9_001, commit("m", 0, 2, 9_001))
    log.read()
    assert (counted["5"], dict(log.partition.counts)) == (3, {"1": 1})


# -- the state ---------------------------------------------------------------------------------------------------------


def test_group_without_new_records_is_copied() -> None:
    """Its bytes are not even decoded: a state whose bytes are no group is read as long as nobody asks for it."""
    log = Log().append(1_000, founded("g", 990)).append(1_500, founded("h", 1_490))
    log.read()
    first = Partition(7, log.state)
    first.stored.groups["g"] = (0, b"\0broken")
    stored = first.to_bytes()
    second = Partition(7, stored)
    second.read([(9, 2_000, *commit("h", 0, 1, 2_000))])
    assert second.stored.groups["g"] == (0, b"\0broken")
    with pytest.raises(CorruptState):
        second._group("g")


def test_long_groups_are_deflated() -> None:
    log = Log().append(1_000, founded("g", 990))
    log.append(2_000, classic("h", 1, 1_990, *(member(f"member-{n}", ALL) for n in range(20))))
    log.read()
    stored = from_bytes(log.state).groups
    assert stored["g"][1][:1] == b"\0"
    assert len(stored["g"][1]) <= DEFLATED_FROM_BYTES
    assert (stored["h"][1][:1], stored["h"][0]) == (b"\1", 20)
    assert unpack_group(stored["h"][1]).members["member-7"].client_id == "member"


def test_state_that_was_changed_is_refused() -> None:
    log = of_one()
    assert log.state is not None
    for place in (0, 3, len(log.state) - 1):
        changed = bytearray(log.state)
        changed[place] ^= 1
        with pytest.raises(CorruptState):
            Partition(7, bytes(changed))
    with pytest.raises(CorruptState, match="too short"):
        Partition(7, b"\1\2")


@pytest.mark.parametrize("extra", [0, 1])
def test_times_of_deleted_groups_are_bounded(extra: int) -> None:
    stored = Stored()
    for n in range(ENDED_MAX + extra):
        stored.record_end(f"g{n}", n)
    assert (len(stored.ended), "g0" in stored.ended) == (ENDED_MAX, not extra)


def test_members_of_a_partition_are_counted() -> None:
    log = of_one()
    log.append(9_000, classic("g", 1, 8_990, member("a", ALL), member("b", None)))
    log.read()
    assert log.partition is not None
    assert (log.partition.members, len(log.partition.stored.groups)) == (3, 2)


def test_targets_alone_are_named_too() -> None:
    log = Log().append(1_000, consumer("m", "A"), epoch("m", 2), target("m", "A", [0]))
    log.read()
    assert groups(log.outputs)[-1].members[0].target == {ORDERS_TEXT: [0]}
    log.read(NAMED)
    assert groups(log.outputs)[-1].members[0].target == {"orders": [0]}


def test_outputs_are_in_the_order_of_the_log() -> None:
    log = (
        Log()
        .append(1_000, founded("g", 990))
        .append(1_500, founded("h", 1_490))
        .append(1_600, gone(Kind.CLASSIC_GROUP, "g"))
    )
    at_ms = [each.at_ms for each in events(log.read())]
    assert all(earlier <= later for earlier, later in pairwise(at_ms))
