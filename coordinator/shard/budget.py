"""Bounds on the output of a shard: per step, per group and step, and for responses that repeat stored data.

Requests beyond a step's budget are deferred. The next step handles them, as if the log had ended before them. Large
responses beyond an allowance are refused. The allowance depends on the time of the log, so a replay refuses the same
responses.
"""

from collections.abc import Iterable

from coordinator.base.limits import DEFERRED_BYTES_MAX, GROUP_STEP_BYTES_MAX, STEP_BYTES_MAX, STEP_BYTES_PER_BYTE
from coordinator.messages.outputs import Output, size_of
from coordinator.messages.responses import Reply


class Budget:
    """The output of one step so far, beyond the size of its requests.

    `is_tight` is true as soon as the budget of one group, or that of the shard, is used up.
    """

    def __init__(self) -> None:
        self.is_tight = False
        self._spent = self._deferred = 0
        self._by_group: dict[str, int] = {}

    @property
    def is_spent(self) -> bool:
        """True if the budget of the shard is used up."""
        return self._spent >= STEP_BYTES_MAX

    def is_spent_by(self, group_id: str) -> bool:
        """Return whether the budget of a group, or that of the shard, is used up."""
        return self.is_spent or self._by_group.get(group_id, 0) >= GROUP_STEP_BYTES_MAX

    def spend(self, group_id: str, outputs: Iterable[Output], in_bytes: int) -> None:
        """Count the outputs of a request of `in_bytes` bytes."""
        self.spend_bytes(group_id, sum(map(size_of, outputs)), in_bytes)

    def spend_bytes(self, group_id: str, out_bytes: int, in_bytes: int) -> None:
        """Count `out_bytes` bytes of output for a request of `in_bytes` bytes."""
        excess = out_bytes - STEP_BYTES_PER_BYTE * in_bytes
        if excess > 0:
            self._spent += excess
            self._by_group[group_id] = self._by_group.get(group_id, 0) + excess
            self.is_tight = self.is_tight or self.is_spent_by(group_id)

    def defers(self, in_bytes: int) -> bool:
        """Return whether a request of `in_bytes` bytes may wait for the next step. Count the request if it may."""
        may_wait = self._deferred + in_bytes <= DEFERRED_BYTES_MAX
        self._deferred += in_bytes if may_wait else 0
        return may_wait


def answer_bytes(outputs: Iterable[Output], request_id: str) -> int:
    """Return the size of the response to one request, in bytes; 0 if the outputs have no response to it."""
    return sum(size_of(o) for o in outputs if isinstance(o, Reply) and o.answer.request_id == request_id)
