"""Tests of the parts of the benchmark of big groups that need no broker."""

from tests.benchmarks.big_group import core_alone_us


def test_core_alone_goes_through_every_part() -> None:
    """The join round of a group ends, and so does the benchmark."""
    parts_us = core_alone_us(10)
    assert parts_us.keys() == {"join", "joined", "sync", "heartbeat", "leave", "expire"}
    assert all(us > 0 for us in parts_us.values())
