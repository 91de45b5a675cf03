"""The commits of a batch that the outputs and the states of groups do not have yet."""

from typing import NamedTuple

from streaming.observe.format import Commit
from streaming.observe.state import TopicAndPartition


class Pending(NamedTuple):
    """The last commit of a partition in a batch, and the number of commits."""

    commit: Commit
    commits: int


class Untold:
    """The commits of a group that its state does not have yet. The commits of one request have one time.

    Args:
        latest_ms: The time of the group's last commit.
    """

    __slots__ = ("commits", "latest_ms", "times_ms")

    def __init__(self, latest_ms: int) -> None:
        self.latest_ms, self.commits = latest_ms, 0
        self.times_ms: dict[TopicAndPartition, int] = {}

    def add(self, place: TopicAndPartition, at_ms: int) -> None:
        if at_ms > self.latest_ms:
            self.latest_ms, self.commits = at_ms, self.commits + 1
        if at_ms > self.times_ms.get(place, 0):
            self.times_ms[place] = at_ms
