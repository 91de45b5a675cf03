"""The client at the other end of a connection, as the system knows it: alive, closed, or disappeared."""

import select
import socket
from typing import Protocol


class Descriptor(Protocol):
    """A socket of the system."""

    def fileno(self) -> int:
        """Return the descriptor; below 0 for a closed socket."""


_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
"""With these options, Linux detects a peer that has disappeared within a minute. Other systems lack some of them."""

_CLOSED: int = getattr(select, "POLLRDHUP", select.POLLHUP)
"""Only Linux reports the peer's side alone."""


def keep_alive(connection: socket.socket) -> None:
    """Make the system detect a peer that has disappeared, and send small responses immediately."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in _KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def has_closed(connection: Descriptor) -> bool:
    """Return whether the peer has closed its side, or the connection is broken.

    The system knows this while nothing is read, and also behind bytes that have not been read.
    """
    if (descriptor := connection.fileno()) < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, _CLOSED)
    return bool(poll.poll(0))
