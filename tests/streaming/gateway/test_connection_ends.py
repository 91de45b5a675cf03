"""The ends of a connection. No task and no state remain afterwards."""

import asyncio
import gc
import logging
import struct
import weakref

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.sasl import SaslHandshakeRequest

from coordinator.outputs import HeartbeatAnswer
from streaming.gateway import connection as module
from tests.streaming.gateway.parts import turn
from tests.streaming.gateway.test_connection import JOIN, OFFSETS, Bench, heartbeat, held_heartbeat, run
from tests.streaming.gateway.wiring import frame_of

# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        struct.pack(">ihhih", 10, 76, 0, 77, -1),
        struct.pack(">ihhih", 10, 12, 3, 77, -1),
    ],
    ids=["no frame", "not offered", "malformed"],
)
def test_a_client_that_breaks_the_protocol_is_refused(data: bytes):
    async def scenario(bench: Bench) -> None:
        bench.connection.data_received(data)
        assert (bench.transport.ended, bench.count("connections_refused_total")) == ("aborted", 1)
        assert bench.shared.connections == []
        bench.connection.refuse("again")
        assert bench.count("connections_refused_total") == 1

    run(scenario)


def test_an_unsupported_sasl_exchange_is_refused():
    async def scenario(bench: Bench) -> None:
        bench.connection.data_received(struct.pack(">ihhih", 10, 17, 1, 77, -1))
        assert (bench.transport.ended, bench.count("connections_refused_total")) == ("aborted", 1)

    run(scenario, "PLAIN")


def test_a_sasl_exchange_is_forwarded():
    async def scenario(bench: Bench) -> None:
        message = SaslHandshakeRequest(version=1, mechanism="PLAIN")
        bench.send(message)
        await turn()
        assert bench.shared.upstreams[0].frames() == [frame_of(message, 1)]

    run(scenario, "PLAIN")


def test_waiting_requests_are_refused_too():
    async def scenario(bench: Bench) -> None:
        bench.connection.pause_writing()
        bench.connection.data_received(struct.pack(">ihhih", 10, 76, 0, 77, -1))
        assert bench.transport.ended is None
        bench.connection.resume_writing()
        assert bench.count("connections_refused_total") == 1

    run(scenario)


def test_an_internal_error_ends_the_connection_and_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    async def scenario(bench: Bench) -> None:
        monkeypatch.setattr(bench.asking, "send", lambda *arguments: [][0])
        bench.send(JOIN)
        assert (bench.transport.ended, bench.count("connections_refused_total")) == ("aborted", 0)

    with caplog.at_level(logging.ERROR, module.__name__):
        run(scenario)
    assert "<connection of 'ana' from /10.0.0.7> is closed because of an error" in caplog.text


def test_late_responses_are_dropped():
    async def scenario(bench: Bench) -> None:
        bench.send(heartbeat())
        bench.connection.close()
        bench.asking.answer(HeartbeatAnswer)
        await turn()
        assert bench.transport.written == b""

    run(scenario)


def test_the_connection_to_the_broker_ends_with_the_clients_connection():
    async def scenario(bench: Bench) -> None:
        bench.send(OFFSETS)
        await turn()
        bench.connection.connection_lost(None)
        assert bench.shared.upstreams[0].ended == "aborted"

    run(scenario)


def test_the_time_limit_of_a_silent_connection_starts_when_it_is_accepted():
    """The time includes the TLS handshake, which comes before `connection_made`."""

    async def scenario(bench: Bench) -> None:
        assert bench.connection.active_s == 100.0
        bench.connection.data_received(b"")
        assert bench.connection.active_s == 107.0

    run(scenario)


def test_tasks_end_with_the_connection():
    async def scenario(bench: Bench) -> None:
        bench.shared.settings.access = "rules"
        bench.send(FindCoordinatorRequest(version=0, key="g"))
        await turn()
        assert len(asyncio.all_tasks()) > 1

    run(scenario)


def test_a_held_heartbeat_does_not_keep_a_closed_connection():
    async def scenario() -> None:
        bench = Bench()
        await held_heartbeat(bench)
        bench.connection.connection_lost(None)
        closed = weakref.ref(bench.connection)
        del bench
        await turn()
        gc.collect()
        assert closed() is None

    asyncio.run(scenario())
