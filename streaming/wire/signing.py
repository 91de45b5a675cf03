"""Signatures of request records. A sender with the key may name the principal of its requests.

    {"kind":"heartbeat", ... ,"principal":"User:ana"}
    AAABm8Zk...                                       base64: the time of signing, and a MAC over it and the line above

A record without a signature has no principal and comes from an unknown host, since a sender can make up both.

A client that may write to the topic can copy a record and write it again. So a signature is valid only near its time of
signing, by the brokers' clock. A signature for the topics of one coordinator is not valid for another.
"""

import binascii
import hmac
import struct

from msgspec import structs

from coordinator.base.access import UNKNOWN_HOST
from coordinator.messages.heartbeats import Heartbeats
from coordinator.messages.requests import Received, Request, Unreadable, Wake
from streaming.wire.records import SIGNATURE_CHARS, SIGNATURE_END, decode_request, encode_request

KEY_BYTES_MIN = 32
AGE_MS_MAX = 300_000
"""The maximum age of a signature: longer than a record waits in a producer, and longer than clocks differ."""

HASH = "sha256"
_TIME = struct.Struct(">q")

UNSIGNED = "it names a principal and is not signed"
WRONG = "its signature is wrong: the key is another, or the record was changed"
FAR = "it was signed at another time than it was written: it is a copy, or a clock is wrong"


class Signing:
    """The keys of one coordinator.

    Args:
        keys: The first key signs. A signature by any of the keys is valid.
        topic: The topic of the records.
    """

    def __init__(self, keys: tuple[bytes, ...], topic: str) -> None:
        self._keys = tuple(hmac.digest(key, topic.encode(), HASH) for key in keys)

    def __repr__(self) -> str:
        return f"<Signing by {len(self._keys)} keys, {hmac.digest(self._keys[0], b'name', HASH)[:4].hex()}>"

    def signed(self, request: Request | Wake, now_ms: int) -> bytes:
        """Return the signed value of a request's record."""
        value, time = encode_request(request), _TIME.pack(now_ms)
        mac = hmac.digest(self._keys[0], time + value, HASH)
        return value + b"\n" + binascii.b2a_base64(time + mac, newline=False)

    def received(self, offset: int, at_ms: int, value: bytes | None) -> Received:
        """Return a record's request, and the doubt about it if its signature is not valid. Never raises."""
        request = decode_request(value)
        if value is None or isinstance(request, Unreadable):
            return Received(offset, at_ms, request, size_bytes=len(value or b""))
        is_signed = value[-1:] == SIGNATURE_END
        doubt = self._doubt(value, at_ms) if is_signed else None
        if isinstance(request, Wake):  # any client may wake a shard, but only signed records may carry a clock's time
            return Received(offset, at_ms, request if is_signed and not doubt else Wake(), size_bytes=len(value))
        if not is_signed:
            doubt = UNSIGNED if _has_principal(request) else None
            request = _of_unknown_host(request)
        return Received(offset, at_ms, request, doubt, len(value))

    def _doubt(self, value: bytes, at_ms: int) -> str | None:
        try:
            signature = binascii.a2b_base64(value[-SIGNATURE_CHARS:], strict_mode=True)
        except binascii.Error:
            return WRONG
        time, mac = signature[: _TIME.size], signature[_TIME.size :]
        said = time + value[: -SIGNATURE_CHARS - 1]
        if not any(hmac.compare_digest(mac, hmac.digest(key, said, HASH)) for key in self._keys):
            return WRONG
        return None if abs(at_ms - _TIME.unpack(time)[0]) <= AGE_MS_MAX else FAR


def _has_principal(request: Request) -> bool:
    if isinstance(request, Heartbeats) and any(principal is not None for principal in request.principals):
        return True
    return request.principal is not None


def _of_unknown_host(request: Request) -> Request:
    if isinstance(request, Heartbeats):
        return structs.replace(request, client_host=UNKNOWN_HOST, client_hosts=())
    return structs.replace(request, client_host=UNKNOWN_HOST)


class Signer:
    """Adds the principal to requests and signs them. Without keys it leaves requests unchanged.

    Args:
        principal: The principal of requests that do not name one.
    """

    def __init__(self, signing: Signing | None, principal: str | None = None) -> None:
        self._signing, self._principal = signing, principal

    def __repr__(self) -> str:
        return f"<Signer as {self._principal} by {self._signing}>"

    def value_of(self, request: Request, now_ms: int) -> bytes:
        """Return the value of a request's record."""
        if self._signing is None:
            return encode_request(request)
        if request.principal is None and self._principal is not None:
            request = structs.replace(request, principal=self._principal)
        return self._signing.signed(request, now_ms)
