"""The MAC of records between coordinators.

    {"kind":"adopt_group", ... ,"from":"a","to":"b", ...}
    cGVlcgAAAAB...                                        base64: a mark, and a MAC over the sender and the line above

A repeat of a batch has to write equal bytes, so no time is signed. A copy of an old record is harmless: the core has
the verdict about its move, or the copy is too old. A MAC for the requests of one coordinator is not valid for another,
and a signature of a gateway is no such MAC.
"""

import binascii
import hmac
from collections.abc import Mapping

from msgspec import structs

from coordinator.messages.move_requests import PeerRecord
from coordinator.messages.requests import Received, Unreadable
from streaming.wire.records import SIGNATURE_CHARS, decode_peer_record, encode_request

HASH = "sha256"
MARK = b"peer\0\0\0\0"

WRONG = "its MAC is wrong: the key of the peers is another, or the record was changed"


class Peering:
    """The key of the peers, and the topics of their requests.

    Args:
        key: The key that all peers have.
        topic: The topic of this coordinator's requests.
        topics: The topic of the requests of each peer, by its prefix.
    """

    def __init__(self, key: bytes, topic: str, topics: Mapping[str, str]) -> None:
        self._key = _derived(key, topic)
        self._keys = {prefix: _derived(key, each) for prefix, each in topics.items()}
        self.topics = dict(topics)

    def __repr__(self) -> str:
        return f"<Peering with {', '.join(self.topics)}>"

    def signed(self, record: PeerRecord) -> bytes:
        """Return the value of a record for a peer, with its MAC."""
        value = encode_request(record)
        mac = _mac(self._keys[record.to], record, value)
        return value + b"\n" + binascii.b2a_base64(MARK + mac, newline=False)

    def __call__(self, record: PeerRecord) -> tuple[str, bytes]:
        """Return the topic of a record for a peer, and its signed value."""
        return self.topics[record.to], self.signed(record)

    def received(self, received: Received, value: bytes | None) -> Received:
        """Return a record of another coordinator, and the doubt about it if its MAC is wrong; others as they are."""
        if not isinstance(received.request, Unreadable) or (record := decode_peer_record(value)) is None:
            return received
        return structs.replace(received, request=record, doubt=self._doubt(record, value or b""))

    def _doubt(self, record: PeerRecord, value: bytes) -> str | None:
        try:
            signature = binascii.a2b_base64(value[-SIGNATURE_CHARS:], strict_mode=True)
        except binascii.Error:
            return WRONG
        expected = MARK + _mac(self._key, record, value[: -SIGNATURE_CHARS - 1])
        return None if hmac.compare_digest(signature, expected) else WRONG


def _derived(key: bytes, topic: str) -> bytes:
    return hmac.digest(key, b"peer" + topic.encode(), HASH)


def _mac(key: bytes, record: PeerRecord, value: bytes) -> bytes:
    return hmac.digest(key, record.source.encode() + b"\0" + value, HASH)
