"""The last requests of a connection: its client sends no more, or the gateway stops before they are answered.

kroxylicious 4493, 4094: the responses that are on the way when a connection ends, and requests without a response. A
broker reads a request of a connection when it has answered the one before, so the end of the requests comes last.
"""

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from streaming.gateway import Gateway
from streaming.gateway.server import server as server_module
from tests.system.test_gateway import TOPIC, become_member, heartbeat, produce, topic
from tests.system.waiting import HANG_S, wait_until
from tests.system.wire import Wire, connect

__all__ = ["topic"]

COMMITTERS, SLOW_READERS, IN_FLIGHT = 3, 2, 20
VALUE = bytes(range(256)) * 2_000


@pytest.fixture(params=["broker", "gateway"])
def server(request: pytest.FixtureRequest, topic: str, group_id: str) -> str:
    """Return the address of a broker, whose own coordinator is asked, or of a gateway."""
    address = str(request.getfixturevalue(request.param).bootstrap_servers)
    find = FindCoordinatorRequest(version=4, key_type=0, coordinator_keys=[group_id])
    with connect(address) as wire:
        wait_until(lambda: wire.call(find).coordinators[0].error_code == 0)
        wait_until(lambda: wire.call(fetch_offset(group_id)).error_code == 0)  # a broker loads the group first
    return address


def commit(group_id: str, offset: int, member_id: str = "", generation_id: int = -1) -> Any:
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = kind.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
    return OffsetCommitRequest(
        version=8,
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=None,
        topics=[kind(name=TOPIC, partitions=[partition])],
    )


def fetch_offset(group_id: str) -> Any:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    return OffsetFetchRequest(version=7, group_id=group_id, topics=[topic], require_stable=False)


def committed(address: str, group_id: str) -> int:
    with connect(address) as wire:
        return int(wire.call(fetch_offset(group_id)).topics[0].partitions[0].committed_offset)


BEFORE: dict[str, Callable[[str, str], list[Any]]] = {
    "nothing": lambda group_id, member_id: [],
    "a heartbeat": lambda group_id, member_id: [heartbeat(group_id, member_id)],
    "a produce": lambda group_id, member_id: [produce(1, b"x")],
    "a silent produce": lambda group_id, member_id: [produce(0, b"x"), produce(0, b"x")],
    "all of them": lambda group_id, member_id: [produce(-1, b"x"), heartbeat(group_id, member_id), produce(0, b"x")],
}


@pytest.mark.parametrize("before", BEFORE)
def test_a_client_that_has_closed_its_side_gets_all_responses(server: str, topic: str, group_id: str, before: str):
    with connect(server) as first:
        member_id = become_member(first, group_id)
        with connect(server) as wire:
            requests = [*BEFORE[before](group_id, member_id), commit(group_id, 7, member_id, 1)]
            wire.send(*requests)
            wire.socket.shutdown(socket.SHUT_WR)
            answers = [wire.read() for each in requests if each.expect_response()]
            assert answers[-1].topics[0].partitions[0].error_code == 0
            assert wire.is_hung_up(), "nothing else comes"
    assert committed(server, group_id) == 7


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("end", ["closed", "reset"])
def test_a_commit_before_the_end_of_its_connection_counts(
    gateway: Gateway, topic: str, group_id: str, before: str, end: str
):
    """A broker may drop it if another request was before it: it notices the end when it sends the first response."""
    with connect(gateway.bootstrap_servers) as first:
        member_id = become_member(first, group_id)
        with connect(gateway.bootstrap_servers) as wire:
            wire.send(*BEFORE[before](group_id, member_id), commit(group_id, 7, member_id, 1))
            if end == "reset":
                wait_until(lambda: committed(gateway.bootstrap_servers, group_id) == 7)
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: committed(gateway.bootstrap_servers, group_id) == 7)


# -- a gateway that stops ----------------------------------------------------------------------------------------------


class Pipelining(threading.Thread):
    """A client that keeps requests in flight until the connection ends, and counts the whole responses.

    Args:
        make: Returns the request with a number, from 1 on.

    Attributes:
        left: The bytes after the last whole response.
    """

    def __init__(self, address: str, make: Callable[[int], Any], in_flight: int, *, reads_slowly: bool = False) -> None:
        super().__init__(daemon=True)
        self._wire, self._make, self._in_flight, self._is_slow = Wire(address), make, in_flight, reads_slowly
        if reads_slowly:
            self._wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        self.left, self._sent, self.whole = bytearray(), 0, 0
        self.start()

    def run(self) -> None:
        is_open = True
        while is_open:
            while self._sent - self.whole < self._in_flight:
                self._sent += 1
                try:
                    self._wire.send(self._make(self._sent))
                except OSError:  # the gateway reads nothing more
                    self._in_flight = 0
            is_open = self._read_on()
        self._wire.close()

    def _read_on(self) -> bool:
        try:
            piece = self._wire.socket.recv(2**12 if self._is_slow else 2**16)
        except ConnectionResetError:
            return False
        self.left += piece
        while len(self.left) >= 4 and len(self.left) >= (end := 4 + int.from_bytes(self.left[:4])):
            del self.left[:end]
            self.whole += 1
        return bool(piece)


def fetch(_: int) -> Any:
    """Return a request for 8 MB of records."""
    asked = FetchRequest.FetchTopic
    partition = asked.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**24)
    return FetchRequest(
        version=12,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=2**26,
        topics=[asked(topic=TOPIC, partitions=[partition])],
        forgotten_topics_data=[],
    )


@pytest.mark.long
def test_no_response_is_cut_when_a_gateway_stops(
    gateway: Gateway, topic: str, group_id: str, monkeypatch: pytest.MonkeyPatch
):
    """Clients that read get whole responses, then the end; no commit that was acknowledged is lost.

    A broker that stops cuts large responses.
    """
    for limit in ("LAST_RESPONSES_S", "STOP_WAIT_S"):
        monkeypatch.setattr(server_module, limit, HANG_S)
    for _ in range(16):
        with connect(gateway.bootstrap_servers) as wire:
            assert wire.call(produce(1, VALUE)).responses[0].partition_responses[0].error_code == 0
    stopping = Gateway(gateway.settings.model_copy(update={"gateway_port": 0})).start()
    address = stopping.bootstrap_servers
    groups = [f"{group_id}-{number}" for number in range(COMMITTERS)]
    committers = [Pipelining(address, lambda n, g=group: commit(g, n), IN_FLIGHT) for group in groups]  # type: ignore[misc]
    readers = [Pipelining(address, fetch, 2, reads_slowly=True) for _ in range(SLOW_READERS)]
    wait_until(lambda: all(client.whole for client in (*committers, *readers)))
    stopping.stop()
    for client in (*committers, *readers):
        client.join(HANG_S)
        assert not client.left, "a response was cut"
    for client, group in zip(committers, groups, strict=True):
        assert committed(gateway.bootstrap_servers, group) >= client.whole
