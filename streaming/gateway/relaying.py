"""The requests of one connection that are relayed to its broker, and the broker's responses.

A request is relayed if `authorizer` allows it. A response is passed on piece by piece when its turn comes, or it is
read completely, rewritten, and then sent. The first relayed request opens the connection to the broker.
"""

import logging
from collections.abc import Callable
from functools import partial

from streaming.gateway.apis import Api, Handling
from streaming.gateway.authenticating import Identity
from streaming.gateway.flow import Flow, Pause
from streaming.gateway.frames import FrameTreatment, Piece, with_length
from streaming.gateway.messages import Header
from streaming.gateway.passing import LargeProduce
from streaming.gateway.produce import acks_of
from streaming.gateway.relayed import RELAYED
from streaming.gateway.rewriting import rewritten
from streaming.gateway.sessions import FetchSessions
from streaming.gateway.shared import Shared
from streaming.gateway.slots import Slot
from streaming.gateway.upstream import Upstream
from streaming.gateway.work import Work

log = logging.getLogger(__name__)


class Relaying:
    """The relay of one connection, and the `Downstream` of the connection to the broker.

    Args:
        node_id: The broker that the port stands for; None for the bootstrap address.
    """

    def __init__(self, shared: Shared, node_id: int | None, flow: Flow, work: Work, identity: Identity) -> None:
        self._shared, self._node_id = shared, node_id
        self._flow, self._work, self._identity = flow, work, identity
        self._sessions = FetchSessions()
        self._upstream: Upstream | None = None
        self._is_copying = False

    # -- requests ------------------------------------------------------------------------------------------------------

    def relay(self, slot: Slot, frame: bytes) -> None:
        """Relay a complete request, or respond with an error if the client may not send it.

        Raises:
            BadFrame: The request is refused, and its API has no response for that.
            Malformed: The request cannot be read.
        """
        judged = self._shared.authorizer.judge(slot.header, frame, self._identity.client, self._sessions)
        if judged.answer is not None:
            self._shared.metrics.denied.inc()
            self._flow.respond(slot, judged.answer)
            return
        assert judged.frame is not None, "a request without a response is relayed"
        slot.reads, slot.alters = judged.reads, judged.alters
        if slot.api.handling is not Handling.RELAYED:
            slot.take_whole = self._rewrite
        if not judged.has_answer:
            self._flow.slots.withdraw(slot)
        self.forward(slot if judged.has_answer else None, judged.frame)

    def forward(self, slot: Slot | None, frame: bytes) -> None:
        """Send a request, without its length, to the broker. Without a slot the request has no response."""
        if self._upstream is None:
            self._work.begin_alone(self._connect(), then=lambda _: self._send(slot, frame))
        else:
            self._send(slot, frame)

    def stream(
        self, api: Api, header: Header, size: int, head: memoryview
    ) -> FrameTreatment | Callable[[Piece], object]:
        """Relay a Produce that is too large for memory, piece by piece.

        Args:
            head: The first bytes that have arrived, without the length.

        Returns:
            The function that relays a piece, or the treatment of the frame before that.
        """
        if (acks := acks_of(head, header.version)) is None:
            return FrameTreatment.MORE
        if self._upstream is None:
            self._work.begin_alone(self._connect())
            return FrameTreatment.LATER
        if acks:
            self._upstream.expect(self._flow.slots.add(Slot(api, header)))
        self._flow.bound()
        self._is_copying = True
        judge = partial(self._shared.authorizer.judge_piece, client=self._identity.client)
        return LargeProduce(header.version, size, judge, self._upstream.write)

    def streamed(self) -> None:
        """Record that all of a large Produce has been relayed."""
        self._is_copying = False

    def _send(self, slot: Slot | None, frame: bytes) -> None:
        assert self._upstream is not None, "connected"
        if slot:
            self._upstream.expect(slot)
        self._upstream.write(with_length(frame))

    async def _connect(self) -> None:
        upstream = Upstream(self)
        try:
            await self._shared.open_upstream(self._node_id, upstream)
            self._upstream = upstream
        except OSError as error:
            log.info("the connection of %r is closed, because its broker cannot be reached (%s)", self._identity, error)
            self._flow.close()
        finally:
            if self._upstream is not upstream:  # the client has left meanwhile
                upstream.close()

    # -- the client's side ---------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Continue to read the broker's responses, because the turn of one may have come."""
        if self._upstream:
            self._upstream.go_on()

    def client_slow(self, is_slow: bool) -> None:
        """Stop reading the broker's responses while the client is slow."""
        if self._upstream:
            self._upstream.client_slow(is_slow)

    def close(self) -> None:
        """Close the connection to the broker."""
        if self._upstream:
            self._upstream.close()

    # -- as the connection to the broker sees it -----------------------------------------------------------------------

    def write(self, piece: Piece) -> None:
        self._flow.write(piece)

    def is_next(self, slot: Slot) -> bool:
        return self._flow.slots.is_first(slot)

    def has_room(self, slot: Slot) -> bool:
        return self._flow.slots.is_first(slot) or not self._flow.outgoing.is_much

    def passed_on(self, slot: Slot) -> None:
        self._flow.passed_on(slot)

    def answered(self, slot: Slot, frame: bytes) -> None:
        assert slot.take_whole is not None, "its response is read completely"
        slot.take_whole(slot, frame)

    def upstream_full(self, is_full: bool) -> None:
        (self._flow.pause if is_full else self._flow.resume)(Pause.BROKER)

    def upstream_lost(self) -> None:
        """Close the client's connection if it needs the closed connection to the broker.

        It does while a request has no response or is being copied, and if the broker authenticates clients by SASL.
        """
        is_needed = bool(self._shared.mechanisms) or (self._upstream is not None and self._upstream.expects_answers)
        self._upstream = None
        if is_needed or self._is_copying:
            self._flow.close()
        self._flow.resume(Pause.BROKER)

    def fail(self, error: Exception) -> None:
        self._flow.fail(error)

    # -- responses that are rewritten ----------------------------------------------------------------------------------

    def _rewrite(self, slot: Slot, frame: bytes) -> None:
        self._flow.outgoing.hold(len(frame))
        self._work.begin(self._send_rewritten(slot, frame))

    async def _send_rewritten(self, slot: Slot, frame: bytes) -> None:
        rewrite = RELAYED[slot.header.api_key].rewrite
        assert rewrite is not None, "its response is rewritten"
        answer = await rewritten(rewrite, slot.header.version, frame, self._shared.cluster, slot.alters)
        self._flow.outgoing.hold(-len(frame))
        self._flow.answer(slot, answer)
