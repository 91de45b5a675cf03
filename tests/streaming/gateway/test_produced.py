"""Responses to Produce: those that may contain addresses of brokers are told apart, and rewritten."""

from itertools import product
from typing import Any

import pytest
from kafka.protocol.producer import ProduceResponse

from streaming.gateway.protocol.produce import may_have_addresses

NOT_LEADER = 6
VERSIONS = (10, 11, 12)
_TOPIC = ProduceResponse.TopicProduceResponse
_PARTITION = _TOPIC.PartitionProduceResponse


def response(version: int, *topics: Any, **fields: Any) -> bytes:
    message = ProduceResponse(version=version, responses=list(topics), **fields)
    message.with_header(correlation_id=77)
    return bytes(message.encode(header=True))


def topic(*partitions: Any, name: str = "t") -> Any:
    return _TOPIC(name=name, partition_responses=list(partitions))


def written(index: int = 0, **fields: Any) -> Any:
    return _PARTITION(index=index, base_offset=2**40 + index, log_start_offset=7, **fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_without_an_error_have_no_addresses(version: int) -> None:
    assert not may_have_addresses(response(version))
    assert not may_have_addresses(response(version, topic(written(), written(9)), topic(written(3), name="u" * 100)))


LEADER = _PARTITION.LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
ENDPOINT = ProduceResponse.NodeEndpoint(node_id=2, host="broker-2", port=9092, rack=None)


@pytest.mark.parametrize(
    ("version", "frame"),
    [
        *product(VERSIONS, [([topic(written(), written(1, error_code=NOT_LEADER, current_leader=LEADER))], {})]),
        *product(VERSIONS, [([topic(written())], {"node_endpoints": [ENDPOINT]})]),
        *product(VERSIONS, [([topic(written(error_message="no"))], {})]),
    ],
)
def test_other_responses_may_have_addresses(version: int, frame: tuple[list[Any], dict[str, Any]]) -> None:
    topics, fields = frame
    assert may_have_addresses(response(version, *topics, **fields))


def test_a_response_that_is_cut_off_or_has_more_may_have_addresses() -> None:
    whole = response(12, topic(written(), written(1)))
    for end in range(4, len(whole)):
        assert may_have_addresses(whole[:end])
    assert may_have_addresses(whole + b"\0")


def test_a_response_with_many_partitions_is_read_completely() -> None:
    """Their number has two bytes. Such responses are rare."""
    assert may_have_addresses(response(12, topic(*map(written, range(200)))))
