"""Waiting for something to become true, with a bound and an account of what was there instead."""

import time
from collections.abc import Callable

HANG_S = 600.0
"""What has not come after so long never comes. It finds a hang, and is no promise: machines may be slow."""


def wait_until(is_true: Callable[[], object], within_s: float = HANG_S, account: Callable[[], object] = str) -> None:
    """Look every 20 ms; fail after `within_s` with what `account` says."""
    deadline = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < deadline, f"still waiting after {within_s} s: {account()}"
        time.sleep(0.02)
