"""The dispatching of a connection's requests to the handlers of their APIs.

The first bytes of a request decide whether its API and version are offered, whether the client may send it now, and
whether it is too large. The rest of the request is read only after that.
"""

import struct
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from coordinator.base.binary import Malformed
from streaming.gateway.connection.flow_control import Flow, InFlightRequest
from streaming.gateway.protocol.api import Api, Handling
from streaming.gateway.protocol.frames import BadFrame, FrameTreatment, Piece
from streaming.gateway.protocol.limits import RELAYED_BYTES_MAX
from streaming.gateway.protocol.messages import API_VERSIONS, Header, read_header
from streaming.gateway.protocol.produce import HELD_BYTES_MAX
from streaming.gateway.security.authenticate import Identity
from streaming.gateway.security.sasl import BadSasl
from streaming.gateway.server.apis import APIS, PRODUCE, SASL_AUTHENTICATE, bytes_max

_HEAD = struct.Struct(">hhi")

REFUSED = BadFrame, Malformed, BadSasl
"""The errors of a request that a client may not send, or that cannot be read."""

TOKEN_HEADER = Header(SASL_AUTHENTICATE, 0, 0, None)
"""The header for bare tokens, which have none, after a SaslHandshake of version 0."""

Handler = Callable[[InFlightRequest, bytes], None]
"""Handles a complete request, without its length."""


class Streaming(Protocol):
    """A relay for a Produce that is too large for memory."""

    def stream(
        self, api: Api, header: Header, size: int, head: memoryview
    ) -> FrameTreatment | Callable[[Piece], object]:
        """Return the function that relays a piece of the request, or the treatment of the frame before that."""

    def streamed(self) -> None:
        """Record that all of the request has been relayed."""


class Observer(Protocol):
    """The receiver of the events of each request."""

    def request_begins(self) -> None:
        """Handle the beginning of a request."""

    def request_came(self, api: Api) -> None:
        """Count a request."""


class Dispatcher:
    """The dispatcher of one connection's requests, and the `FrameReceiver` of the client's frames.

    Args:
        handlers: The handler for each kind of API.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        flow: Flow,
        identity: Identity,
        handlers: Mapping[Handling, Handler],
        streaming: Streaming,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flow, self._identity, self._handlers = flow, identity, handlers
        self._streaming, self._observer, self._clock = streaming, observer, clock

    def begin(self, size: int, head: memoryview) -> FrameTreatment | Callable[[Piece], object]:
        """Check a request by its first bytes, and return the treatment of its frame.

        Raises:
            BadFrame: The client may not send the request.
            Malformed: The request is a large Produce, and cannot be read.
        """
        if size > RELAYED_BYTES_MAX:
            raise BadFrame(f"a request of {size} bytes is too large for every API")
        sends_tokens = self._identity.sends_tokens
        if not sends_tokens and len(head) < _HEAD.size:
            return FrameTreatment.MORE
        if self._flow.is_paused:
            return FrameTreatment.LATER
        self._observer.request_begins()
        api_key, version, correlation_id = TOKEN_HEADER[:3] if sends_tokens else _HEAD.unpack_from(head)
        api = self._checked(api_key, version)
        if size > bytes_max(api_key):
            raise BadFrame(f"a {api.name} request of {size} bytes is too large")
        if api_key != PRODUCE or size <= HELD_BYTES_MAX:
            return FrameTreatment.WHOLE
        treatment = self._streaming.stream(api, Header(api_key, version, correlation_id, None), size, head)
        if not isinstance(treatment, FrameTreatment):
            self._observer.request_came(api)
        return treatment

    def handle(self, frame: bytes) -> None:
        """Pass a complete request to the handler of its API.

        Raises:
            BadFrame: The client may not send the request, and its API has no response for that.
            Malformed: The request cannot be read.
            BadSasl: The request does not continue the client's SASL exchange.
        """
        header = TOKEN_HEADER if self._identity.sends_tokens else read_header(frame)
        self._identity.client_id = header.client_id or ""
        api = APIS[header.api_key]
        self._observer.request_came(api)
        in_flight = self._flow.queue.add(InFlightRequest(api, header))
        try:
            self._handlers[api.handling](in_flight, frame)
        except REFUSED:
            self._flow.queue.withdraw(in_flight)  # it gets no response, and those before it do
            raise
        self._flow.bound()

    def end(self) -> None:
        """Record that a large request has been relayed."""
        self._streaming.streamed()

    def _checked(self, api_key: int, version: int) -> Api:
        api = APIS.get(api_key)
        if api is None:
            raise BadFrame(f"API {api_key} is not offered")
        if not api.first <= version <= api.last and api_key != API_VERSIONS:
            raise BadFrame(f"version {version} of {api.name} is not offered")
        self._identity.check(api, self._clock())
        return api
