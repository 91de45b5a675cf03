"""Slots as a user types them, such as 0-511,600."""

import pytest

from coordinator.base.slots import ranges_of
from streaming.administration.move_slots import slots_from


@pytest.mark.parametrize("text", ["7", "0-1,5,1023", "0-1023"])
def test_ranges_are_read_as_they_are_shown(text: str) -> None:
    assert ranges_of(slots_from(text)) == text


def test_ranges_may_meet_and_be_in_any_order() -> None:
    assert slots_from("9-9,3-5,4-6,0") == {0, 3, 4, 5, 6, 9}


@pytest.mark.parametrize(
    "text", ["", "-", "1-", "-1", "1024", "0-1024", "2-1", "1,,2", "1;2", "٣", "x", "1-2-3", "9" * 5_000]
)
def test_text_that_is_no_range_of_slots_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no slot from 0 to 1023|ends before it begins"):
        slots_from(text)
