"""The owner of each partition as the coordinator has assigned it, folded from the coordinator's events."""

from kafka import TopicPartition
from msgspec import Struct

from coordinator.messages.events import AssignmentChanged, MemberExpired, MemberFenced, MemberLeft, RebalanceStarted
from coordinator.messages.fields import Event, MemberEvent


class Ownership(Struct, frozen=True):
    """The latest change of a partition's owner.

    Args:
        member_id: None if the partition has no owner.
        since_ms: The time of the change, Unix milliseconds.
        cause: The cause of the rebalance that led to the change.
    """

    member_id: str | None
    since_ms: int
    generation_id: int | None
    cause: str


class Owners:
    """The owners of the partitions of all groups."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, TopicPartition], Ownership] = {}
        self._causes: dict[str, str] = {}

    def add(self, event: Event) -> None:
        """Handle an event of the coordinator."""
        group_id = event.group_id or ""
        match event:
            case RebalanceStarted():
                by = f" of {event.client_id}" if event.client_id else ""
                self._causes[group_id] = f"{event.cause}{by}" + (f" ({event.reason})" if event.reason else "")
            case AssignmentChanged():
                for each in event.handovers:
                    changed = Ownership(each.after, event.at_ms, event.generation_id, self._causes.get(group_id, ""))
                    self._of[group_id, TopicPartition(each.topic, each.partition)] = changed

            case MemberLeft():
                self._replace(event, None, f"member_left of {event.client_id}")
            case MemberExpired():
                self._replace(event, None, f"{event.why} of {event.client_id}")
            case MemberFenced():
                self._replace(event, event.replaced_by, f"a new process of the static member {event.group_instance_id}")

    def _replace(self, event: MemberEvent, member_id: str | None, cause: str) -> None:
        changed = Ownership(member_id, event.at_ms, event.generation_id, cause)
        for (group_id, partition), owned in self._of.items():
            if group_id == event.group_id and owned.member_id == event.member_id:
                self._of[group_id, partition] = changed

    def of(self, group_id: str, partition: TopicPartition) -> Ownership | None:
        """Return the latest change of a partition's owner; None if it never had one."""
        return self._of.get((group_id, partition))
