"""The states of a member of the consumer protocol, and the moves between them.

Every change of a member's state goes through `move`, and each legal change is a row of `MOVES`.

Java's PREPARE_LEAVING is not needed: the thread that leaves calls the listener itself, and reconciles nothing
meanwhile. Its LEAVING is not needed either: a leave is sent at once, and never again.

Source: Kafka's MemberState and ConsumerMembershipManager; KIP-848.
"""

from enum import Enum, auto


class State(Enum):
    """The state of a member. Only in the states of `IN_GROUP` does it send heartbeats."""

    UNSUBSCRIBED = auto()  # it is no member, and has no subscription
    JOINING = auto()  # it sends epoch 0, and waits for the response
    RECONCILING = auto()  # an assignment waits for its owner, or the owner's listener is being called
    ACKNOWLEDGING = auto()  # its next request lists the partitions that it owns now
    STABLE = auto()  # it follows its assignment
    FENCED = auto()  # the coordinator has refused its epoch; its owner still has to release the partitions
    STALE = auto()  # its owner did not poll for too long, so it has left; its owner still has to release the partitions
    FATAL = auto()  # the coordinator refuses it for good


class Cause(Enum):
    """The cause of a move."""

    SUBSCRIBED = auto()
    ASSIGNED = auto()  # a response has another assignment
    RECONCILED = auto()  # the owner has released and taken partitions
    ACKNOWLEDGED = auto()  # a request lists the owned partitions
    FENCED = auto()
    NOT_POLLED = auto()
    RELEASED = auto()  # the owner has given up all partitions, as lost
    REFUSED = auto()
    LEFT = auto()


IN_GROUP = (State.JOINING, State.RECONCILING, State.ACKNOWLEDGING, State.STABLE)

MOVES: dict[tuple[State, Cause], State] = {
    # a member that is ...   when ...             becomes ...
    (State.UNSUBSCRIBED,     Cause.SUBSCRIBED):   State.JOINING,
    (State.JOINING,          Cause.ASSIGNED):     State.RECONCILING,
    (State.STABLE,           Cause.ASSIGNED):     State.RECONCILING,
    (State.ACKNOWLEDGING,    Cause.ASSIGNED):     State.RECONCILING,
    (State.RECONCILING,      Cause.ASSIGNED):     State.RECONCILING,
    (State.RECONCILING,      Cause.RECONCILED):   State.ACKNOWLEDGING,
    (State.ACKNOWLEDGING,    Cause.ACKNOWLEDGED): State.STABLE,
    (State.FENCED,           Cause.RELEASED):     State.JOINING,
    (State.STALE,            Cause.RELEASED):     State.JOINING,
    **{(state, Cause.FENCED):     State.FENCED for state in IN_GROUP},
    **{(state, Cause.NOT_POLLED): State.STALE for state in IN_GROUP},
    **{(state, Cause.REFUSED):    State.FATAL for state in IN_GROUP},
    **{(state, Cause.LEFT):       State.UNSUBSCRIBED for state in State},
}  # fmt: skip


def move(state: State, cause: Cause) -> State:
    """Return the state after a cause.

    Raises:
        AssertionError: the move is not in `MOVES`, which is a bug of the caller.
    """
    assert (state, cause) in MOVES, f"{cause.name} in {state.name}"
    return MOVES[state, cause]
