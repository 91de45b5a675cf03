"""The owners of partitions in the records of one classic group: one at a moment."""

from collections.abc import Iterator

from msgspec import Struct, field

from coordinator.base.consumer_protocol import READABLE, assigned_partitions
from coordinator.base.states import GroupType, Phase
from coordinator.messages.group_records import GroupRecord
from streaming.verify.findings import Kind
from streaming.views.state.fields import held
from streaming.views.state.group import KAFKA
from streaming.views.text import brief, escape

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
