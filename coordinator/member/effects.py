"""Effects: actions that a member's state machine asks its owner for, because they need Kafka, user code or a decision.

`member.Member` returns effects together with the requests to send.
"""

from msgspec import Struct

from coordinator.messages.responses import CommittedPartition, FetchedOffset, JoinedMember


class PrepareToJoin(Struct, frozen=True):
    """Commit, revoke the owned partitions, then call `join`. Returned once in a rebalance, and only by `poll`."""

    why: str


class MakePlan(Struct, frozen=True):
    """This member leads the group: compute the assignments of all members, then call `plan`.

    Args:
        is_planned: The coordinator keeps the present assignments and expects no new ones (KIP-814). The leader then
            only has to watch the members' subscriptions.
    """

    generation_id: int
    protocol_name: str
    members: tuple[JoinedMember, ...]
    is_planned: bool = False


class Assigned(Struct, frozen=True):
    """The member's assignment. It is void if the member's generation is another one when the owner reads it.

    Args:
        fencing_token: The token to pass to the storage that the member writes to.
    """

    generation_id: int
    protocol_name: str
    assignment: bytes
    fencing_token: int


class PartitionsLost(Struct, frozen=True):
    """Other members may own all of this member's partitions by now. The next `poll` joins again."""

    why: str


class CoordinatorSilent(Struct, frozen=True):
    """No response has come for a whole session timeout: other members may own this member's partitions.

    Silence alone loses nothing. The log holds the heartbeats, and a coordinator that was unavailable counts them later.
    """

    session_timeout_ms: int


class RejoinNeeded(Struct, frozen=True):
    """A rebalance is in progress: call `poll` soon."""

    why: str


class CommitEnded(Struct, frozen=True):
    """The result of the commit to which `commit` gave this ticket; `code` is Kafka's number of the error."""

    ticket: str
    code: int
    error: str
    partitions: tuple[CommittedPartition, ...] = ()


class FetchEnded(Struct, frozen=True):
    """The result of the fetch to which `fetch` gave this ticket."""

    ticket: str
    code: int
    error: str
    partitions: tuple[FetchedOffset, ...] = ()


class Left(Struct, frozen=True):
    """The coordinator has removed this member."""


class Failed(Struct, frozen=True):
    """The coordinator refuses this member for good: a retry with the same settings fails again."""

    code: int
    error: str
    message: str | None


Effect = (
    PrepareToJoin
    | MakePlan
    | Assigned
    | PartitionsLost
    | CoordinatorSilent
    | RejoinNeeded
    | CommitEnded
    | FetchEnded
    | Left
    | Failed
)
