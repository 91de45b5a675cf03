"""The steps that checkers get, and the requests that they share."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.base.policies import Policy
from coordinator.messages.events import ClockAhead, MemberExpired, MemberFenced, MemberLeft
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Received, Request, SetPolicies, Unreadable, Wake
from coordinator.messages.responses import HeartbeatAnswer, Reply
from coordinator.state.classic_group import Group
from coordinator.state.consumer_group import ConsumerGroup

NONE, REBALANCE_IN_PROGRESS = ErrorCode.NONE.number, ErrorCode.REBALANCE_IN_PROGRESS.number

GONE = (MemberLeft, MemberExpired, MemberFenced)
"""Events after which the member id belongs to no member."""

CONVERTED = -1
"""The version of the tombstone with which a group ends for the checkers of the classic protocol, because it is
converted. No group publishes it."""

Asker = tuple[str, str | None]
"""The mailbox and the request id of a response, which identify its request."""


@dataclass(frozen=True)
class Truth:
    """The true times, which none of the coordinator's clocks shows. Only a simulation knows them.

    Args:
        now_ms: The true time of the batch.
        written_ms: The true times of the records whose own time is wrong, by offset.
        is_driver_right: The driver's clock has been right up to now.
        is_log_right: All times in the log have been.
    """

    now_ms: int
    written_ms: Mapping[int, int]
    is_driver_right: bool
    is_log_right: bool


@dataclass(frozen=True)
class Step:
    """One batch: the requests of the shard, its outputs, and its groups afterwards.

    Args:
        groups: All classic groups that the step may have changed.
        consumer_groups: All groups of the consumer protocol that the step may have changed.
        deferred: Requests that wait for the next step, because the outputs are too large.
    """

    received: Sequence[Received]
    outputs: Sequence[Output]
    now_ms: int
    groups: Mapping[str, Group] | None = None
    truth: Truth | None = None
    deferred: Sequence[Received] = ()
    consumer_groups: Mapping[str, ConsumerGroup] = field(default_factory=dict)

    @cached_property
    def news(self) -> Sequence[Output]:
        """The outputs without responses to heartbeats, which are most outputs, and which few checkers need."""
        return [o for o in self.outputs if type(o) is not Reply or type(o.answer) is not HeartbeatAnswer]

    @cached_property
    def requests(self) -> Sequence[tuple[Received, Request | Unreadable]]:
        """The requests, without records that have no mailbox for a response."""
        return [
            (received, received.request)
            for received in self.received
            if type(received.request) is not Wake
            and (type(received.request) is not Unreadable or received.request.request_id is not None)
        ]

    @property
    def has_honest_clocks(self) -> bool:
        """True if no clock was ever wrong, as far as the test knows."""
        return self.truth is None or (self.truth.is_driver_right and self.truth.is_log_right)

    def at_ms(self, received: Received) -> int:
        """Return a record's time, which is bounded if an event reports that it is ahead."""
        return min(received.at_ms, self._latest_ms)

    @cached_property
    def _latest_ms(self) -> int:
        return next((o.at_ms for o in self.outputs if type(o) is ClockAhead), NEVER_MS)


class Checker(Protocol):
    """A checker of one promise."""

    def watch(self, step: Step) -> None: ...


@dataclass
class KnownRequests:
    """Requests by mailbox and request id, which most checkers share.

    Args:
        times_ms: The times of each request and its repeats, without those that `answered_at_ms` has returned. A record
            whose time is reported as ahead counts at the latest time that is accepted.
        policies: All policy entries that were ever sent.
    """

    requests: dict[Asker, Request | Unreadable] = field(default_factory=dict)
    times_ms: defaultdict[Asker, list[int]] = field(default_factory=lambda: defaultdict(list))
    policies: list[Policy] = field(default_factory=list)
    _latest: Step | None = None

    @property
    def has_policies(self) -> bool:
        """True if policies may be in force."""
        return bool(self.policies)

    def note(self, step: Step) -> None:
        """Store the requests of a step, unless another checker has stored them."""
        if step is self._latest:
            return
        self._latest = step
        for received, request in step.requests:
            asker = request.reply_to or "", request.request_id
            self.requests[asker] = request
            self.policies += request.policies if isinstance(request, SetPolicies) else ()
            self.times_ms[asker].append(step.at_ms(received))

    def by(self, reply: Reply) -> Any:
        return self.requests.get((reply.to, reply.answer.request_id))

    def answered_at_ms(self, reply: Reply) -> int:
        """Return the time of the request that a response answers; of several copies, the first unanswered one."""
        times_ms = self.times_ms[reply.to, reply.answer.request_id or ""]
        return times_ms.pop(0) if len(times_ms) > 1 else times_ms[0]


def forgotten(output: Output) -> bool:
    """Check whether an output is the tombstone of a whole group. Later outputs belong to another group."""
    is_tombstone = isinstance(output, Published) and output.key[0] == "group" and output.record is None
    return is_tombstone and output.version is not None


def is_written_again(record: GroupRecord, before: GroupRecord | None) -> bool:
    """Check whether a record repeats the group's phase and generation; members may have joined or left since."""
    if before is None:
        return False
    told = ((each.state, each.generation_id, each.since_ms) for each in (before, record))
    return next(told) == next(told)
