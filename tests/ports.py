"""Ports for processes that cannot choose one by themselves."""

import random
import socket

from streaming.embedded.broker import HOST, PORTS

BROKER = 1
"""The number of the embedded broker."""


def free_port() -> int:
    """Return a port on which nothing listens now."""
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def free_gateway_port() -> int:
    """Return a free port P for a gateway, for which the port P + 1 + BROKER is free too.

    A gateway that is restarted there has the same address for the broker. With the port 0 it would have another one.
    """
    return next(port for port in random.sample(PORTS, len(PORTS)) if _is_free(port) and _is_free(port + 1 + BROKER))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0
