"""The requests of one connection that are relayed to its broker, and the broker's responses.

A request is relayed if `authorizer` allows it. A response is passed on piece by piece when its turn comes, or it is
read completely, rewritten, and then sent. The first relayed request opens the connection to the broker.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer.transaction import EndTxnRequest

from streaming.gateway.connection.flow_control import Flow, InFlightRequest, Pause
from streaming.gateway.connection.tasks import Work
from streaming.gateway.members.services import Shared
from streaming.gateway.protocol.api import Api
from streaming.gateway.protocol.frames import BadFrame, FrameTreatment, Piece, with_length
from streaming.gateway.protocol.messages import Header, decode
from streaming.gateway.protocol.produce import acks_of
from streaming.gateway.relay.authorizer import Judged
from streaming.gateway.relay.broker_connection import Upstream
from streaming.gateway.relay.fetch_sessions import FetchSessions
from streaming.gateway.relay.large_produce import LargeProduce
from streaming.gateway.relay.relayed_apis import RELAYED
from streaming.gateway.relay.rewriting import Rewrite, rewritten
from streaming.gateway.security.authenticate import Identity
from streaming.gateway.server.apis import is_produce_served

METADATA = MetadataRequest.API_KEY
END_TXN = EndTxnRequest.API_KEY

REBOOTSTRAP = 13
"""From this version on, a Metadata response may tell a client to begin at its bootstrap servers again (KIP-1102)."""

REBOOTSTRAP_REQUIRED = 129

log = logging.getLogger(__name__)


class Relaying:
    """The relay of one connection, and the `Downstream` of the connection to the broker.

    Args:
        node_id: The broker that the port stands for; None for the bootstrap address.

    Attributes:
        streams_since_s: The time at which the large request that is being relayed began; None without one.
    """

    def __init__(self, shared: Shared, node_id: int | None, flow: Flow, work: Work, identity: Identity) -> None:
        self._shared, self._node_id = shared, node_id
        self._flow, self._work, self._identity = flow, work, identity
        self._sessions = FetchSessions()
        self._upstream: Upstream | None = None
        self._offer: Any | None = None
        self._room_is_free = partial(flow.resume, Pause.ROOM)
        self.streams_since_s: float | None = None

    # -- requests ------------------------------------------------------------------------------------------------------

    def relay(self, in_flight: InFlightRequest, frame: bytes) -> None:
        """Relay a complete request, or respond with an error if the client may not send it.

        Raises:
            BadFrame: The request is refused, and its API has no response for that.
            Malformed: The request cannot be read.
        """
        if in_flight.header.api_key == METADATA and self._shared.is_rejected(self._identity.key):
            self._reject(in_flight)
            return
        judged, renew = self._judge(in_flight, frame), self._shared.authorizer.renew
        if judged.is_denied and renew is not None:  # the right may have been granted since
            self._work.begin_alone(renew(), then=lambda _: self._relay(in_flight, self._judge(in_flight, frame)))
        else:
            self._relay(in_flight, judged)

    def _judge(self, in_flight: InFlightRequest, frame: bytes) -> Judged:
        return self._shared.authorizer.judge(in_flight.header, frame, self._identity.client, self._sessions)

    def _relay(self, in_flight: InFlightRequest, judged: Judged) -> None:
        if judged.answer is not None:
            self._shared.metrics.denied.inc()
            self._flow.respond(in_flight, judged.answer)
            return
        assert judged.frame is not None, "a request without a response is relayed"
        if in_flight.header.api_key == END_TXN:
            message = decode(EndTxnRequest, judged.frame, in_flight.header)
            self._shared.transactions.ends.ended(message.producer_id)
        in_flight.reads, in_flight.alters = judged.reads, judged.alters
        self._expect_addresses(in_flight)
        if not judged.has_answer:
            self._flow.queue.withdraw(in_flight)
        self.forward(in_flight if judged.has_answer else None, judged.frame)

    def _reject(self, in_flight: InFlightRequest) -> None:
        """Refuse metadata, so that a client goes to another gateway: with metadata it would stay with this one."""
        if in_flight.header.version < REBOOTSTRAP:
            self._flow.close()
        else:
            self._flow.respond(
                in_flight, MetadataResponse(version=in_flight.header.version, error_code=REBOOTSTRAP_REQUIRED)
            )

    def forward(self, in_flight: InFlightRequest | None, frame: bytes) -> None:
        """Send a request, without its length, to the broker. Without a slot the request has no response."""
        if self._upstream is None:
            self._work.begin_alone(self._connect(), then=lambda _: self._send(in_flight, frame))
        else:
            self._send(in_flight, frame)

    def stream(
        self, api: Api, header: Header, size: int, head: memoryview
    ) -> FrameTreatment | Callable[[Piece], object]:
        """Relay a Produce that is too large for memory, piece by piece.

        Args:
            head: The first bytes that have arrived, without the length.

        Returns:
            The function that relays a piece, or the treatment of the frame before that.

        Raises:
            BadFrame: The broker does not serve the version.
            Malformed: The request cannot be read.
        """
        if (acks := acks_of(head, header.version)) is None:
            return FrameTreatment.MORE
        if self._upstream is None:
            self._work.begin_alone(self._connect())
            return FrameTreatment.LATER
        if not is_produce_served(self._offer, header.version):
            raise BadFrame(f"version {header.version} of {api.name} is not offered by the broker")
        if not self._shared.room.acquire(self._room_is_free, size):
            self._flow.pause(Pause.ROOM)
            return FrameTreatment.LATER
        if acks:
            in_flight = self._flow.queue.add(InFlightRequest(api, header))
            self._expect_addresses(in_flight)
            self._upstream.expect(in_flight)
        self._flow.bound()
        self.streams_since_s = self._flow.active_s
        judge = partial(self._shared.authorizer.judge_piece, client=self._identity.client)
        return LargeProduce(header.version, size, judge, self._upstream.write)

    def streamed(self) -> None:
        """Record that all of a large Produce has been relayed."""
        self.streams_since_s = None
        self._shared.room.release(self._room_is_free)

    def _send(self, in_flight: InFlightRequest | None, frame: bytes) -> None:
        assert self._upstream is not None, "connected"
        if in_flight:
            self._upstream.expect(in_flight)
        self._upstream.write(with_length(frame))

    async def _connect(self) -> None:
        upstream = Upstream(self)
        try:
            await self._shared.open_upstream(self._node_id, upstream)
            self._offer = await self._shared.offer_of(self._node_id)
            if not upstream.is_connected:
                raise ConnectionResetError("it has closed the connection")
            self._upstream = upstream
        except OSError as error:
            log.info("the connection of %r is closed, because its broker cannot be reached (%s)", self._identity, error)
            self._flow.close()
        finally:
            if self._upstream is not upstream:  # the client has left meanwhile
                upstream.close()

    # -- the client's side ---------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Continue to read the broker's responses, because the turn of one may have come."""
        if self._upstream:
            self._upstream.resume()

    def client_slow(self, is_slow: bool) -> None:
        """Stop reading the broker's responses while the client is slow."""
        if self._upstream:
            self._upstream.client_slow(is_slow)

    def close(self) -> None:
        """Close the connection to the broker, and release the room of a large request."""
        self._shared.room.release(self._room_is_free)
        if self._upstream:
            self._upstream.close()

    # -- as the connection to the broker sees it -----------------------------------------------------------------------

    def write(self, piece: Piece) -> None:
        self._flow.write(piece)

    def is_next(self, in_flight: InFlightRequest) -> bool:
        return self._flow.queue.is_first(in_flight)

    def has_room(self, in_flight: InFlightRequest) -> bool:
        return self._flow.queue.is_first(in_flight) or not self._flow.send_buffer.is_much

    def passed_on(self, in_flight: InFlightRequest) -> None:
        self._flow.passed_on(in_flight)

    def answered(self, in_flight: InFlightRequest, frame: bytes) -> None:
        assert in_flight.handle_whole is not None, "its response is read completely"
        in_flight.handle_whole(in_flight, frame)

    def upstream_full(self, is_full: bool) -> None:
        (self._flow.pause if is_full else self._flow.resume)(Pause.BROKER)

    def upstream_lost(self) -> None:
        """Close the client's connection if it needs the closed connection to the broker.

        It does while a request has no response or is being copied, and if the broker authenticates clients by SASL.
        """
        is_needed = bool(self._shared.mechanisms) or (self._upstream is not None and self._upstream.expects_answers)
        self._upstream = None
        if is_needed or self.streams_since_s is not None:
            self._flow.close()
        self._flow.resume(Pause.BROKER)

    def fail(self, error: Exception) -> None:
        self._flow.fail(error)

    # -- responses that are rewritten ----------------------------------------------------------------------------------

    def _expect_addresses(self, in_flight: InFlightRequest) -> None:
        """Read the response completely if it may contain addresses, or something else that is changed."""
        rewrite = RELAYED[in_flight.header.api_key].rewrite
        if rewrite is not None and in_flight.header.version >= rewrite.first:
            in_flight.handle_whole = partial(self._rewrite, rewrite)

    def _rewrite(self, rewrite: Rewrite, in_flight: InFlightRequest, frame: bytes) -> None:
        if not rewrite.is_needed(frame):
            self._flow.answer(in_flight, with_length(frame))
            return
        self._flow.send_buffer.hold(len(frame))
        self._work.begin(self._send_rewritten(rewrite, in_flight, frame))

    async def _send_rewritten(self, rewrite: Rewrite, in_flight: InFlightRequest, frame: bytes) -> None:
        answer = await rewritten(rewrite, in_flight.header.version, frame, self._shared.cluster, in_flight.alters)
        self._flow.send_buffer.hold(-len(frame))
        self._flow.answer(in_flight, answer)
