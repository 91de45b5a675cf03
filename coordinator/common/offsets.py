"""Committed offsets: commits, fetches, expiry and deletion.

Offsets do not outlive their topic. A topic that is deleted and made anew has the same name and another id. Its records
begin at offset 0 again, so an offset of the earlier topic would make consumers skip records. An offset has the id of
its topic, if the commit or a report has named it, and each report drops offsets of an id that no topic has any more:

    topic_id   current_id   what happens to the offsets of that name with `topic_id`
    A          B            dropped: the topic was made anew
    A          null         dropped: the topic was deleted
    null       B            bound: they have the id B from now on
    null       null         bound to `NO_TOPIC`: no topic that gets the name later gets them

A topic never gets the id of an earlier one, so a report that comes late drops nothing of a later topic. Offsets without
an id have no such protection. So a report concerns only offsets that were committed up to `committed_ms`, which were
there before the brokers were asked. Offsets without an id are never dropped: a group may also distribute other things
than Kafka's partitions.

The offsets of open transactions stay pending. Those of an earlier topic are dropped when they have been stored.

Source: Kafka's OffsetMetadataManager, OffsetExpirationConditionImpl and GroupCoordinatorService.deleteGroups; Kafka's
GroupCoordinatorShard.onPartitionsDeleted and OffsetMetadataManager.deletePartitions (KIP-848).
"""

from collections.abc import Iterable, Iterator

from msgspec import UNSET, structs

from coordinator.base.config import Config
from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS, RECORD_OFFSET_END
from coordinator.base.states import Phase
from coordinator.common.events import event
from coordinator.messages.events import CommitRejected, GroupDeleted, OffsetsDeleted, OffsetsDropped, OffsetsExpired
from coordinator.messages.fields import NO_TOPIC
from coordinator.messages.group_records import OffsetRecord, Published
from coordinator.messages.outputs import Output
from coordinator.messages.requests import (
    DeleteGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    OffsetTopic,
    OffsetTopics,
)
from coordinator.messages.responses import (
    CommittedPartition,
    DeletedPartition,
    DeleteGroupAnswer,
    FetchedOffset,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    OffsetTopicsAnswer,
    Reply,
)
from coordinator.state.classic_group import Group
from coordinator.state.group import AnyGroup, Offset

# -- commits -----------------------------------------------------------------------------------------------------------


def is_from_no_member(request: OffsetCommit) -> bool:
    """Return whether a commit creates its group: the commit has offsets, and no generation."""
    return request.generation_id < 0 and bool(request.offsets)


def commit_nothing(group: AnyGroup | None, request: OffsetCommit, context: Context) -> Iterable[Output] | None:
    """Return a reply with NONE to a commit without offsets, as Kafka's brokers do; return None for other commits.

    The other fields of the commit make no difference.
    """
    if request.offsets:
        return None
    return (Reply(request.reply_to, OffsetCommitAnswer(request_id=request.request_id)),)


def commit(group: Group, request: OffsetCommit, context: Context) -> Iterator[Output]:
    """Store the offsets of a member of this generation, or of any client if the group has no members.

    A commit of a member renews its session. Replies with: as `store`.
    """
    if session := group.hot_state.sessions.get(request.member_id):
        group.hot_state.renew(session, context.now_ms)
    yield from store(group, request, context)


def store(group: AnyGroup, request: OffsetCommit, context: Context) -> Iterator[Output]:
    """Store the offsets of a commit that has passed all checks.

    Replies with, for one partition:
        OFFSET_METADATA_TOO_LARGE: its metadata is longer than `offset_metadata_max_bytes`.
        INVALID_COMMIT_OFFSET_SIZE: the group has the maximum number of offsets, and none for this partition.
        COORDINATOR_LOAD_IN_PROGRESS: it would have with those of open transactions.
    """
    now_ms, config = context.now_ms, context.config
    ended = []
    for entry in request.offsets:
        error = error_of(group, entry, config)
        if error is ErrorCode.NONE:
            yield _store(group, request, entry, now_ms, config)
        ended.append(CommittedPartition(entry.topic, entry.partition, error.name, error.number))
    yield Reply(request.reply_to, OffsetCommitAnswer(request_id=request.request_id, partitions=tuple(ended)))


def error_of(group: AnyGroup, entry: OffsetToCommit, config: Config, others: int = 0) -> ErrorCode:
    """Return the error of the commit of one partition; NONE if its offset may be stored.

    Args:
        others: The number of other new partitions that are stored with it.
    """
    if not has_short_metadata(entry, config):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    if group.has_offset(entry.topic, entry.partition):
        return ErrorCode.NONE
    return group.refusal_of_offsets(others + 1)


def has_short_metadata(entry: OffsetToCommit, config: Config) -> bool:
    """Return whether the metadata of an offset may be stored. It is measured as Java does: in UTF-16 units."""
    return _utf16_length(entry.metadata or "") <= config.offset_metadata_max_bytes


def store_offset(group: AnyGroup, topic: str, partition: int, offset: Offset, before: int = RECORD_OFFSET_END) -> None:
    """Store an offset. It replaces the pending offsets of the partition too.

    Args:
        before: Only those of commits with a place before it.
    """
    group.store_offset(topic, partition, offset)
    group.replace_pending(topic, partition, before)


def _store(group: AnyGroup, request: OffsetCommit, entry: OffsetToCommit, now_ms: int, config: Config) -> Published:
    expire_ms = None if entry.retention_ms < 0 else min(now_ms + entry.retention_ms, NEVER_MS)
    offset = Offset(entry.offset, entry.leader_epoch, entry.metadata or "", now_ms, expire_ms, entry.topic_id)
    store_offset(group, entry.topic, entry.partition, offset)
    group.schedule_offset_expiry(max(now_ms, expiry_ms(group, entry.topic, offset, config)))
    return publish_offset(group, entry.topic, entry.partition, offset, request.generation_id, request.member_id)


def publish_offset(
    group: AnyGroup, topic: str, partition: int, offset: Offset, generation_id: int = -1, member_id: str = ""
) -> Published:
    """Make the record of a committed offset, under the group's next version."""
    version = group.next_version()
    record = OffsetRecord(
        group_id=group.group_id,
        topic=topic,
        partition=partition,
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp_ms=offset.commit_timestamp_ms,
        expire_timestamp_ms=offset.expire_timestamp_ms,
        generation_id=generation_id,
        member_id=member_id,
        version=version,
        topic_id=UNSET if offset.topic_id is None else offset.topic_id,
    )
    return Published(group.group_id, ("offset", group.group_id, topic, partition), record, version)


def record_rejection(group: AnyGroup, request: OffsetCommit, error: ErrorCode, context: Context) -> Iterator[Output]:
    """Yield the event of a commit that fails a check."""
    yield event(
        CommitRejected,
        group,
        context.now_ms,
        member_id=request.member_id,
        client_id=request.client_id,
        client_host=request.client_host,
        claimed_generation_id=request.generation_id,
        error=error.name,
        partitions=len(request.offsets),
    )


def _utf16_length(text: str) -> int:
    return len(text) + sum(c > "\uffff" for c in text)


# -- fetches -----------------------------------------------------------------------------------------------------------


def is_for_all_partitions(group: AnyGroup, request: OffsetFetch) -> bool:
    """Return whether a fetch requests all offsets of the group."""
    return request.topics is None


def fetch(group: AnyGroup | None, request: OffsetFetch, context: Context) -> Iterator[Output]:
    """Reply with committed offsets: -1 for a partition without one, also if the group does not exist.

    Replies with, for one partition:
        UNSTABLE_OFFSET_COMMIT: an open transaction may commit another offset, and `require_stable` is true.
    """
    if request.topics is None:
        found = [_fetched(t, p, o) for t, p, o in group.all_offsets()] if group else []
    else:
        known = group.offsets if group else {}
        found = [
            _fetched(t.topic, p, _of_topic(t.topic_id, known.get(t.topic, {}).get(p)))
            for t in request.topics
            for p in t.partitions
        ]
    if group and group.pending_commits and request.require_stable:
        found = [_unstable(f) if group.is_unstable(f.topic, f.partition) else f for f in found]
    yield Reply(request.reply_to, OffsetFetchAnswer(request_id=request.request_id, partitions=tuple(found)))


def _of_topic(topic_id: str | None, offset: Offset | None) -> Offset | None:
    """Return an offset, unless it is one of an earlier topic of the same name."""
    is_earlier = offset is not None and None is not topic_id != offset.topic_id is not None
    return None if is_earlier else offset


def _fetched(topic: str, partition: int, offset: Offset | None) -> FetchedOffset:
    if offset is None:
        return FetchedOffset(topic, partition)
    topic_id = UNSET if offset.topic_id is None else offset.topic_id
    return FetchedOffset(topic, partition, offset.offset, offset.leader_epoch, offset.metadata, topic_id=topic_id)


def _unstable(fetched: FetchedOffset) -> FetchedOffset:
    error = ErrorCode.UNSTABLE_OFFSET_COMMIT
    return FetchedOffset(fetched.topic, fetched.partition, error=error.name, code=error.number)


# -- expiry ------------------------------------------------------------------------------------------------------------


def expiry_ms(group: AnyGroup, topic: str, offset: Offset, config: Config) -> int:
    """Return the time at which a committed offset expires, if the group does not change until then.

    An offset of a topic that a member may be reading does not expire.
    """
    base_ms = group.retained_since_ms(topic, offset)
    if base_ms is None:
        return NEVER_MS
    if offset.expire_timestamp_ms is not None:
        return offset.expire_timestamp_ms
    return base_ms + config.offsets_retention_by_group_ms.get(group.group_id, config.offsets_retention_ms)


def next_expiry_ms(group: AnyGroup, config: Config) -> int:
    """Return the time at which the next offset expires; for an Empty group without offsets, the time for the group."""
    if not group.offsets and group.phase is Phase.EMPTY:
        return NEVER_MS if group.pending_commits else group.since_ms + config.empty_group_retention_ms
    return min((expiry_ms(group, t, o, config) for t, p, o in _stable_offsets(group)), default=NEVER_MS)


def _stable_offsets(group: AnyGroup) -> Iterable[tuple[str, int, Offset]]:
    """Return the offsets that may expire: no open transaction may commit another offset of the partition."""
    if not group.pending_commits:
        return group.all_offsets()
    return ((t, p, o) for t, p, o in group.all_offsets() if not group.is_unstable(t, p))


def offsets_due(group: AnyGroup, now_ms: int, config: Config) -> Iterator[Output]:
    """Delete the expired offsets. Delete an Empty group if its last offset expires, or after its retention time."""
    expired = [(t, p) for t, p, o in _stable_offsets(group) if expiry_ms(group, t, o, config) <= now_ms]
    yield from remove_offsets(group, expired, now_ms)
    if expired:
        yield event(OffsetsExpired, group, now_ms, partitions=tuple(expired))
    is_unused = group.phase is Phase.EMPTY and not group.offsets and not group.pending_commits
    if is_unused and (expired or _is_empty_for_long(group, now_ms, config)):
        yield from _forget(group, "no member and no offset left", now_ms)
    else:
        group.hot_state.offsets_ms = group.hot_state.track_deadline(next_expiry_ms(group, config))


def _is_empty_for_long(group: AnyGroup, now_ms: int, config: Config) -> bool:
    return now_ms >= group.since_ms + config.empty_group_retention_ms


def remove_offsets(group: AnyGroup, places: list[tuple[str, int]], now_ms: int) -> Iterator[Output]:
    """Remove committed offsets, and yield their tombstones."""
    for topic, partition in places:
        group.remove_offset(topic, partition)
        key = ("offset", group.group_id, topic, partition)
        yield Published(group.group_id, key, None, group.next_version(), now_ms)


def _forget(group: AnyGroup, why: str, now_ms: int) -> Iterator[Output]:
    group.end(now_ms)
    yield event(GroupDeleted, group, now_ms, why=why)
    yield Published(group.group_id, ("group", group.group_id), None, group.next_version(), now_ms)


# -- deletion on request -----------------------------------------------------------------------------------------------


def delete(group: AnyGroup, request: OffsetDelete, context: Context) -> Iterator[Output]:
    """Delete offsets. In a group with members, only offsets of unsubscribed topics may be deleted.

    Replies with, for one partition:
        GROUP_SUBSCRIBED_TO_TOPIC: a member subscribes to the topic, or the members' subscriptions cannot be read.
    """
    now_ms = context.now_ms
    gone, ended = [], []
    for topic, partition in [(t.topic, p) for t in request.topics for p in t.partitions]:
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.subscribes(topic) else ErrorCode.NONE
        if error is ErrorCode.NONE:
            group.replace_pending(topic, partition)
        if error is ErrorCode.NONE and partition in group.offsets.get(topic, {}):
            gone.append((topic, partition))
            yield from remove_offsets(group, [(topic, partition)], now_ms)
        ended.append(DeletedPartition(topic, partition, error.name, error.number))
    if gone:
        yield event(OffsetsDeleted, group, now_ms, partitions=tuple(gone))
        group.schedule_offset_expiry(now_ms)
    yield Reply(request.reply_to, OffsetDeleteAnswer(request_id=request.request_id, partitions=tuple(ended)))


def delete_group(group: AnyGroup, request: DeleteGroup, context: Context) -> Iterator[Output]:
    """Delete a group without members, and its offsets."""
    now_ms = context.now_ms
    yield from remove_offsets(group, [(topic, partition) for topic, partition, _ in group.all_offsets()], now_ms)
    yield from _forget(group, "deleted on request", now_ms)
    yield Reply(request.reply_to, DeleteGroupAnswer(request_id=request.request_id))


# -- the topics of offsets ---------------------------------------------------------------------------------------------


def report(group: AnyGroup | None, request: OffsetTopics, context: Context) -> Iterator[Output]:
    """Drop the offsets of topics that are gone, and bind offsets without an id to the topic of their name.

    A report that comes again changes nothing, nor does one about a group that does not exist.
    """
    dropped = bound = 0
    for reported in request.topics if group else ():
        assert group is not None, "only a group has offsets"
        partitions = _partitions(group, reported)
        if reported.topic_id is None:
            bound += len(partitions)
            yield from _bind(group, reported, partitions)
        elif partitions and reported.topic_id != reported.current_id:
            dropped += len(partitions)
            yield from _remove(group, reported, partitions, context.now_ms)
    yield Reply(request.reply_to, OffsetTopicsAnswer(request_id=request.request_id, dropped=dropped, bound=bound))


def _partitions(group: AnyGroup, reported: OffsetTopic) -> list[int]:
    """Return the partitions whose offsets a report is about."""
    return [
        partition
        for partition, offset in group.offsets.get(reported.topic, {}).items()
        if offset.topic_id == reported.topic_id and offset.commit_timestamp_ms <= reported.committed_ms
    ]


def _bind(group: AnyGroup, reported: OffsetTopic, partitions: list[int]) -> Iterator[Output]:
    for partition in partitions:
        offset = structs.replace(group.offsets[reported.topic][partition], topic_id=reported.current_id or NO_TOPIC)
        group.store_offset(reported.topic, partition, offset)
        yield publish_offset(group, reported.topic, partition, offset)


def _remove(group: AnyGroup, reported: OffsetTopic, partitions: list[int], now_ms: int) -> Iterator[Output]:
    places = [(reported.topic, partition) for partition in partitions]
    yield from remove_offsets(group, places, now_ms)
    yield event(
        OffsetsDropped,
        group,
        now_ms,
        topic_id=reported.topic_id,
        current_id=reported.current_id,
        partitions=tuple(places),
    )
    group.schedule_offset_expiry(now_ms)
