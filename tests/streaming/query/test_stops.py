"""The stop that the log asks for: it is for the drivers that run when it is appended."""

import threading

import pytest
from msgspec.structs import replace

from streaming.config.settings import Settings
from streaming.query.watchers.progress import Tallies
from streaming.query.watchers.stops import StopWatch
from tests.streaming.query.test_log_watch import tally

BY = "User:ana"


def watch(ends: dict[int, int]) -> tuple[StopWatch, threading.Event]:
    stopping = threading.Event()
    stops = StopWatch(Settings(), Tallies(), stopping.set)
    stops.begin_at(ends)
    return stops, stopping


@pytest.mark.parametrize(("log_end_offset", "stops_it"), [(9, False), (10, True), (11, True)])
def test_only_a_request_since_the_start_stops_a_driver(log_end_offset: int, *, stops_it: bool) -> None:
    """The record itself may be a copy that was written after the start."""
    stops, stopping = watch({0: 99, 1: 10})
    stops.handle([tally(12, 1, shard=0), replace(tally(12, 1, shard=1), stop=(log_end_offset, 12, BY))])
    assert stopping.is_set() == stops_it
    assert stops.request == ((1, 12, BY) if stops_it else None)


def test_batch_without_a_request_stops_nothing() -> None:
    stops, stopping = watch({0: 0})
    stops.handle([tally(5, 1)])
    assert not stopping.is_set()
