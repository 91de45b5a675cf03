"""Tests of offset resets without Kafka: the offsets of each option, the selected partitions, and plans in files."""

from collections.abc import Collection
from typing import Any

import pytest

from streaming.administration.resetting import (
    SCENARIOS,
    Bounds,
    NewOffset,
    clip,
    exported,
    read_plan,
    read_topics,
)
from streaming.errors import BadReset, Exit, NotFound
from streaming.views.history.owners import PartitionKey

T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


class InMemory:
    """Partitions in memory, with records from `begin` to `end`, one per second from second 0 on."""

    def __init__(self, **of_topics: list[tuple[int, int]]) -> None:
        self._bounds = {(t, p): Bounds(*each) for t, of in of_topics.items() for p, each in enumerate(of)}

    def partitions(self, topics: Collection[str]) -> dict[str, list[int]]:
        there = {topic for topic, _ in self._bounds}
        return {topic: sorted(p for t, p in self._bounds if t == topic) for topic in topics if topic in there}

    def bounds(self, places: Collection[PartitionKey]) -> dict[PartitionKey, Bounds]:
        return {place: self._bounds[place] for place in places if place in self._bounds}

    def at(self, places: Collection[PartitionKey], at_ms: int) -> dict[PartitionKey, int]:
        firsts = {p: max(each.begin, -(-at_ms // 1_000)) for p, each in self.bounds(places).items()}
        return {place: first for place, first in firsts.items() if first < self._bounds[place].end}


LOG = InMemory(t=[(10, 100), (0, 20)], u=[(0, 0)])
COMMITTED = {T0: 50, U0: 0}

RESETS: list[tuple[str, Any, list[PartitionKey], dict[PartitionKey, int], list[str]]] = [
    # option        value   of          new offsets        notes
    ("to-earliest", None,   [T0, T1],   {T0: 10, T1: 0},   []),
    ("to-latest",   None,   [T0, U0],   {T0: 100, U0: 0},  []),
    ("to-current",  None,   [T0],       {T0: 50},          []),
    ("to-current",  None,   [T1],       {T1: 20},          []),  # no commit: the end
    ("to-offset",   60,     [T0],       {T0: 60},          []),
    ("to-offset",   60,     [T1],       {T1: 20},          ["(60) is higher than latest offset for topic partition"]),
    ("to-offset",   5,      [T0],       {T0: 10},          ["(5) is lower than earliest offset for topic partition"]),
    ("to-offset",   100,    [T0],       {T0: 100},         []),  # the end is an offset that can be committed
    ("to-offset",   10,     [T0],       {T0: 10},          []),
    ("shift-by",    -7,     [T0],       {T0: 43},          []),
    ("shift-by",    7,      [T0],       {T0: 57},          []),
    ("shift-by",    -70,    [T0],       {T0: 10},          ["(-20) is lower than earliest"]),
    ("shift-by",    70,     [T0],       {T0: 100},         ["(120) is higher than latest"]),
    ("to-datetime", 15_000, [T0, T1],   {T0: 15, T1: 15},  []),
    ("to-datetime", 3_000,  [T0],       {T0: 10},          []),
    ("by-duration", 25_000, [T0, T1],   {T0: 25, T1: 20},  ["Partition 1 from topic t has no record since then"]),
    ("from-file",   {T0: 7, T1: 7}, [], {T0: 10, T1: 7},   ["(7) is lower than earliest"]),
]  # fmt: skip


@pytest.mark.parametrize(("option", "value", "of", "offsets", "notes"), RESETS)
def test_each_option_gives_its_offsets_and_notes(
    option: str, value: Any, of: list[PartitionKey], offsets: dict[PartitionKey, int], notes: list[str]
) -> None:
    reset = SCENARIOS[option](of, value, LOG, COMMITTED)
    assert {place: new.offset for place, new in reset.offsets.items()} == offsets
    assert len(reset.notes) == len(notes)
    for note, expected in zip(reset.notes, notes, strict=True):
        assert expected in note


def test_every_option_is_in_the_table() -> None:
    assert {option for option, *_ in RESETS} == SCENARIOS.keys()


def test_a_shift_without_a_committed_offset_is_refused() -> None:
    with pytest.raises(BadReset, match="t-1 since there is no current committed offset"):
        SCENARIOS["shift-by"]([T1], 1, LOG, COMMITTED)


@pytest.mark.parametrize("option", sorted(SCENARIOS))
def test_an_unknown_partition_is_not_found(option: str) -> None:
    gone = ("t", 9)
    value = {gone: 1} if option == "from-file" else 1
    with pytest.raises(NotFound, match="t-9") as error:
        SCENARIOS[option]([gone], value, LOG, {gone: 3})
    assert error.value.exit_code == Exit.NOT_FOUND == 3


def test_clipping_keeps_metadata_and_leader_epoch() -> None:
    """A restored commit keeps its metadata and its leader epoch."""
    assert clip({T0: NewOffset(5, 3, "x")}, LOG).offsets == {T0: NewOffset(10, 3, "x")}


TOPICS: list[tuple[list[str], list[PartitionKey]]] = [
    (["t"], [T0, T1]),
    (["t:1"], [T1]),
    (["t:1,0"], [T1, T0]),
    (["t:1", "u"], [T1, U0]),
    (["t:0", "t"], [T0, T1]),
]


@pytest.mark.parametrize(("texts", "places"), TOPICS)
def test_topics_may_name_their_partitions(texts: list[str], places: list[PartitionKey]) -> None:
    assert read_topics(texts, LOG.partitions) == places


@pytest.mark.parametrize("text", ["t:", "t:x", "t:0,", "t:-1", "t:0:1", ":0", "t:1 ", "t:9999999999"])
def test_a_text_that_names_no_partition_is_wrong_usage(text: str) -> None:
    with pytest.raises(BadReset):
        read_topics([text], LOG.partitions)


@pytest.mark.parametrize("text", ["x", "t:2", "u:1"])
def test_an_unknown_topic_or_partition_is_not_found(text: str) -> None:
    with pytest.raises(NotFound):
        read_topics([text], LOG.partitions)


def test_a_plan_can_be_read_again() -> None:
    """A file may name the group or not: Kafka's tool writes both forms."""
    topic = 'a"b,c'
    offsets = {(topic, 1): NewOffset(5), T0: NewOffset(7)}
    assert read_plan(exported(offsets), "g") == {(topic, 1): 5, T0: 7}
    assert read_plan('g,"a""b,c",1,5\ng,t,0,7\nh,t,0,99\n', "g") == {(topic, 1): 5, T0: 7}
    assert exported({T0: NewOffset(7)}) == "t,0,7\n"


@pytest.mark.parametrize("text", ["t,0", "t,x,1", "t,0,x", "a,b,t,0,1", "t 0 1"])
def test_a_line_that_is_not_of_a_plan_is_wrong_usage(text: str) -> None:
    with pytest.raises(BadReset, match="Line 2"):
        read_plan(f"t,0,1\n{text}\n", "g")
