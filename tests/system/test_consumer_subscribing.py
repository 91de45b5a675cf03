"""The topics that a `GroupConsumer` can subscribe to, by name and by pattern, on the real broker and query."""

import re
from contextlib import suppress
from typing import Any

import pytest
from kafka import (
    AsyncConsumerRebalanceListener,
    KafkaAdminClient,
    TopicPartition,
)
from kafka.errors import (
    IllegalStateError,
    RetriableError,
)

from streaming.client import GroupConsumer, Transport, sharing
from tests.system.staging import Listener, MakeStage


def borrowers(transport: Transport) -> int:
    return next(count for shared, count in sharing._shared.values() if shared is transport)


def test_pattern_matches_existing_and_new_topics(stage: MakeStage) -> None:
    """S07, S08: this holds also for patterns, and a pattern never matches Kafka's own topics."""
    s = stage(1)
    with KafkaAdminClient(bootstrap_servers=s.settings.bootstrap_servers) as admin:

        def ask_kafkas_own() -> None:
            with suppress(RetriableError):
                admin.list_group_offsets("kafkas-own")  # this makes Kafka create its own offsets topic

        s.until(lambda: "__consumer_offsets" in admin.list_topics(), alone=ask_kafkas_own)
    ana, bo = (s.consumer(metadata_max_age_ms=500) for _ in range(2))
    with pytest.raises(IllegalStateError, match="by name or by a pattern"):
        ana.subscribe(pattern=s.topic)
    s.until(lambda: s.is_shared_out([0], []))
    for consumer in (ana, bo):
        consumer.unsubscribe()
        consumer.subscribe(pattern=rf"{s.topic}$|more-{s.number}\.|__consumer")
        with pytest.raises(IllegalStateError):
            consumer.subscribe([s.topic])
    s.until(lambda: s.is_shared_out([0], []))
    assert not [reason for _, reason in s.rebalances() if "nothing" in reason], "a member first looks for topics"
    s.create(f"more-{s.number}.a")
    s.create(f"no-more-{s.number}.b")
    s.until(lambda: s.is_shared_out([0], [0]) or s.is_shared_out([0, 0], []))
    wanted = {s.topic, f"more-{s.number}.a"}
    assert {p.topic for c in s.consumers for p in c.assignment()} == wanted
    assert ana.subscription() == bo.subscription() == wanted
    generation = ana.generation
    ana.subscribe(pattern=s.topic)
    s.until(lambda: ana.generation > generation and s.are_settled())
    assert ana.subscription() == {s.topic}
    assert TopicPartition(f"more-{s.number}.a", 0) in bo.assignment()


def test_invalid_subscription_is_refused_and_changes_nothing(stage: MakeStage) -> None:
    s = stage(1)
    ana = s.consumer()

    class Awaiting(AsyncConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None: ...

        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None: ...

    refused: list[tuple[type[Exception], dict[str, Any]]] = [
        (ValueError, {"topics": []}),
        (ValueError, {"pattern": ""}),
        (TypeError, {"topics": s.topic}),
        (ValueError, {"topics": ["no topic"]}),
        (TypeError, {"topics": [s.topic], "listener": print}),
        (TypeError, {"topics": [s.topic], "listener": Awaiting()}),
        (TypeError, {"pattern": Listener()}),
        (re.error, {"pattern": "("}),
        (IllegalStateError, {"topics": [s.topic], "pattern": "work"}),
    ]
    for error, wanted in refused:
        if "pattern" in wanted and "topics" not in wanted:
            ana.unsubscribe()
        with pytest.raises(error):
            ana.subscribe(**wanted)
    ana.subscribe([s.topic])
    with pytest.raises(ValueError, match="topics or pattern"):
        ana.subscribe([])
    assert ana.subscription() == {s.topic}
    transport, lent = ana._transport, borrowers(ana._transport)
    with pytest.raises(ValueError, match="no topic"):
        GroupConsumer("no topic", **s.config())
    assert borrowers(transport) == lent, "a transport is left open"
    ana.close()
    with pytest.raises(IllegalStateError):
        ana.subscribe([s.topic])
    with pytest.raises(IllegalStateError):
        ana.poll()
