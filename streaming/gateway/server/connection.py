"""A client's connection: the events of its socket, and the parts that handle them.

    dispatcher          checks each request by its first bytes, and passes it to the handler of its API:
      serving             the group APIs, by questions to the coordinator (`mailbox`, `heartbeat_scheduler`, `members`)
      relaying            the requests to one broker, over a separate connection for this client (`broker_connection`)
      authenticate        SASL, with the broker's decision
      find_coordinator    ApiVersions and FindCoordinator
    flow_control        sends the responses in order, and stops reading while too much is in flight
    tasks               the tasks that requests wait for

Requests are read ahead: a served request goes to the coordinator at once, even after a join that has no response yet.
Only this module uses asyncio's transports. Each part has the parts below it as parameters, so a test needs no socket.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from coordinator.messages.responses import AssignmentNotice, RebalanceNotice
from streaming.gateway.connection.flow_control import Flow, Pause
from streaming.gateway.connection.send_buffer import SendBuffer
from streaming.gateway.connection.socket import has_closed, keep_alive
from streaming.gateway.connection.tasks import Work
from streaming.gateway.members.heartbeat_scheduler import HeartbeatScheduler
from streaming.gateway.members.mailbox import Mailbox
from streaming.gateway.members.members import Members
from streaming.gateway.members.services import ClientKey, Shared
from streaming.gateway.protocol.api import Api, Handling
from streaming.gateway.protocol.frames import Frames
from streaming.gateway.protocol.limits import LAST_RESPONSES_S, PIECE_BYTES
from streaming.gateway.security.authenticate import Authenticating, Identity, principal_of
from streaming.gateway.server.client_transactions import ClientTransactions
from streaming.gateway.server.dispatcher import REFUSED, Dispatcher, Handler
from streaming.gateway.server.find_coordinator import FindCoordinator, Negotiating
from streaming.gateway.server.relaying import Relaying
from streaming.gateway.server.serving import ListenerMetadata, Serving

log = logging.getLogger(__name__)


class Connection(asyncio.Protocol):
    """One client's connection.

    Args:
        node_id: The broker that the port stands for; None for the bootstrap address.
        clock: Returns monotonic seconds.

    Attributes:
        send_buffer: The bytes of held responses.
        is_silent: Whether the client has sent no complete request yet.
        frame_since_s: The time at which the incomplete request began; None without one.
    """

    def __init__(self, shared: Shared, node_id: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._shared, self._node_id, self._clock = shared, node_id, clock
        self.send_buffer = SendBuffer(self, shared.memory_budget)
        self.is_silent = True
        self.frame_since_s: float | None = None
        self._accepted_s = clock()
        self._is_ending = self._has_client_ended = self._is_over = False
        self._identity = Identity(shared.mechanisms)
        self._counted_bytes = 0
        self._before_again: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def __repr__(self) -> str:
        return f"<connection of {self._identity!r}>"

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(PIECE_BYTES)
        peer = transport.get_extra_info("peername")
        self._identity.host = f"/{peer[0]}" if peer else ""
        self._identity.client_certificate = principal_of(transport.get_extra_info("peercert"))
        self._assemble()
        keep_alive(transport.get_extra_info("socket"))
        self._shared.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._flow.touch()
        try:
            self._frames.feed(data)
        except Exception as error:
            self._end_by(error)
        else:
            self._count_unfinished()

    def eof_received(self) -> bool:
        """Answer the requests that have arrived, as a broker does, because the client sends no more.

        Returns:
            Whether the connection stays open meanwhile. asyncio cannot keep one with TLS.
        """
        is_encrypted = self._transport.get_extra_info("sslcontext") is not None
        if is_encrypted or self._is_over or self._frames.is_copying:
            return False
        self._has_client_ended = True
        self.end()
        return True

    def pause_writing(self) -> None:
        self._flow.client_full()
        self._relaying.client_slow(True)

    def resume_writing(self) -> None:
        if self._flow.client_ready():
            self._relaying.client_slow(False)

    def connection_lost(self, error: Exception | None) -> None:
        self.close()
        self._mailbox.close()
        self._heartbeats.close()
        self._members.close()
        self._work.cancel()
        self._relaying.close()
        self._forget_again()

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _assemble(self) -> None:
        shared, node_id, identity = self._shared, self._node_id, self._identity
        soon = asyncio.get_running_loop().call_soon
        flow = self._flow = Flow(self._transport, self, self.send_buffer, shared.metrics, soon, self._clock)
        flow.active_s = self._accepted_s
        self._view = ListenerMetadata(shared, node_id, identity)
        work = self._work = Work(flow)
        self._mailbox = Mailbox(shared.coordinators, identity, flow.questions, self._tell, self.send_buffer.hold)
        self._members = Members(shared, work, self._mailbox, self._view.may_see)
        self._heartbeats = HeartbeatScheduler(
            shared, flow, work, self._mailbox, self._members, self._authenticates_soon
        )
        self._relaying = Relaying(shared, node_id, flow, work, identity)
        self._frames = Frames(Dispatcher(flow, identity, self._handlers(), self._relaying, self, self._clock))

    def _handlers(self) -> Mapping[Handling, Handler]:
        shared, node_id, flow, work = self._shared, self._node_id, self._flow, self._work
        view = self._view
        authenticating = Authenticating(flow, self._identity, self._relaying.forward, self._clock, self._expect_again)
        has_left = partial(has_closed, self._transport.get_extra_info("socket"))
        transactions = ClientTransactions(shared, self._mailbox, self._identity, view, has_left)
        serve = Serving(shared, flow, work, self._mailbox, view, self._heartbeats, self._members, transactions).serve
        return {
            Handling.SERVED: serve,
            Handling.REWRITTEN: self._relaying.relay,
            Handling.RELAYED: self._relaying.relay,
            Handling.LOCATED: FindCoordinator(
                shared, flow, work, self._mailbox, view, self._relaying, self._identity
            ).find,
            Handling.NEGOTIATED: Negotiating(shared, node_id, flow, work).negotiate,
            Handling.AUTHENTICATED: authenticating.authenticate,
        }

    # -- as the gateway sees it ----------------------------------------------------------------------------------------

    @property
    def active_s(self) -> float:
        """The time at which the client last sent or read something."""
        return self._flow.active_s

    @property
    def stuck_since_s(self) -> float | None:
        """The time since which the client has read no responses; None while it reads them."""
        return self._flow.stuck_since_s

    @property
    def streams_since_s(self) -> float | None:
        """The time at which the large request that is being relayed began; None without one."""
        return self._relaying.streams_since_s

    @property
    def held_bytes(self) -> int:
        """The bytes of unfinished requests."""
        return self._frames.held_bytes

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight or unfinished."""
        return not self._flow.queue and not self.held_bytes

    @property
    def client_key(self) -> ClientKey:
        """The client, as far as its connections can be recognized."""
        return self._identity.key

    def count_written(self) -> None:
        """Update the count of the bytes that the client has not read."""
        self._flow.count_written()

    def refuse(self, why: str) -> None:
        """Close the connection of a client that violates the protocol or exceeds a limit."""
        if not self._transport.is_closing():
            self._log_refusal(why)
            self.close()

    def fail(self, error: BaseException) -> None:
        """Close the connection because of a bug of the gateway, or of a broker that violates the protocol."""
        log.error("%r is closed because of an error", self, exc_info=error)
        self.close()

    def end(self) -> None:
        """Read no further request, and close the connection when those that have arrived are answered."""
        if self._is_ending or self._transport.is_closing():
            return
        self._is_ending = True
        self._heartbeats.stop_holding()
        self.request_begins()
        self._flow.pause(Pause.END)
        self._end_if_answered()

    def close(self) -> None:
        """Close the connection at once, and count it as closed."""
        self._transport.abort()
        self._shared.holds(-self._counted_bytes)
        self._counted_bytes = 0
        self.send_buffer.close()
        self._shared.closed(self)

    # -- as its flow sees it -------------------------------------------------------------------------------------------

    def stop_requests(self) -> None:
        self._frames.hold()

    def resume_requests(self) -> None:
        try:
            self._frames.resume()
        except Exception as error:
            self._end_by(error)

    def flushed(self) -> None:
        self._relaying.resume()
        self._end_if_answered()

    # -- as its dispatcher sees it -------------------------------------------------------------------------------------

    def request_begins(self) -> None:
        self._heartbeats.release()

    def request_came(self, api: Api) -> None:
        self._shared.metrics.record_request(api.name)
        self._heartbeats.record_request(api.handling)
        if self.is_silent:
            self.is_silent = False
            self._shared.said_something(self)

    # ------------------------------------------------------------------------------------------------------------------

    def _authenticates_soon(self) -> bool:
        return self._clock() >= self._identity.again_s

    def _expect_again(self) -> None:
        """Send what is held when the client may authenticate again."""
        self._forget_again()
        wait_s = self._identity.again_s - self._clock()
        if wait_s < float("inf"):
            self._before_again = asyncio.get_running_loop().call_later(wait_s, self.request_begins)

    def _forget_again(self) -> None:
        if self._before_again:
            self._before_again.cancel()
        self._before_again = None

    def _tell(self, notice: AssignmentNotice | RebalanceNotice) -> None:
        self._heartbeats.handle_notice(notice)

    def _log_refusal(self, why: str) -> None:
        log.info("%r is refused: %s", self, why)
        self._shared.metrics.refused.inc()

    def _end_if_answered(self) -> None:
        """Close the connection if it is to end, and all requests are answered.

        The client ends first, if it has not. A socket that is closed with unread bytes drops what it has not sent.
        """
        if not self._is_ending or self._is_over or self._flow.queue or self._transport.is_closing():
            return
        if self._has_client_ended or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._is_over = True
        with suppress(OSError):  # the client has closed the connection; reading shows that
            self._transport.write_eof()
        self._transport.resume_reading()

    def _end_by(self, error: Exception) -> None:
        if not isinstance(error, REFUSED):
            self.fail(error)
        elif not self._flow.queue:
            self.refuse(str(error))
        else:
            self._log_refusal(str(error))
            self.end()
            asyncio.get_running_loop().call_later(LAST_RESPONSES_S, self.close)

    def _count_unfinished(self) -> None:
        if (held := self._frames.held_bytes) != self._counted_bytes:
            more, self._counted_bytes = held - self._counted_bytes, held
            self._shared.holds(more)
        if not self._frames.waits_for_more:
            self.frame_since_s = None
        elif self.frame_since_s is None:
            self.frame_since_s = self.active_s
