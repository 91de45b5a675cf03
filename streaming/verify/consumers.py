"""The owners of partitions in the records of a group: one at a moment.

A group of the consumer protocol also has epochs and targets (KIP-848).

A record is judged on its own, and against the record before. The events show each partition that is given up or taken,
so they show whether a partition was free when it was taken.
"""

from collections.abc import Iterator
from itertools import chain

from msgspec import UNSET, Struct, field

from coordinator.base.consumer_protocol import READABLE, assigned_partitions
from coordinator.base.states import GroupType, Phase
from coordinator.messages.events import (
    AssignmentChanged,
    GroupConverted,
    GroupDeleted,
    MemberExpired,
    MemberLeft,
    PlanMade,
)
from coordinator.messages.group_records import GroupMember, GroupRecord
from coordinator.messages.move_events import GroupMoved
from coordinator.state.consumer_group import AWAY_EPOCH
from streaming.verify.findings import Kind
from streaming.views.state.fields import PartitionKey, held, known
from streaming.views.state.group import KAFKA
from streaming.views.text import brief, escape, in_partitions
from streaming.wire.records import Tombstone

Wrong = tuple[Kind, str]
Partitions = dict[str, list[int]]


def is_of_consumers(record: GroupRecord | None) -> bool:
    """Return whether a record is one of a group of the consumer protocol."""
    return record is not None and record.type == GroupType.CONSUMER.value


class ConsumerAudit(Struct):
    """The data of a group that were read so far. Each topic is judged by itself, since either may be ahead.

    Args:
        holders: By partition, the member that has it, as the events show it.
        is_consumer: Whether the events are those of a group of the consumer protocol.
        plan: The epoch of the latest plan, and the number of its partitions.
        planned: The same numbers in the latest record without a change after the plan.
        before: The latest record.
    """

    holders: dict[PartitionKey, str] = field(default_factory=dict)
    is_consumer: bool = False
    plan: tuple[int, int] | None = None
    planned: tuple[int, int] | None = None
    before: GroupRecord | None = None

    def judge(self, read: object) -> Iterator[Wrong]:
        """Judge the next record of either topic."""
        match read:
            case GroupRecord() if is_of_consumers(read):
                yield from self._judge(read)
                self.before = read
            case GroupRecord() | Tombstone(topic=None):
                self.before = self.planned = None
            case PlanMade():
                self.is_consumer, self.plan = True, (read.generation_id or 0, read.partitions)
                yield from self._judge_cover()
            case MemberLeft() | MemberExpired():
                for place in [place for place, holder in self.holders.items() if holder == read.member_id]:
                    del self.holders[place]
            case AssignmentChanged() if self.is_consumer:
                yield from self._judge_handovers(read)
            case GroupConverted():
                self.is_consumer, self.plan = read.group_type == GroupType.CONSUMER.value, None
                self.holders.clear()
            case GroupDeleted() | GroupMoved():
                self.is_consumer, self.plan = False, None
                self.holders.clear()

    # -- events --------------------------------------------------------------------------------------------------------

    def _judge_handovers(self, event: AssignmentChanged) -> Iterator[Wrong]:
        for each in event.handovers:
            place, name = (each.topic, each.partition), f"{escape(each.topic)}-{each.partition}"
            holder = self.holders.pop(place, each.before)
            if holder != each.before:
                moved = f"it went from {brief(each.before)} to {brief(each.after)}"
                yield Kind.NOT_FREE, f"{name} was {brief(holder)}'s when {moved}"
            if each.after is not None:
                self.holders[place] = each.after

    # -- records -------------------------------------------------------------------------------------------------------

    def _judge(self, record: GroupRecord) -> Iterator[Wrong]:
        yield from _judge_owners(record)
        yield from _judge_epochs(record)
        yield from self._judge_against_before(record)
        yield from _judge_targets(record)
        is_current = record.assignment_epoch == record.generation_id and record.state is not Phase.EMPTY
        self.planned = None
        if is_current:
            targets = (numbers for member in record.members for numbers in (known(member.target) or {}).values())
            self.planned = record.generation_id, sum(map(len, targets))
            yield from self._judge_cover()

    def _judge_against_before(self, record: GroupRecord) -> Iterator[Wrong]:
        before = self.before
        if before is None or record.generation_id < before.generation_id:
            return  # that the group epoch fell is a finding of its own
        told, was = known(record.assignment_epoch) or 0, known(before.assignment_epoch) or 0
        if told < was:
            yield Kind.GENERATION_FELL, f"assignment epoch {told} came after {was}"
        epochs = {member.member_id: known(member.member_epoch) or 0 for member in before.members}
        for member in record.members:
            epoch, was = known(member.member_epoch) or 0, epochs.get(member.member_id, AWAY_EPOCH)
            if AWAY_EPOCH != epoch < was:
                yield Kind.GENERATION_FELL, f"epoch {epoch} of {brief(member.member_id)} came after {was}"

    def _judge_cover(self) -> Iterator[Wrong]:
        """Compare the targets in the group's record with the plan of the same epoch."""
        if self.plan is None or self.planned is None or self.plan[0] != self.planned[0]:
            return
        (epoch, of_plan), (_, of_record) = self.plan, self.planned
        if of_plan != of_record:
            text = f"the plan of epoch {epoch} has {of_plan} partitions, and the targets have {of_record}"
            yield Kind.NOT_COVERED, text


def _judge_owners(record: GroupRecord) -> Iterator[Wrong]:
    """Check that no partition is in `assigned` or `revoking` of two members."""
    owners: dict[PartitionKey, str] = {}
    for member in record.members:
        for place in _places(member.assigned, known(member.revoking)):
            owner = owners.setdefault(place, member.member_id)
            if owner != member.member_id:
                where = f"at group epoch {record.generation_id} {escape(place[0])}-{place[1]} is"
                yield Kind.TWO_OWNERS, f"{where} {brief(owner)}'s and {brief(member.member_id)}'s"


def _judge_epochs(record: GroupRecord) -> Iterator[Wrong]:
    """Check that member epoch <= assignment epoch <= group epoch."""
    assignment_epoch = known(record.assignment_epoch) or 0
    if assignment_epoch > record.generation_id:
        text = f"assignment epoch {assignment_epoch} is above group epoch {record.generation_id}"
        yield Kind.EPOCH_AHEAD, text
    for member in record.members:
        epoch = known(member.member_epoch) or 0
        if epoch > assignment_epoch:
            text = f"epoch {epoch} of {brief(member.member_id)} is above assignment epoch {assignment_epoch}"
            yield Kind.EPOCH_AHEAD, text


def _judge_targets(record: GroupRecord) -> Iterator[Wrong]:
    """Check the targets: each partition in one of them, without holes, and only topics that the member subscribes to.

    Only records without a change after the plan are judged. A member that has reached the plan has its target. With a
    pattern it may have less: nobody may have resolved the pattern yet.
    """
    if record.assignment_epoch != record.generation_id:
        return
    planned: dict[PartitionKey, str] = {}
    for member in record.members:
        yield from _judge_settled(record, member)
        target = known(member.target) or {}
        unwanted = target.keys() - set(known(member.subscribed_topics) or ())
        if unwanted and not known(member.regex):
            topics = ", ".join(map(escape, sorted(unwanted)))
            yield Kind.NOT_COVERED, f"{brief(member.member_id)} does not subscribe to {topics} of its target"
        for place in _places(target):
            other = planned.setdefault(place, member.member_id)
            if other != member.member_id:
                who = f"{brief(other)} and {brief(member.member_id)}"
                yield Kind.NOT_COVERED, f"{escape(place[0])}-{place[1]} is in the targets of {who}"
    by_topic: dict[str, set[int]] = {}
    for topic, number in planned:
        by_topic.setdefault(topic, set()).add(number)
    holes = {topic: sorted(set(range(max(numbers))) - numbers) for topic, numbers in by_topic.items()}
    if any(holes.values()):
        yield Kind.NOT_COVERED, f"no target has {in_partitions(holes)}"


def _judge_settled(record: GroupRecord, member: GroupMember) -> Iterator[Wrong]:
    assigned, target = set(_places(member.assigned)), set(_places(known(member.target)))
    who = brief(member.member_id)
    if member.revoking and member.state != "unrevoked":
        yield Kind.TARGET_MISSED, f"{who} is {member.state}, and has to give up {in_partitions(member.revoking)}"
    if member.state != "stable" or member.member_epoch is UNSET or member.member_epoch != record.assignment_epoch:
        return
    if assigned - target or (target - assigned and not known(member.regex)):
        has, should = in_partitions(member.assigned or {}), in_partitions(known(member.target) or {})
        text = f"at assignment epoch {record.assignment_epoch} {who} has {has}, and its target is {should}"
        yield Kind.TARGET_MISSED, text


def _places(*partitions: Partitions | None) -> Iterator[PartitionKey]:
    of_topics = chain.from_iterable((each or {}).items() for each in partitions)
    return ((topic, number) for topic, numbers in of_topics for number in numbers)


# -- owners in a classic group -----------------------------------------------------------------------------------------


Owner = tuple[str, str]
"""A member, by its instance id or member id, and its member id."""


class Owners(Struct):
    """The last owner of each partition in the present generation.

    A policy may pass a partition on within a generation, but only after its last owner has left the group.
    """

    generation_id: int = -1
    last: dict[tuple[str, int], Owner] = field(default_factory=dict)

    def judge(self, record: GroupRecord) -> Iterator[tuple[Kind, str]]:
        """Judge the next record. Earlier in a rebalance, members show their assignments of the last generation."""
        if record.kept_by == KAFKA and record.type == GroupType.CONSUMER.value:
            yield from _two_at_once(record)
            return
        if record.state is not Phase.STABLE or record.protocol_type not in READABLE:
            return
        before = self.last if self.generation_id == record.generation_id else {}
        present, now = {member.member_id for member in record.members}, dict[tuple[str, int], Owner]()
        for place, who in _owners(record):
            where = f"in generation {record.generation_id} {escape(place[0])}-{place[1]} is"
            last = before.get(place, who)
            if place in now:
                both = f"{brief(now[place][1])}'s and {brief(who[1])}'s"
                yield Kind.PLANNED_TWICE, f"{where} {both}, as the leader {brief(record.leader)} assigned it"
            elif last[0] != who[0] and last[1] in present:
                yield Kind.TWO_OWNERS, f"{where} {brief(who[1])}'s, and was {brief(last[1])}'s, which is a member yet"
            now.setdefault(place, who)
        self.last, self.generation_id = before | now, record.generation_id


def _owners(record: GroupRecord) -> Iterator[tuple[tuple[str, int], Owner]]:
    for member in record.members:
        for topic, partitions in (assigned_partitions(member.assignment) or {}).items():
            for place in {(topic, partition) for partition in partitions}:
                yield place, (member.group_instance_id or member.member_id, member.member_id)


def _two_at_once(record: GroupRecord) -> Iterator[tuple[Kind, str]]:
    """Judge a group of the consumer protocol that Kafka's coordinator keeps: no two members own a partition."""
    owners: dict[tuple[str, int], str] = {}
    for member in record.members:
        for topic, partitions in held(member):
            for place in ((topic, partition) for partition in partitions):
                if (other := owners.setdefault(place, member.member_id)) != member.member_id:
                    both = f"{brief(other)}'s and {brief(member.member_id)}'s"
                    yield Kind.TWO_OWNERS, f"in epoch {record.generation_id} {escape(topic)}-{place[1]} is {both}"
