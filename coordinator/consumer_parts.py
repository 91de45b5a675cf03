"""Parts of a group of the consumer protocol: topics, patterns, rebalances, policies, and the latest changes.

Source: Kafka's ResolvedRegularExpression; KIP-848.
"""

from typing import NamedTuple

from msgspec import Struct

from coordinator.assignors.server import Target
from coordinator.consumer_member import ConsumerMember, names_bytes
from coordinator.limits import NEVER_MS


class Topic(Struct, array_like=True, frozen=True):
    """The fact about a topic: its id and its number of partitions; None and 0 if the topic does not exist."""

    topic_id: str | None = None
    partitions: int = 0


class Resolution(Struct, array_like=True, frozen=True):
    """The topics that a pattern matches, for the member whose heartbeat brought them.

    Args:
        topics: Sorted; None while no record has resolved the pattern.
    """

    member_id: str
    topics: tuple[str, ...] | None = None

    @property
    def topics_bytes(self) -> int:
        """The approximate size of the topics."""
        return names_bytes(self.topics or ())


class Change(Struct, array_like=True, frozen=True):
    """A rebalance in progress.

    Args:
        started_ms: When the group epoch was first raised.
        planned_ms: When the latest target assignment was computed; 0 before the first one.
        before: The members at the beginning.
    """

    started_ms: int
    planned_ms: int
    before: tuple[str, ...]


class HeldPlan(Struct, array_like=True, kw_only=True):
    """A target assignment that a policy holds: the group epoch was raised, and the members keep their targets.

    Args:
        since_ms: When the first cause came.
        until_ms: When the target assignment is computed.
        policy: settle or freeze.
        wait_ms: The quiet time that the latest cause has asked for; 0 in a freeze, which lasts until a time.
        cause, member_id, client_id, client_host, reason: The first cause, as the event of the rebalance names it.
        vacant: How many members with partitions are gone since.
        unowned_since_ms: Since when a partition is in no member's target; `NEVER_MS` if every partition is in one.
        unowned_until_ms: When such a partition breaks the freeze.
        unowned_max_ms: The time between the two, as the policy has it.
        was_extended: The wait was extended once, as sessions are.
    """

    since_ms: int
    until_ms: int
    policy: str
    wait_ms: int
    cause: str
    member_id: str
    client_id: str
    client_host: str
    reason: str | None
    vacant: int = 0
    unowned_since_ms: int = NEVER_MS
    unowned_until_ms: int = NEVER_MS
    unowned_max_ms: int = 0
    was_extended: bool = False

    @property
    def due_ms(self) -> int:
        """The next time at which the hold may end."""
        return min(self.until_ms, self.unowned_until_ms)


class Gone(NamedTuple):
    """A member that was removed.

    Args:
        was_hidden: It was in quarantine.
    """

    member: ConsumerMember
    target: Target
    was_hidden: bool


class News:
    """The changes of a group since the last outputs about changes. They are not a part of the state.

    Attributes:
        before: The members before the first of these changes; None if the members are the same.
        handovers: Topic id, number, old holder, new holder; a partition has one holder or none.
        gone: The members that were removed, without those that another process replaces.
        has_unsubscribed: A member with a subscription was removed, or has another one; or a pattern matches other
            topics.
    """

    def __init__(self) -> None:
        self.is_changed = self.has_unsubscribed = False
        self.before: tuple[str, ...] | None = None
        self.handovers: list[tuple[str, int, str | None, str | None]] = []
        self.gone: list[Gone] = []
