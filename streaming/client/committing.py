"""Offset commits and offset fetches of one consumer.

`PartitionReader` reads the records and has the reader positions. Each commit has a ticket, under which the driver
reports its end. Source: kafka-python's ConsumerCoordinator; protocol.md 6.6.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import TopicPartition
from kafka.errors import CommitFailedError, KafkaTimeoutError, for_code
from kafka.future import Future
from kafka.structs import OffsetAndMetadata
from msgspec import Struct

from coordinator.assignors import by_topic
from coordinator.base.errors import ErrorCode
from coordinator.member.effects import CommitEnded, Effect, FetchEnded
from coordinator.messages.requests import OffsetToCommit, TopicPartitions
from coordinator.messages.responses import FetchedOffset
from streaming.client.driver import MemberDriver
from streaming.client.partition_reader import Offsets, PartitionReader
from streaming.moments import monotonic_ms

log = logging.getLogger(__name__)

Callback = Callable[[Offsets, Exception | None], object]

COMMIT_FAILED = {
    ErrorCode.ILLEGAL_GENERATION.number,
    ErrorCode.UNKNOWN_MEMBER_ID.number,
    ErrorCode.FENCED_INSTANCE_ID.number,
    ErrorCode.STALE_MEMBER_EPOCH.number,
}
"""The codes for which a CommitFailedError is raised, as by Kafka's clients."""


class _Commit(Struct):
    """A commit that no caller waits for."""

    offsets: Offsets
    callback: Callback | None
    future: Any


class Commits:
    """The commits and fetches of one consumer.

    Args:
        reading: The consumer's partitions and positions.
        group: The consumer's settings (`auto_commit_interval_ms`).
        topic_id_of: Returns the id of a topic; None if it is not known for certain. The coordinator returns no offset
            of an earlier topic of the name.
    """

    def __init__(
        self,
        driver: MemberDriver[Any],
        reading: PartitionReader,
        group: Mapping[str, Any],
        topic_id_of: Callable[[str], str | None] = lambda topic: None,
    ) -> None:
        self._driver, self._reading, self._group, self._topic_id_of = driver, reading, group, topic_id_of
        self.is_automatic: bool = group["enable_auto_commit"]
        self._automatic_ms = monotonic_ms()  # when the next automatic commit is due
        self._automatic: dict[TopicPartition, OffsetAndMetadata] = {}
        self._pending: dict[str, _Commit] = {}
        self._fetching: str | None = None  # the ticket of the fetch of offsets to start from

    def keep_owned(self, owned: frozenset[TopicPartition]) -> None:
        """Read the owned partitions from now on, and fetch the offsets to start from in new ones."""
        if not self._reading.owned:
            self._automatic_ms = monotonic_ms() + self._group["auto_commit_interval_ms"]
        self._reading.own(owned)
        self._automatic = {p: at for p, at in self._automatic.items() if p in owned}
        unplaced = self._reading.unplaced
        self._fetching = self._driver.fetch(self._by_topic(unplaced)) if unplaced else None

    def hear(self, effect: Effect) -> None:
        """Handle the end of a commit or of a fetch."""
        match effect:
            case CommitEnded():
                self._end(effect)
            case FetchEnded() if effect.ticket == self._fetching:
                self._place(self._offsets(effect))

    def hear_ended(self) -> None:
        """Handle the ends of earlier commits, so that callbacks keep the order of the commits."""
        for ended in self._driver.take_ended():
            self.hear(ended)

    def close(self) -> None:
        """Settle the commits that have no response yet with a KafkaTimeoutError."""
        for commit in self._pending.values():
            _settle(commit, KafkaTimeoutError("The consumer was closed before a response came"))

    # -- committing ----------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None, wait_ms: float) -> None:
        """Commit offsets and wait for the response. Without offsets, commit the positions of all owned partitions."""
        offsets = self._to_commit(offsets)
        if not offsets:
            return
        ended = self._driver.ended(self._driver.commit(self._requested(offsets)), wait_ms / 1000)
        self.hear_ended()
        if ended is None:
            raise KafkaTimeoutError(f"No response to a commit of group {self._group['group_id']} within {wait_ms} ms")
        if (error := _error(ended.code, ended.error)) is not None:
            raise error

    def commit_async(self, offsets: Offsets | None, callback: Callback | None) -> Any:
        """Send a commit, and return a future that is settled when the response is handled."""
        self.hear_ended()
        callback = callback or self._group["default_offset_commit_callback"]
        commit = _Commit(dict(offsets) if offsets is not None else {}, callback, Future())
        try:
            commit.offsets = self._to_commit(offsets)
        except CommitFailedError as error:
            _settle(commit, error)
            return commit.future
        if commit.offsets:
            self._pending[self._driver.commit(self._requested(commit.offsets))] = commit
        else:
            _settle(commit, None)
        return commit.future

    def commit_if_due(self) -> None:
        """Send an automatic commit if the interval has passed. In a rebalance, revoked partitions are committed
        separately.
        """
        is_due = self.is_automatic and monotonic_ms() >= self._automatic_ms
        if is_due and self._driver.may_commit:
            self.commit_automatically()

    def commit_automatically(self) -> None:
        """Send a commit of all positions that changed since the last one. A failure is logged when it is known."""
        self._automatic_ms = monotonic_ms() + self._group["auto_commit_interval_ms"]
        moved = {p: at for p, at in self._reading.had.items() if self._automatic.get(p) != at}
        if moved:
            self._automatic |= moved
            callback = self._group["default_offset_commit_callback"]
            self._pending[self._driver.commit(self._requested(moved))] = _Commit(moved, callback, None)

    def _to_commit(self, offsets: Offsets | None) -> Offsets:
        if offsets is None:
            return self._reading.positions()
        for partition in offsets:
            if self._driver.may_commit and partition not in self._reading.owned:
                raise CommitFailedError(f"This member does not own {partition.topic} {partition.partition}")
        return offsets

    def _end(self, ended: CommitEnded) -> None:
        error = _error(ended.code, ended.error)
        commit = self._pending.pop(ended.ticket, None)
        if commit is None:
            return
        if error is not None and commit.future is None:
            log.warning("group %s: offsets were not committed: %s", self._group["group_id"], ended.error)
            self._automatic.clear()
        _settle(commit, error)

    # -- fetching ------------------------------------------------------------------------------------------------------

    def fetch_if_unplaced(self) -> None:
        """Fetch the offsets to start from, unless that fetch is under way."""
        if self._reading.unplaced and self._fetching is None:
            self._fetching = self._driver.fetch(self._by_topic(self._reading.unplaced))

    def place_readers(self, wait_ms: float) -> None:
        """Wait until the offsets to start from are known."""
        ticket = self._fetching or self._driver.fetch(self._by_topic(self._reading.unplaced))
        self._place(self._fetched(ticket, wait_ms))

    def committed(self, partition: TopicPartition, wait_ms: float) -> OffsetAndMetadata | None:
        """Return the group's committed offset of a partition; None if nothing is committed."""
        (found,) = self._fetched(self._driver.fetch(self._by_topic([partition])), wait_ms)
        return OffsetAndMetadata(found.offset, found.metadata, found.leader_epoch) if found.offset >= 0 else None

    def _fetched(self, ticket: str, wait_ms: float) -> tuple[FetchedOffset, ...]:
        ended = self._driver.ended(ticket, wait_ms / 1000)
        if not isinstance(ended, FetchEnded):
            if ticket == self._fetching:
                self._fetching = None  # `fetch_if_unplaced` fetches again
            raise KafkaTimeoutError(
                f"No response about offsets of group {self._group['group_id']} within {wait_ms:.0f} ms"
            )
        return self._offsets(ended)

    def _offsets(self, ended: FetchEnded) -> tuple[FetchedOffset, ...]:
        if ended.ticket == self._fetching:
            self._fetching = None
        failed = next((p for p in ended.partitions if p.code), None)
        error = _error(failed.code, failed.error) if failed else _error(ended.code, ended.error)
        if error is not None:
            raise error
        return ended.partitions

    def _place(self, fetched: Iterable[FetchedOffset]) -> None:
        self._reading.start({TopicPartition(each.topic, each.partition): each.offset for each in fetched})

    # -- requests ------------------------------------------------------------------------------------------------------

    def _requested(self, offsets: Offsets) -> tuple[OffsetToCommit, ...]:
        return tuple(
            OffsetToCommit(
                partition.topic, partition.partition, at.offset, at.leader_epoch, at.metadata,
                topic_id=self._topic_id_of(partition.topic),
            )
            for partition, at in sorted(offsets.items())
        )  # fmt: skip

    def _by_topic(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
        return tuple(
            TopicPartitions(topic, tuple(numbers), self._topic_id_of(topic))
            for topic, numbers in by_topic(partitions).items()
        )


# -- between kafka-python's types and the requests' --------------------------------------------------------------------


def _error(code: int, error: str) -> Exception | None:
    failed: Exception | None = for_code(code)(error) if code else None
    if code in COMMIT_FAILED:
        failed = CommitFailedError(f"the coordinator answered {error}: another member may own the partitions now")
    return failed


def _settle(commit: _Commit, error: Exception | None) -> None:
    """Settle a commit's future and call its callback. A callback's exception is logged and not raised."""
    if commit.callback is not None:
        try:
            commit.callback(commit.offsets, error)
        except Exception:
            log.exception("a commit's callback failed")
    if commit.future is not None:
        commit.future.success(commit.offsets) if error is None else commit.future.failure(error)
