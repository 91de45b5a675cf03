"""Files of exported groups, made from conversations without Spark."""

from pathlib import Path
from typing import Any

from streaming.query.checkpoint.exporting import Names
from streaming.query.operator.operator import Held, packed
from streaming.wire.export_file import Head, Line, write
from tests.coordinator.scenario import Scenario

CHECKPOINT = "0123456789abcdef" * 2


def names_of(state: bytes, shards: int = 1, number: int = 0) -> Names:
    """Return the groups of a shard's state."""
    names = Names(shards)
    names.add(number, packed(Held(state, 7)))
    return names


def head_of(names: Names, **fields: Any) -> Head:
    """Return the first line for some groups."""
    defaults: dict[str, Any] = {
        "prefix": "old",
        "checkpoint": CHECKPOINT,
        "batch": 36,
        "made_ms": 50_000,
        "groups": len(names.by_id),
        "highest_token": max((name.token for name in names.by_id.values()), default=0),
    }
    return Head(**{**defaults, **fields})


def lines_of(names: Names, **fields: Any) -> list[Line]:
    """Return the lines of some groups."""
    return list(names.lines(head_of(names, **fields)))


def exported(file: Path, names: Names, **fields: Any) -> Head:
    """Write a file with some groups, and return its first line."""
    head = head_of(names, **fields)
    write(file, head, names.lines(head))
    return head


def every_phase() -> Scenario:
    """Return a scenario with a group in each phase, offsets without members, and a removed group."""
    s = Scenario.stable("a", "b").commit("a", {("t", 0): 5}, metadata="ü")
    s.at(1_000).commit_from_outside("x", {("t", 1): 7}, group_id="empty")
    s.join("c", group_id="preparing").join("d", group_id="preparing")
    s.join("e", group_id="completing")
    s.join("f", group_id="removed").sync("f", plan={"f": {"t": [0]}}, group_id="removed").leave(
        "f", group_id="removed"
    ).delete(group_id="removed")
    assert {s.shard.group(name).phase.value for name in s.shard.group_ids} == {
        "Stable",
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
    }
    return s
