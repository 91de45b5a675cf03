"""What one client, or all of them together, may take of a gateway.

Everything here bounds memory or the time for which a socket is kept for nobody. Who goes beyond is hung up on; the
others do not notice.
"""

import resource
import socket

from coordinator.limits import RECORD_BYTES_MAX

SERVED_BYTES_MAX = RECORD_BYTES_MAX
"""A request that is read here. What it becomes must fit into a record, where it is for the coordinator."""

RELAYED_BYTES_MAX = 100 * 2**20
"""A Produce: Kafka's own `socket.request.max.bytes`. Of a large one none is kept here."""

SASL_BYTES_MAX = 524_288
"""A request of somebody whom nobody knows yet: Kafka's own `sasl.server.max.receive.size`."""

IN_FLIGHT_MAX = 500
"""Requests of one connection without an answer, or groups they ask about; the next ones are left in the socket.

Clients have five or less."""

ANSWER_BYTES_PAUSE = RECORD_BYTES_MAX
"""Bytes of answers that one connection holds for its client, from which on no more of its requests are read. They are
answers that wait for their turn, that the client does not take, or that are part of one that is not whole."""

LARGE_IN_FLIGHT_MAX = 5
"""Requests of one connection without an answer, of those whose answer may be far larger than they are
(`Api.has_large_response`). Each may still bring one when reading has stopped. Clients have five or less."""

ONE_ANSWER_BYTES_MAX = 4 * RECORD_BYTES_MAX
"""What the coordinator's answers to the questions of one request may come to; the groups behind it hear an error, and
are asked about again by who wants to know."""

ANSWER_BYTES_MAX = 64 * 2**20
"""Bytes of answers that one connection may hold; beyond it is hung up on. Who reads is far from it: reading stops at
`ANSWER_BYTES_PAUSE`, and `LARGE_IN_FLIGHT_MAX` answers of a record each may follow."""

ANSWERS_BYTES_MAX = 256 * 2**20
"""Bytes of answers of all connections together; beyond it, whichever holds most is hung up on."""

PIECE_BYTES = 2**16
"""How much is given to the system at once, and may wait in its transport: the rest of an answer stays here, counted."""

UNFINISHED_BYTES_MAX = 256 * 2**20
"""Unfinished requests of all connections together; beyond it, whoever has taken longest over one is hung up on."""

FRAME_WAIT_S = 30.0
"""How long a request that is read here may take to arrive."""

SILENCE_S = 30.0
"""How long a new connection may say nothing."""

STUCK_WAIT_S = 60.0
"""How long a client may not take its answers."""

FILES_FOR_OURSELVES = 100
FILES_A_CONNECTION = 2

_KEEP_ALIVE = {
    socket.TCP_KEEPIDLE: 30,
    socket.TCP_KEEPINTVL: 10,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 60_000,
}
"""A peer that is gone without a word is found out within a minute."""


def keep_alive(connection: socket.socket) -> None:
    """Have the system find out when the peer is gone, and send small answers at once."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEP_ALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def connections_max(wanted: int) -> int:
    """Ask the system for as many files as it grants; return how many connections it will be, `wanted` at most."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(1, min(wanted, (hard - FILES_FOR_OURSELVES) // FILES_A_CONNECTION))
