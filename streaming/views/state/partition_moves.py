"""Partitions whose owner is not the member that the latest plan gives them to, as the records of a group show them.

The events do not name the partitions that a plan moves. The group's records do: they have the owner of each partition,
and the targets. So the records show that a partition waited for a member, also if the member expires before it gives
the partition up.
"""

from collections.abc import Iterator
from itertools import chain, islice

from msgspec import Struct, field
from msgspec.structs import replace

from coordinator.base.states import GroupType, Phase
from coordinator.messages.group_records import GroupMember, GroupRecord
from streaming.views.state.fields import PartitionKey, held, known

WITH_TARGETS = (GroupType.CONSUMER.value, GroupType.STREAMS.value)
"""The types of groups in which a partition has one owner, and waits until that one has given it up."""

PLACES_MAX = 1_000
"""The number of partitions in the periods of one group. Beyond it, the oldest periods are dropped."""


class Period(Struct, frozen=True):
    """Partitions that began to wait for their owners.

    Args:
        version: The version of the record that shows it.
        assignment_epoch: The epoch of the plan.
        owners: By partition, the member id of the owner.
    """

    version: int
    assignment_epoch: int
    owners: dict[PartitionKey, str]


class WaitingPartitions(Struct):
    """The waits of one group's partitions, from the group's records in the order in which they were read.

    A change replaces the list and the dict, so a copy of this object stays as it is.

    Args:
        now: By partition, the owner for which the planned owner waits, in the latest record.
    """

    now: dict[PartitionKey, str] = field(default_factory=dict)
    periods: list[Period] = field(default_factory=list)
    places: int = 0

    def add(self, record: GroupRecord) -> None:
        """Add the next record of the group."""
        before, self.now = self.now, {place: owner.member_id for place, owner, _ in waiting_partitions(record)}
        owners = {place: owner for place, owner in self.now.items() if before.get(place) != owner}
        if not owners:
            return
        shown = dict(islice(owners.items(), PLACES_MAX))
        periods = [*self.periods, Period(record.version, known(record.assignment_epoch) or 0, shown)]
        self.places += len(shown)
        while self.places > PLACES_MAX and len(periods) > 1:
            self.places -= len(periods.pop(0).owners)
        self.periods = periods

    def name(self, topic_id: str, topic: str) -> None:
        """Replace a topic's id by its name."""
        self.now = _named(self.now, topic_id, topic)
        self.periods = [replace(period, owners=_named(period.owners, topic_id, topic)) for period in self.periods]

    def forget(self, before_version: int) -> None:
        """Drop the periods that began before a version."""
        self.periods = [period for period in self.periods if period.version >= before_version]
        self.places = sum(len(period.owners) for period in self.periods)

    def within(self, from_version: int, to_version: int | None) -> dict[tuple[PartitionKey, str], int]:
        """Return the epochs of the plans since which partitions waited, by partition and owner.

        Args:
            from_version, to_version: The versions between which the waits began; None for no end.
        """
        epochs: dict[tuple[PartitionKey, str], int] = {}
        for period in self.periods:
            if from_version < period.version and (to_version is None or period.version < to_version):
                for place, owner in period.owners.items():
                    epochs.setdefault((place, owner), period.assignment_epoch)
        return epochs


def _named(owners: dict[PartitionKey, str], topic_id: str, topic: str) -> dict[PartitionKey, str]:
    return {(topic if of == topic_id else of, number): owner for (of, number), owner in owners.items()}


def waiting_partitions(record: GroupRecord) -> Iterator[tuple[PartitionKey, GroupMember, GroupMember]]:
    """Yield each partition whose owner is not its planned owner, with both."""
    if record.type not in WITH_TARGETS or record.state in (Phase.STABLE, Phase.EMPTY):
        return
    owners = {
        (topic, partition): member
        for member in record.members
        for topic, numbers in held(member)
        for partition in numbers
    }
    for member in record.members:
        targets = (known(member.target) or {}).items()
        for place in chain.from_iterable(((topic, each) for each in numbers) for topic, numbers in targets):
            owner = owners.get(place)
            if owner is not None and owner.member_id != member.member_id:
                yield place, owner, member
