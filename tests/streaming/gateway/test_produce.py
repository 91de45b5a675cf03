"""The acks of a Produce request are read from its first bytes, in every version."""

import pytest
from kafka.protocol.producer import ProduceRequest

from coordinator.base.binary import Malformed
from streaming.gateway.protocol.produce import acks_of


def head(version: int, acks: int, client_id: str | None = "client", transactional_id: str | None = None) -> memoryview:
    request = ProduceRequest(version=version, transactional_id=transactional_id, acks=acks, timeout_ms=1, topic_data=[])
    request.with_header(correlation_id=1, client_id=client_id)
    return memoryview(request.encode(header=True))


@pytest.mark.parametrize("version", range(3, 10))
@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("client_id", [None, "", "c" * 32_767])
@pytest.mark.parametrize("transactional_id", [None, "t" * 32_767])
def test_acks_are_found(version: int, acks: int, client_id: str | None, transactional_id: str | None):
    assert acks_of(head(version, acks, client_id, transactional_id), version) == acks


def test_more_bytes_are_needed_until_acks_have_arrived():
    whole = head(9, 1, transactional_id="t" * 2_000)
    shorter = [acks_of(whole[:end], 9) for end in range(8, len(whole))]
    assert shorter[0] is None
    assert [acks for acks in shorter if acks is not None] == [1] * shorter.count(1)


def test_a_request_without_acks_is_malformed():
    with pytest.raises(Malformed):
        acks_of(memoryview(b"\xff" * 70_000), 9)
