"""New records on the groups topic, for keys whose last record is an older one.

A writer that was paused in the middle of a batch may continue after later batches are written. Its records repeat
earlier records byte for byte, and compaction keeps the last record of a key. So the coordinator sends itself a
`RepublishGroup` request: it writes the present values once more, under new versions, after the repeats.
"""

from collections.abc import Iterator

from coordinator.base.context import Context
from coordinator.classic.describe import publish_at_a_bounded_rate
from coordinator.common.offsets import publish_offset
from coordinator.consumer import publish as consumer_publishing
from coordinator.messages.group_records import Published
from coordinator.messages.outputs import Output
from coordinator.messages.requests import RepublishGroup
from coordinator.messages.responses import Reply, RepublishGroupAnswer
from coordinator.state.classic_group import Group
from coordinator.state.consumer_group import ConsumerGroup

Either = Group | ConsumerGroup


def republish(group: Either | None, request: RepublishGroup, context: Context) -> Iterator[Output]:
    """Write the named records of a group with their present values: a tombstone if the coordinator has no value.

    The record of a large group that was published recently is written at a deadline, as after any other change. The
    record of an offset no longer contains the member that committed it, because the coordinator does not store it.

    The tombstones of a group that does not exist have no version, because no group counts it. Their time is later than
    all records of a removed group with the same id, and not later than a new group with that id.
    """
    written = 0
    for output in _published(group, request, context.now_ms if group else context.absent_ms):
        written += 1
        yield output
    yield Reply(request.reply_to, RepublishGroupAnswer(request_id=request.request_id, records=written))


def _publish(group: Either, now_ms: int) -> Iterator[Output]:
    if isinstance(group, ConsumerGroup):
        return consumer_publishing.publish_at_a_bounded_rate(group, now_ms)
    return publish_at_a_bounded_rate(group, now_ms)


def _published(group: Either | None, request: RepublishGroup, at_ms: int) -> Iterator[Output]:
    group_id = request.group_id
    if request.group and group:
        yield from _publish(group, group.hot_state.now_ms)
    elif request.group:
        yield Published(group_id, ("group", group_id), None, None, at_ms)
    for topic, partition in dict.fromkeys((each.topic, each.partition) for each in request.offsets):
        offset = group.offsets.get(topic, {}).get(partition) if group else None
        if group and offset:
            yield publish_offset(group, topic, partition, offset)
        else:
            version = group.next_version() if group else None
            yield Published(group_id, ("offset", group_id, topic, partition), None, version, at_ms)
