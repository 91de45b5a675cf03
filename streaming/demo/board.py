"""The output of the demo: the group as the output topics show it, and the steps of the demo itself."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection

from rich.console import Console
from rich.text import Text

from coordinator.base.states import Phase
from coordinator.messages.events import (
    CommitRejected,
    MemberExpired,
    MemberFenced,
    MemberJoined,
    MemberLeft,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.messages.group_records import GroupRecord, OffsetRecord
from streaming.config.settings import Settings
from streaming.demo.orders import PARTITIONS
from streaming.demo.worker import GROUP, TOPIC
from streaming.moments import unix_ms
from streaming.views.api.watching import follow
from streaming.views.sentences.records import Gap, Line
from streaming.views.text import clock

OFFSETS_EVERY_S = 5.0
GLANCE_S = 0.2

STYLES: dict[type, str] = {
    RebalanceStarted: "yellow",
    RebalanceCompleted: "bold",
    MemberJoined: "cyan",
    MemberLeft: "cyan",
    MemberExpired: "red",
    MemberFenced: "red",
    CommitRejected: "red",
    Gap: "bold red",
}


class Board:
    """A thread that follows the demo's group and prints it. The demo can wait for a state of the group.

    Args:
        stop: Ends all waiting when it returns True.
    """

    def __init__(self, settings: Settings, out: Console, stop: Callable[[], bool]) -> None:
        self._settings, self._out, self._stop = settings, out, stop
        self._changed = threading.Condition()
        self._group: GroupRecord | None = None
        self._offsets: dict[int, int] = {}
        self._commits: Counter[int] = Counter()
        self._offsets_shown_s = 0.0
        self._ending, self._started = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, name="demo board", daemon=True)

    def open(self) -> None:
        """Start to follow the group. Return when all later records will be read.

        Raises:
            UserError: the topics cannot be read.
        """
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop following."""
        self._ending.set()
        self._thread.join()

    def show(self, text: str) -> None:
        """Print a step of the demo."""
        self._out.print(Text(f"{clock(unix_ms())}  » {text}", style="bold magenta"))

    def await_stable(self, names: Collection[str], within_s: float) -> bool:
        """Wait until the group is Stable with exactly these members. Return whether it is."""
        return self._await(lambda: self._is_stable_with(names), within_s)

    def await_commits(self, commits: int, within_s: float) -> bool:
        """Wait for this many commits of each partition. Return whether they came."""
        with self._changed:
            self._commits.clear()
        return self._await(lambda: all(self._commits[p] >= commits for p in range(PARTITIONS)), within_s)

    def state(self) -> str:
        """Return a description of the group's state as last read."""
        group = self._group
        if group is None:
            return "not there yet"
        return f"{group.state.value} with {', '.join(m.client_id for m in group.members) or 'nobody'}"

    def _is_stable_with(self, names: Collection[str]) -> bool:
        group = self._group
        if group is None or group.state is not Phase.STABLE:
            return False
        return sorted(m.client_id for m in group.members) == sorted(names)

    def _await(self, is_so: Callable[[], bool], within_s: float) -> bool:
        until_s = time.monotonic() + within_s
        with self._changed:
            while not is_so() and not self._stop() and self._failure is None and time.monotonic() < until_s:
                self._changed.wait(GLANCE_S)
            if self._failure is not None:
                raise self._failure
            return is_so()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        try:
            for line in follow(self._settings, groups={GROUP}, stop=self._is_ending):
                self._handle(line)
        except Exception as error:  # the demo's own thread raises it
            self._failure = error
        finally:
            self._started.set()

    def _is_ending(self) -> bool:
        self._started.set()  # called for the first time when reading has begun
        return self._ending.is_set()

    def _handle(self, line: Line) -> None:
        with self._changed:
            if isinstance(line.record, GroupRecord):
                self._group = line.record
            if isinstance(line.record, OffsetRecord) and line.record.topic == TOPIC:
                self._offsets[line.record.partition] = line.record.offset
                self._commits[line.record.partition] += 1
                shown = self._offsets_line(line)
            else:
                shown = f"{clock(line.at_ms)}  {line.text}"
            self._changed.notify_all()
        if shown:
            self._out.print(Text(shown, style=self._style(line)))

    def _style(self, line: Line) -> str:
        if isinstance(line.record, GroupRecord):
            return "bold green" if line.record.state is Phase.STABLE else ""
        return STYLES.get(type(line.record), "dim")

    def _offsets_line(self, line: Line) -> str | None:
        """Return all committed offsets as a line; None if the last line was shown less than `OFFSETS_EVERY_S` ago."""
        if time.monotonic() < self._offsets_shown_s + OFFSETS_EVERY_S:
            return None
        self._offsets_shown_s = time.monotonic()
        each = "  ".join(f"{partition}:{offset}" for partition, offset in sorted(self._offsets.items()))
        return f"{clock(line.at_ms)}  committed offsets of {TOPIC}  {each}"
