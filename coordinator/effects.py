"""What a member's state machine asks of its owner: things that take Kafka, user code or a decision.

`coordinator.member` returns these beside the requests that it wants sent.
"""

from msgspec import Struct

from coordinator.outputs import CommittedPartition, FetchedOffset, JoinedMember


class PrepareToJoin(Struct, frozen=True):
    """Commit, give up what is owned, then call `join`. Comes once a rebalance, and only out of `poll`."""

    why: str


class MakePlan(Struct, frozen=True):
    """This member leads: decide who owns what, then call `plan`.

    Args:
        is_planned: The coordinator goes on with the plan it has and wants none (KIP-814); to lead is then no more
            than to watch what the members subscribe to.
    """

    generation_id: int
    protocol_name: str
    members: tuple[JoinedMember, ...]
    is_planned: bool = False


class Assigned(Struct, frozen=True):
    """This is one's part of the plan; void if the member's generation is another one by the time it is read.

    Args:
        fencing_token: What to show whatever stores the work; the generation, where the coordinator gives no tokens.
    """

    generation_id: int
    protocol_name: str
    assignment: bytes
    fencing_token: int


class Lost(Struct, frozen=True):
    """Whatever is owned belongs to somebody else by now. The next `poll` joins again."""

    why: str


class CoordinatorSilent(Struct, frozen=True):
    """No answer has come for as long as a session lasts: others may own what this member believes to be its own.

    Nothing is lost by that alone. The log holds the heartbeats, and a coordinator that was away counts them.
    """

    session_timeout_ms: int


class RejoinNeeded(Struct, frozen=True):
    """A rebalance is on: poll soon."""

    why: str


class CommitEnded(Struct, frozen=True):
    """How the commit that `commit` gave this ticket ended; an error's code is Kafka's number for it."""

    ticket: str
    code: int
    error: str
    partitions: tuple[CommittedPartition, ...] = ()


class FetchEnded(Struct, frozen=True):
    """How the fetch that `fetch` gave this ticket ended."""

    ticket: str
    code: int
    error: str
    partitions: tuple[FetchedOffset, ...] = ()


class Left(Struct, frozen=True):
    """The coordinator has let this member go."""


class Failed(Struct, frozen=True):
    """The coordinator refuses this member for good: trying again as it is will not help."""

    code: int
    error: str
    message: str | None


Effect = (
    PrepareToJoin
    | MakePlan
    | Assigned
    | Lost
    | CoordinatorSilent
    | RejoinNeeded
    | CommitEnded
    | FetchEnded
    | Left
    | Failed
)
