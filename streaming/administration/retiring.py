"""The end of the records of imported groups on the topics of the old coordinator, as a move ends them at its source.

The group and offset records of a compacted topic are kept for ever. The tombstones continue the versions of the
exported state, so readers see no gap.

Source: moving.md 7.
"""

from collections.abc import Callable, Iterable, Iterator

from confluent_kafka import KafkaException

from coordinator.base import limits
from coordinator.base.hashing import shard_of
from coordinator.messages.group_records import GroupKey, OffsetKey, Published
from coordinator.moves import transfer
from streaming.config.settings import Settings
from streaming.errors import NoCoordinator
from streaming.kafka.brokers import unreachable
from streaming.kafka.clients import admin, metadata, producer
from streaming.wire.export_file import Line
from streaming.wire.records import OutputTopics, to_row

CLIENT_ID = "coordinator-cli"
QUEUE = "queue.buffering.max.messages"


def tombstones(line: Line) -> Iterator[Published]:
    """Yield the tombstones of a group: of its offsets, then of itself. A removed group has them already."""
    carried = line.carried
    if isinstance(carried, transfer.Living):
        group = transfer.group_of(carried)
        keys: list[GroupKey | OffsetKey] = [("offset", line.group_id, t, p) for t, p, _ in group.all_offsets()]
        for key in [*keys, ("group", line.group_id)]:
            yield Published(line.group_id, key, None, group.next_version(), group.hot_state.now_ms)


def retire(settings: Settings, lines: Iterable[Line], advance: Callable[[], None] = lambda: None) -> None:
    """Write the tombstones of groups to the topic of a coordinator that will not run again.

    Args:
        settings: Those with the prefix of that coordinator.
        advance: Called after each group.

    Raises:
        NoCoordinator: The topic does not exist.
        BrokerUnreachable: The brokers did not accept all tombstones.
    """
    topic, servers = settings.groups_topic, settings.bootstrap_servers
    try:
        found = metadata(admin(settings, CLIENT_ID)).topics.get(topic)
        if found is None:
            raise NoCoordinator.without(topic, servers)
        topics = OutputTopics(settings.replies_topic, topic, settings.events_topic, settings.requests_topic)
        refused: list[object] = []
        writer = producer(settings, CLIENT_ID, {"enable.idempotence": True, QUEUE: limits.OFFSETS_PER_GROUP_MAX + 1})
        for line in lines:
            for tombstone in tombstones(line):
                shard = shard_of(line.group_id, len(found.partitions))
                row = to_row(tombstone, topics, shard)
                writer.produce(
                    topic,
                    key=row.key,
                    value=None,
                    partition=shard,
                    headers=[*(row.headers or ())],
                    on_delivery=lambda error, record: refused.append(error) if error is not None else None,
                )
            writer.flush()
            advance()
    except KafkaException as error:
        raise unreachable(settings, error.args[0].str()) from error
    if refused:
        raise unreachable(settings, refused[0], [topic])
