"""What groups of both protocols have in common: times and waits, versions, fencing tokens and committed offsets.

`GroupVitals` and `AnyGroup` are mixins of the two kinds of vitals and of groups. A mixin names the fields that its
methods need, and each kind has them as fields of its own, because the order of the fields is part of the stored bytes.
"""

from collections.abc import Iterator

from msgspec import Struct

from coordinator.limits import OFFSETS_PER_GROUP_MAX
from coordinator.phases import Phase

NEVER_MS = 2**62
"""A time later than any other, in milliseconds."""


class Session(Struct, array_like=True):
    """The session timeout of one member id, and the time at which it expires.

    Args:
        extended: The session was extended once because the coordinator had been unavailable. It is not extended again
            before the next renewal.
    """

    deadline_ms: int
    timeout_ms: int
    extended: bool = False


class Offset(Struct, array_like=True, frozen=True):
    """A committed offset.

    Args:
        topic_id: The id that the topic had; None if the commit did not name it.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    topic_id: str | None = None


class PendingCommit(Struct, array_like=True):
    """The offsets that a transaction commits when it ends.

    Args:
        generation_id, member_id: As in the request, for the records of the offsets.
        offsets: By topic and partition; None where a later commit has replaced the offset.
    """

    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    offsets: dict[str, dict[int, Offset | None]]

    @property
    def count(self) -> int:
        return sum(map(len, self.offsets.values()))

    def replace(self, topic: str, partition: int) -> None:
        """Note that a later commit has replaced the offset of a partition."""
        if partition in (partitions := self.offsets.get(topic, {})):
            partitions[partition] = None


class GroupVitals:
    """Waits that are noted as deadlines."""

    phase: Phase
    now_ms: int
    earliest_ms: int
    back_ms: int
    offsets_ms: int

    def renew(self, session: Session, now_ms: int) -> None:
        """Start the session timeout again from `now_ms`."""
        session.deadline_ms, session.extended = self.wait(now_ms, session.timeout_ms), False

    def wait(self, now_ms: int, wait_ms: int) -> int:
        """Return the end of a wait that begins now, and note it as a deadline. A wait of 0 ms ends at once."""
        deadline_ms = now_ms
        if wait_ms:
            deadline_ms = (self.back_ms if self.back_ms > now_ms else now_ms) + wait_ms
        if deadline_ms < self.earliest_ms:
            self.earliest_ms = deadline_ms
        return deadline_ms

    def noting(self, deadline_ms: int) -> int:
        """Note that `deadline_ms` is one of the deadlines, and return it."""
        if deadline_ms < self.earliest_ms:
            self.earliest_ms = deadline_ms
        return deadline_ms


class AnyGroup:
    """Versions, fencing tokens and committed offsets."""

    group_id: str
    since_ms: int
    version: int
    token: int
    vitals: GroupVitals
    offsets: dict[str, dict[int, Offset]]
    offsets_count: int
    pending_commits: dict[int, PendingCommit]

    @property
    def phase(self) -> Phase:
        return self.vitals.phase

    @property
    def generation_id(self) -> int:
        """The number of the latest generation; in the consumer protocol, the group epoch."""
        raise NotImplementedError

    def retained_since_ms(self, topic: str, offset: Offset) -> int | None:
        """Return the time from which the retention time of an offset counts; None if the offset is kept."""
        raise NotImplementedError

    def subscribes(self, topic: str) -> bool:
        """Return whether the members may be reading a topic."""
        raise NotImplementedError

    def end(self, now_ms: int) -> None:
        """Change to Dead: the shard removes the group."""
        raise NotImplementedError

    def next_version(self) -> int:
        """Return the next version of the group's records and events."""
        self.version += 1
        return self.version

    def next_token(self, now_ms: int, floor: int) -> int:
        """Return a fencing token above all that the group has given: the group's time, in microseconds since 1970.

        If a group is removed for longer than its entry among the removed groups is kept, its tokens still grow: the
        time has passed the old tokens.

        Args:
            floor: No token is below it.

        Source: M. Kleppmann, How to do distributed locking.
        """
        self.token = max(self.token + 1, floor, now_ms * 1_000)
        return self.token

    def look_at_offsets(self, at_ms: int) -> None:
        """Schedule a check of expired offsets at `at_ms`, or keep an earlier one."""
        self.vitals.offsets_ms = self.vitals.noting(min(self.vitals.offsets_ms, at_ms))

    def keep_offset(self, topic: str, partition: int, offset: Offset) -> None:
        """Store a committed offset in place of the earlier one."""
        partitions = self.offsets.setdefault(topic, {})
        self.offsets_count += partition not in partitions
        partitions[partition] = offset

    def forget_offset(self, topic: str, partition: int) -> None:
        """Remove a committed offset."""
        del self.offsets[topic][partition]
        self.offsets_count -= 1
        if not self.offsets[topic]:
            del self.offsets[topic]

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Return whether an open transaction may commit an offset of this partition."""
        return any(partition in commit.offsets.get(topic, {}) for commit in self.pending_commits.values())

    def has_room_for_offset(self, topic: str, partition: int) -> bool:
        """Return whether an offset may be stored: it replaces another one, or the group has room for one more."""
        return self.offsets_count < OFFSETS_PER_GROUP_MAX or partition in self.offsets.get(topic, {})

    def all_offsets(self) -> Iterator[tuple[str, int, Offset]]:
        """Yield the committed offsets: topic, partition, offset."""
        for topic, partitions in self.offsets.items():
            for partition, offset in partitions.items():
                yield topic, partition, offset
