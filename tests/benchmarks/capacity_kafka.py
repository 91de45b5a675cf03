"""The largest number of heartbeats that Kafka's own group coordinator answers, over 200 shared connections.

The broker answers the requests of a connection one after the other, and it delays the response to a join until the
group is complete. So each member joins over its own connection, up to 2,000 members at a time. Afterwards, the members
send their heartbeats over the fewer shared connections.
"""

import itertools
import random
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from struct import pack
from typing import Any

from kafka.protocol.consumer.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from coordinator.messages.requests import JoinGroup, SyncGroup
from tests.benchmarks import closed_loop
from tests.benchmarks.load import Load
from tests.benchmarks.members import Member, members
from tests.benchmarks.wire import CORRELATION_ID, Wire, framed

CONNECTIONS = 200
JOINING = 2_000  # members that join at the same time, each over its own connection
COORDINATOR_WAIT_S = 60.0

INITIAL_DELAY_MS = 200
"""The time that the broker waits for the members of a new group.

With the default of 3 s, the setup of all groups would take five minutes.
"""

ANSWER = pack(">iiih", 10, CORRELATION_ID, 0, 0)
"""The response to a heartbeat, without an error and without a throttling delay."""

UNKNOWN_MEMBER_ID = 25


def run(load: Load, pipe: Connection) -> None:
    """Set up groups and send their heartbeats; send `str`s as progress and a `dict` of figures over the pipe."""
    everybody = members(load.groups, load.members)
    _settle(everybody, load, pipe.send)
    crowd = Crowd(load.bootstrap_servers, everybody)
    pipe.send(closed_loop.run(crowd, len(everybody), load.warm_up_s, load.seconds, pipe.send))


class Crowd:
    """All members, on the connections that they share."""

    turn_s = 0.1  # hundreds of heartbeats wait on each connection, so the broker has work between two turns

    def __init__(self, servers: str, everybody: Sequence[Member]) -> None:
        frames = [_heartbeat(member) for member in everybody]
        random.Random(1).shuffle(frames)
        self._shared = [Shared(servers, frames[i::CONNECTIONS]) for i in range(CONNECTIONS)]
        self.under_way = 0

    @property
    def errors(self) -> int:
        return sum(shared.errors for shared in self._shared)

    def send(self) -> None:
        self.under_way += sum(shared.send() for shared in self._shared)

    def take(self) -> int:
        answered = sum(shared.take() for shared in self._shared)
        self.under_way -= answered
        return answered


class Shared:
    """A connection and the members that use it, in a fixed order. Each member has one outstanding heartbeat."""

    def __init__(self, servers: str, frames: Sequence[bytes]) -> None:
        self._wire = Wire(servers)
        # Twice, so that the frames of successive members are successive bytes, also past the last member.
        twice = (*frames, *frames)
        self._frames = memoryview(b"".join(twice))
        self._starts = list(itertools.accumulate(map(len, twice), initial=0))
        self._all_good = ANSWER * len(frames)
        self._members = self._due = len(frames)
        self._next = 0
        self._cut = b""
        self.errors = 0

    def send(self) -> int:
        """Send a heartbeat for each answered one, and return their number."""
        sent, self._due = self._due, 0
        end = self._next + sent
        if sent:
            self._wire.send(self._frames[self._starts[self._next] : self._starts[end]])
            self._next = end % self._members
        return sent

    def take(self) -> int:
        """Read the responses that have arrived, and return their number."""
        data = self._cut + self._wire.receive_ready()
        answered = len(data) // len(ANSWER)
        whole, self._cut = data[: answered * len(ANSWER)], data[answered * len(ANSWER) :]
        if not self._all_good.startswith(whole):
            parts = (whole[at : at + len(ANSWER)] for at in range(0, len(whole), len(ANSWER)))
            self.errors += sum(part != ANSWER for part in parts)
        self._due += answered
        return answered


def _heartbeat(member: Member) -> bytes:
    return framed(HeartbeatRequest(version=3, **_identity(member)))


def _identity(member: Member) -> dict[str, Any]:
    return {"group_id": member.group_id, "generation_id": member.generation_id, "member_id": member.member_id}


# -- setting up --------------------------------------------------------------------------------------------------------


def _settle(everybody: Sequence[Member], load: Load, report: Callable[[str], None]) -> None:
    """Make all members join and sync, as many groups at a time as the connections allow."""
    report(f"{len(everybody)} members join {load.groups} groups.")
    at_a_time = min(len(everybody), JOINING // load.members * load.members)
    wires = [Wire(load.bootstrap_servers) for _ in range(at_a_time)]
    _await_coordinator(wires[0], sorted({member.group_id for member in everybody}))
    for first in range(0, len(everybody), at_a_time):
        some = everybody[first : first + at_a_time]
        for member, joined in zip(some, _responses(wires, some, [_join(member) for member in some]), strict=True):
            assert not joined.error_code, f"Kafka: the response to a join is {joined}"
            member.member_id, member.generation_id = joined.member_id, joined.generation_id
            member.leads = tuple(other.member_id for other in joined.members)
        assert all(len(member.leads) in (0, load.members) for member in some), "Kafka: a member joined too late"
        for synced in _responses(wires, some, [_sync(member) for member in some]):
            assert not synced.error_code, f"Kafka: the response to a sync is {synced}"
    for wire in wires:
        wire.close()


def _await_coordinator(wire: Wire, groups: Sequence[str]) -> None:
    """Wait until each group's coordinator serves requests: it then answers an unknown member with UNKNOWN_MEMBER_ID."""
    until_s = time.monotonic() + COORDINATOR_WAIT_S
    for group_id in groups:
        stranger = {"group_id": group_id, "generation_id": 1, "member_id": "nobody"}
        while wire.ask(HeartbeatRequest(version=3, **stranger)).error_code != UNKNOWN_MEMBER_ID:
            assert time.monotonic() < until_s, "Kafka's coordinator did not start"
            wire.ask(FindCoordinatorRequest(version=2, key=group_id, key_type=0))  # creates the topic of the offsets
            time.sleep(0.1)


def _responses(wires: Sequence[Wire], some: Sequence[Member], messages: Sequence[Any]) -> list[Any]:
    """Send each member's message over its own connection; return the responses in the same order."""
    for wire, member, message in zip(wires, some, messages, strict=False):
        wire.send(framed(message, member.client_id))
    return [wire.answer(message) for wire, message in zip(wires, messages, strict=False)]


def _join(member: Member) -> Any:
    asked = member.join_group("")
    assert isinstance(asked, JoinGroup)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    return JoinGroupRequest(
        version=3,
        group_id=asked.group_id,
        session_timeout_ms=asked.session_timeout_ms,
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        member_id="",
        protocol_type=asked.protocol_type,
        protocols=[protocol(name=known.name, metadata=known.metadata) for known in asked.protocols],
    )


def _sync(member: Member) -> Any:
    asked = member.sync_group("")
    assert isinstance(asked, SyncGroup)
    part = SyncGroupRequest.SyncGroupRequestAssignment
    assignments = [part(member_id=each.member_id, assignment=each.assignment) for each in asked.assignments]
    return SyncGroupRequest(version=2, assignments=assignments, **_identity(member))
