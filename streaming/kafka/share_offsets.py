"""The offsets and the lags of share groups, as their coordinators describe them.

They are not in `__consumer_offsets`, and the lag does not follow from the ends of the logs: records behind the start
offset may have been read already. Brokers before 4.2 do not tell the lag.

Source: KIP-932, KIP-1226 (DescribeShareGroupOffsets).
"""

from collections import defaultdict
from collections.abc import Collection
from functools import partial
from typing import Any

from kafka.errors import KafkaError
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from streaming.config.settings import Settings
from streaming.kafka.any_broker import AnyBroker, NodeId, Reconnecting, metadata_request
from streaming.kafka.brokers import unreachable
from streaming.kafka.definitions import DescribeShareGroupOffsetsRequest
from streaming.kafka.offsets import ShareOffset, ShareOffsets

CLIENT_ID = "coordinator-share-offsets"

GROUPS_MAX = 500
"""The share groups of one request."""


class ShareOffsetReader:
    """A client that asks for the positions of share groups. It connects when it is first used, and one thread uses it.

    Args:
        settings: The settings with the access to the brokers.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._brokers = Reconnecting({**settings.kafka_client_arguments(), "client_id": CLIENT_ID})

    def of(self, group_ids: Collection[str]) -> ShareOffsets:
        """Return the positions of share groups. A group that we may not describe is left out, and so is a partition
        whose share state is not there yet.

        Raises:
            BrokerUnreachable: No broker answers.
        """
        found, wanted = ShareOffsets(), sorted(group_ids)
        try:
            for start in range(0, len(wanted), GROUPS_MAX):
                found |= self._brokers.run(partial(_described, wanted[start : start + GROUPS_MAX]))
        except KafkaError as error:
            raise unreachable(self._settings, error) from error
        return found

    def close(self) -> None:
        """Close the connections."""
        self._brokers.close()


def _described(group_ids: list[str], brokers: AnyBroker) -> ShareOffsets:
    brokers.learn(brokers.ask(lambda: metadata_request(())))
    request = FindCoordinatorRequest(key_type=CoordinatorType.GROUP.value, coordinator_keys=group_ids)
    by_node = defaultdict[int, list[str]](list)
    for each in brokers.ask(lambda: request).coordinators:
        if not each.error_code:
            by_node[each.node_id].append(each.key)
    if not by_node:
        return {}
    answers = brokers.ask_each(lambda node: _request(by_node[node]), tuple(by_node))
    return {group.group_id: _positions(group) for group in _groups(answers) if not group.error_code}


def _request(group_ids: list[str]) -> Any:
    group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    return DescribeShareGroupOffsetsRequest(groups=[group(group_id=each, topics=None) for each in group_ids])


def _groups(answers: dict[NodeId, Any]) -> list[Any]:
    return [group for answer in answers.values() if not isinstance(answer, KafkaError) for group in answer.groups]


def _positions(group: Any) -> dict[tuple[str, int], ShareOffset]:
    return {
        (topic.topic_name, each.partition_index): ShareOffset(each.start_offset, each.lag if each.lag >= 0 else None)
        for topic in group.topics
        for each in topic.partitions
        if not each.error_code and each.start_offset >= 0
    }
