"""Whether a peer has closed its connection, as the system reports it."""

import socket
import struct
from collections.abc import Iterator

import pytest

from streaming.gateway.connection.socket import has_closed, keep_alive

NOW = struct.pack("ii", 1, 0)
"""The option with which `close` resets the connection."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    with client, ours:
        yield client, ours


@pytest.mark.parametrize("unread", [b"", b"a request that nobody reads"])
@pytest.mark.parametrize("how", ["closed", "half closed", "reset"])
def test_a_closed_connection_is_noticed(pair: tuple[socket.socket, socket.socket], unread: bytes, how: str):
    """Nothing is read from the connection, so the event loop would notice it only later."""
    client, ours = pair
    keep_alive(ours)
    client.sendall(unread)
    assert not has_closed(ours)
    if how == "half closed":
        client.shutdown(socket.SHUT_WR)
    else:
        if how == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOW)
        client.close()
    assert has_closed(ours)


def test_a_socket_that_is_closed_here_counts_as_closed(pair: tuple[socket.socket, socket.socket]):
    _, ours = pair
    ours.close()
    assert has_closed(ours)
