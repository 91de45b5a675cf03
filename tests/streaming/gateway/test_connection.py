"""A complete connection without a socket: its parts work together, and it ends cleanly."""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.consumer.group import HeartbeatRequest, HeartbeatResponse, JoinGroupRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from coordinator.messages.responses import DescribeGroupAnswer, HeartbeatAnswer, JoinGroupAnswer, RebalanceNotice
from streaming.gateway.protocol.api import Handling
from streaming.gateway.protocol.frames import with_length
from streaming.gateway.protocol.limits import IN_FLIGHT_MAX, PIECE_BYTES
from streaming.gateway.protocol.produce import HELD_BYTES_MAX
from streaming.gateway.server.apis import APIS
from streaming.gateway.server.connection import Connection
from tests.streaming.gateway.parts import FakeCoordinators, FakeShared, FakeTransport, Socket, turn
from tests.streaming.gateway.wiring import frame_of, message_of

CERTIFICATE = {"subject": ((("commonName", "ana"),),)}


class Bench:
    """A connection in a running loop, with a client that sends requests and reads responses."""

    def __init__(self, mechanisms: tuple[str, ...] = (), **extra: object) -> None:
        self.shared = FakeShared(mechanisms=mechanisms)
        self.asking: FakeCoordinators = self.shared.coordinators
        self.transport = FakeTransport(socket=Socket(), peername=("10.0.0.7", 9), **extra)
        self.now_s = 100.0
        self.connection = Connection(self.shared, 1, lambda: self.now_s)
        self.now_s = 107.0  # the time after the TLS handshake
        self.connection.connection_made(self.transport)

    def send(self, *messages: Any) -> None:
        """Send requests as one piece of bytes."""
        self.connection.data_received(b"".join(with_length(frame_of(each, each.version)) for each in messages))

    async def read_responses(self, kind: Any, version: int) -> list[Any]:
        """Return the responses that were sent."""
        await turn()
        return [kind.decode(frame, version=version, header=True) for frame in self.transport.frames()]

    def count(self, name: str, **labels: str) -> float:
        return self.shared.metrics.registry.get_sample_value(f"groupcoord_gateway_{name}", labels) or 0


def run(scenario: Callable[[Bench], Awaitable[None]], *mechanisms: str, **extra: object) -> None:
    async def main() -> None:
        bench = Bench(mechanisms, **extra)
        await scenario(bench)
        bench.connection.connection_lost(None)
        await turn()
        assert asyncio.all_tasks() == {asyncio.current_task()}, "no task may remain"
        assert (bench.asking.waiting, bench.asking.inboxes, bench.shared.memory_budget.held_bytes) == (0, {}, 0)
        assert (bench.shared.connections, bench.shared.unfinished_bytes) == ([], 0)

    asyncio.run(main())


def heartbeat(member_id: str = "m") -> HeartbeatRequest:
    return HeartbeatRequest(version=3, group_id="g", generation_id=1, member_id=member_id, group_instance_id=None)


JOIN = JoinGroupRequest(
    version=4,
    group_id="g",
    session_timeout_ms=30_000,
    rebalance_timeout_ms=9_000,
    member_id="m",
    protocol_type="consumer",
    protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
)
OFFSETS = ListOffsetsRequest(version=2, replica_id=-1, isolation_level=0, topics=[])


def list_offsets_response() -> bytes:
    message = ListOffsetsResponse(version=2, throttle_time_ms=0, topics=[])
    message.with_header(correlation_id=77)
    return with_length(message.encode(header=True))


# -- requests ----------------------------------------------------------------------------------------------------------


def test_a_request_is_served():
    async def scenario(bench: Bench) -> None:
        assert (bench.shared.spoke, bench.connection.is_silent) == ([], True)
        bench.send(heartbeat())
        assert (bench.shared.spoke, bench.connection.is_silent) == ([bench.connection], False)
        (request,) = bench.asking.requests
        assert (request.client_id, request.client_host, request.principal) == ("ana", "/10.0.0.7", None)
        assert not bench.connection.is_idle
        bench.asking.answer(HeartbeatAnswer, code=25)
        assert [each.error_code for each in await bench.read_responses(HeartbeatResponse, 3)] == [25]
        assert bench.connection.is_idle
        assert bench.count("requests_total", api="Heartbeat") == bench.count("request_seconds_count", api="Heartbeat")
        bench.send(heartbeat())
        assert bench.shared.spoke == [bench.connection], "once"

    run(scenario)


def test_requests_have_the_certificates_principal():
    async def scenario(bench: Bench) -> None:
        bench.send(heartbeat())
        assert bench.asking.requests[0].principal == "User:CN=ana"

    run(scenario, peercert=CERTIFICATE)


def test_requests_behind_a_waiting_join_are_read():
    async def scenario(bench: Bench) -> None:
        bench.send(JOIN, heartbeat("a"), heartbeat("b"))
        assert len(bench.asking.sent) == 3

    run(scenario)


def test_requests_for_the_broker_and_for_the_coordinator_are_answered_in_order():
    async def scenario(bench: Bench) -> None:
        bench.send(OFFSETS, heartbeat("a"), OFFSETS)
        assert bench.asking.sent == [], "the request waits for the connection to the broker"
        await turn()
        assert len(bench.shared.upstreams[0].frames()) == 2
        bench.shared.upstream.data_received(list_offsets_response() * 2)
        await turn()
        assert bench.transport.written == list_offsets_response()
        bench.asking.answer(HeartbeatAnswer)
        await turn()
        frames = bench.transport.frames()
        assert [len(frame) for frame in frames] == [len(list_offsets_response()) - 4, 10, len(frames[0])]

    run(scenario)


@pytest.mark.parametrize("api_key", APIS)
def test_each_api_handles_a_request_of_zeros(api_key: int, caplog: pytest.LogCaptureFixture):
    """A body of zeros is a valid request of some APIs and a malformed one of others."""

    async def scenario(bench: Bench) -> None:
        api = APIS[api_key]
        bench.connection.data_received(with_length(struct.pack(">hhih", api_key, api.first, 77, -1) + bytes(64)))
        await turn()
        assert bench.count("requests_total", api=api.name) == 1

    with caplog.at_level(logging.ERROR):
        mechanisms = ("PLAIN",) if APIS[api_key].handling is Handling.AUTHENTICATED else ()
        run(scenario, *mechanisms)
    assert not caplog.records


def test_a_coordinator_is_found_and_a_response_is_rewritten():
    async def scenario(bench: Bench) -> None:
        bench.send(FindCoordinatorRequest(version=0, key="g"))
        await turn()
        assert len(bench.transport.frames()) == 1
        bench.send(message_of(MetadataRequest, 1, lambda field: "t", lambda field: 0))
        await turn()
        message = MetadataResponse(version=1, brokers=[], controller_id=1, topics=[])
        message.with_header(correlation_id=77)
        bench.shared.upstream.data_received(with_length(message.encode(header=True)))
        assert len(await bench.read_responses(MetadataResponse, 1)) == 1

    run(scenario)


def test_a_large_produce_is_relayed_without_buffering():
    async def scenario(bench: Bench) -> None:
        data = ProduceRequest.TopicProduceData
        partition = data.PartitionProduceData(index=0, records=bytes(HELD_BYTES_MAX))
        topics = [data(name="t", partition_data=[partition])]
        message = ProduceRequest(version=3, transactional_id=None, acks=1, timeout_ms=1, topic_data=topics)
        framed = with_length(frame_of(message, 3))
        for position in range(0, 10 * PIECE_BYTES, PIECE_BYTES):
            bench.connection.data_received(framed[position : position + PIECE_BYTES])
            await turn()
            assert bench.connection.held_bytes <= PIECE_BYTES
        bench.shared.upstream.connection_lost(None)
        assert bench.transport.ended == "aborted", "the broker has received a part of the request"

    run(scenario)


# -- heartbeats --------------------------------------------------------------------------------------------------------


async def held_heartbeat(bench: Bench) -> None:
    """Join a group, and send a heartbeat whose response is held."""
    bench.send(JOIN)
    bench.asking.answer(JoinGroupAnswer, member_id="m")
    await turn()
    bench.transport.written.clear()
    bench.send(heartbeat())
    bench.asking.answer(HeartbeatAnswer)
    await turn()
    assert bench.transport.written == b""


def test_a_notice_ends_the_wait_of_a_heartbeat():
    async def scenario(bench: Bench) -> None:
        await held_heartbeat(bench)
        (notify,) = bench.asking.inboxes.values()
        notify(RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id="m"))
        assert [each.error_code for each in await bench.read_responses(HeartbeatResponse, 3)] == [27]

    run(scenario)


def test_the_next_request_ends_the_wait_of_a_heartbeat():
    async def scenario(bench: Bench) -> None:
        await held_heartbeat(bench)
        bench.send(heartbeat())
        assert [each.error_code for each in await bench.read_responses(HeartbeatResponse, 3)] == [0]

    run(scenario)


def test_a_heartbeat_after_another_kind_of_request_does_not_wait():
    async def scenario(bench: Bench) -> None:
        await held_heartbeat(bench)
        bench.send(OFFSETS)
        await turn()
        bench.shared.upstream.data_received(list_offsets_response())
        await turn()
        bench.transport.written.clear()
        bench.send(heartbeat())
        bench.asking.answer(HeartbeatAnswer)
        assert [each.error_code for each in await bench.read_responses(HeartbeatResponse, 3)] == [0]

    run(scenario)


async def authenticate(bench: Bench, lifetime_ms: int) -> None:
    """Authenticate by PLAIN, for a time."""
    chosen = SaslHandshakeResponse(version=1, error_code=0, mechanisms=["PLAIN"])
    accepted = SaslAuthenticateResponse(
        version=2, error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=lifetime_ms
    )
    for request, response in (
        (SaslHandshakeRequest(version=1, mechanism="PLAIN"), chosen),
        (SaslAuthenticateRequest(version=2, auth_bytes=b"\0ana\0secret"), accepted),
    ):
        bench.send(request)
        await turn()
        response.with_header(correlation_id=77)
        bench.shared.upstream.data_received(with_length(response.encode(header=True)))
        await turn()
    bench.transport.written.clear()


def test_a_held_response_is_sent_before_the_client_authenticates_again():
    """KIP-368, public reports, nisshi 665: librdkafka sends no commit and no token before it has all responses."""

    async def scenario(bench: Bench) -> None:
        await authenticate(bench, lifetime_ms=60_000)
        await held_heartbeat(bench)
        due = bench.connection._before_again
        assert due
        assert due.when() - asyncio.get_running_loop().time() <= 0.8 * 60
        due._run()
        assert [each.error_code for each in await bench.read_responses(HeartbeatResponse, 3)] == [0]

    run(scenario, "PLAIN")


def test_no_response_is_held_when_the_client_may_authenticate_again():
    async def scenario(bench: Bench) -> None:
        await authenticate(bench, lifetime_ms=60_000)
        bench.send(JOIN)
        bench.asking.answer(JoinGroupAnswer, member_id="m")
        await turn()
        bench.transport.written.clear()
        bench.now_s += 0.8 * 60
        bench.send(heartbeat())
        bench.asking.answer(HeartbeatAnswer)
        assert [each.error_code for each in await bench.read_responses(HeartbeatResponse, 3)] == [0]
        await authenticate(bench, lifetime_ms=60_000)
        await held_heartbeat(bench)

    run(scenario, "PLAIN")


# -- flow control ------------------------------------------------------------------------------------------------------


def test_requests_are_not_read_while_too_many_are_in_flight():
    async def scenario(bench: Bench) -> None:
        bench.send(*(heartbeat(str(number)) for number in range(IN_FLIGHT_MAX + 5)))
        assert (len(bench.asking.sent), bench.transport.is_reading) == (IN_FLIGHT_MAX, False)
        bench.asking.answer(HeartbeatAnswer, index=0)
        await turn()
        assert (len(bench.asking.sent), bench.transport.is_reading) == (IN_FLIGHT_MAX + 1, False)

    run(scenario)


def test_reading_of_both_sides_pauses_for_a_client_that_does_not_read():
    async def scenario(bench: Bench) -> None:
        bench.send(OFFSETS)
        await turn()
        bench.connection.pause_writing()
        assert bench.connection.stuck_since_s is not None
        assert (bench.transport.is_reading, bench.shared.upstreams[0].is_reading) == (False, False)
        bench.connection.resume_writing()
        assert bench.connection.stuck_since_s is None
        assert (bench.transport.is_reading, bench.shared.upstreams[0].is_reading) == (True, True)

    run(scenario)


def test_a_client_that_is_slow_again_at_once_stays_paused():
    async def scenario(bench: Bench) -> None:
        bench.send(DescribeGroupsRequest(version=4, groups=["g"], include_authorized_operations=False))
        bench.connection.pause_writing()
        bench.asking.answer(DescribeGroupAnswer, group_id="g")
        bench.transport.on_write = bench.connection.pause_writing
        bench.connection.resume_writing()
        assert (bench.connection.stuck_since_s is not None, bench.transport.is_reading) == (True, False)

    run(scenario)


def test_bytes_that_the_client_has_not_read_are_counted():
    async def scenario(bench: Bench) -> None:
        bench.transport.untaken_bytes = 5_000
        bench.connection.count_written()
        assert bench.shared.memory_budget.held_bytes == bench.connection.send_buffer.held_bytes == 5_000

    run(scenario)


def test_bytes_of_unfinished_requests_are_counted():
    async def scenario(bench: Bench) -> None:
        framed = with_length(frame_of(heartbeat(), 3))
        bench.connection.data_received(framed[:9])
        assert (bench.shared.unfinished_bytes, bench.connection.frame_since_s) == (9, 107.0)
        bench.now_s = 108.0
        bench.connection.data_received(framed[9:20])
        assert (bench.shared.unfinished_bytes, bench.connection.frame_since_s) == (20, 107.0)
        assert (bench.connection.is_silent, bench.connection.is_idle, bench.connection.active_s) == (True, False, 108.0)
        bench.connection.data_received(framed[20:])
        assert (bench.shared.unfinished_bytes, bench.connection.frame_since_s) == (0, None)
        bench.connection.data_received(framed[:9])

    run(scenario)


def test_a_clients_time_limit_does_not_include_its_brokers_time():
    """The rest of the client's next request has not been read."""

    async def scenario(bench: Bench) -> None:
        bench.shared.may_connect.clear()
        bench.connection.data_received(with_length(frame_of(OFFSETS, 2)) + with_length(frame_of(heartbeat(), 3))[:6])
        assert (bench.connection.frame_since_s, bench.connection.held_bytes) == (None, 6)
        await turn()

    run(scenario)
