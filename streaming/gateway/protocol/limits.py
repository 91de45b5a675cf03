"""The limits of a gateway for one client, or for all clients together.

Each limit bounds memory, or the time for which an unused socket stays open. The gateway closes the connection of a
client that exceeds a limit, without an effect on the others.
"""

import resource

from coordinator.base.limits import RECORD_BYTES_MAX

SERVED_BYTES_MAX = RECORD_BYTES_MAX
"""A request that the gateway reads. If it is for the coordinator, our request made from it must fit into a record."""

RELAYED_BYTES_MAX = 100 * 2**20
"""A Produce: Kafka's own `socket.request.max.bytes`. The gateway holds no part of a large one."""

STREAMED_BYTES_MAX = 256 * 2**20
"""The announced bytes of the large Produce requests of all connections that are being relayed; others wait for room. A
broker allocates what a request announces, 1 GiB is its default heap, and several gateways may send to one broker."""

SASL_BYTES_MAX = 524_288
"""A request before authentication: Kafka's own `sasl.server.max.receive.size`."""

IN_FLIGHT_MAX = 5_000
"""Requests of one connection without a response, or groups that they concern; further requests stay in the socket.

Most clients have five or less. A client that commits without a wait gets this many responses in a batch, so about 6,000
a second."""

IN_FLIGHT_ALL_MAX = 100_000
"""Requests of all connections without a response. Beyond this, each connection may have `IN_FLIGHT_FEW`."""

IN_FLIGHT_FEW = 5
"""As many as most clients have: the default `max.in.flight.requests.per.connection` of Java and kafka-python."""

ANSWER_BYTES_PAUSE = RECORD_BYTES_MAX
"""The bytes of held responses of one connection from which on no more of its requests are read. These are responses
that wait for their turn, that the client does not read, or parts of an incomplete one."""

LARGE_IN_FLIGHT_MAX = 5
"""Requests of one connection without a response, whose responses may be far larger than the requests
(`Api.has_large_response`). Their responses may come after reading has stopped. Clients have five or less."""

ONE_ANSWER_BYTES_MAX = 4 * RECORD_BYTES_MAX
"""The total bytes of the coordinator's answers for one request of a client. The groups beyond it get an error, and
clients repeat the request for them."""

ANSWER_BYTES_MAX = 64 * 2**20
"""The bytes of responses that one connection may hold; beyond this, it is closed. A client that reads does not reach
this limit: reading stops at `ANSWER_BYTES_PAUSE`, and `LARGE_IN_FLIGHT_MAX` responses of a record each may follow."""

ANSWERS_BYTES_MAX = 256 * 2**20
"""The bytes of responses of all connections together; beyond this, the connection that holds most is closed."""

PIECE_BYTES = 2**16
"""The bytes that are passed to the system at once, and may wait in its transport. The gateway counts the rest of a
response."""

UNFINISHED_BYTES_MAX = 256 * 2**20
"""Unfinished requests of all connections together; beyond this, the connection with the oldest one is closed."""

FRAME_WAIT_S = 30.0
"""The longest time in which a request that the gateway reads may arrive, or a large one while others wait for room."""

SILENCE_S = 30.0
"""The longest time before the first request of a new connection."""

STUCK_WAIT_S = 60.0
"""The longest time for which a client may not read its responses."""

LAST_RESPONSES_S = 3.0
"""The longest time for which requests that have arrived are answered, if the gateway stops or refuses the next one."""

LAST_BYTES_S = 30.0
"""The longest time in which a broker takes what was written to it before its client's connection ended."""

FILES_FOR_OURSELVES = 100
FILES_A_CONNECTION = 2


def connections_max(wanted: int) -> int:
    """Raise the limit of open files to the maximum, and return the possible number of connections, `wanted` at most."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(1, min(wanted, (hard - FILES_FOR_OURSELVES) // FILES_A_CONNECTION))
