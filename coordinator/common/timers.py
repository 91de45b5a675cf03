"""The times at which time alone changes a group, and the order in which that happens; for groups of both protocols.

Deadlines are derived from the group's hot state and are not stored beside them. An output of a deadline carries the
time of the deadline, not the time at which the deadline was noticed. If a deadline is noticed very late, the
coordinator was unavailable and no member is to blame: the same wait starts once more (KIP-62's sessions promise a
member its timeout; Kafka's coordinator renews them on load). The same holds for a wait that began before the
coordinator was available again, though its deadline is noticed in time: for a part of the wait the member could not
reach the coordinator.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Generic, TypeVar

from msgspec import Struct

from coordinator.base.config import Config
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from coordinator.messages.outputs import Output
from coordinator.state.group import AnyGroup

G = TypeVar("G", bound=AnyGroup)


class Deadline(Struct, frozen=True, order=True):
    """A time at which time alone changes a group. Sorts by time, then by kind, then by the order of the members."""

    at_ms: int
    kind: IntEnum
    order: int = 0
    member_id: str = ""


class Timers(Struct, Generic[G], frozen=True):
    """The deadlines of groups of one protocol.

    Args:
        deadlines: Yields all deadlines of a group; a time of `NEVER_MS` is not armed.
        armed_ms: Returns the time of a deadline as it is now; None if its member is gone.
        fire: Changes the group because a deadline has passed.
        wait_once_more: Starts the wait of a deadline again from a time, if that may be done and delays the deadline.
            Returns whether it has.
        is_over: Returns whether the group has to be converted, so that no further deadline of this protocol fires.
    """

    deadlines: Callable[[G], Iterator[Deadline]]
    armed_ms: Callable[[G, Deadline], int | None]
    fire: Callable[[G, Deadline, Config], Iterator[Output]]
    wait_once_more: Callable[[G, Deadline, int], bool]
    is_over: Callable[[G, Config], bool] = lambda group, config: False

    def advance(self, group: G, until_ms: int, noticed_ms: int, config: Config) -> Iterator[Output]:
        """Fire every deadline up to and including `until_ms`, the oldest first.

        Args:
            noticed_ms: The coordinator's current time, which may be much later than `until_ms`.
        """
        hot_state = group.hot_state
        while hot_state.earliest_ms <= until_ms:
            queue = sorted(d for d in self.deadlines(group) if d.at_ms <= until_ms)
            hot_state.earliest_ms = NEVER_MS
            for due in queue:
                if hot_state.earliest_ms <= due.at_ms:
                    break  # a new deadline may come first: start again
                if due.at_ms != self.armed_ms(group, due):
                    continue  # an earlier deadline has settled or moved this one
                hot_state.now_ms = max(hot_state.now_ms, due.at_ms)
                back_ms = noticed_ms if noticed_ms - due.at_ms > config.late_notice_ms else hot_state.back_ms
                if not (back_ms and self.wait_once_more(group, due, back_ms)):
                    yield from self.fire(group, due, config)
                assert group.phase is Phase.DEAD or due.at_ms != self.armed_ms(group, due), f"{due} did not clear"
                if self.is_over(group, config):
                    hot_state.earliest_ms = until_ms
                    return
            else:
                hot_state.earliest_ms = min(d.at_ms for d in self.deadlines(group))
