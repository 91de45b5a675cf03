"""The four topics as the settings describe them (design.md 2)."""

from streaming.config.settings import Settings
from streaming.kafka.topics import layout


def test_a_shard_is_a_partition_of_requests_and_of_what_it_publishes() -> None:
    topics = layout(Settings(topic_prefix="mine", request_partitions=7, reply_partitions=3))
    assert [(topic.name, topic.partitions) for topic in topics] == [
        ("mine.requests", 7),
        ("mine.replies", 3),
        ("mine.groups", 7),
        ("mine.events", 7),
    ]


def test_what_is_kept_and_for_how_long() -> None:
    topics = layout(Settings())
    assert topics.requests.config["message.timestamp.type"] == "LogAppendTime"
    assert [(topic.config["cleanup.policy"], topic.config.get("retention.ms")) for topic in topics] == [
        ("delete", "86400000"),
        ("delete", "600000"),
        ("compact", None),
        ("delete", "604800000"),
    ]


def test_replies_do_not_wait_a_week_for_their_segment_to_close() -> None:
    """Kafka deletes closed segments only, and closes one after seven days unless told otherwise."""
    for topic in layout(Settings()):
        if "retention.ms" in topic.config:
            assert int(topic.config["segment.ms"]) <= int(topic.config["retention.ms"])
