"""Signatures of request records: who has the key is believed when it says who asks.

    {"kind":"heartbeat", ... ,"principal":"User:ana"}
    AAABm8Zk...                                       base64: when it was signed, and a MAC over that and the line above

A record without a signature is nobody's, from an unknown host: the host that it names is as easily made up as a name.

Whoever can write to the topic can copy a record, and write it again: so it is believed only near the time at which it
was signed, by the brokers' clock. A signature for one coordinator's topics says nothing to another.
"""

import binascii
import hmac
import struct

from msgspec import structs

from coordinator.access import UNKNOWN_HOST
from coordinator.requests import Received, Request, Unreadable, Wake
from streaming.wire.records import SIGNATURE_CHARS, SIGNATURE_END, decode_request, encode_request

KEY_BYTES_MIN = 32
AGE_MS_MAX = 300_000
"""Longer than a record waits in a producer, and clocks differ."""

HASH = "sha256"
_TIME = struct.Struct(">q")

UNSIGNED = "it names a principal and is not signed"
WRONG = "its signature is wrong: the key is another, or the record was changed"
FAR = "it was signed at another time than it was written: it is a copy, or a clock is wrong"


class Signing:
    """The keys of one coordinator.

    Args:
        keys: The first one signs, any of them will do for a signature to be right.
        topic: The topic that the records are for.
    """

    def __init__(self, keys: tuple[bytes, ...], topic: str) -> None:
        self._keys = tuple(hmac.digest(key, topic.encode(), HASH) for key in keys)

    def __repr__(self) -> str:
        return f"<Signing by {len(self._keys)} keys, {hmac.digest(self._keys[0], b'name', HASH)[:4].hex()}>"

    def signed(self, request: Request | Wake, now_ms: int) -> bytes:
        """Write a request as the value of its record, and sign that."""
        value, time = encode_request(request), _TIME.pack(now_ms)
        mac = hmac.digest(self._keys[0], time + value, HASH)
        return value + b"\n" + binascii.b2a_base64(time + mac, newline=False)

    def received(self, offset: int, at_ms: int, value: bytes | None) -> Received:
        """Read a record, and tell whether it may be believed. Never raises."""
        request = decode_request(value)
        if value is None or isinstance(request, Unreadable):
            return Received(offset, at_ms, request, size_bytes=len(value or b""))
        is_signed = value[-1:] == SIGNATURE_END
        doubt = self._doubt(value, at_ms) if is_signed else None
        if isinstance(request, Wake):  # anybody may wake a shard; what the clock showed is not everybody's to say
            return Received(offset, at_ms, request if is_signed and not doubt else Wake(), size_bytes=len(value))
        if not is_signed:
            doubt = UNSIGNED if request.principal is not None else None
            request = structs.replace(request, client_host=UNKNOWN_HOST)
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


class Signer:
    """Says who asks, and signs it; without keys it says what it is given.

    Args:
        principal: Who asks, where a request does not say so itself.
    """

    def __init__(self, signing: Signing | None, principal: str | None = None) -> None:
        self._signing, self._principal = signing, principal

    def __repr__(self) -> str:
        return f"<Signer as {self._principal} by {self._signing}>"

    def value_of(self, request: Request, now_ms: int) -> bytes:
        """Write a request as the value of its record."""
        if self._signing is None:
            return encode_request(request)
        if request.principal is None and self._principal is not None:
            request = structs.replace(request, principal=self._principal)
        return self._signing.signed(request, now_ms)
