"""A release that waits until the open transactions of its group have ended (moving.md 2.7).

The places of pending commits are offsets of the source's transactions topic, whose ends only the source reads. So a
group is released without pending commits. While its name is drained, the group serves everything except further
commits inside transactions: they are refused with COORDINATOR_LOAD_IN_PROGRESS, and their producers send them again.
So no open transaction is added, and each one ends by its timeout at the latest. After `MOVE_DRAIN_MS` the release is
refused, because a producer that hangs must not stop the commits of all others.
"""

from collections.abc import Iterator, Mapping

from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import MOVE_DRAIN_MS, NEVER_MS
from coordinator.common.handler import RequestSpec
from coordinator.common.refusals import refusal
from coordinator.messages.move_requests import ReleaseGroup
from coordinator.messages.outputs import Output
from coordinator.messages.requests import TxnOffsetCommit
from coordinator.messages.responses import ReleaseGroupAnswer, Reply
from coordinator.moves.custody import MoveStore
from coordinator.state.move_state import Draining

SUPERSEDED = "a later request releases the group to the same coordinator"
TOO_LONG = f"the group still has open transactions after {MOVE_DRAIN_MS} ms; release it again when they have ended"
MOVES_SOON = "the group moves to another coordinator when its open transactions have ended"


def has_open_transactions(store: MoveStore, group_id: str) -> bool:
    """Return whether commits of open transactions are pending."""
    group = store.groups.open(group_id)
    return group is not None and bool(group.pending_commits)


def begin(store: MoveStore, request: ReleaseGroup, context: Context) -> Iterator[Output]:
    """Drain a name. A repeated request takes the place of the earlier one, and does not extend its time."""
    before = store.draining.get(request.group_id)
    until_ms = context.now_ms + MOVE_DRAIN_MS if before is None else before.until_ms
    if before is not None and before.request != request:
        yield refusal(ReleaseGroupAnswer, before.request, ErrorCode.INVALID_REQUEST, SUPERSEDED)
    store.draining[request.group_id] = Draining(request, context.offset, until_ms)


def refuse_commit(store: MoveStore, spec: RequestSpec, request: TxnOffsetCommit) -> Reply | None:
    """Return the refusal of a commit of a drained name; None for a repeat of a pending one and for all other names."""
    if request.group_id not in store.draining:
        return None
    group = store.groups.open(request.group_id)
    if group is not None and request.place in group.pending_commits:
        return None
    return spec.refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, MOVES_SOON)


def due_by(store: MoveStore, at_ms: int) -> list[str]:
    """Return the names that have waited for too long."""
    return [group_id for group_id, drain in store.draining.items() if drain.until_ms <= at_ms]


def next_deadline_ms(drained: Mapping[str, Draining]) -> int:
    """Return the time at which a name will have waited for too long; `NEVER_MS` if none waits."""
    return min((drain.until_ms for drain in drained.values()), default=NEVER_MS)
