"""The demo's steps: three members own six partitions; one leaves, one is killed, both join again; then it repeats.

Each step waits until the output topics show the result of the last one.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from rich.console import Console

from streaming.config.settings import Settings
from streaming.demo.board import Board
from streaming.demo.members import DemoMembers
from streaming.demo.orders import PARTITIONS, Orders
from streaming.demo.worker import GROUP, SESSION_TIMEOUT_MS, TOPIC

NAMES = ("ana", "bo", "cy")

STABLE_WITHIN_S = 30.0
"""Far longer than a rebalance takes. An expiry takes the session timeout and the slack of `clock_slack_ms`."""

SESSION_S = SESSION_TIMEOUT_MS // 1_000

COMMITS_BETWEEN = 6
"""Commits of each partition between two steps. Workers commit about once a second."""

PROGRESS_WITHIN_S = 20.0

Step = tuple[str, Callable[[], object]]


def run_demo(settings: Settings, *, out: Console, stop: Callable[[], bool]) -> None:
    """Run the demo until `stop` returns True. All that it started has ended when it returns.

    Args:
        out: The console that shows the demo.
        stop: Called several times a second.

    Raises:
        UserError: no broker answers, or the coordinator's topics do not exist.
    """
    with ExitStack() as stack:
        board = Board(settings, out, stop)
        board.open()
        stack.callback(board.close)
        board.show(f"a producer fills {TOPIC}, {PARTITIONS} partitions; workers share them as the group {GROUP}")
        stack.enter_context(Orders(settings))
        workers = stack.enter_context(DemoMembers(settings))
        for text, act in _steps(workers):
            board.show(text)
            act()
            _settle(board, workers, stop)
            if stop():
                break
        board.show("the demo ends")


def _steps(workers: DemoMembers) -> Iterator[Step]:
    """Yield the steps, forever."""
    yield f"{', '.join(NAMES)} start, each a process of its own", lambda: workers.start(*NAMES)
    while True:
        yield "bo leaves", lambda: workers.send_home("bo")
        yield (
            f"kill -9 {workers.pid('cy')}: cy dies, and its session of {SESSION_S} s has to run out",
            lambda: workers.kill("cy"),
        )
        yield "bo and cy come back", lambda: workers.start("bo", "cy")


def _settle(board: Board, workers: DemoMembers, stop: Callable[[], bool]) -> None:
    """Wait until the group is Stable with the running workers and has committed some offsets."""
    while not board.await_stable(workers.names, STABLE_WITHIN_S):
        if stop():
            return
        for name in workers.fallen():
            board.show(f"{name} ended by itself and is started again; its log is {workers.log_file(name)}")
            workers.start(name)
        board.show(f"waiting for the group to be Stable with {', '.join(workers.names)}; it is {board.state()}")
    board.await_commits(COMMITS_BETWEEN, PROGRESS_WITHIN_S)
