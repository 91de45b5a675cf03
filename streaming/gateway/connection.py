"""A client's connection: reads its requests ahead, has each one served or relayed, and answers in order.

What is served goes to the coordinator at once, also behind a join that is parked; what is relayed goes to one broker,
to which this connection has one of its own. Reading stops while there is too much on the way: requests without answers,
a client that does not take its answers, a broker that does not take the requests.
"""

import asyncio
import logging
import struct
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest

from coordinator.errors import ErrorCode
from coordinator.limits import NAME_CHARS_MAX
from coordinator.outputs import AnyAnswer, HeartbeatAnswer, JoinGroupAnswer
from streaming.gateway.answers import Answers
from streaming.gateway.apis import (
    APIS,
    BEFORE_AUTHENTICATION,
    PRODUCE,
    SASL_AUTHENTICATE,
    Api,
    Handling,
    bytes_max,
    offered,
)
from streaming.gateway.certified import principal_of
from streaming.gateway.exchanges import SERVED
from streaming.gateway.exchanges.exchange import Exchange
from streaming.gateway.frames import BadFrame, Frames, Piece, Wish, with_length
from streaming.gateway.heartbeats import Heartbeats
from streaming.gateway.house import House
from streaming.gateway.limits import (
    IN_FLIGHT_MAX,
    LARGE_IN_FLIGHT_MAX,
    PIECE_BYTES,
    keep_alive,
)
from streaming.gateway.locating import GROUP, TRANSACTION, about, located, sought, without_rules
from streaming.gateway.messages import API_VERSIONS, Header, Malformed, decode, encode, read_header
from streaming.gateway.outgoing import Outgoing
from streaming.gateway.passing import LargeProduce
from streaming.gateway.produce import HELD_BYTES_MAX, acks_of
from streaming.gateway.relayed import RELAYED
from streaming.gateway.rewriting import rewritten
from streaming.gateway.rights import ANONYMOUS, Client
from streaming.gateway.sasl import BadSasl, SaslWatch
from streaming.gateway.seeing import seen
from streaming.gateway.sessions import FetchSessions
from streaming.gateway.slots import Slot, Slots
from streaming.gateway.upstream import Upstream

log = logging.getLogger(__name__)

_HEAD = struct.Struct(">hhi")

OF_GROUPS = BEFORE_AUTHENTICATION | {Handling.SERVED, Handling.REWRITTEN}
"""What is asked on a connection that a client keeps for its group's coordinator; librdkafka asks for metadata as well.

Only there may a heartbeat's answer wait: some clients have one connection to a broker for everything, and say nothing
more on it until they have the answer.
"""

TOKEN_HEADER = Header(SASL_AUTHENTICATE, 0, 0, None)
"""Stands for the header that bare tokens lack, after a SaslHandshake of version 0."""


class Connection(asyncio.Protocol):
    """One client's.

    Args:
        node_id: The broker that the client takes us for; None where it came by the bootstrap address.
    """

    def __init__(self, house: House, node_id: int | None) -> None:
        self._house, self._node_id = house, node_id
        self.outgoing = Outgoing(self, house.ledger)
        self._frames, self._slots = Frames(self), Slots(self.outgoing.hold)
        self._sessions = FetchSessions()
        self._upstream: Upstream | None = None
        self._pauses: set[str] = set()
        self._asked: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sasl = SaslWatch(house.mechanisms)
        self._heartbeats = Heartbeats(house.settings.gateway_heartbeat_hold_ms, self._give)
        self._known_until_s = float("inf")
        self._is_of_groups = True
        self._is_flush_due = False
        self._counted_bytes = 0
        self.is_silent = True
        self.active_s = time.monotonic()
        self.stuck_since_s: float | None = None
        self.frame_since_s: float | None = None
        self.client_host, self._client_id, self._inbox = "", "", ""
        self._certified: str | None = None
        self._transport: asyncio.Transport

    def __repr__(self) -> str:
        return f"<connection of {self._client_id!r} from {self.client_host}>"

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(PIECE_BYTES)
        self._certified = principal_of(transport.get_extra_info("peercert"))
        peer = transport.get_extra_info("peername")
        self.client_host = f"/{peer[0]}" if peer else ""
        keep_alive(transport.get_extra_info("socket"))
        self._house.opened(self)

    def data_received(self, data: bytes) -> None:
        self.active_s = time.monotonic()
        try:
            self._frames.feed(data)
        except (BadFrame, Malformed, BadSasl) as error:
            self.refuse(str(error))
        except Exception as error:
            self.fail(error)
        else:
            self._note_unfinished()

    def _note_unfinished(self) -> None:
        if (held := self._frames.held_bytes) != self._counted_bytes:
            more, self._counted_bytes = held - self._counted_bytes, held
            self._house.holds(more)
        if not self._frames.waits_for_more:
            self.frame_since_s = None
        elif self.frame_since_s is None:
            self.frame_since_s = self.active_s

    def pause_writing(self) -> None:
        self.stuck_since_s = time.monotonic()
        self._pause("the client does not read")
        if self._upstream:
            self._upstream.client_slow(True)

    def resume_writing(self) -> None:
        self.active_s, self.stuck_since_s = time.monotonic(), None
        self._flush()
        if self.stuck_since_s is None:
            self._resume("the client does not read")
            if self._upstream:
                self._upstream.client_slow(False)

    def connection_lost(self, error: Exception | None) -> None:
        self.close()
        self._house.asking.close_inbox(self._inbox)
        self._house.asking.forget(self._inbox, self._asked)
        self._heartbeats.forget()
        for task in self._tasks:
            task.cancel()
        if self._upstream:
            self._upstream.close()

    # -- what the house asks -------------------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """How much of unfinished requests is here."""
        return self._frames.held_bytes

    @property
    def is_idle(self) -> bool:
        return not self._slots and not self.held_bytes

    def count_written(self) -> None:
        """Count how much of what was written the client has not taken."""
        self.outgoing.written(self._transport.get_write_buffer_size())

    def refuse(self, why: str) -> None:
        """Hang up on a client that breaks the protocol or goes beyond a bound."""
        if not self._transport.is_closing():
            log.info("%r is refused: %s", self, why)
            self._house.metrics.refused.inc()
            self.close()

    def fail(self, error: BaseException) -> None:
        """Hang up because of a bug of ours, or a broker that breaks the protocol."""
        log.error("%r ends by an error", self, exc_info=error)
        self.close()

    def close(self) -> None:
        """Hang up, and count as gone from now on."""
        self._transport.abort()
        self._house.holds(-self._counted_bytes)
        self._counted_bytes = 0
        self.outgoing.close()
        self._house.closed(self)

    # -- frames --------------------------------------------------------------------------------------------------------

    def begin(self, size: int, head: memoryview) -> Wish | Callable[[Piece], object]:
        """Decide about a request by its first bytes."""
        if not self._sasl.is_raw and len(head) < _HEAD.size:
            return Wish.MORE
        if self._pauses:
            return Wish.LATER
        self._heartbeats.release()
        api_key, version, correlation_id = TOKEN_HEADER[:3] if self._sasl.is_raw else _HEAD.unpack_from(head)
        api = self._admitted(api_key, version)
        if size > bytes_max(api_key):
            raise BadFrame(f"a {api.name} request of {size} bytes is too large")
        if api_key != PRODUCE or size <= HELD_BYTES_MAX:
            return Wish.WHOLE
        return self._stream(api, Header(api_key, version, correlation_id, None), size, head)

    def _admitted(self, api_key: int, version: int) -> Api:
        api = APIS.get(api_key)
        if api is None:
            raise BadFrame(f"API {api_key} is not offered")
        if not api.first <= version <= api.last and api_key != API_VERSIONS:
            raise BadFrame(f"version {version} of {api.name} is not offered")
        is_known = not self._house.mechanisms or self._sasl.principal is not None
        if (not is_known or self._sasl.is_amid) and api.handling not in BEFORE_AUTHENTICATION:
            raise BadFrame(f"{api.name} before authentication")
        if time.monotonic() > self._known_until_s and api.handling not in BEFORE_AUTHENTICATION:
            raise BadFrame(f"{api.name} after the session of its authentication (KIP-368)")
        return api

    def take(self, frame: bytes) -> None:
        """Take a request that is read here."""
        header = TOKEN_HEADER if self._sasl.is_raw else read_header(frame)
        self._client_id = header.client_id or ""
        api = APIS[header.api_key]
        self._count(api)
        slot = self._slots.add(Slot(api, header))
        HANDLERS[api.handling](self, slot, frame)
        self._bound_in_flight()

    def end(self) -> None:
        """Know that a relayed request has been copied."""

    def _count(self, api: Api) -> None:
        self._house.metrics.asked(api.name)
        self._is_of_groups &= api.handling in OF_GROUPS
        if self.is_silent:
            self.is_silent = False
            self._house.said_something(self)

    # -- relayed -------------------------------------------------------------------------------------------------------

    def _stream(self, api: Api, header: Header, size: int, head: memoryview) -> Wish | Callable[[Piece], object]:
        """Relay a Produce that is too large to be held, piece by piece."""
        if (acks := acks_of(head, header.version)) is None:
            return Wish.MORE
        if self._upstream is None:
            self._later(self._connect())
            return Wish.LATER
        self._count(api)
        if acks:
            self._upstream.expect(self._slots.add(Slot(api, header)))
        self._bound_in_flight()
        judge = partial(self._house.guard.judge_piece, client=self._client)
        return LargeProduce(header.version, size, judge, self._upstream.write)

    @property
    def _client(self) -> Client:
        return Client(self._sasl.principal or self._certified or ANONYMOUS, self.client_host.removeprefix("/"))

    def _relay(self, slot: Slot, frame: bytes) -> None:
        """Relay a request that was read here, unless its client may not ask it."""
        judged = self._house.guard.judge(slot.header, frame, self._client, self._sessions)
        if judged.answer is not None:
            self._house.metrics.denied.inc()
            self._respond(slot, judged.answer)
            return
        assert judged.frame is not None, "it is relayed or answered"
        slot.reads, slot.alters = judged.reads, judged.alters
        slot.is_wanted_whole = slot.api.handling is not Handling.RELAYED
        if not judged.has_answer:
            self._slots.withdraw(slot)
        self._forward(slot if judged.has_answer else None, judged.frame)

    def _forward(self, slot: Slot | None, frame: bytes) -> None:
        """Send a request to the broker; without a slot it has no answer."""
        if self._upstream is None:
            self._later(self._connect(), then=lambda: self._send_on(slot, frame))
        else:
            self._send_on(slot, frame)

    def _send_on(self, slot: Slot | None, frame: bytes) -> None:
        assert self._upstream is not None, "connected"
        if slot:
            self._upstream.expect(slot)
        self._upstream.write(with_length(frame))

    async def _connect(self) -> None:
        upstream = Upstream(self)
        try:
            await self._house.open_upstream(self._node_id, upstream)
            self._upstream = upstream
        except OSError as error:
            log.info("%r is closed: its broker cannot be reached (%s)", self, error)
            self.close()
        finally:
            if self._upstream is not upstream:  # the client went while it was being made
                upstream.close()

    def write(self, piece: Piece) -> None:
        self._transport.write(piece)
        self.count_written()

    def is_next(self, slot: Slot) -> bool:
        return self._slots.is_first(slot)

    def has_room(self, slot: Slot) -> bool:
        return self._slots.is_first(slot) or not self.outgoing.is_much

    def passed_on(self, slot: Slot) -> None:
        self.active_s = time.monotonic()
        self._house.metrics.answered(slot.api.name, slot.since_s)
        self._slots.pass_first()
        self._flush()

    def answered(self, slot: Slot, frame: bytes) -> None:
        if slot.api.handling is Handling.AUTHENTICATED:
            self._authenticated(slot, frame)
        else:
            self.outgoing.hold(len(frame))
            self._begin(self._rewrite(slot, frame))

    async def _rewrite(self, slot: Slot, frame: bytes) -> None:
        header = slot.header
        rewrite = RELAYED[header.api_key].rewrite
        assert rewrite is not None, "its response is read here"
        answer = await rewritten(rewrite, header.version, frame, self._house.cluster, slot.alters)
        self.outgoing.hold(-len(frame))
        self._answer(slot, answer)

    def upstream_full(self, is_full: bool) -> None:
        (self._pause if is_full else self._resume)("the broker does not read")

    def upstream_lost(self) -> None:
        is_needed = bool(self._house.mechanisms) or (self._upstream is not None and self._upstream.expects_answers)
        self._upstream = None
        self._pauses.discard("the broker does not read")
        if is_needed or self._frames.is_copying:
            self.close()

    # -- authentication ------------------------------------------------------------------------------------------------

    def _watch(self, slot: Slot, frame: bytes) -> None:
        refusal = self._sasl.asked(frame)
        if refusal is None:
            slot.is_wanted_whole = True
            self._forward(slot, frame)
        else:
            self._answer(slot, with_length(refusal))
            self._flush()
            self._transport.close()

    def _authenticated(self, slot: Slot, frame: bytes) -> None:
        self._sasl.answered(frame)
        lifetime_ms = self._sasl.session_lifetime_ms or float("inf")
        self._known_until_s = time.monotonic() + lifetime_ms / 1_000
        self._answer(slot, with_length(frame))
        if self._sasl.is_over:
            self._flush()
            self._transport.close()

    # -- answered here -------------------------------------------------------------------------------------------------

    def _negotiate(self, slot: Slot, frame: bytes) -> None:
        if slot.header.version <= APIS[API_VERSIONS].last:
            decode(ApiVersionsRequest, frame, slot.header)
        self._begin(self._offer(slot))

    async def _offer(self, slot: Slot) -> None:
        self._respond(slot, offered(await self._house.offer_of(self._node_id), slot.header.version))

    def _locate(self, slot: Slot, frame: bytes) -> None:
        message = decode(FindCoordinatorRequest, frame, slot.header)
        if message.key_type == TRANSACTION:
            self._relay(slot, frame)
        else:
            self._begin(self._find(slot, message))

    async def _find(self, slot: Slot, message: Any) -> None:
        if message.key_type == GROUP and self.has_rules:
            errors = await self._seen(sought(message))
        else:
            is_served = message.key_type == GROUP and await self._house.is_served()
            errors = dict.fromkeys(sought(message), without_rules(message, is_served=is_served))
        self._respond(slot, located(message, self._house.cluster, errors))

    async def _seen(self, group_ids: Sequence[str]) -> dict[str, ErrorCode]:
        asked = [about(group_id, self.fields()) for group_id in group_ids]
        house = self._house
        return await seen(asked, house.asking, house.settings.gateway_hold_ms, self._asked, self.outgoing.hold)

    # -- served --------------------------------------------------------------------------------------------------------

    def _serve(self, slot: Slot, frame: bytes) -> None:
        served = SERVED[slot.header.api_key]
        message = decode(served.request, frame, slot.header)
        topics = served.topics_named(message)
        if topics and not self._house.cluster.is_sure_of(topics):
            self._later(self._house.cluster.refresh(), then=lambda: self._ask(slot, served.exchange, message))
        else:
            self._ask(slot, served.exchange, message)

    def _ask(self, slot: Slot, exchange_of: Callable[..., Exchange], message: Any) -> None:
        exchange = exchange_of(message, self, self)
        served = partial(self._served, slot, message, exchange)
        answers = Answers(len(exchange.questions), served, self.outgoing.hold)
        self._asked.update(question.request.request_id for question in exchange.questions)
        self._bound_in_flight()
        for index, question in enumerate(exchange.questions):
            self._house.asking.send(question.request, partial(answers.take, index), question.shard)

    def _served(self, slot: Slot, message: Any, exchange: Exchange, answers: Sequence[AnyAnswer]) -> None:
        """Answer, unless that can wait for news."""
        self._asked.difference_update(question.request.request_id for question in exchange.questions)
        try:
            response = encode(exchange.respond(answers), slot.header)
        except Exception as error:
            self.fail(error)
            return
        match answers:
            case [JoinGroupAnswer(code=0, member_id=member_id)]:
                self._heartbeats.joined(member_id, message.session_timeout_ms)
            case [HeartbeatAnswer(code=0)] if self._is_of_groups and self._slots.is_only(slot):
                if self._heartbeats.hold(slot, message.member_id, response):
                    self._house.metrics.answered(slot.api.name, slot.since_s)
                    return
        self._answer(slot, response)

    # as `exchanges` knows us

    def fields(self) -> dict[str, Any]:
        self._inbox = self._inbox or self._house.asking.open_inbox(self._heartbeats.tell)
        return {
            "request_id": self._house.asking.request_id(),
            "reply_to": self._inbox,
            "client_id": self._client_id[:NAME_CHARS_MAX],
            "client_host": self.client_host,
            "principal": self._sasl.principal or self._certified,
        }

    @property
    def shards(self) -> int:
        return self._house.asking.shards

    @property
    def has_rules(self) -> bool:
        return self._house.settings.access == "rules"

    def partitions_of(self, topic: str) -> int | None:
        return self._house.cluster.partitions_of(topic)

    def coordinates(self, group_id: str) -> bool:
        return self._node_id is None or self._house.cluster.coordinator_of(group_id) == self._node_id

    # -- answering -----------------------------------------------------------------------------------------------------

    def _respond(self, slot: Slot, response: ApiMessage) -> None:
        self._answer(slot, encode(response, slot.header))

    def _answer(self, slot: Slot, answer: bytes) -> None:
        self._house.metrics.answered(slot.api.name, slot.since_s)
        self._give(slot, answer)

    def _give(self, slot: Slot, answer: bytes) -> None:
        self._slots.give(slot, answer)
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Send what may be sent by now, together."""
        self._is_flush_due = False
        if self._transport.is_closing():
            return
        while self.stuck_since_s is None and (piece := self._slots.piece(PIECE_BYTES)):
            self.active_s = time.monotonic()
            self._transport.write(piece)
        self.count_written()
        if self._upstream:
            self._upstream.go_on()
        self._bound_in_flight()

    def _bound_in_flight(self) -> None:
        """Read no further while too much is on the way: requests, questions (a request may have many), or bytes."""
        is_too_much = max(len(self._slots), len(self._asked)) >= IN_FLIGHT_MAX
        is_too_much |= self.outgoing.is_much or self._slots.large >= LARGE_IN_FLIGHT_MAX
        (self._pause if is_too_much else self._resume)("too much is on the way")

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _pause(self, why: str) -> None:
        self._pauses.add(why)
        self._transport.pause_reading()

    def _resume(self, why: str) -> None:
        if why not in self._pauses:
            return
        self._pauses.discard(why)
        if not self._pauses and not self._transport.is_closing():
            self._transport.resume_reading()
            self._go_on()

    def _go_on(self) -> None:
        try:
            self._frames.go_on()
        except (BadFrame, Malformed, BadSasl) as error:
            self.refuse(str(error))
        except Exception as error:
            self.fail(error)

    def _later(self, work: Awaitable[None], then: Callable[[], None] = lambda: None) -> None:
        """Do something that takes a while, and nothing for this client meanwhile: its requests keep their order."""
        self._frames.hold()
        self._pause("something takes a while")

        async def run() -> None:
            await work
            if not self._transport.is_closing():
                then()
                self._resume("something takes a while")

        self._begin(run())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.fail(error)


HANDLERS: dict[Handling, Callable[[Connection, Slot, bytes], None]] = {
    Handling.SERVED: Connection._serve,
    Handling.REFUSED: Connection._serve,
    Handling.REWRITTEN: Connection._relay,
    Handling.RELAYED: Connection._relay,
    Handling.LOCATED: Connection._locate,
    Handling.NEGOTIATED: Connection._negotiate,
    Handling.AUTHENTICATED: Connection._watch,
}
