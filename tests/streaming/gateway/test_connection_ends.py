"""The ends of a connection. No task and no state remain afterwards."""

import asyncio
import gc
import logging
import struct
import weakref

import pytest
from kafka.protocol.consumer.group import HeartbeatResponse
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.sasl import SaslHandshakeRequest

from coordinator.messages.responses import HeartbeatAnswer, JoinGroupAnswer
from streaming.gateway.protocol.frames import with_length
from streaming.gateway.server import connection as module
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


@pytest.mark.parametrize(
    "bad",
    [
        b"\xff\xff\xff\xff",
        struct.pack(">ihhih", 10, 76, 0, 77, -1),
        struct.pack(">ihhih", 10, 12, 3, 77, -1),
    ],
    ids=["no frame", "not offered", "malformed"],
)
def test_requests_before_a_refused_one_are_answered(bad: bytes):
    """A broker reads a request when it has answered the one before."""

    async def scenario(bench: Bench) -> None:
        bench.connection.data_received(with_length(frame_of(heartbeat(), 3)) + bad)
        assert (bench.transport.ended, bench.count("connections_refused_total")) == (None, 1)
        bench.asking.answer(HeartbeatAnswer)
        assert len(await bench.read_responses(HeartbeatResponse, 3)) == 1
        assert bench.transport.calls == ["write_eof"]
        bench.send(heartbeat())
        assert len(bench.asking.sent) == 1, "nothing more is read"

    run(scenario)


def test_a_refused_client_is_not_waited_for_without_a_limit(monkeypatch: pytest.MonkeyPatch):
    async def scenario(bench: Bench) -> None:
        monkeypatch.setattr(module, "LAST_RESPONSES_S", 0.0)
        bench.connection.data_received(with_length(frame_of(JOIN, 4)) + b"\xff\xff\xff\xff")
        assert bench.transport.ended is None
        await turn()
        assert bench.transport.ended == "aborted"

    run(scenario)


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


# -- the last responses ------------------------------------------------------------------------------------------------


def test_requests_of_a_client_that_has_ended_are_answered():
    """kroxylicious 4493: a client may close its side of the connection right after its last request."""

    async def scenario(bench: Bench) -> None:
        bench.send(JOIN, heartbeat())
        assert bench.connection.eof_received()
        bench.asking.answer(HeartbeatAnswer)
        await turn()
        assert (bench.transport.frames(), bench.transport.ended) == ([], None)
        bench.asking.answer(JoinGroupAnswer, index=0, member_id="m")
        await turn()
        assert (len(bench.transport.frames()), bench.transport.calls) == (2, ["closed"])

    run(scenario)


def test_a_client_that_has_ended_and_waits_for_nothing_is_closed():
    async def scenario(bench: Bench) -> None:
        bench.send(heartbeat())
        bench.asking.answer(HeartbeatAnswer)
        await turn()
        bench.connection.eof_received()
        assert bench.transport.calls == ["closed"]

    run(scenario)


@pytest.mark.parametrize("end", ["client", "gateway"])
def test_no_heartbeat_is_held_for_a_connection_that_ends(end: str):
    async def scenario(bench: Bench) -> None:
        await held_heartbeat(bench)
        if end == "client":
            bench.connection.eof_received()
        else:
            bench.connection.end()
        assert len(await bench.read_responses(HeartbeatResponse, 3)) == 1
        assert bench.transport.calls == ["closed" if end == "client" else "write_eof"]

    run(scenario)


def test_an_answer_that_comes_after_the_end_of_its_client_is_not_held():
    async def scenario(bench: Bench) -> None:
        await held_heartbeat(bench)
        bench.send(heartbeat())
        bench.connection.eof_received()
        bench.asking.answer(HeartbeatAnswer)
        assert len(await bench.read_responses(HeartbeatResponse, 3)) == 2
        assert bench.transport.calls == ["closed"]

    run(scenario)


def test_the_gateway_ends_a_connection_after_the_last_response():
    """The client closes it then: a socket that is closed with unread bytes may lose a part of the last response."""

    async def scenario(bench: Bench) -> None:
        bench.send(heartbeat())
        bench.connection.end()
        bench.connection.end()
        assert (bench.transport.is_reading, bench.transport.calls) == (False, [])
        bench.asking.answer(HeartbeatAnswer)
        assert len(await bench.read_responses(HeartbeatResponse, 3)) == 1
        assert (bench.transport.is_reading, bench.transport.calls) == (True, ["write_eof"])
        bench.send(heartbeat())
        assert len(bench.asking.sent) == 1, "nothing more is read"
        assert not bench.connection.eof_received()

    run(scenario)


def test_a_connection_with_tls_ends_at_once_with_its_client():
    """asyncio has no half-closed connection with TLS."""

    async def scenario(bench: Bench) -> None:
        bench.send(heartbeat())
        assert not bench.connection.eof_received()
        bench.connection.end()
        bench.asking.answer(HeartbeatAnswer)
        assert len(await bench.read_responses(HeartbeatResponse, 3)) == 1
        assert bench.transport.calls == ["closed"]

    run(scenario, sslcontext=object())


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
        assert bench.shared.upstreams[0].ended == "closed"

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
