"""The deletion of the oldest records of partitions.

Only the leader of a partition deletes its records. Each leader is asked once and by itself, so one that is down costs
nothing: librdkafka's admin client keeps two threads busy while it waits for it.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from kafka.errors import KafkaError, for_code
from kafka.protocol.admin import DeleteRecordsRequest

from streaming.config.settings import Settings
from streaming.kafka.offsets import Why
from streaming.kafka.topics import any_broker

FOLLOWERS_WAIT_MS = 1_500
"""The longest wait of a leader for its followers, which delete the records too. Then it answers REQUEST_TIMED_OUT,
before `timeouts.ATTEMPT_WAIT_S` is over. The records are deleted nevertheless."""


def delete_records(settings: Settings, topic: str, before: Mapping[int, int]) -> dict[int, str]:
    """Delete the records before an offset in each partition of a topic.

    Returns:
        The partitions whose leaders do not confirm it, each with the reason.

    Raises:
        BrokerUnreachable: No broker answers.
    """
    by_leader: dict[int, dict[int, int]] = defaultdict(dict)
    failed = dict.fromkeys(before, Why.NO_LEADER.value)
    with any_broker(settings) as brokers:
        described = brokers.describe_topics([topic])[topic]
        for each in described.partitions:
            if each.partition_index in before and each.leader_id >= 0:
                by_leader[each.leader_id][each.partition_index] = before[each.partition_index]
        answers = brokers.ask_each(lambda leader: _request(topic, by_leader[leader]), by_leader) if by_leader else {}
    for leader, of_leader in by_leader.items():
        answer = answers[leader]
        if isinstance(answer, KafkaError):
            failed |= dict.fromkeys(of_leader, Why.SILENT.value)
            continue
        for each in answer.topics[0].partitions:
            if each.error_code:
                failed[each.partition_index] = for_code(each.error_code).__name__
            else:
                del failed[each.partition_index]
    return failed


def _request(topic: str, before: Mapping[int, int]) -> Any:
    of_topic = DeleteRecordsRequest.DeleteRecordsTopic
    partitions = [
        of_topic.DeleteRecordsPartition(partition_index=each, offset=offset) for each, offset in before.items()
    ]
    wanted = [of_topic(name=topic, partitions=partitions)]
    return DeleteRecordsRequest(topics=wanted, timeout_ms=FOLLOWERS_WAIT_MS)
