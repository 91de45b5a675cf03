"""The common parts of groups of both protocols: times and waits, versions, fencing tokens and committed offsets.

`GroupHotState` and `AnyGroup` are mixins of the two kinds of hot state and of groups. A mixin names the fields that its
methods need, and each kind has them as fields of its own, because the order of the fields is part of the stored bytes.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import (
    ANSWER_BYTES_BURST,
    ANSWER_BYTES_FREE,
    ANSWER_BYTES_PER_S,
    OFFSETS_PER_GROUP_MAX,
    RECORD_OFFSET_END,
)
from coordinator.base.states import Phase


class Allowance(Struct, array_like=True, frozen=True):
    """The used part of the allowance for large responses, and the time of that count."""

    used_bytes: int = 0
    at_ms: int = 0

    def left_at(self, now_ms: int) -> int:
        """Return the number of bytes left. It is below 0 after a response that was larger than the bytes left."""
        return ANSWER_BYTES_BURST - self._used_at(now_ms)

    def with_answer(self, answer_bytes: int, now_ms: int) -> "Allowance":
        """Return the allowance after a response. A small response costs nothing."""
        if answer_bytes <= ANSWER_BYTES_FREE:
            return self
        return Allowance(self._used_at(now_ms) + answer_bytes, max(now_ms, self.at_ms))

    def _used_at(self, now_ms: int) -> int:
        restored = max(now_ms - self.at_ms, 0) * ANSWER_BYTES_PER_S // 1_000
        return max(self.used_bytes - restored, 0)


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

    def partitions(self) -> Iterator[tuple[tuple[str, int], Offset | None]]:
        """Yield each partition with its offset."""
        for topic, partitions in self.offsets.items():
            for partition, offset in partitions.items():
                yield (topic, partition), offset


class PendingIndex:
    """The pending commits of a group by partition, so that no request looks through all of them. It is not stored.

    Attributes:
        offsets: The number of all their offsets, also of those that a later commit has replaced.
        last_record_offset: The highest place of a commit that was pending since the index was made; -1 for none.
    """

    def __init__(self, commits: Mapping[int, PendingCommit]) -> None:
        self.offsets, self.last_record_offset = 0, -1
        self._counts = Counter[tuple[str, int]]()
        self._record_offsets: dict[tuple[str, int], list[int]] = {}  # sorted; without commits whose offset was replaced
        for record_offset, commit in commits.items():
            self.add(record_offset, commit)

    def __contains__(self, partition: tuple[str, int]) -> bool:
        return partition in self._counts

    @property
    def partitions(self) -> int:
        """The number of their partitions."""
        return len(self._counts)

    def add(self, record_offset: int, commit: PendingCommit) -> None:
        """Add a commit."""
        self.offsets += commit.count
        self.last_record_offset = max(record_offset, self.last_record_offset)
        for partition, offset in commit.partitions():
            self._counts[partition] += 1
            if offset is not None:
                insort(self._record_offsets.setdefault(partition, []), record_offset)

    def remove(self, record_offset: int, commit: PendingCommit) -> None:
        """Remove a commit."""
        self.offsets -= commit.count
        for partition, offset in commit.partitions():
            self._counts[partition] -= 1
            if not self._counts[partition]:
                del self._counts[partition]
            if offset is not None:
                record_offsets = self._record_offsets[partition]
                del record_offsets[bisect_left(record_offsets, record_offset)]
                if not record_offsets:
                    del self._record_offsets[partition]

    def pop(self, partition: tuple[str, int], before: int) -> list[int]:
        """Remove a partition from the commits with a place before `before`. Return their places."""
        record_offsets = self._record_offsets.get(partition, [])
        taken, left = record_offsets[: (end := bisect_left(record_offsets, before))], record_offsets[end:]
        if left:
            self._record_offsets[partition] = left
        else:
            self._record_offsets.pop(partition, None)
        return taken


class GroupHotState:
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

    def record_lateness(self, noticed_ms: int, late_notice_ms: int) -> None:
        """Store when the coordinator became available again, if it was unavailable or if a clock was wrong."""
        if noticed_ms - self.now_ms > late_notice_ms or self.back_ms > noticed_ms:
            self.back_ms = noticed_ms

    def track_deadline(self, deadline_ms: int) -> int:
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
    hot_state: GroupHotState
    offsets: dict[str, dict[int, Offset]]
    offsets_count: int
    pending_commits: dict[int, PendingCommit]

    @property
    def phase(self) -> Phase:
        return self.hot_state.phase

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

    def schedule_offset_expiry(self, at_ms: int) -> None:
        """Schedule a check of expired offsets at `at_ms`, or keep an earlier one."""
        self.hot_state.offsets_ms = self.hot_state.track_deadline(min(self.hot_state.offsets_ms, at_ms))

    def store_offset(self, topic: str, partition: int, offset: Offset) -> None:
        """Store a committed offset in place of the earlier one."""
        partitions = self.offsets.setdefault(topic, {})
        self.offsets_count += partition not in partitions
        partitions[partition] = offset

    def remove_offset(self, topic: str, partition: int) -> None:
        """Remove a committed offset."""
        del self.offsets[topic][partition]
        self.offsets_count -= 1
        if not self.offsets[topic]:
            del self.offsets[topic]

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Return whether an open transaction may commit an offset of this partition."""
        return bool(self.pending_commits) and (topic, partition) in self.pending_index

    @cached_property
    def pending_index(self) -> PendingIndex:
        """The pending commits by partition."""
        return PendingIndex(self.pending_commits)

    def store_pending(self, record_offset: int, commit: PendingCommit) -> None:
        """Store the offsets of an open transaction."""
        assert record_offset not in self.pending_commits, f"the commit {record_offset} is pending already"
        self.pending_index.add(record_offset, commit)
        self.pending_commits[record_offset] = commit

    def remove_pending(self, record_offset: int) -> PendingCommit | None:
        """Remove the offsets of a transaction that has ended, and return them."""
        if (commit := self.pending_commits.get(record_offset)) is not None:
            self.pending_index.remove(record_offset, commit)
            del self.pending_commits[record_offset]
        return commit

    def replace_pending(self, topic: str, partition: int, before: int = RECORD_OFFSET_END) -> None:
        """Note that a later commit has replaced the pending offsets of a partition.

        Args:
            before: Only those of commits with a place before it.
        """
        if self.pending_commits:
            for record_offset in self.pending_index.pop((topic, partition), before):
                self.pending_commits[record_offset].offsets[topic][partition] = None

    def has_offset(self, topic: str, partition: int) -> bool:
        """Return whether a partition has a committed or a pending offset."""
        return partition in self.offsets.get(topic, {}) or self.is_unstable(topic, partition)

    def refusal_of_offsets(self, more: int) -> ErrorCode:
        """Return the error of a commit of `more` partitions without an offset; NONE if there is room for them.

        The partitions of pending commits count as if none of them had a committed offset.
        """
        if self.offsets_count + more > OFFSETS_PER_GROUP_MAX:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        pending = self.pending_index.partitions if self.pending_commits else 0
        fits = self.offsets_count + pending + more <= OFFSETS_PER_GROUP_MAX
        return ErrorCode.NONE if fits else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def all_offsets(self) -> Iterator[tuple[str, int, Offset]]:
        """Yield the committed offsets: topic, partition, offset."""
        for topic, partitions in self.offsets.items():
            for partition, offset in partitions.items():
                yield topic, partition, offset
