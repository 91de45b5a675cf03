"""Messages as a stock client writes and reads them, by kafka-python, and a gateway's surroundings made up."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from kafka.protocol.api_message import ApiMessage

from coordinator.outputs import AnyAnswer
from coordinator.requests import Request
from streaming.gateway.exchanges import SERVED, Exchange
from streaming.gateway.messages import Header, decode, encode, read_header
from streaming.gateway.schemas import Field, Structure, structure_of

CORRELATION_ID, CLIENT_ID = 77, "ana"

KINDS = [(served.request, version) for served in SERVED.values() for version in range(served.first, served.last + 1)]
"""Every kind of message in every version that is served."""


def named(kind_or_version: Any) -> str:
    """Name a parameter of a test."""
    return getattr(kind_or_version, "name", str(kind_or_version))


def message_of(kind: Any, version: int, leaf: Callable[[Field], Any], length: Callable[[Field], int | None]) -> Any:
    """Fill every field that a message has in that version.

    Args:
        leaf: Makes the value of a field that is neither an array nor a structure.
        length: Says how many elements an array gets; None for null.
    """

    def value(field: Field | Structure) -> Any:
        if isinstance(field, Structure):
            return made(field)
        if field.elements is None:
            return leaf(field)
        elements = length(field)
        return None if elements is None else [value(field.elements) for _ in range(elements)]

    def made(structure: Structure, **more: Any) -> Any:
        return structure.kind(**{field.name: value(field) for field in structure.fields}, **more)

    return made(structure_of(kind, version), version=version)


def sample(kind: Any, version: int) -> Any:
    """Fill a message with what is neither null nor empty."""
    some = {"string": "añb", "bytes": b"\x00\xff\x80", "bool": True}
    return message_of(kind, version, leaf=lambda f: some.get(f.type, 3), length=lambda f: 2)


def frame_of(message: Any, version: int) -> bytes:
    """Write a request as a client does, without its length."""
    message.with_header(correlation_id=CORRELATION_ID, client_id=CLIENT_ID)
    return message.encode(version=version, header=True)


def decoded(message: Any, version: int) -> Any:
    """Take a request from a client's hands into ours."""
    frame = frame_of(message, version)
    return decode(type(message), frame, read_header(frame))


def heard(response: ApiMessage, header: Header) -> Any:
    """Take a response from our hands into a client's."""
    frame = encode(response, header)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    said = type(response).decode(frame, version=header.version, header=True, framed=True)
    assert said.header.correlation_id == header.correlation_id
    return said


@dataclass
class Somebody:
    """Who asks. Its requests are numbered from 1, behind a prefix."""

    common: dict[str, Any] = field(
        default_factory=lambda: {
            "reply_to": "inbox",
            "client_id": CLIENT_ID,
            "client_host": "/127.0.0.1",
            "principal": "User:ana",
        }
    )
    prefix: str = ""
    _numbers: Any = field(default_factory=lambda: count(1))

    def fields(self) -> dict[str, Any]:
        return {"request_id": f"{self.prefix}{next(self._numbers)}", **self.common}


@dataclass
class Place:
    """What a gateway knows: t and u have three partitions, and groups that begin with g are found here, or all."""

    shards: int = 1
    topics: dict[str, int] = field(default_factory=lambda: {"t": 3, "u": 3})
    has_all: bool = False
    has_rules: bool = False

    def partitions_of(self, topic: str) -> int | None:
        return self.topics.get(topic)

    def coordinates(self, group_id: str) -> bool:
        return self.has_all or group_id.startswith("g")


class Asking(NamedTuple):
    """A request that a client has sent, and what becomes of it."""

    header: Header
    exchange: Exchange

    @property
    def requests(self) -> list[Request]:
        return [question.request for question in self.exchange.questions]

    def hears(self, *answers: AnyAnswer) -> Any:
        """Give the answers; what does the client hear?"""
        return heard(self.exchange.respond(answers), self.header)


def ask(message: Any, version: int, asker: Somebody | None = None, place: Place | None = None) -> Asking:
    """Send a request as a client, and translate it."""
    frame = frame_of(message, version)
    header = read_header(frame)
    served = SERVED[header.api_key]
    exchange = served.exchange(decode(served.request, frame, header), asker or Somebody(), place or Place())
    return Asking(header, exchange)
