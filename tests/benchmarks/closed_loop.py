"""A closed loop: each member has one outstanding heartbeat and sends the next one when the response arrives.

So a coordinator receives requests as fast as it answers them, and never more requests at a time than it has members.
In each turn, the loop reads the responses and sends as many new heartbeats. One call serves many heartbeats, because
the coordinator needs the cores.
"""

import gc
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from tests.benchmarks.load import BEGIN, END

DRAIN_WAIT_S = 60.0


class Crowd(Protocol):
    """Members that have joined and synced, and whose heartbeats are all encoded."""

    @property
    def turn_s(self) -> float:
        """The pause between two reads of responses, in seconds."""

    @property
    def under_way(self) -> int:
        """The number of heartbeats that are not answered yet."""

    @property
    def errors(self) -> int:
        """The number of responses that differ from the response without an error."""

    def send(self) -> None:
        """Send a heartbeat for each answered one. The first call sends a heartbeat of every member."""

    def take(self) -> int:
        """Read the responses that have arrived, without waiting for more, and return their number."""


def run(
    crowd: Crowd, members: int, warm_up_s: float, seconds: float, report: Callable[[str], None]
) -> dict[str, float]:
    """Send the crowd's heartbeats, and return the figures of the seconds after the warm-up."""
    gc.collect()
    gc.freeze()  # a collection over all these members would delay the loop
    report(f"Sending as many heartbeats as are answered, for {warm_up_s:.0f} + {seconds:.0f} s.")
    warming = _beat(crowd, warm_up_s)
    report(BEGIN)
    turns = _beat(crowd, seconds)
    report(END)
    _drain(crowd)
    per_s = _per_s(turns)
    moments_s = turns[:, 0]
    thirds_s = np.linspace(moments_s[0], moments_s[-1], 4)
    _, middle, last = np.split(turns, np.searchsorted(moments_s, thirds_s[1:3]))
    return {
        "max_per_s": per_s,
        "warming_per_s": _per_s(warming[len(warming) // 2 :]),
        "last_third_ratio": _per_s(last) / _per_s(middle),
        "latency_ms": 1000 * members / per_s,  # Little's law
        "answered": turns[1:, 1].sum(),
        "errors": crowd.errors,
        "unmatched": abs(crowd.under_way),
    }


def _beat(crowd: Crowd, seconds: float) -> "np.ndarray":
    """Run turns for this time; return the time of each turn and the number of its responses."""
    turns = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        crowd.send()
        time.sleep(crowd.turn_s)
        turns.append((time.monotonic(), crowd.take()))
    return np.array(turns)


def _drain(crowd: Crowd) -> None:
    until_s = time.monotonic() + DRAIN_WAIT_S
    while crowd.under_way > 0 and time.monotonic() < until_s:
        time.sleep(crowd.turn_s)
        crowd.take()


def _per_s(turns: "np.ndarray") -> float:
    """Return the responses per second between the first turn and the last."""
    return float(turns[1:, 1].sum() / (turns[-1, 0] - turns[0, 0]))
