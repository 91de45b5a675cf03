"""Ports for processes that cannot choose one by themselves."""

import socket


def free_port() -> int:
    """Return a port on which nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
