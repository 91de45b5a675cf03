"""What the watch finds in the brokers' description of the topics."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kafka.errors import UnknownTopicOrPartitionError

from streaming.config.settings import Settings
from streaming.kafka import topics
from streaming.query.watchers.topic_watch import altered

SETTINGS = Settings(topic_prefix="main", request_partitions=2)
LAYOUT = topics.layout(SETTINGS)
HELD = (LAYOUT.requests, LAYOUT.groups, LAYOUT.events)
IDS = {topic.name: str(UUID(int=number)) for number, topic in enumerate(HELD, 1)}


def described(**changed: Any) -> dict[str, Any]:
    """Return the entries of a Metadata response, with a change of the topic of the requests."""
    entries = {
        topic.name: SimpleNamespace(error_code=0, topic_id=UUID(IDS[topic.name]), partitions=[None] * topic.partitions)
        for topic in HELD
    }
    vars(entries[LAYOUT.requests.name]).update(changed)
    return entries


def found(**changed: Any) -> list[str]:
    return list(altered(LAYOUT, IDS, described(**changed)))


def test_topics_of_the_checkpoint_are_not_altered() -> None:
    assert found() == []


def test_topic_with_another_id_was_made_anew() -> None:
    assert found(topic_id=UUID(int=9)) == ["main.requests was deleted and made anew"]


def test_request_topic_with_more_partitions_is_altered() -> None:
    assert found(partitions=[None] * 3) == ["main.requests has 3 partitions, and the groups are divided among 2"]


def test_topic_that_brokers_do_not_describe_may_come_back() -> None:
    assert found(error_code=UnknownTopicOrPartitionError.errno, topic_id=UUID(int=0), partitions=[]) == []
