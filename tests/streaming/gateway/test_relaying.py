"""The relaying of one client's requests to its broker, and of the broker's responses to the client."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import pytest
from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest

from streaming.gateway.connection.flow_control import InFlightRequest, Pause
from streaming.gateway.connection.tasks import Work
from streaming.gateway.protocol.frames import BadFrame, FrameTreatment, with_length
from streaming.gateway.protocol.limits import IN_FLIGHT_MAX
from streaming.gateway.protocol.messages import Header
from streaming.gateway.relay.broker_connection import Upstream
from streaming.gateway.relay.large_produce import Room
from streaming.gateway.security.authenticate import Identity
from streaming.gateway.server.apis import APIS
from streaming.gateway.server.relaying import Relaying
from tests.streaming.gateway.parts import OWN_TOPIC, FakeShared, FakeTransport, FlowBench, turn
from tests.streaming.gateway.wiring import frame_of

PRODUCE, LIST_OFFSETS, DESCRIBE_CONFIGS, SASL_HANDSHAKE = 0, 2, 32, 17
TOPIC = 2


class Bench(FlowBench):
    """The relaying part of one connection, in a running loop."""

    def __init__(self, mechanisms: tuple[str, ...] = (), shared: FakeShared | None = None) -> None:
        super().__init__()
        self.shared = shared or FakeShared(self.metrics, mechanisms)
        self.work = Work(self.flow)
        self.relaying = Relaying(self.shared, 1, self.flow, self.work, Identity(mechanisms, "/10.0.0.7"))

    def relay(self, message: Any) -> InFlightRequest:
        slot = self.slot(message.API_KEY, message.version)
        self.relaying.relay(slot, frame_of(message, message.version))
        return slot

    async def connected(self) -> "Bench":
        """Relay a request and answer it, so that the connection to the broker is open."""
        self.relay(list_offsets("t"))
        await turn()
        self.broker_says(OFFSETS)
        self.to_broker()
        self.run_soon()
        self.transport.written.clear()
        return self

    def to_broker(self) -> list[bytes]:
        return self.shared.upstreams[-1].frames()

    def broker_says(self, frame: bytes) -> None:
        self.shared.upstream.data_received(with_length(frame))


def list_offsets(topic: str) -> ListOffsetsRequest:
    kind = ListOffsetsRequest.ListOffsetsTopic
    partition = kind.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    return ListOffsetsRequest(
        version=2, replica_id=-1, isolation_level=0, topics=[kind(name=topic, partitions=[partition])]
    )


def response(message: Any) -> bytes:
    message.with_header(correlation_id=77)
    return bytes(message.encode(header=True))


OFFSETS = response(ListOffsetsResponse(version=2, throttle_time_ms=0, topics=[]))


def produce(acks: int, topic: str = "t", records: bytes = b"x", version: int = 3) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    partition = data.PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        version=version,
        transactional_id=None,
        acks=acks,
        timeout_ms=1,
        topic_data=[data(name=topic, partition_data=[partition])],
    )


def run(scenario: Callable[[Bench], Awaitable[None]], *mechanisms: str) -> None:
    async def main() -> None:
        await scenario(Bench(mechanisms))

    asyncio.run(main())


# -- requests ----------------------------------------------------------------------------------------------------------


def test_the_first_request_waits_for_the_connection_to_the_broker():
    """Later requests wait too, so that all requests keep their order."""

    async def scenario(bench: Bench) -> None:
        bench.shared.may_connect.clear()
        bench.relay(list_offsets("t"))
        await turn()
        assert (bench.owner.calls, bench.flow.is_paused, bench.shared.upstreams) == (["stop"], True, [])
        bench.shared.may_connect.set()
        await turn()
        assert bench.to_broker() == [frame_of(list_offsets("t"), 2)]
        assert (bench.owner.calls, bench.flow.is_paused) == (["stop", "take"], False)
        bench.relay(list_offsets("u"))
        assert bench.to_broker() == [frame_of(list_offsets("u"), 2)]
        assert len(bench.shared.upstreams) == 1

    run(scenario)


def test_a_client_with_an_unreachable_broker_is_closed():
    async def scenario(bench: Bench) -> None:
        bench.shared.refuses_upstreams = True
        bench.relay(list_offsets("t"))
        await turn()
        assert (bench.owner.calls[:2], bench.owner.errors) == (["stop", "close"], [])

    run(scenario)


def test_a_late_connection_to_a_broker_is_closed():
    async def scenario(bench: Bench) -> None:
        made = FakeTransport()

        async def open_upstream(node_id: int | None, upstream: Upstream) -> None:
            upstream.connection_made(made)
            await asyncio.Event().wait()

        bench.shared.open_upstream = open_upstream  # type: ignore[method-assign]
        bench.relay(list_offsets("t"))
        await turn()
        assert made.ended is None
        bench.work.cancel()
        await turn()
        assert (made.ended, bench.owner.errors) == ("closed", [])

    run(scenario)


def test_a_refused_request_is_answered_and_not_relayed():
    async def scenario(bench: Bench) -> None:
        bench.relay(list_offsets(OWN_TOPIC))
        bench.run_soon()
        (frame,) = bench.transport.frames()
        answer = ListOffsetsResponse.decode(frame, version=2, header=True)
        assert answer.topics[0].partitions[0].error_code == 29
        assert (bench.shared.upstreams, bench.count("requests_denied_total")) == ([], 1)

    run(scenario)


def test_a_produce_without_acknowledgement_has_no_response():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        bench.relay(produce(acks=0))
        assert len(bench.flow.queue) == 0
        bench.relay(list_offsets("t"))
        bench.broker_says(OFFSETS)
        assert bench.transport.frames() == [OFFSETS]
        assert bench.to_broker() == [frame_of(produce(acks=0), 3), frame_of(list_offsets("t"), 2)]

    run(scenario)


# -- large requests ----------------------------------------------------------------------------------------------------


def stream(bench: Bench, message: Any, head_bytes: int = 10**6) -> Any:
    frame = frame_of(message, message.version)
    header = Header(PRODUCE, message.version, 77, None)
    return bench.relaying.stream(APIS[PRODUCE], header, len(frame), memoryview(frame)[:head_bytes])


def test_a_large_produce_is_relayed_in_pieces():
    async def scenario(bench: Bench) -> None:
        message = produce(acks=1)
        assert stream(bench, message, head_bytes=12) is FrameTreatment.MORE
        assert stream(bench, message) is FrameTreatment.LATER, "the connection to the broker is not open"
        await turn()
        copy, framed = stream(bench, message), with_length(frame_of(message, 3))
        for position in range(0, len(framed), 7):
            copy(framed[position : position + 7])
        bench.relaying.streamed()
        assert bench.to_broker() == [framed[4:]]
        bench.broker_says(b"\0\0\0\x4danswer")
        assert bench.transport.frames() == [b"\0\0\0\x4danswer"]

    run(scenario)


@pytest.mark.parametrize(
    ("broker", "is_refused"),
    [
        (None, False),  # no broker has answered
        ((0, 9), False),
        ((0, 11), False),  # Kafka 3.9
        ((4, 9), True),
        ((0, 2), True),
        ((0, 12), True),  # Kafka 4.0 serves 3 and later, whatever it says
    ],
)
def test_a_large_produce_of_a_version_that_the_broker_does_not_serve_is_refused(
    broker: tuple[int, int] | None, is_refused: bool
):
    """A broker reads all of a request before it looks at its version."""

    async def scenario(bench: Bench) -> None:
        if broker is not None:
            first, last = broker
            row = ApiVersionsResponse.ApiVersion(api_key=PRODUCE, min_version=first, max_version=last)
            bench.shared.offer = ApiVersionsResponse(version=0, api_keys=[row])
        await bench.connected()
        message = produce(acks=1, version=2 if broker == (0, 12) else 3)
        with pytest.raises(BadFrame, match="is not offered by the broker") if is_refused else nullcontext():
            assert callable(stream(bench, message))

    run(scenario)


def test_a_large_produce_to_the_coordinators_topics_is_never_relayed_completely():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        copy, framed = stream(bench, produce(1, OWN_TOPIC)), with_length(frame_of(produce(1, OWN_TOPIC), 3))
        with pytest.raises(BadFrame, match="refused"):
            copy(framed)
        assert bench.shared.upstreams[-1].written == b""

    run(scenario)


def test_large_requests_in_flight_are_bounded():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        for _ in range(IN_FLIGHT_MAX - 1):
            bench.slot(12)
        stream(bench, produce(acks=0))
        assert not bench.flow.is_paused, "a request without response does not count"
        stream(bench, produce(acks=1))
        assert bench.flow.is_paused

    run(scenario)


def test_large_requests_of_all_connections_share_their_room():
    """A broker allocates the announced size of each, of which the client may send nothing."""

    async def scenario(bench: Bench) -> None:
        size = len(frame_of(produce(acks=1), 3))
        bench.shared.room = Room(2 * size - 1)
        await bench.connected()
        other = await Bench(shared=bench.shared).connected()
        other.owner.calls.clear()
        assert callable(stream(bench, produce(acks=1)))
        assert stream(other, produce(acks=1)) is FrameTreatment.LATER
        assert (other.flow.is_paused, other.owner.calls) == (True, [])
        bench.relaying.streamed()
        assert (other.flow.is_paused, other.owner.calls) == (False, ["take"])
        assert callable(stream(other, produce(acks=1)))
        assert stream(bench, produce(acks=1)) is FrameTreatment.LATER
        other.relaying.close()
        assert callable(stream(bench, produce(acks=1)))

    run(scenario)


def test_the_time_of_a_large_request_is_known_while_it_is_relayed():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        assert bench.relaying.streams_since_s is None
        stream(bench, produce(acks=1))
        assert bench.relaying.streams_since_s == bench.flow.active_s
        bench.relaying.streamed()
        assert bench.relaying.streams_since_s is None

    run(scenario)


def test_a_client_is_closed_when_its_broker_is_lost_during_a_large_produce():
    """Without acknowledgement, the client would not notice the loss otherwise."""

    async def scenario(bench: Bench) -> None:
        await bench.connected()
        copy = stream(bench, produce(acks=0))
        copy(with_length(frame_of(produce(acks=0), 3))[:20])
        bench.shared.upstream.connection_lost(None)
        assert bench.owner.calls[-1] == "close"

    run(scenario)


def test_a_client_stays_open_when_its_broker_is_lost_after_a_large_produce():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        stream(bench, produce(acks=0))(with_length(frame_of(produce(acks=0), 3)))
        bench.relaying.streamed()
        bench.shared.upstream.connection_lost(None)
        assert bench.owner.calls[-1] != "close"

    run(scenario)


# -- responses ---------------------------------------------------------------------------------------------------------


def test_responses_of_the_broker_and_of_the_gateway_keep_the_order_of_the_requests():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        served = bench.slot(12)
        bench.relay(list_offsets("t"))
        bench.broker_says(OFFSETS)
        assert (bench.transport.written, bench.shared.upstreams[-1].is_reading) == (b"", False)
        bench.flow.answer(served, with_length(b"served"))
        bench.run_soon()
        bench.relaying.resume()
        assert bench.transport.frames() == [b"served", OFFSETS]
        assert bench.shared.upstreams[-1].is_reading

    run(scenario)


def test_a_rewritten_response_is_buffered_while_it_is_read():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        resource = DescribeConfigsRequest.DescribeConfigsResource
        bench.relay(
            DescribeConfigsRequest(
                version=1, resources=[resource(resource_type=4, resource_name="1", configuration_keys=None)]
            )
        )
        kind = DescribeConfigsResponse.DescribeConfigsResult
        config = kind.DescribeConfigsResourceResult(
            name="listeners", value="real:1", read_only=False, config_source=4, is_sensitive=False, synonyms=[]
        )
        result = kind(error_code=0, error_message=None, resource_type=4, resource_name="1", configs=[config])
        frame = response(DescribeConfigsResponse(version=1, throttle_time_ms=0, results=[result]))
        bench.broker_says(frame)
        assert bench.flow.send_buffer.held_bytes == len(frame)
        await turn()
        bench.run_soon()
        (out,) = bench.transport.frames()
        said = DescribeConfigsResponse.decode(out, version=1, header=True)
        assert [(c.value, c.is_sensitive) for c in said.results[0].configs] == [(None, True)]
        assert (bench.flow.send_buffer.held_bytes, bench.owner.errors) == (0, [])

    run(scenario)


def test_an_unreadable_response_fails_the_client():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        bench.relay(DescribeConfigsRequest(version=1, resources=[]))
        bench.broker_says(b"\0")
        await turn()
        assert len(bench.owner.errors) == 1

    run(scenario)


def test_a_large_response_waits_while_too_many_bytes_are_held():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        before = bench.slot(12)
        bench.flow.give(bench.slot(12), bytes(16 * 2**20))
        assert bench.flow.send_buffer.is_much
        slot = bench.relay(DescribeConfigsRequest(version=1, resources=[]))
        assert not bench.relaying.has_room(slot)
        assert bench.relaying.has_room(before), "the client cannot get another response before it"

    run(scenario)


# -- flow control ------------------------------------------------------------------------------------------------------


def test_requests_are_not_read_while_the_broker_does_not_read_them():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        bench.shared.upstream.pause_writing()
        assert (bench.flow.is_paused, bench.transport.is_reading) == (True, False)
        bench.shared.upstream.resume_writing()
        assert (bench.flow.is_paused, bench.transport.is_reading) == (False, True)

    run(scenario)


def test_the_broker_is_not_read_while_the_client_is_slow():
    async def scenario(bench: Bench) -> None:
        bench.relaying.client_slow(True)
        bench.relaying.resume()  # the connection to the broker is not open yet
        await bench.connected()
        bench.relaying.client_slow(True)
        assert not bench.shared.upstreams[-1].is_reading
        bench.relaying.client_slow(False)
        assert bench.shared.upstreams[-1].is_reading

    run(scenario)


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_client_that_waits_for_its_broker_is_closed_with_the_broker():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        bench.relay(list_offsets("t"))
        bench.shared.upstream.connection_lost(None)
        assert bench.owner.calls[-1] == "close"

    run(scenario)


def test_a_client_without_outstanding_requests_gets_a_new_connection_to_the_broker():
    async def scenario(bench: Bench) -> None:
        await bench.connected()
        bench.flow.pause(Pause.BROKER)
        bench.shared.upstream.connection_lost(None)
        assert (bench.owner.calls[-1] == "close", bench.flow.is_paused) == (False, False)
        assert bench.transport.is_reading, "its next request is read at once"
        bench.relay(list_offsets("t"))
        await turn()
        assert len(bench.shared.upstreams) == 2

    run(scenario)


def test_a_client_that_the_broker_has_authenticated_is_closed_with_the_broker():
    """A new connection would not be authenticated."""

    async def scenario(bench: Bench) -> None:
        bench.relaying.forward(bench.slot(SASL_HANDSHAKE), b"handshake")
        await turn()
        assert bench.to_broker() == [b"handshake"]
        bench.broker_says(b"answer")
        assert bench.transport.frames() == [b"answer"]
        bench.shared.upstream.connection_lost(None)
        assert bench.owner.calls[-1] == "close"

    run(scenario, "PLAIN")


def test_closing_closes_the_connection_to_the_broker():
    async def scenario(bench: Bench) -> None:
        bench.relaying.close()
        await bench.connected()
        bench.relaying.close()
        assert bench.shared.upstreams[-1].ended == "closed"

    run(scenario)


def metadata(version: int) -> MetadataRequest:
    return MetadataRequest(version=version, topics=[])


def test_a_client_that_was_turned_away_is_told_to_begin_at_its_bootstrap_servers():
    """KIP-1102: another gateway may be among them."""

    async def scenario(bench: Bench) -> None:
        bench.shared.turned_away.add(("/10.0.0.7", "", None))
        bench.relay(metadata(13))
        bench.run_soon()
        (frame,) = bench.transport.frames()
        assert MetadataResponse.decode(frame, version=13, header=True).error_code == 129
        assert bench.shared.upstreams == []

    run(scenario)


def test_a_client_that_was_turned_away_and_cannot_be_told_so_is_disconnected():
    async def scenario(bench: Bench) -> None:
        bench.shared.turned_away.add(("/10.0.0.7", "", None))
        bench.relay(metadata(12))
        bench.run_soon()
        assert (bench.transport.frames(), bench.owner.calls[-1:]) == ([], ["close"])

    run(scenario)


def test_a_broker_that_closes_a_new_connection_at_once_ends_the_clients_connection():
    """As a proxy does before a broker that is down."""

    async def scenario(bench: Bench) -> None:
        bench.shared.closes_upstreams = True
        bench.relay(list_offsets("t"))
        await turn()
        assert (bench.owner.errors, bench.owner.calls[-1:]) == ([], ["close"])

    run(scenario)
