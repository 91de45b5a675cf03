"""Kafka's protocol over a plain blocking socket: encoded requests, and responses as bytes."""

import socket
from typing import Any

CLIENT_ID = "bench"
CORRELATION_ID = 1  # the same for all, so that equal requests are equal bytes; responses arrive in order anyway
_SIZE_BYTES = 4
_READY_BYTES_MAX = 2**16


class Wire:
    """One connection to a broker."""

    def __init__(self, servers: str) -> None:
        host, port = servers.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, message: Any) -> Any:
        """Send a message, wait for its response, and return the decoded response."""
        self.send(framed(message))
        return self.answer(message)

    def answer(self, message: Any) -> Any:
        """Wait for the response to this message, and return it decoded."""
        return message.header.get_response_class().decode(self.receive(), header=True)

    def send(self, frames: bytes | memoryview) -> None:
        self._socket.sendall(frames)

    def receive(self) -> bytes:
        """Wait for the next response; return its bytes without its size."""
        return self._exactly(int.from_bytes(self._exactly(_SIZE_BYTES)))

    def receive_ready(self) -> bytes:
        """Return the bytes that have arrived, without waiting. They include the sizes and may end within a response."""
        try:
            data = self._socket.recv(_READY_BYTES_MAX, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        if not data:
            raise ConnectionError("the broker closed the connection")
        return data

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        data = self._socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise ConnectionError("the broker closed the connection")
        return data


def framed(message: Any, client_id: str = CLIENT_ID) -> bytes:
    """Return one of kafka-python's messages as bytes, with its header and its size."""
    message.with_header(correlation_id=CORRELATION_ID, client_id=client_id)
    return bytes(message.encode(header=True, framed=True))
