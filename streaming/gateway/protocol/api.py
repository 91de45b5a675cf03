"""One of Kafka's APIs as the gateway sees it: its versions, and how the gateway handles its requests."""

from enum import Enum, auto
from typing import NamedTuple


class Handling(Enum):
    """The gateway's handling of a request."""

    SERVED = auto()
    """This coordinator answers the request."""

    REWRITTEN = auto()
    """The request is relayed, and the gateway's addresses replace the addresses in the response."""

    RELAYED = auto()
    """The request is relayed unchanged if `authorizer` allows it, and the response is passed on unread."""

    LOCATED = auto()
    """FindCoordinator: the coordinator of a group is this one; that of a transaction is found as with `REWRITTEN`."""

    NEGOTIATED = auto()
    """ApiVersions: the response is made from this table and the brokers' versions."""

    AUTHENTICATED = auto()
    """The request is relayed, and the gateway reads the client's name from it."""


class Api(NamedTuple):
    """One of Kafka's APIs: its name, its offered versions, and its handling."""

    name: str
    first: int
    last: int
    handling: Handling
    has_large_response: bool = False
    """Whether a response may be far larger than its request, and is held in the gateway."""


BEFORE_AUTHENTICATION = frozenset({Handling.NEGOTIATED, Handling.AUTHENTICATED})
"""The handling of requests that a client may send before it is authenticated."""
