"""The groups of a client that have moved to other coordinators (moving.md 3.2), and the way to each coordinator.

Responses do not name their group, so the groups of the requests without a response are stored. A response to many
heartbeats has only codes. So after a heartbeat that was refused there, the next one of the group is sent singly: its
response names the coordinator.

A member sends a refused request again by itself, but after a refused SyncGroup it would join again (Kafka's
AbstractCoordinator). So a refused SyncGroup is sent again here, and its member waits for the response.
"""

import time
from collections.abc import Callable, Iterator, Sequence

from coordinator.base.errors import ErrorCode
from coordinator.messages.heartbeats import Heartbeats
from coordinator.messages.requests import Request, SyncGroup
from coordinator.messages.responses import AnyAnswer, HeartbeatAnswer, HeartbeatsAnswer
from streaming.wire.coordinator_cache import CoordinatorCache, RetryDecision
from streaming.wire.signing import Signer

REQUESTS_MAX = 100_000
"""The stored requests without a response. Beyond it the oldest is dropped: a redirection of it is not noticed, and the
next request of its group is redirected again."""

SYNC_WAIT_S = 0.2
"""The time until a SyncGroup is sent again whose group has not reached the coordinator."""

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR.number


class CoordinatorRoute:
    """The way to one coordinator: its topics, the mailbox there, and the signer of requests.

    Args:
        inbox: The name of the mailbox, and `key` the same as the key of records.
    """

    def __init__(self, prefix: str, inbox: str, signer: Signer) -> None:
        self.prefix, self.signer = prefix, signer
        self.requests, self.replies = f"{prefix}.requests", f"{prefix}.replies"
        self.rename(inbox)

    def rename(self, inbox: str) -> None:
        """Change the name of the mailbox, which may then hash to another partition of the replies."""
        self.inbox, self.key = inbox, inbox.encode()


class GroupRouter:
    """The coordinators of a client's groups.

    Attributes:
        named: The coordinators that requests go to from now on, for the owner to open.

    Args:
        home: The prefix of the client's own coordinator.
        peers: The prefixes of the coordinators to ask for a group that it does not have.
        clock: Returns monotonic seconds.
    """

    def __init__(self, home: str, peers: Sequence[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._cache, self._clock = CoordinatorCache(home, peers), clock
        self._requests: dict[str, str] = {}
        self._syncs: dict[str, SyncGroup] = {}
        self._again: list[tuple[float, SyncGroup]] = []
        self.named: dict[str, None] = {}
        self._tries: dict[str, int] = {}
        self._singly: dict[str, None] = {}

    def coordinator_of(self, group_id: str) -> str:
        """Return the prefix of the coordinator to which the next request about a group goes."""
        return self._cache.of(group_id, self._tries.get(group_id, 0))

    def has_moved(self, group_id: str) -> bool:
        """Return whether a redirection has named a coordinator of a group."""
        return self._cache.knows(group_id)

    def is_sent_singly(self, group_id: str) -> bool:
        """Return whether the next heartbeat of a group is sent in a record of its own."""
        return group_id in self._singly

    def record_request(self, request: Request) -> None:
        """Store a request that is sent, until `answered`."""
        if isinstance(request, Heartbeats):
            self._requests.update((each.request_id, each.group_id) for each in request.each())
        else:
            self._requests[request.request_id] = request.group_id
            self._singly.pop(request.group_id, None)
            if isinstance(request, SyncGroup):
                self._syncs[request.request_id] = request
        while len(self._requests) > REQUESTS_MAX:
            oldest = next(iter(self._requests))
            self._requests.pop(oldest, None)
            self._syncs.pop(oldest, None)

    def answered(self, by: str, answer: AnyAnswer) -> bool:
        """Store what a response says about the place of a group. Return whether the response is for the sender.

        A coordinator that it names is added to `named`.
        """
        if isinstance(answer, HeartbeatsAnswer):
            for request_id, code in zip(answer.request_ids, answer.codes, strict=False):
                if code == NOT_COORDINATOR and (group_id := self._requests.pop(request_id, None)) is not None:
                    self._singly[group_id] = None  # this response names no coordinator
                else:
                    self.answered(by, HeartbeatAnswer(request_id=request_id, code=code))
            return True
        group_id = self._requests.pop(answer.request_id or "", None)
        sync = self._syncs.pop(answer.request_id or "", None)
        if group_id is None:
            return True
        decision = self._cache.record(group_id, by, answer)
        if decision is RetryDecision.DONE:
            self._tries.pop(group_id, None)
        else:
            self._tries[group_id] = self._tries.get(group_id, 0) + 1 if decision is RetryDecision.SEND_LATER else 1
        if decision in (RetryDecision.SEND_NOW, RetryDecision.ASK_NEXT):
            self.named[self.coordinator_of(group_id)] = None
        if decision is RetryDecision.DONE:
            if answer.code == NOT_COORDINATOR:
                self._singly[group_id] = None
            return True
        if sync is not None:
            self._again.append((self._clock() + (SYNC_WAIT_S if decision is RetryDecision.SEND_LATER else 0.0), sync))
        return sync is None

    def due(self) -> Iterator[SyncGroup]:
        """Yield the SyncGroups that are sent again now."""
        now_s, waiting = self._clock(), self._again
        self._again = [each for each in waiting if each[0] > now_s]
        yield from (sync for due_s, sync in waiting if due_s <= now_s)
