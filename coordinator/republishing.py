"""Writing records of the groups topic again, where an older one has come to stand last for its key.

A writer that was paused in mid-batch may go on when later batches are written. Its records repeat what it wrote before,
byte for byte, and on a compacted topic the last record of a key is the one that stays. So the coordinator asks itself
for `RepublishGroup`: what it holds is written once more, under new versions, behind the repeats.
"""

from collections.abc import Iterator

from coordinator.context import Context
from coordinator.describe import publish_at_a_bounded_rate
from coordinator.group import Group
from coordinator.offsets import publish_offset
from coordinator.outputs import Output, Published, Reply, RepublishGroupAnswer
from coordinator.requests import RepublishGroup


def republish(group: Group | None, request: RepublishGroup, context: Context) -> Iterator[Output]:
    """Write the named records of a group as they should be: a tombstone where the coordinator holds nothing.

    A large group that was published a moment ago is written when its time has come, as after any other change of it. A
    record of an offset does not say any more who committed it: the coordinator does not keep that.

    The tombstones of a group that does not exist have no version, as nobody counts. Their time is later than all that
    was published under the group's name before it was forgotten, and no later than a group of that name that is founded
    anew.
    """
    written = 0
    for output in _published(group, request, context.not_before_ms or context.now_ms):
        written += 1
        yield output
    yield Reply(request.reply_to, RepublishGroupAnswer(request_id=request.request_id, records=written))


def _published(group: Group | None, request: RepublishGroup, at_ms: int) -> Iterator[Output]:
    group_id = request.group_id
    if request.group and group:
        yield from publish_at_a_bounded_rate(group, group.vitals.now_ms)
    elif request.group:
        yield Published(group_id, ("group", group_id), None, None, at_ms)
    for topic, partition in dict.fromkeys((each.topic, each.partition) for each in request.offsets):
        offset = group.offsets.get(topic, {}).get(partition) if group else None
        if group and offset:
            yield publish_offset(group, topic, partition, offset)
        else:
            version = group.next_version() if group else None
            yield Published(group_id, ("offset", group_id, topic, partition), None, version, at_ms)
