"""One step of a shard: its times, its budget, and which requests and records for others wait for the next step."""

from collections.abc import Iterable, Iterator
from itertools import chain

from msgspec.structs import replace

from coordinator.base.errors import ErrorCode
from coordinator.common.refusals import reject
from coordinator.messages.heartbeats import Heartbeats
from coordinator.messages.move_requests import PEER_RECORDS
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Received, Unreadable, Wake
from coordinator.messages.responses import Reply
from coordinator.moves import slot_source
from coordinator.moves.custody import MoveStore
from coordinator.moves.resume import NO_ADDRESS
from coordinator.shard.budget import Budget
from coordinator.shard.clock import Times
from coordinator.shard.handlers import HANDLERS


class Step:
    """One step of a shard.

    Args:
        partition: The number of the shard's partition.
        times: The times of the step.
    """

    def __init__(self, partition: int, times: Times) -> None:
        self._partition, self.times = partition, times
        self.budget = Budget()
        self.waiting = set[str]()
        """The groups with requests that this step has deferred."""
        self.deferred: list[Received] = []
        """These requests. The log of the next step must begin with them."""

    def charged(self, received: Received, outputs: Iterable[Output]) -> list[Output]:
        """Count the outputs of a request against the budget of the step, and return them."""
        brought = list(outputs)
        self.budget.spend(group_of(received), brought, received.size_bytes)
        return brought

    def must_wait(self, received: Received) -> bool:
        """Return whether to defer a request, because the budget of its group or of the shard is used up."""
        if isinstance(received.request, Wake):
            return False
        return self.holds_back(group_of(received))

    def holds_back(self, group_id: str) -> bool:
        """Return whether requests to a group wait for the next step, while the budget is tight."""
        return group_id in self.waiting or self.budget.is_spent_by(group_id)

    def defer(self, received: Received) -> Iterator[Output]:
        """Defer a request to the next step; refuse the request if too many are deferred already."""
        request = received.request
        self.waiting.add(group_of(received))
        if isinstance(request, Heartbeats):
            self.waiting.update(request.groups)
        if self.budget.defers(received.size_bytes) or isinstance(request, PEER_RECORDS):
            self.deferred.append(replace(received, was_deferred=True))
        elif isinstance(request, Unreadable):
            yield reject(received, request, self._partition)
        else:
            assert not isinstance(request, Wake), "a wake record is no request"
            error, why = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the shard has too many requests to answer"
            yield HANDLERS[type(request)].refuse(request, error, why)

    def with_moves(self, moves: MoveStore, outputs: list[Output]) -> list[Output]:
        """Return the outputs of a step without replies to missing mailboxes, and with records for other coordinators.

        At least one record is written, and not more than the budget allows.
        """
        moves.remove_old(self.times.horizon_ms)
        parts = chain.from_iterable(moves.parts(group_id) for group_id in moves.unwritten)
        left = [output for output in outputs if type(output) is not Reply or output.to != NO_ADDRESS]
        for record in chain(slot_source.unwritten(moves), parts):
            self.budget.spend(record.name, [record], 0)
            left.append(record)
            if self.budget.is_spent:
                break
        return left


def group_of(received: Received) -> str:
    """Return the name of the group that a request is about; "" if it is about none or several."""
    return getattr(received.request, "group_id", "")
