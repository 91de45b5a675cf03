"""One transport for all members of a process that reach the same coordinator in the same way."""

import threading
from collections.abc import Mapping

from streaming.client.transport import Transport
from streaming.wire.signing import Signer

_lock = threading.Lock()
_shared: dict[tuple[str, str], tuple[Transport, int]] = {}


def borrow(way: Mapping[str, object], topic_prefix: str, signer: Signer | None = None) -> Transport:
    """Take the transport for this way, these topics and who asks, opened if nobody has it; to be given back.

    Raises:
        BrokerUnreachable, NoCoordinator: as `Transport` does.
    """
    key = _key(way, topic_prefix, signer)
    with _lock:
        transport, borrowers = _shared.get(key) or (Transport(way, topic_prefix, signer), 0)
        _shared[key] = transport, borrowers + 1
        return transport


def give_back(transport: Transport) -> None:
    """Give a transport back; the last to do so closes it."""
    with _lock:
        key = next(key for key, (shared, _) in _shared.items() if shared is transport)
        borrowers = _shared[key][1] - 1
        if borrowers:
            _shared[key] = transport, borrowers
            return
        del _shared[key]
    transport.close()


def _key(way: Mapping[str, object], topic_prefix: str, signer: Signer | None) -> tuple[str, str]:
    return topic_prefix, repr((sorted(way.items()), signer))
