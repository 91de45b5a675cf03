"""A group's fencing tokens over all of its lives, from its events and its group records.

A group that was removed and created again counts versions from 1 again and, after a day, generations too. Tokens never
decrease.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from coordinator.base.consumer_protocol import READABLE, assigned_partitions
from coordinator.base.states import GroupType, Phase
from coordinator.messages.events import MemberFenced, RebalanceCompleted
from coordinator.messages.group_records import GroupRecord
from coordinator.messages.policy_events import SeatTaken
from streaming.views.text import brief, escape


class Tokens(Struct):
    """The tokens that were read of one group. The two topics are judged separately, since either may be ahead of the
    other.

    Args:
        given: The highest token in an event.
        given_to: The member that got it with a seat; "" if it was given otherwise. A member may take several seats at
            once, with one token.
        shown: By topic and partition, the member id of the last owner, and the highest token so far.
    """

    given: int = 0
    given_to: str = ""
    shown: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)

    def judge(self, read: object) -> Iterator[str]:
        """Judge the next record of either topic. Yield each fault in words."""
        match read:
            case RebalanceCompleted(leader=None) if read.fencing_token:  # it may have given no partition to anybody
                if read.fencing_token < self.given:
                    yield f"token {read.fencing_token} was the highest after {self.given}"
                self.given = max(self.given, read.fencing_token)
            case RebalanceCompleted() | MemberFenced() | SeatTaken() if read.fencing_token:
                taker = read.member_id if isinstance(read, SeatTaken) else ""
                if read.fencing_token < self.given + (not taker or taker != self.given_to):
                    yield f"token {read.fencing_token} was given after {self.given}"
                self.given, self.given_to = max(self.given, read.fencing_token), taker
            case GroupRecord() if read.type == GroupType.CONSUMER.value:
                yield from self._owners(read, {member.member_id: member.assigned for member in read.members})
            case GroupRecord(state=Phase.STABLE) if read.protocol_type in READABLE:
                yield from self._owners(read, {m.member_id: assigned_partitions(m.assignment) for m in read.members})

    def _owners(self, record: GroupRecord, assigned: Mapping[str, dict[str, list[int]] | None]) -> Iterator[str]:
        owners = {
            (topic, partition): (member.member_id, member.fencing_token)
            for member in record.members
            if member.fencing_token
            for topic, partitions in (assigned[member.member_id] or {}).items()
            for partition in partitions
        }
        for (topic, partition), (member_id, token) in owners.items():
            before, highest = self.shown.get((topic, partition), (member_id, 0))
            if token < highest or (token == highest and member_id != before):
                yield (
                    f"{escape(topic)}-{partition} is {brief(member_id)}'s with token {token}, and was {brief(before)}'s"
                    f" with {highest}"
                )
            self.shown[topic, partition] = member_id, max(token, highest)
