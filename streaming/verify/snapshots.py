"""The records of a group at both ends of a move: those before its release, and their copies at the target.

The group's tombstone ends its records on the groups topic. The version of the release tells which of them were written
before it, and the copies have the versions right above that of the arrival. A record that compaction has removed is not
judged.
"""

from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from coordinator.base.states import Phase
from coordinator.messages.group_records import GroupMember, GroupRecord, OffsetRecord
from coordinator.messages.move_events import GroupArrived, GroupReleased
from streaming.views.state.fields import PartitionKey, known
from streaming.wire.records import Tombstone

_ENCODER = msgspec.json.Encoder(order="deterministic")


class Commit(NamedTuple):
    """A published offset of one partition."""

    offset: int
    at_ms: int
    version: int


class Roster(NamedTuple):
    """The members of a group's record: for each one, a hash of the fields that a move does not change."""

    version: int
    state: Phase
    generation_id: int
    members: dict[str, int]


class Snapshot(NamedTuple):
    """The records at one end of a move.

    Args:
        end: At the source, the version of the tombstone that ends the records; None while none is there.
        is_whole: At the target, whether no record is gone from the partition of the topic.
    """

    roster: Roster | None
    offsets: dict[PartitionKey, Commit]
    end: int | None = None
    is_whole: bool = False

    @property
    def weight(self) -> int:
        """The number of its entries."""
        return len(self.offsets) + (0 if self.roster is None else len(self.roster.members))


class Chapter(Struct):
    """The records of a group on the groups topic, up to the tombstone of the group.

    Args:
        firsts, lasts: By partition, the first and the last commit.
        gone: By partition, the version of the tombstone after the last commit.
        end: The version of the group's tombstone.
    """

    first: GroupRecord | None = None
    last: GroupRecord | None = None
    firsts: dict[PartitionKey, Commit] = field(default_factory=dict)
    lasts: dict[PartitionKey, Commit] = field(default_factory=dict)
    gone: dict[PartitionKey, int] = field(default_factory=dict)
    end: int | None = None

    def add(self, read: GroupRecord | OffsetRecord | Tombstone) -> None:
        """Add the next record of the group."""
        match read:
            case GroupRecord():
                self.first, self.last = self.first or read, read
            case OffsetRecord():
                place = read.topic, read.partition
                self.lasts[place] = Commit(read.offset, read.commit_timestamp_ms, read.version)
                self.firsts.setdefault(place, self.lasts[place])
                self.gone.pop(place, None)
            case Tombstone(topic=str(topic), partition=int(partition)):
                self.gone[topic, partition] = read.version or 0
            case Tombstone():
                self.end = read.version

    def at_source(self, left: GroupReleased, roster_from: int) -> Snapshot:
        """Return the records before a release.

        Args:
            roster_from: The version of the latest event that may have changed the members. A record before it is old.
        """
        version = left.version or 0
        offsets = {
            place: commit
            for place, commit in self.lasts.items()
            if commit.version < version <= self.gone.get(place, version) and commit.at_ms <= left.at_ms
        }
        is_latest = self.last is not None and roster_from < self.last.version < version
        return Snapshot(_roster(self.last) if is_latest else None, offsets, self.end)

    def at_target(self, came: GroupArrived, *, is_whole: bool) -> Snapshot | None:
        """Return the first record of each key; None if the first one of the group is no copy after this arrival."""
        if self.first is None or self.first.version != (came.version or 0) + 1:
            return None
        return Snapshot(_roster(self.first), self.firsts, is_whole=is_whole)


def _roster(record: GroupRecord | None) -> Roster | None:
    if record is None:
        return None
    members = {member.member_id: _kept(member) for member in record.members}
    return Roster(record.version, record.state, record.generation_id, members)


def _kept(member: GroupMember) -> int:
    """Return a hash of the fields of a member that a move does not change."""
    fields = member.group_instance_id, member.assignment, member.assigned, known(member.revoking), member.fencing_token
    return hash(_ENCODER.encode(fields))
