"""Heartbeats over plain sockets: a thousand connections at a fixed interval, then as many as are answered.

All clients run in one process with one event loop. Each connection belongs to the only member of a group. The member
has joined and synced. Its heartbeats are all equal, so they are encoded once.
"""

import asyncio
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from kafka.protocol.consumer.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest

from tests.benchmarks.bench import BenchFailed

CLIENT_ID = "bench"
SESSION_MS = 60_000
AGAIN_S = 0.02  # how often a member looks for the response to its heartbeat
_ERROR = struct.Struct(">h")


class Load(NamedTuple):
    """The load, and the servers that it is for."""

    servers: str
    connections: int
    interval_s: float
    """The time between two heartbeats of a member in the first part."""

    ease_s: float
    rush_s: float
    in_flight: int
    """The outstanding heartbeats of each connection in the second part, the rush."""


class Answered(NamedTuple):
    """The result of a load."""

    ease_ms: list[float]
    """The times from heartbeat to response in the first part, sorted."""

    rush_per_s: float
    errors: int


class Member(asyncio.Protocol):
    """A connection of the only member of a group."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._sent_s: list[float] = []
        self._answer: asyncio.Future[bytes] | None = None
        self.who: dict[str, Any] = {}
        self._beat = b""
        self.took_s: list[float] = []
        self.errors = 0
        self.rushes_until_s = 0.0

    @classmethod
    async def join(cls, servers: str, group_id: str) -> Self:
        """Connect, join and sync. All members of a group have to join within the group's initial delay."""
        host, port = servers.rsplit(":", 1)
        _, member = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        joined = await member.call(
            JoinGroupRequest(
                version=3,
                group_id=group_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id="",
                protocol_type="bench",
                protocols=[protocol],
            )
        )
        who = {"group_id": group_id, "generation_id": joined.generation_id, "member_id": joined.member_id}
        await member.call(SyncGroupRequest(version=2, assignments=[], **who))
        member.who = who
        member.repeat(lambda who: HeartbeatRequest(version=3, **who))
        return member

    @property
    def is_waiting(self) -> bool:
        """True if a heartbeat has no response."""
        return bool(self._sent_s)

    def repeat(self, request: Callable[[dict[str, Any]], Any]) -> None:
        """Set the request that `beat` sends: a function of the fields group_id, generation_id and member_id. Its
        response ends with its only error code."""
        self._beat = _framed(request(self.who))

    async def call(self, message: Any) -> Any:
        """Send a request, and return its response. No beat may be without a response."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(_framed(message))
        frame, self._answer = await self._answer, None
        return message.header.get_response_class().decode(frame, header=True)

    def beat(self, times: int = 1) -> None:
        """Send this number of heartbeats, or of other repeated requests, at once."""
        now_s = time.monotonic()
        self._sent_s += [now_s] * times
        self._transport.write(self._beat * times)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        answered = 0
        while len(self._buffer) >= 4 and len(self._buffer) >= 4 + (size := int.from_bytes(self._buffer[:4])):
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            if self._answer:
                self._answer.set_result(frame)
            else:
                answered += 1
                self.errors += _ERROR.unpack_from(frame, len(frame) - _ERROR.size)[0] != 0
        if answered:
            self._count(answered)

    def _count(self, answered: int) -> None:
        now_s = time.monotonic()
        self.took_s += [now_s - sent_s for sent_s in self._sent_s[:answered]]
        del self._sent_s[:answered]
        if now_s < self.rushes_until_s:
            self.beat(answered)


def _framed(message: Any) -> bytes:
    message.with_header(correlation_id=1, client_id=CLIENT_ID)
    return bytes(message.encode(header=True, framed=True))


async def run(load: Load, begin: Callable[[], None], end: Callable[[], None]) -> Answered:
    """Make all members join, send heartbeats at the interval, then run the rush between `begin` and `end`."""
    members = await asyncio.gather(
        *(Member.join(load.servers, f"bench-{number}") for number in range(load.connections))
    )
    await _at_ease(members, load.interval_s, load.ease_s)
    ease_ms = sorted(1_000 * took_s for member in members for took_s in member.took_s)
    for member in members:
        member.took_s.clear()
    begin()
    began_s = time.monotonic()
    for member in members:
        member.rushes_until_s = began_s + load.rush_s
        member.beat(load.in_flight)
    await asyncio.sleep(load.rush_s)
    count, took_s = sum(len(member.took_s) for member in members), time.monotonic() - began_s
    end()
    return Answered(ease_ms, count / took_s, sum(member.errors for member in members))


async def rest(
    servers: str,
    groups: int,
    each: int,
    interval_s: float,
    warm_up_s: float,
    measured_s: float,
    begin: Callable[[], None],
    end: Callable[[], None],
) -> None:
    """Make groups of several members join, and send heartbeats at the interval, the last of them between `begin` and
    `end`."""
    names = [f"plain-{number // each}" for number in range(groups * each)]
    members = await asyncio.gather(*(Member.join(servers, name) for name in names))
    await _at_ease(members, interval_s, warm_up_s)
    begin()
    await _at_ease(members, interval_s, measured_s)
    end()
    if errors := sum(member.errors for member in members):
        raise BenchFailed(f"{errors} heartbeats had an error")


async def _at_ease(members: Sequence[Member], interval_s: float, ease_s: float) -> None:
    async def beat(member: Member, first_s: float) -> None:
        await asyncio.sleep(first_s)
        while time.monotonic() < until_s:
            if member.is_waiting:  # clients have one heartbeat without a response at a time
                await asyncio.sleep(AGAIN_S)
            else:
                member.beat()
                await asyncio.sleep(interval_s)

    until_s = time.monotonic() + ease_s
    spread_s = interval_s / len(members)
    await asyncio.gather(*(beat(member, number * spread_s) for number, member in enumerate(members)))
