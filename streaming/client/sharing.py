"""One transport for all members of a process that use the same coordinator with the same connection settings."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streaming.client.config import ClientConfig
from streaming.client.transport import Transport

_lock = threading.Lock()
_shared: dict[tuple[str, str], tuple[Transport, int]] = {}
_open: Callable[..., Any] = Transport


def borrow(config: ClientConfig) -> Transport:
    """Return the transport for a configuration; open it if none is open. Give it back with `give_back`.

    Raises:
        BrokerUnreachable, NoCoordinator: as `Transport` does.
        KafkaConfigurationError: The file has no key to sign with.
    """
    prefix, peers, signer_at = config.group["topic_prefix"], config.group["peers"], config.signer_at()
    key = prefix, repr((sorted(config.connection.items()), signer_at(prefix), peers))
    with _lock:
        transport, borrowers = _shared.get(key) or (_open(config.connection, prefix, signer_at, peers), 0)
        _shared[key] = transport, borrowers + 1
        return transport


def give_back(transport: Transport) -> None:
    """Return a transport that `borrow` has opened. The last user closes it."""
    with _lock:
        key = next(key for key, (shared, _) in _shared.items() if shared is transport)
        borrowers = _shared[key][1] - 1
        if borrowers:
            _shared[key] = transport, borrowers
            return
        del _shared[key]
    transport.close()


@contextmanager
def opened_by(opener: Callable[..., Any]) -> Iterator[None]:
    """Open transports with another function while the block runs. The transports from before are not shared meanwhile.

    Args:
        opener: Called with the arguments of `Transport`.
    """
    global _shared, _open
    with _lock:
        before, _shared, _open = (_shared, _open), {}, opener
    try:
        yield
    finally:
        with _lock:
            _shared, _open = before
