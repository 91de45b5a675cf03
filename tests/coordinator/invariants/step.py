"""What checkers are shown, and what they share: a step, and the memory of who asked what."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from coordinator.errors import ErrorCode
from coordinator.group import NEVER_MS, Group
from coordinator.outputs import (
    ClockAhead,
    GroupRecord,
    HeartbeatAnswer,
    MemberExpired,
    MemberFenced,
    MemberLeft,
    Output,
    Published,
    Reply,
)
from coordinator.requests import Received, Request, Unreadable, Wake

NONE, REBALANCE_IN_PROGRESS = ErrorCode.NONE.number, ErrorCode.REBALANCE_IN_PROGRESS.number

GONE = (MemberLeft, MemberExpired, MemberFenced)
"""Events after which their member id is nobody's."""


Asker = tuple[str, str | None]
"""Where a reply goes and which request it answers: what makes a request known."""


@dataclass(frozen=True)
class Truth:
    """What no clock of the coordinator's world shows: when things really happen. Only a simulation knows.

    Args:
        now_ms: When the batch is taken.
        written_ms: By offset, when a record was really written, where its time says otherwise.
        is_driver_right: The driver's clock has been right up to now.
        is_log_right: All times in the log have been.
    """

    now_ms: int
    written_ms: Mapping[int, int]
    is_driver_right: bool
    is_log_right: bool


@dataclass(frozen=True)
class Step:
    """One batch: what the shard was given, what it gave back, and what it is now.

    Args:
        groups: All that the step may have changed.
        deferred: Requests that are left to the next step, as too much has been put out.
    """

    received: Sequence[Received]
    outputs: Sequence[Output]
    now_ms: int
    groups: Mapping[str, Group] | None = None
    truth: Truth | None = None
    deferred: Sequence[Received] = ()

    @cached_property
    def news(self) -> Sequence[Output]:
        """What came out, but for answers to heartbeats: nearly all there is, and they tell most checkers nothing."""
        return [o for o in self.outputs if type(o) is not Reply or type(o.answer) is not HeartbeatAnswer]

    @cached_property
    def requests(self) -> Sequence[tuple[Received, Request | Unreadable]]:
        """What was asked, but for records that name nobody who could be answered."""
        return [
            (received, received.request)
            for received in self.received
            if type(received.request) is not Wake
            and (type(received.request) is not Unreadable or received.request.request_id is not None)
        ]

    @property
    def has_honest_clocks(self) -> bool:
        """Whether neither clock was ever wrong, as far as anybody knows."""
        return self.truth is None or (self.truth.is_driver_right and self.truth.is_log_right)

    def at_ms(self, received: Received) -> int:
        """Return a record's time, which is bounded where it is told that it is ahead."""
        return min(received.at_ms, self._latest_ms)

    @cached_property
    def _latest_ms(self) -> int:
        return next((o.at_ms for o in self.outputs if type(o) is ClockAhead), NEVER_MS)


class Checker(Protocol):
    """Watches one promise."""

    def watch(self, step: Step) -> None: ...


@dataclass
class Asked:
    """Requests by who asked them: the memory that most checkers share.

    Args:
        times_ms: When each came, every time that it did, but for what `answered_at_ms` has told already. A record of
            which it is told that it is dated too late came at the latest time that is believed.
    """

    requests: dict[Asker, Request | Unreadable] = field(default_factory=dict)
    times_ms: defaultdict[Asker, list[int]] = field(default_factory=lambda: defaultdict(list))
    _latest: Step | None = None

    def note(self, step: Step) -> None:
        """Remember what was asked in a step; whoever shares this memory may have done so."""
        if step is self._latest:
            return
        self._latest = step
        for received, request in step.requests:
            asker = request.reply_to or "", request.request_id
            self.requests[asker] = request
            self.times_ms[asker].append(step.at_ms(received))

    def by(self, reply: Reply) -> Any:
        return self.requests.get((reply.to, reply.answer.request_id))

    def answered_at_ms(self, reply: Reply) -> int:
        """Tell when the request came that a reply answers; of several copies, the first that had no answer."""
        times_ms = self.times_ms[reply.to, reply.answer.request_id or ""]
        return times_ms.pop(0) if len(times_ms) > 1 else times_ms[0]


def forgotten(output: Output) -> bool:
    """Tell whether an output is the tombstone of a whole group: whatever comes after is another group."""
    is_tombstone = isinstance(output, Published) and output.key[0] == "group" and output.record is None
    return is_tombstone and output.version is not None


def is_written_again(record: GroupRecord, before: GroupRecord | None) -> bool:
    """Tell whether a group is as it was when it was written last, but for members that have joined or gone since."""
    if before is None:
        return False
    told = ((each.state, each.generation_id, each.since_ms) for each in (before, record))
    return next(told) == next(told)
