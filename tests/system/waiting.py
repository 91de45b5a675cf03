"""A wait for a condition, with a time limit and a description of the state at the limit."""

import time
from collections.abc import Callable

HANG_S = 600.0
"""The time limit of every wait. It detects a hang and is no promise about speed: machines may be slow."""


def wait_until(is_true: Callable[[], object], within_s: float = HANG_S, account: Callable[[], object] = str) -> None:
    """Check the condition every 20 ms, and fail after `within_s` with the text of `account`."""
    deadline = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < deadline, f"still waiting after {within_s} s: {account()}"
        time.sleep(0.02)
