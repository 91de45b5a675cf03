"""A Kafka client that sends the exact messages or bytes that a test gives it."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import InitProducerIdRequest

from streaming.kafka.transactional import Transaction
from tests.system.waiting import HANG_S, wait_until


class Wire:
    """A connection that sends requests without waiting, and reads responses in the order of the requests."""

    def __init__(self, bootstrap_servers: str, client_id: str = "wire", context: ssl.SSLContext | None = None) -> None:
        host, port = bootstrap_servers.rsplit(":", 1)
        self._client_id, self._asked, self._number = client_id, list[Any](), 0
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=HANG_S)
        if context:
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self._stream = self.socket.makefile("rb")

    def close(self) -> None:
        self._stream.close()
        self.socket.close()

    def frame(self, message: Any) -> bytes:
        """Return the bytes of a message, which was made in its version, with header and length."""
        self._number += 1
        message.with_header(correlation_id=self._number, client_id=self._client_id)
        return bytes(message.encode(header=True, framed=True))

    def send(self, *messages: Any) -> None:
        self.socket.sendall(b"".join(map(self.frame, messages)))
        answered = (message for message in messages if message.expect_response())
        self._asked += [(m.header.get_response_class(), m.header.correlation_id) for m in answered]

    def read(self) -> Any:
        """Read the response to the oldest request that has no response yet."""
        kind, number = self._asked.pop(0)
        said = kind.decode(self._stream.read(int.from_bytes(self._stream.read(4))), header=True)
        assert said.header.correlation_id == number
        return said

    def call(self, message: Any) -> Any:
        """Send a request while no other is unanswered, and read its response."""
        assert not self._asked
        self.send(message)
        return self.read()

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def is_hung_up(self) -> bool:
        """Return whether the other side closes the connection without sending anything."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


@contextmanager
def connect(bootstrap_servers: str, client_id: str = "wire", context: ssl.SSLContext | None = None) -> Iterator[Wire]:
    with closing(Wire(bootstrap_servers, client_id, context)) as wire:
        yield wire


def new_producer(bootstrap_servers: str, transactional_id: str) -> Transaction:
    """Return a transaction of a new producer, to which nothing was added yet."""
    with connect(bootstrap_servers) as wire:
        nobody = {"producer_id": -1, "producer_epoch": -1}
        request = InitProducerIdRequest(
            version=4, transactional_id=transactional_id, transaction_timeout_ms=60_000, **nobody
        )
        find = FindCoordinatorRequest(version=4, key_type=1, coordinator_keys=[transactional_id])
        wait_until(lambda: wire.call(find).coordinators[0].error_code == 0)
        wait_until(lambda: wire.call(request).error_code == 0)
        answer = wire.call(request)
    return Transaction(transactional_id, answer.producer_id, answer.producer_epoch)
