"""Reports about the topics of committed offsets: offsets do not outlive their topic.

A topic that is deleted and made anew has the same name and another id. Its records begin at offset 0 again, so an
offset of the earlier topic would make consumers skip records. An offset has the id of its topic, if the commit or a
report has named it, and each report drops offsets of an id that no topic has any more:

    topic_id   current_id   what happens to the offsets of that name with `topic_id`
    A          B            dropped: the topic was made anew
    A          null         dropped: the topic was deleted
    null       B            bound: they have the id B from now on
    null       null         bound to `NO_TOPIC`: no topic that gets the name later gets them

A topic never gets the id of an earlier one, so a report that comes late drops nothing of a later topic. Offsets
without an id have no such protection. So a report concerns only offsets that were committed up to `committed_ms`,
which were there before the brokers were asked. Offsets without an id are never dropped: a group may also distribute
other things than Kafka's partitions.

The offsets of open transactions stay pending. Those of an earlier topic are dropped when they have been stored.

Source: Kafka's GroupCoordinatorShard.onPartitionsDeleted and OffsetMetadataManager.deletePartitions (KIP-848).
"""

from collections.abc import Iterator

from msgspec import structs

from coordinator.base.context import Context
from coordinator.common.events import event
from coordinator.common.offsets import publish_offset, remove_offsets
from coordinator.messages.events import OffsetsDropped
from coordinator.messages.fields import NO_TOPIC
from coordinator.messages.outputs import Output
from coordinator.messages.requests import OffsetTopic, OffsetTopics
from coordinator.messages.responses import OffsetTopicsAnswer, Reply
from coordinator.state.group import AnyGroup


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
