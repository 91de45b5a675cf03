"""Requests of a member that await a response, and the times at which they are sent again.

A response may be lost or arrive twice; a request is never lost. A request without a response is sent again under the
same `request_id`, and its response counts once. A retry after an error has a new `request_id`. So a repeated error
response cannot be taken for the response to the retry. The `ticket` of the retry stays the same. Heartbeats and leaves
are sent once.
"""

from zlib import crc32

from msgspec import Struct, structs

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.member.effects import CommitEnded
from coordinator.member.requests import MemberConfig, Sent
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import JoinGroup, LeaveGroup, OffsetCommit, OffsetFetch

UNANSWERED_HEARTBEATS_MAX = 32
"""Bounds the memory that a long outage of the coordinator costs. Responses to older heartbeats have no new
information."""

SENT_ONCE = (Heartbeat, LeaveGroup)

OUTLIVE_A_GENERATION = (OffsetCommit, OffsetFetch, LeaveGroup)


class Call(Struct):
    """A request that awaits its response. The request is sent, or sent again, at `due_ms`.

    Args:
        ticket: The id that the caller was given. It stays the same over retries.
        failures: How many error responses the request has had so far.
        leaves_because: The reason to leave, if the member left before the response to its first join.
    """

    request: Sent
    due_ms: int
    ticket: str
    failures: int = 0
    leaves_because: str | None = None


class PendingRequests:
    """The calls of one member, in the order in which they were made.

    Args:
        prefix: The beginning of each request id, unique among all members that share the mailbox.
    """

    def __init__(self, config: MemberConfig, prefix: str) -> None:
        self._config, self._prefix, self._count = config, prefix, 0
        self._calls: dict[str, Call] = {}
        self._newest_commit = ""

    @property
    def due_ms(self) -> int:
        """The time at which `send_due` next has something to send."""
        return min((call.due_ms for call in self._calls.values()), default=NEVER_MS)

    @property
    def is_leaving(self) -> bool:
        """True while a leave awaits its response, or a join after which the member leaves."""
        return any(isinstance(c.request, LeaveGroup) or c.leaves_because is not None for c in self._calls.values())

    def next_id(self) -> str:
        """Make a request id."""
        self._count += 1
        return f"{self._prefix}{self._count}"

    def make(self, request: Sent, now_ms: int, wait_ms: int = 0) -> list[Sent]:
        """Register a request that awaits its response. Return the request if it is to be sent now.

        Args:
            wait_ms: How long the request is held back, in milliseconds. `send_due` returns it after that.
        """
        if isinstance(request, OffsetCommit):
            self._newest_commit = request.request_id
        is_sent_once = isinstance(request, SENT_ONCE)
        due_ms = NEVER_MS if is_sent_once else now_ms + (wait_ms or self._config.request_timeout_ms)
        self._calls[request.request_id] = Call(request, due_ms, request.request_id)
        return [] if wait_ms else [request]

    def end(self, request_id: str) -> Call | None:
        """Remove the call that a response belongs to, and return it; None if no such call awaits a response."""
        return self._calls.pop(request_id, None)

    def retry(self, call: Call, now_ms: int) -> None:
        """Schedule the same request again, after a backoff and under a new request id."""
        call.failures += 1
        call.request = structs.replace(call.request, request_id=self.next_id())
        call.due_ms = now_ms + self.backoff_ms(call.failures)
        self._calls[call.request.request_id] = call

    def send_due(self, now_ms: int) -> list[Sent | CommitEnded]:
        """Return the requests that are due. End a commit instead if the member has made a newer one.

        An old commit that is sent after a newer one would set offsets back.
        """
        due: list[Sent | CommitEnded] = []
        for call in [c for c in self._calls.values() if c.due_ms <= now_ms]:
            if isinstance(call.request, OffsetCommit) and call.ticket != self._newest_commit:
                del self._calls[call.request.request_id]
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
                due.append(CommitEnded(call.ticket, error.number, error.name))
            else:
                call.due_ms = now_ms + self._config.request_timeout_ms
                due.append(call.request)
        return due

    def backoff_ms(self, failures: int) -> int:
        """Return a wait in milliseconds that doubles with each failure.

        The wait varies by 20 % in each direction, so that members that failed together do not retry together.
        """
        spread = crc32(f"{self._prefix}{self._count}".encode()) % 401 - 200
        wait_ms = min(self._config.retry_backoff_ms << min(failures - 1, 16), self._config.retry_backoff_max_ms)
        return max(1, wait_ms + wait_ms * spread // 1000)

    def give_up(self, ticket: str) -> None:
        """Stop waiting for the response to a commit or a fetch."""
        self._calls = {i: c for i, c in self._calls.items() if c.ticket != ticket}

    def leave_after_joining(self, reason: str) -> None:
        """Mark each join without a response: its member has left. The response has the member id that has to leave."""
        for call in self._calls.values():
            if isinstance(call.request, JoinGroup) and call.leaves_because is None:
                call.leaves_because = reason

    def forget_membership(self) -> None:
        """Remove the calls whose responses would belong to a generation that has ended."""
        self._calls = {
            request_id: call
            for request_id, call in self._calls.items()
            if isinstance(call.request, OUTLIVE_A_GENERATION) or call.leaves_because is not None
        }

    def forget_old_heartbeats(self) -> None:
        """Remove the oldest heartbeats beyond `UNANSWERED_HEARTBEATS_MAX`."""
        unanswered = [i for i, call in self._calls.items() if isinstance(call.request, Heartbeat)]
        for request_id in unanswered[:-UNANSWERED_HEARTBEATS_MAX]:
            del self._calls[request_id]
