"""The demo's story: three members share six partitions; one leaves, one is killed, both come back; and again.

Each step waits until the output topics show what the last one has led to.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from rich.console import Console

from streaming.config.settings import Settings
from streaming.demo.board import Board
from streaming.demo.crew import Crew
from streaming.demo.orders import PARTITIONS, Orders
from streaming.demo.worker import GROUP, SESSION_TIMEOUT_MS, TOPIC

NAMES = ("ana", "bo", "cy")

STABLE_WITHIN_S = 30.0
"""Far above what a rebalance takes; an expiry takes the session, and the slack that `clock_slack_ms` gives."""

SESSION_S = SESSION_TIMEOUT_MS // 1_000

COMMITS_BETWEEN = 6
"""Commits of each partition between two steps; workers commit about once a second."""

PROGRESS_WITHIN_S = 20.0

Step = tuple[str, Callable[[], object]]


def run_demo(settings: Settings, *, out: Console, stop: Callable[[], bool]) -> None:
    """Show the demo until told to stop; all that it started has ended when it returns.

    Args:
        out: Where to show it.
        stop: Asked several times a second.

    Raises:
        UserError: there is no broker, or no coordinator's topics.
    """
    with ExitStack() as stack:
        board = Board(settings, out, stop)
        board.open()
        stack.callback(board.close)
        board.say(f"a producer fills {TOPIC}, {PARTITIONS} partitions; workers share them as the group {GROUP}")
        stack.enter_context(Orders(settings))
        crew = stack.enter_context(Crew(settings))
        for text, act in _steps(crew):
            board.say(text)
            act()
            _settle(board, crew, stop)
            if stop():
                break
        board.say("the demo ends")


def _steps(crew: Crew) -> Iterator[Step]:
    """Tell the story, on and on."""
    yield f"{', '.join(NAMES)} start, each a process of its own", lambda: crew.start(*NAMES)
    while True:
        yield "bo leaves", lambda: crew.send_home("bo")
        yield (
            f"kill -9 {crew.pid('cy')}: cy dies, and its session of {SESSION_S} s has to run out",
            lambda: crew.kill("cy"),
        )
        yield "bo and cy come back", lambda: crew.start("bo", "cy")


def _settle(board: Board, crew: Crew, stop: Callable[[], bool]) -> None:
    """Wait until the group is at rest with who is there, and some work is done."""
    while not board.await_stable(crew.names, STABLE_WITHIN_S):
        if stop():
            return
        for name in crew.fallen():
            board.say(f"{name} ended by itself and is started again; its log is {crew.log_file(name)}")
            crew.start(name)
        board.say(f"waiting for the group to be Stable with {', '.join(crew.names)}; it is {board.state()}")
    board.await_commits(COMMITS_BETWEEN, PROGRESS_WITHIN_S)
