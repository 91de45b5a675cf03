"""Hostile and broken clients: they are disconnected in time, memory stays bounded, and other clients are served."""

import os
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psutil
import pytest
from kafka.protocol.admin import DescribeGroupsRequest
from prometheus_client import generate_latest

from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import DescribeGroup
from streaming.client import Transport
from streaming.gateway import Gateway
from streaming.gateway.connection import flow_control, send_buffer
from streaming.gateway.connection.send_buffer import Holder
from streaming.gateway.protocol.api import Handling
from streaming.gateway.protocol.limits import IN_FLIGHT_MAX, LARGE_IN_FLIGHT_MAX
from streaming.gateway.relay.large_produce import Room
from streaming.gateway.server import server
from streaming.gateway.server.apis import APIS
from tests.system.test_gateway import become_member, heartbeat, join
from tests.system.waiting import HANG_S, wait_until
from tests.system.wire import Wire, connect

pytestmark = pytest.mark.long

HEARTBEAT, PRODUCE, JOIN = 12, 0, 11
MIB = 2**20
SERVED = [key for key, api in APIS.items() if api.handling is Handling.SERVED]

Strain = Callable[..., Gateway]


@pytest.fixture
def strain(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[Strain]:
    """Return a function that starts a separate gateway with other settings and with low limits."""
    with ExitStack() as opened:

        def start(limits: dict[str, float] | None = None, **settings: object) -> Gateway:
            monkeypatch.setattr(server, "SWEEP_S", 0.05)
            for name, value in (limits or {}).items():
                module = next(each for each in (server, send_buffer, flow_control) if hasattr(each, name))
                monkeypatch.setattr(module, name, value)
            return opened.enter_context(Gateway(gateway.settings.model_copy(update=settings)))

        yield start


def memory() -> int:
    """Return the resident memory of this process in bytes, which includes the gateway."""
    return int(psutil.Process(os.getpid()).memory_info().rss)


def metrics(gateway: Gateway) -> str:
    return generate_latest(gateway.metrics.registry).decode()


def asked(gateway: Gateway, api: str) -> float:
    """Return the number of requests of an API that a gateway has read."""
    return gateway.metrics.registry.get_sample_value("groupcoord_gateway_requests_total", {"api": api}) or 0


def keep_little_room(wire: Wire) -> None:
    """Make the socket's receive buffer small; by default it holds many megabytes that the client has not read."""
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)


def is_served(wire: Wire) -> bool:
    return bool(wire.call(heartbeat("g", "nobody")).error_code == 25)


def head(api_key: int, size: int, version: int = 3) -> bytes:
    return struct.pack(">ihhih", size, api_key, version, 1, -1)


@pytest.mark.parametrize("api_key", [HEARTBEAT, PRODUCE])
@pytest.mark.parametrize("size", [2**31 - 1, 101 * MIB, -1, -(2**31), 0, 7])
def test_invalid_frame_size_ends_the_connection(gateway: Gateway, api_key: int, size: int):
    """Frames that announce 2 GB, frames of negative size, and frames too short for a header are refused."""
    with connect(gateway.bootstrap_servers) as bystander, connect(gateway.bootstrap_servers) as wire:
        wire.raw(head(api_key, size)[: 4 + max(size, 8)])
        assert wire.is_hung_up()
        assert is_served(bystander)


@pytest.mark.parametrize("api_key", SERVED)
def test_truncated_body_ends_the_connection(gateway: Gateway, api_key: int):
    with connect(gateway.bootstrap_servers) as wire:
        wire.raw(head(api_key, 10, APIS[api_key].last))
        assert wire.is_hung_up()


def test_random_bytes_do_not_affect_other_clients(gateway: Gateway):
    """Five hundred connections send random bytes, half of them behind a valid header."""
    chance = random.Random(7)
    with connect(gateway.bootstrap_servers) as bystander:
        for number in range(500):
            with connect(gateway.bootstrap_servers) as wire:
                body = chance.randbytes(chance.randrange(1, 2_000))
                api_key = chance.choice(list(APIS))
                start = head(api_key, len(body) + 10, APIS[api_key].last) if number % 2 else b""
                wire.raw(start + body)
        assert is_served(bystander)


def test_client_that_sends_a_request_too_slowly_is_disconnected(strain: Strain):
    gateway = strain({"FRAME_WAIT_S": 0.3})
    with connect(gateway.bootstrap_servers) as bystander, connect(gateway.bootstrap_servers) as slow:
        assert is_served(slow)
        slow.raw(head(JOIN, 1_000) + b"x" * 500)
        assert slow.is_hung_up()
        assert is_served(bystander)


def test_client_that_sends_nothing_is_disconnected(strain: Strain):
    gateway = strain({"SILENCE_S": 0.3})
    with connect(gateway.bootstrap_servers) as speaks, connect(gateway.bootstrap_servers) as silent:
        assert is_served(speaks)
        assert silent.is_hung_up()
        assert is_served(speaks)


def test_idle_client_is_disconnected(strain: Strain, group_id: str):
    """As with Kafka's connections.max.idle.ms. A client that waits for a join is not idle."""
    gateway = strain(gateway_connections_max_idle_ms=600)
    with connect(gateway.bootstrap_servers) as waiting:
        member_id = waiting.call(join(group_id)).member_id
        waiting.send(join(group_id, member_id))
        with connect(gateway.bootstrap_servers) as idle:
            assert is_served(idle)
            assert idle.is_hung_up()
        assert waiting.read().error_code == 0


def test_many_silent_connections_do_not_block_others(strain: Strain):
    """Above the limit the connection that was silent for longest is closed. Clients that send requests are kept."""
    gateway = strain(gateway_connections_max=20)
    with ExitStack() as opened, connect(gateway.bootstrap_servers) as speaks:
        assert is_served(speaks)
        flood = [opened.enter_context(connect(gateway.bootstrap_servers)) for _ in range(60)]
        assert all(each.is_hung_up() for each in flood[:40])
        assert is_served(opened.enter_context(connect(gateway.bootstrap_servers)))
        assert is_served(speaks)


def test_unfinished_requests_are_bounded_together(strain: Strain):
    """While the limit is exceeded, the connection with the oldest unfinished request is closed."""
    gateway = strain({"UNFINISHED_BYTES_MAX": 4 * MIB})
    with ExitStack() as opened, connect(gateway.bootstrap_servers) as bystander:
        assert is_served(bystander)
        before = memory()
        greedy = [opened.enter_context(connect(gateway.bootstrap_servers)) for _ in range(30)]
        for wire in greedy:
            wire.raw(head(JOIN, 4 * MIB) + bytes(MIB))
        assert all(wire.is_hung_up() for wire in greedy[:20])
        assert memory() - before < 30 * MIB
        assert is_served(bystander)


def test_stalled_large_requests_hold_their_room_for_a_bounded_time(strain: Strain):
    """A large Produce is relayed as it arrives, and waits while those of other clients announce too much together."""
    gateway = strain({"FRAME_WAIT_S": 0.5})
    gateway.room = Room(4 * MIB)
    start = head(PRODUCE, 3 * MIB) + struct.pack(">hhi", -1, 1, 1_000)  # no transactional id, and acks of 1
    with connect(gateway.bootstrap_servers) as stalled, connect(gateway.bootstrap_servers) as waiting:
        stalled.raw(start)
        wait_until(lambda: asked(gateway, "Produce") == 1)
        waiting.raw(start)
        assert stalled.is_hung_up()
        wait_until(lambda: asked(gateway, "Produce") == 2)


def test_client_that_does_not_read_is_paused_and_then_disconnected(strain: Strain, group_id: str):
    """The client does not read its responses of 100 KB each: the gateway requests a few and then disconnects it."""
    gateway = strain({"STUCK_WAIT_S": 1.0, "IN_FLIGHT_MAX": 50})
    with connect(gateway.bootstrap_servers) as deaf, connect(gateway.bootstrap_servers) as bystander:
        assert is_served(bystander)
        keep_little_room(deaf)
        become_member(deaf, group_id, metadata=bytes(100_000))
        deaf.send(*(DescribeGroupsRequest(version=6, groups=[group_id]) for _ in range(2_000)))
        wait_until(lambda: "groupcoord_gateway_connections 1.0" in metrics(gateway))
        few = LARGE_IN_FLIGHT_MAX
        assert few <= asked(gateway, "DescribeGroups") < 400, "those in flight and those in the sockets' buffers"
        assert is_served(bystander)


def answer_bytes(gateway: Gateway) -> list[int]:
    """Return a list to which the number of response bytes that a gateway holds is appended at each change."""
    held: list[int] = []
    add = gateway.memory_budget.add

    def watched(holder: Holder, more_bytes: int) -> None:
        held.append(gateway.memory_budget.held_bytes + more_bytes)
        add(holder, more_bytes)

    gateway.memory_budget.add = watched  # type: ignore[method-assign]
    return held


def describe(group_id: str) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(version=6, groups=[group_id])


def test_unread_responses_are_bounded_and_delivered_later(strain: Strain, group_id: str):
    """Of 60 requests with responses of 270 KB, as many are answered as there is room for; the others wait.

    60 is the number of such responses that the coordinator gives of one group without a pause.
    """
    bound = MIB // 2
    gateway = strain({"ANSWER_BYTES_PAUSE": bound, "STUCK_WAIT_S": HANG_S})
    held = answer_bytes(gateway)
    with connect(gateway.bootstrap_servers) as slow, connect(gateway.bootstrap_servers) as bystander:
        assert is_served(bystander)
        keep_little_room(slow)
        become_member(slow, group_id, metadata=bytes(200_000))
        size = len(slow.call(describe(group_id)).encode())
        slow.send(*(describe(group_id) for _ in range(60)))
        wait_until(lambda: any(each.stuck_since_s is not None for each in gateway._connections))
        for _ in range(20):
            assert is_served(bystander)
        assert asked(gateway, "DescribeGroups") < 60, "without the limit all of them would have been read by now"
        assert {slow.read().groups[0].error_code for _ in range(60)} == {0}
        assert is_served(slow)
    assert max(held) <= bound + (LARGE_IN_FLIGHT_MAX + 1) * size
    wait_until(lambda: gateway.memory_budget.held_bytes == 0)
    assert gateway.metrics.registry.get_sample_value("groupcoord_gateway_connections_overfull_total") == 0


def test_unread_responses_of_ten_clients_are_bounded_together(strain: Strain, group_id: str):
    """The connection that holds most is closed, and other clients are served.

    Each client asks about a group of its own, because the coordinator limits the large responses about a group.
    """
    each, together = MIB // 2, 2 * MIB
    gateway = strain({"ANSWER_BYTES_PAUSE": each, "ANSWERS_BYTES_MAX": together, "STUCK_WAIT_S": HANG_S})
    held = answer_bytes(gateway)
    with ExitStack() as opened, connect(gateway.bootstrap_servers) as bystander:
        for number in range(10):
            become_member(bystander, f"{group_id}-{number}", metadata=bytes(200_000))
        for number in range(10):
            wire = opened.enter_context(connect(gateway.bootstrap_servers))
            keep_little_room(wire)
            wire.send(*(describe(f"{group_id}-{number}") for _ in range(500)))
        overfull = "groupcoord_gateway_connections_overfull_total"
        wait_until(lambda: gateway.metrics.registry.get_sample_value(overfull) >= 3)
        assert is_served(bystander)
        assert max(held) <= together + 300_000
        assert gateway.memory_budget.held_bytes <= together


def test_more_requests_than_may_be_in_flight_are_answered_in_order(gateway: Gateway):
    """The client sends more requests than may be in flight; the rest waits in the socket."""
    with connect(gateway.bootstrap_servers) as wire:
        wire.send(*(heartbeat("g", "nobody") for _ in range(3 * IN_FLIGHT_MAX)))
        assert {wire.read().error_code for _ in range(3 * IN_FLIGHT_MAX)} == {25}


def test_fifty_small_requests_are_in_flight_together(gateway: Gateway, group_id: str):
    """The low limit is for large responses only: small requests behind a parked join are all read at once."""
    heartbeats = "groupcoord_gateway_requests_total", {"api": "Heartbeat"}
    with connect(gateway.bootstrap_servers) as ana, connect(gateway.bootstrap_servers) as bo:
        member_id = become_member(ana, group_id)
        newcomer = bo.call(join(group_id)).member_id
        before = gateway.metrics.registry.get_sample_value(*heartbeats) or 0
        bo.send(join(group_id, newcomer), *(heartbeat(group_id, "nobody") for _ in range(50)))
        wait_until(lambda: gateway.metrics.registry.get_sample_value(*heartbeats) == before + 50)
        ana.send(join(group_id, member_id))
        assert (ana.read().error_code, bo.read().error_code) == (0, 0)
        assert {bo.read().error_code for _ in range(50)} == {25}


def test_fifty_descriptions_are_answered_in_order(gateway: Gateway, group_id: str):
    """Few descriptions are requested at a time; the other requests wait and none is lost."""
    with connect(gateway.bootstrap_servers) as wire:
        become_member(wire, group_id)
        names = [group_id if number % 2 else f"{group_id}-{number}" for number in range(50)]
        wire.send(*map(describe, names))
        assert [wire.read().groups[0].group_id for _ in names] == names


def test_responses_cannot_be_forged_through_another_mailbox(gateway: Gateway, transport: Transport, group_id: str):
    """A client that may write requests and read replies knows the mailboxes, but cannot guess request ids.

    With consecutive ids, a parked join would get the response to one of these heartbeats.
    """
    with connect(gateway.bootstrap_servers) as ana, connect(gateway.bootstrap_servers) as bo:
        member_id = become_member(ana, group_id)
        newcomer = bo.call(join(group_id)).member_id
        bo.send(join(group_id, newcomer))
        wait_until(lambda: ana.call(heartbeat(group_id, member_id)).error_code == 27)
        for inbox in list(gateway.coordinators._home._inbox._mailboxes):
            for number in range(100):
                forged = Heartbeat(
                    request_id=str(number), reply_to=inbox, group_id=group_id, generation_id=1, member_id="nobody"
                )
                transport.send(forged)
        describe = DescribeGroup(request_id="", reply_to="", group_id=group_id)
        transport.ask(describe, HANG_S)  # it is answered after all of these
        ana.send(join(group_id, member_id))
        assert (ana.read().error_code, bo.read().error_code) == (0, 0)


def test_request_ids_are_not_predictable(gateway: Gateway):
    ids = [gateway.coordinators.request_id() for _ in range(1_000)]
    assert len(set(ids)) == len({each[:8] for each in ids}) == 1_000
    assert {len(each) for each in ids} == {32}, "128 bits"


def test_disconnected_client_leaves_nothing_in_the_gateway(strain: Strain, group_id: str):
    """The client has a parked join and a half-sent request. It stays a member, but the gateway keeps nothing of it."""
    gateway = strain()
    with connect(gateway.bootstrap_servers) as wire:
        member_id = wire.call(join(group_id)).member_id
        wire.send(join(group_id, member_id))
        wire.raw(head(JOIN, 1_000))
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: "groupcoord_gateway_connections 0.0" in metrics(gateway))
    assert gateway.coordinators.waiting == 0
