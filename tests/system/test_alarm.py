"""The alarm on a real broker: the shards that it wakes, and how long it repeats its wake records."""

from kafka import KafkaConsumer, TopicPartition

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.kafka import topics
from streaming.query.watchers.alarm import Alarm
from streaming.query.watchers.progress import Tallies
from streaming.wire.records import Tally
from tests.system.waiting import wait_until

SHARDS = 3


def test_shard_is_woken_until_it_reports_that_nothing_is_due(broker: Broker) -> None:
    """S05: the alarm wakes each shard until the shard reports its next deadline, even if wake records are lost."""
    settings = Settings(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix="alarm",
        request_partitions=SHARDS,
        replication_factor=1,
    )
    topics.ensure(settings)
    tallies = Tallies()
    alarm = Alarm(settings, tallies)
    partitions = [TopicPartition(settings.requests_topic, shard) for shard in range(SHARDS)]
    with KafkaConsumer(**settings.kafka_client_arguments()) as consumer:

        def woken() -> list[int]:
            return [consumer.end_offsets(partitions)[partition] for partition in partitions]

        alarm.start()
        try:
            wait_until(lambda: min(woken()) >= 2, account=woken)
            tallies.handle(_progress(at_rest=(0, 1)))
            before = woken()
            wait_until(lambda: woken()[2] >= before[2] + 3, account=woken)
            assert all(now - then <= 1 for now, then in zip(woken()[:2], before[:2], strict=True))
            tallies.handle(_progress(at_rest=(2,)))
        finally:
            alarm.close()


def _progress(at_rest: tuple[int, ...]) -> dict[str, object]:
    told = [
        Tally(
            shard=shard,
            groups=0,
            members=0,
            requests=0,
            heartbeats=0,
            answered=0,
            oldest_ms=0,
            deferred=0,
            due_in_ms=None,
        ).to_json()
        for shard in at_rest
    ]
    return {"batchId": 0, "durationMs": {}, "observedMetrics": {"coordinator": {"shards": told}}}
