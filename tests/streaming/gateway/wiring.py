"""Messages as a stock client writes and reads them, with kafka-python, and test doubles of a gateway's environment."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

from kafka.protocol.api_message import ApiMessage

from coordinator.base.errors import ErrorCode
from coordinator.messages.consumer_requests import TopicFact
from coordinator.messages.fields import NO_TOPIC
from coordinator.messages.requests import Request
from coordinator.messages.responses import AnyAnswer
from streaming.gateway.coordinator.routing import ShardAddress
from streaming.gateway.exchanges import SERVED, Exchange
from streaming.gateway.protocol.messages import Header, decode, encode, read_header
from streaming.gateway.protocol.schemas import structure_of
from streaming.gateway.protocol.topic_ids import id_text
from streaming.kafka.patterns import Matches, matching
from streaming.kafka.structures import Field, Structure
from tests.streaming.gateway.parts import fact_of

CORRELATION_ID, CLIENT_ID = 77, "ana"

KINDS = [(served.request, version) for served in SERVED.values() for version in range(served.first, served.last + 1)]
"""Every kind of message in every served version."""


def named(kind_or_version: Any) -> str:
    """Return the name of a test's parameter."""
    return getattr(kind_or_version, "name", str(kind_or_version))


def message_of(kind: Any, version: int, leaf: Callable[[Field], Any], length: Callable[[Field], int | None]) -> Any:
    """Return a message with all fields of that version.

    Args:
        leaf: Makes the value of a field that is neither an array nor a structure.
        length: Returns the number of elements of an array, or None for null.
    """

    def value(field: Field | Structure) -> Any:
        if isinstance(field, Structure):
            return made(field)
        if field.elements is None:
            return leaf(field)
        elements = length(field)
        return None if elements is None else [value(field.elements) for _ in range(elements)]

    def made(structure: Structure, **more: Any) -> Any:
        return structure.new.kind(**{field.name: value(field) for field in structure.fields}, **more)

    return made(structure_of(kind, version), version=version)


def sample(kind: Any, version: int) -> Any:
    """Return a message whose fields are neither null nor empty."""
    some = {"string": "añb", "bytes": b"\x00\xff\x80", "bool": True, "uuid": UUID(int=3)}
    return message_of(kind, version, leaf=lambda f: some.get(f.type, 3), length=lambda f: 2)


def frame_of(message: Any, version: int) -> bytes:
    """Return a request's bytes as a client writes them, without the length."""
    message.with_header(correlation_id=CORRELATION_ID, client_id=CLIENT_ID)
    return message.encode(version=version, header=True)


def decoded(message: Any, version: int) -> Any:
    """Return a request as the gateway reads it from a client's bytes."""
    frame = frame_of(message, version)
    return decode(type(message), frame, read_header(frame))


def read_by_client(response: ApiMessage, header: Header) -> Any:
    """Return a response as a client reads it from the gateway's bytes."""
    frame = encode(response, header)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    read = type(response).decode(frame, version=header.version, header=True, framed=True)
    assert read.header.correlation_id == header.correlation_id
    return read


@dataclass
class FakeAsker:
    """The common fields of a client's requests. The request ids are a prefix and a number from 1."""

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
class FakeGateway:
    """A gateway's metadata: t and u have three partitions. It coordinates groups that begin with g, or all groups."""

    shard_addresses: Sequence[ShardAddress] = (ShardAddress("A", 0),)
    topics: dict[str, int] = field(default_factory=lambda: {"t": 3, "u": 3})
    has_all: bool = False
    has_rules: bool = False
    knows_ids: bool = False
    followed: frozenset[str] = frozenset()
    missing_code: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.number

    def partitions_of(self, topic: str) -> int | None:
        return self.topics.get(topic)

    def coordinates(self, group_id: str) -> bool:
        return self.has_all or group_id.startswith("g")

    def facts_of(self, topics: Iterable[str]) -> tuple[TopicFact, ...]:
        return tuple(fact_of(topic, self.topics.get(topic)) for topic in topics)

    def topic_of(self, topic_id: bytes) -> str | None:
        return next((topic for topic in self.topics if fact_of(topic, 1).topic_id == id_text(topic_id)), None)

    def topic_id_of(self, topic: str) -> str | None:
        return fact_of(topic, self.topics.get(topic)).topic_id or NO_TOPIC if self.knows_ids else None

    def matching(self, pattern: str) -> Matches:
        return matching(pattern, self.topics)

    def follows(self, group_id: str) -> bool:
        return group_id in self.followed


class SentRequest(NamedTuple):
    """A request that a client has sent, and its exchange with the coordinator."""

    header: Header
    exchange: Exchange

    @property
    def requests(self) -> list[Request]:
        return [question.request for question in self.exchange.requests]

    def response_to(self, *answers: AnyAnswer) -> Any:
        """Return the client's response to these answers of the coordinator."""
        return read_by_client(self.exchange.respond(answers), self.header)


def ask(message: Any, version: int, asker: FakeAsker | None = None, place: FakeGateway | None = None) -> SentRequest:
    """Return the exchange of a request that a client sends."""
    frame = frame_of(message, version)
    header = read_header(frame)
    served = SERVED[header.api_key]
    exchange = served.exchange(decode(served.request, frame, header), asker or FakeAsker(), place or FakeGateway())
    return SentRequest(header, exchange)
