"""Messages of Kafka's protocol: requests are read from frames, and responses are written to frames.

The messages are kafka-python's classes, and its schemas list the fields of each version. It also writes the responses.
This module reads the requests itself, by those schemas, because any client may send any bytes. kafka-python accepts a
string that ends too early, and null in each field; it reads a varint of any length, copies the rest of the frame for
each unknown tag, and reads a million empty elements one by one. This module raises an error at the first wrong byte.
Its time is bounded for any frame: it reads each byte once, and `ELEMENTS_MAX` elements at most.

Source: Kafka's protocol guide (request header versions 1 and 2, response header versions 0 and 1), KIP-482.
"""

from functools import cache
from struct import Struct
from typing import Any, NamedTuple, cast

from kafka.protocol.api_message import ApiMessage

from coordinator.base.binary import INT16, INT32, Malformed, Reader
from coordinator.base.limits import PARTITIONS_PER_REQUEST_MAX
from streaming.gateway.protocol.schemas import structure_of
from streaming.kafka.structures import Read, reader_of

ELEMENTS_MAX = 2 * PARTITIONS_PER_REQUEST_MAX
"""The maximum number of elements and unknown tags of one message: all possible partitions, each in its own topic."""

API_VERSIONS = 18
"""Its response has the oldest header in every version, because clients read it before they know the versions."""

CLIENT_ID_AT = 2 * INT16.size + INT32.size
"""The position of the client id in a request's header. Only tags may follow it."""

_RESPONSE_HEADER, _FLEXIBLE_RESPONSE_HEADER = Struct(">ii"), Struct(">iix")


class Header(NamedTuple):
    """The header of a request."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None


def read_header(frame: bytes) -> Header:
    """Read the header of a request.

    Args:
        frame: A complete frame without its length.

    Raises:
        Malformed: The frame ends within the header, or the client id is not UTF-8.
    """
    reader = Reader(frame)
    return Header(reader.int16(), reader.int16(), reader.int32(), reader.nullable_text())


def decode(kind: Any, frame: bytes, header: Header) -> Any:
    """Read the message of a request. Bytes after the message are ignored, as in Kafka.

    Args:
        kind: The class of the message (`HeartbeatRequest`).
        frame: A complete frame without its length.
        header: The header of this frame.

    Raises:
        Malformed: The version does not exist, the frame ends too early, a required value is null, a string is not
            UTF-8, or the message has more than `ELEMENTS_MAX` elements.
    """
    try:
        read = _read(kind, header.version)
        reader = Reader(frame, CLIENT_ID_AT, ELEMENTS_MAX)
        reader.nullable_text()
        if kind.flexible_version_q(header.version):
            reader.skip_tags()
        return read(reader)
    except Malformed as malformed:
        raise Malformed(f"{kind.name}, version {header.version}, cannot be read: {malformed}") from None


@cache
def _read(kind: Any, version: int) -> Read:
    if not 0 <= version <= kind.max_version:
        raise Malformed("the version does not exist")
    return reader_of(structure_of(kind, version))


def encode(response: ApiMessage, header: Header) -> bytes:
    """Return the frame of a response, with its length and its header.

    Args:
        response: A response in the version of the request (`HeartbeatResponse(version=4, ...)`).
        header: The header of the request.
    """
    body = cast(bytes, response.encode())
    is_flexible = response.flexible_version_q(response.version) and response.API_KEY != API_VERSIONS
    head = _FLEXIBLE_RESPONSE_HEADER if is_flexible else _RESPONSE_HEADER
    return head.pack(head.size - INT32.size + len(body), header.correlation_id) + body
