"""Tests of the bounds of a clock's difference."""

import pytest

from streaming.doctor.case import Level
from streaming.doctor.clocks import ShownTime, difference


@pytest.mark.parametrize(
    ("shown", "text", "level"),
    [
        (ShownTime(1_000, 1_010, 1_005), "between 5 ms behind and 6 ms ahead", Level.OK),
        (ShownTime(10_000, 10_900, 10_000, 1_000), "between 900 ms behind and 1000 ms ahead", Level.OK),
        (ShownTime(10_000, 10_010, 11_009), "between 999 ms ahead and 1010 ms ahead", Level.OK),
        (ShownTime(10_000, 10_010, 11_011), "between 1001 ms ahead and 1012 ms ahead", Level.WRONG),
        (ShownTime(10_000, 10_010, 8_998), "between 1012 ms behind and 1001 ms behind", Level.WRONG),
    ],
)
def test_only_a_difference_that_is_certain_is_wrong(shown: ShownTime, text: str, level: Level) -> None:
    found = difference("Its clock", shown, slack_ms=1_000)
    assert (found.level, text in found.text) == (level, True), found
