"""Ports for processes that cannot choose one by themselves."""

import random
import socket
from collections.abc import Iterable
from contextlib import suppress

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


def free_port_at(hosts: Iterable[str], brokers: Iterable[int]) -> int:
    """Return a port P for a gateway. P and the port of each broker, P + 1 + its number, are free at all hosts."""
    steps = (0, *(1 + broker for broker in brokers))
    places = [(host, step) for host in hosts for step in steps]
    return next(port for port in random.sample(PORTS, len(PORTS)) if all(_may_listen(h, port + n) for h, n in places))


def _may_listen(host: str, port: int) -> bool:
    with suppress(OSError):
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
        return True
    return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0
