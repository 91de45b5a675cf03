"""The bounds of the fields of records about slots (moving.md 1, 4.2)."""

from typing import Any

import pytest
from msgspec import ValidationError, convert

from coordinator.base import limits
from coordinator.base.limits import ELSEWHERE_MAX
from coordinator.messages.move_requests import AdoptSlots, ReleaseSlots

RECORD = {
    "kind": "adopt_slots", "from": "A", "to": "B", "number": 1, "offset": 0, "slots": bytes(128), "from_shard": 0,
    "from_partitions": 1, "to_shard": 0, "to_partitions": 1, "part": 1, "parts": 1, "elsewhere": (),
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "last", "beyond"),
    [
        ("slots", bytes(128), bytes(129)),
        ("slots", bytes(128), bytes(127)),
        ("number", limits.TIME_MS_MAX, limits.TIME_MS_MAX + 1),
        ("number", 0, -1),
        ("offset", 2**63 - 1, 2**63),
        ("from_shard", 999, 1_000),
        ("from_partitions", 1_000, 1_001),
        ("from_partitions", 1, 0),
        ("to_shard", 999, 1_000),
        ("to_partitions", 1_000, 1_001),
        ("part", 64, 65),
        ("parts", 64, 65),
        ("parts", 1, 0),
        ("elsewhere", [("g", 1, "A")] * ELSEWHERE_MAX, [("g", 1, "A")] * (ELSEWHERE_MAX + 1)),
        ("elsewhere", [("g" * 249, 1, "A")], [("g" * 250, 1, "A")]),
        ("elsewhere", [("g", 2**53, "A")], [("g", 2**53 + 1, "A")]),
        ("elsewhere", [("g", 0, "A")], [("g", -1, "A")]),
        ("elsewhere", [("g", 0, "A" * 249)], [("g", 0, "A" * 250)]),
        ("elsewhere", [("g", 0, "A")], [("g", 0, "A", 1)]),
    ],
)
def test_each_field_of_adopt_slots_has_bounds(field: str, last: Any, beyond: Any):
    convert({**RECORD, field: last}, AdoptSlots)
    with pytest.raises(ValidationError):
        convert({**RECORD, field: beyond}, AdoptSlots)


@pytest.mark.parametrize(
    ("field", "last", "beyond"),
    [
        ("slots", bytes(128), bytes(129)),
        ("slots", bytes(128), bytes(127)),
        ("made_ms", limits.TIME_MS_MAX, limits.TIME_MS_MAX + 1),
        ("made_ms", 0, -1),
        ("to", "B" * 249, "B" * 250),
    ],
)
def test_each_field_of_release_slots_has_bounds(field: str, last: Any, beyond: Any):
    request = {"kind": "release_slots", "request_id": "1", "reply_to": "i", "to": "B", "slots": bytes(128),
               "made_ms": 1}  # fmt: skip
    convert({**request, field: last}, ReleaseSlots)
    with pytest.raises(ValidationError):
        convert({**request, field: beyond}, ReleaseSlots)
