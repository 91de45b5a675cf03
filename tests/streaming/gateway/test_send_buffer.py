"""Bytes of responses are bounded, for each connection and in total: for clients that never read or read slowly."""

import struct
from collections import deque
from dataclasses import dataclass, field

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import RECORD_BYTES_MAX
from coordinator.messages.responses import AnyAnswer, HeartbeatAnswer
from streaming.gateway.connection import send_buffer
from streaming.gateway.connection.flow_control import InFlightRequest, RequestQueue
from streaming.gateway.connection.send_buffer import Holder, MemoryBudget, SendBuffer
from streaming.gateway.coordinator.replies import TOO_MUCH, ReplyCollector
from streaming.gateway.protocol.limits import (
    ANSWER_BYTES_MAX,
    ANSWER_BYTES_PAUSE,
    ANSWERS_BYTES_MAX,
    IN_FLIGHT_ALL_MAX,
    IN_FLIGHT_FEW,
    IN_FLIGHT_MAX,
    LARGE_IN_FLIGHT_MAX,
    ONE_ANSWER_BYTES_MAX,
    PIECE_BYTES,
)
from streaming.gateway.protocol.messages import Header
from streaming.gateway.server.apis import APIS

DESCRIBE, HEARTBEAT = 15, 12
MIB = 2**20


@dataclass(eq=False)
class Client:
    """The counted bytes of a connection, and a client that reads as many bytes as a test says."""

    memory_budget: MemoryBudget
    refusals: list[str] = field(default_factory=list)
    asked: deque[InFlightRequest] = field(default_factory=deque)
    read: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.memory_budget._holders.append(self)  # type: ignore[attr-defined]
        self.send_buffer = SendBuffer(self, self.memory_budget)
        self.slots = RequestQueue(self.send_buffer.hold)

    def refuse(self, why: str) -> None:
        self.refusals.append(why)

    def ask(self, count: int = 1, api_key: int = DESCRIBE) -> int:
        """Send `count` requests; return the number of requests that were read."""
        for asked in range(count):
            if self.send_buffer.is_much or self.slots.large >= LARGE_IN_FLIGHT_MAX:
                return asked
            self.asked.append(self.slots.add(InFlightRequest(APIS[api_key], Header(api_key, 0, asked, None))))
        return count

    def answer(self, size: int) -> None:
        """Answer the oldest unanswered request with a response of this size, as the coordinator's responses arrive."""
        slot = self.asked.popleft()
        answers = ReplyCollector(1, lambda _: self.slots.give(slot, bytes(size)), self.send_buffer.hold)
        answers.handle(0, HeartbeatAnswer(request_id="1"), size)

    def take(self, bytes_max: int) -> None:
        self.read += self.slots.piece(bytes_max)


@pytest.fixture
def held_totals() -> list[int]:
    return []


@pytest.fixture
def dropped() -> list[None]:
    return []


@pytest.fixture
def ledger(held_totals: list[int], dropped: list[None]) -> MemoryBudget:
    class Watched(MemoryBudget):
        """A ledger that records the held bytes at each change."""

        def add(self, holder: Holder, more_bytes: int) -> None:
            held_totals.append(self.held_bytes + more_bytes)
            super().add(holder, more_bytes)

    return Watched([], lambda: dropped.append(None))


def test_requests_of_a_client_that_never_reads_are_bounded(ledger: MemoryBudget, held_totals: list[int]):
    """The client sends 500 pipelined requests, and each response is as large as a record."""
    deaf = Client(ledger)
    assert deaf.ask(500) == LARGE_IN_FLIGHT_MAX
    for _ in range(LARGE_IN_FLIGHT_MAX):
        deaf.answer(RECORD_BYTES_MAX)
        assert deaf.ask(500) == 0
    assert (
        ledger.held_bytes == deaf.send_buffer.held_bytes == max(held_totals) == LARGE_IN_FLIGHT_MAX * RECORD_BYTES_MAX
    )
    assert deaf.send_buffer.held_bytes <= ANSWER_BYTES_MAX
    assert deaf.refusals == []


def test_requests_with_small_responses_are_read_up_to_the_bound(ledger: MemoryBudget):
    deaf = Client(ledger)
    while deaf.ask():
        deaf.answer(10_000)
    assert ANSWER_BYTES_PAUSE <= deaf.send_buffer.held_bytes < ANSWER_BYTES_PAUSE + 10_000


def test_requests_in_flight_of_all_connections_are_bounded(ledger: MemoryBudget):
    """Many clients that pipeline leave room for what other clients have in flight, and for nothing else."""
    greedy, other = [Client(ledger) for _ in range(IN_FLIGHT_ALL_MAX // IN_FLIGHT_MAX)], Client(ledger)
    for each in greedy:
        each.send_buffer.owe(IN_FLIGHT_MAX - 1)
        assert not each.send_buffer.is_much
        each.send_buffer.owe(IN_FLIGHT_MAX)
        assert each.send_buffer.is_much
    assert ledger.in_flight == IN_FLIGHT_ALL_MAX
    other.send_buffer.owe(IN_FLIGHT_FEW - 1)
    assert not other.send_buffer.is_much
    other.send_buffer.owe(IN_FLIGHT_FEW)
    assert other.send_buffer.is_much
    greedy[0].send_buffer.close()
    assert (other.send_buffer.is_much, ledger.in_flight) == (False, IN_FLIGHT_ALL_MAX - IN_FLIGHT_MAX + IN_FLIGHT_FEW)
    greedy[0].send_buffer.owe(1)
    assert ledger.in_flight == IN_FLIGHT_ALL_MAX - IN_FLIGHT_MAX + IN_FLIGHT_FEW


def test_a_slow_client_gets_all_responses(ledger: MemoryBudget, held_totals: list[int]):
    slow = Client(ledger)
    asked = answered = 0
    while len(slow.read) < 100 * MIB:
        asked += slow.ask(500)
        if slow.asked:
            slow.answer(MIB)
            answered += 1
        slow.take(PIECE_BYTES)
    assert answered >= 100
    assert max(held_totals) <= ANSWER_BYTES_PAUSE + LARGE_IN_FLIGHT_MAX * MIB
    assert slow.refusals == []


def test_responses_above_the_bound_of_a_connection_end_it(ledger: MemoryBudget, dropped: list[None]):
    """The bound also holds for requests that normally have small responses."""
    deaf, other = Client(ledger), Client(ledger)
    other.ask(1)
    other.answer(100)
    deaf.ask(ANSWER_BYTES_MAX // RECORD_BYTES_MAX + 1, HEARTBEAT)
    while deaf.send_buffer.held_bytes + RECORD_BYTES_MAX <= ANSWER_BYTES_MAX:
        deaf.answer(RECORD_BYTES_MAX)
        assert deaf.refusals == []
    deaf.answer(RECORD_BYTES_MAX)
    assert (len(deaf.refusals), len(dropped)) == (1, 1)
    assert (deaf.send_buffer.held_bytes, ledger.held_bytes) == (0, 100)
    assert other.refusals == []


def test_ten_clients_that_never_read_are_bounded_in_total_and_the_largest_is_closed(
    ledger: MemoryBudget, dropped: list[None], held_totals: list[int]
):
    deaf = [Client(ledger) for _ in range(10)]
    for each in deaf:
        each.ask(500)
    deaf[3].answer(RECORD_BYTES_MAX)
    for _ in range(4):
        for each in deaf:
            if not each.refusals and each.asked:
                each.answer(RECORD_BYTES_MAX)
    assert max(held_totals) <= ANSWERS_BYTES_MAX + RECORD_BYTES_MAX
    assert ledger.held_bytes == sum(each.send_buffer.held_bytes for each in deaf) <= ANSWERS_BYTES_MAX
    assert len(dropped) == sum(len(each.refusals) for each in deaf) > 0
    assert deaf[3].refusals, "this client held the most bytes"


def test_bytes_in_the_transport_are_counted(ledger: MemoryBudget):
    client = Client(ledger)
    client.send_buffer.written(70_000)
    client.send_buffer.written(60_000)
    assert ledger.held_bytes == 60_000
    client.send_buffer.close()
    client.send_buffer.hold(5)
    client.send_buffer.written(9)
    assert ledger.held_bytes == 0


def test_a_large_response_is_sent_in_pieces_and_small_ones_together():
    held: list[int] = []
    slots = RequestQueue(held.append)
    row = [slots.add(InFlightRequest(APIS[DESCRIBE], Header(DESCRIBE, 0, n, None))) for n in range(4)]
    answers = [struct.pack(">i", n) * size for n, size in enumerate((1, 100, 1, 1))]
    for slot, answer in list(zip(row, answers, strict=True))[1:]:
        slots.give(slot, answer)
    assert slots.piece(50) == b"", "the first request has no response"
    slots.give(row[0], answers[0])
    pieces = []
    while piece := slots.piece(50):
        assert len(piece) <= 50
        pieces.append(piece)
    assert b"".join(pieces) == b"".join(answers)
    assert (len(slots), sum(held), slots.large) == (0, 0, 0)
    assert len(pieces[0]) == 50


def test_a_partly_sent_slot_is_still_the_first():
    slots = RequestQueue()
    first, second = (slots.add(InFlightRequest(APIS[HEARTBEAT], Header(HEARTBEAT, 0, n, None))) for n in range(2))
    slots.give(first, bytes(100))
    slots.piece(99)
    assert slots.is_first(first)
    slots.piece(99)
    assert slots.is_first(second)


def test_answers_of_one_request_are_bounded_and_the_rest_get_a_retriable_error():
    """A DescribeGroups request names many groups, and the description of each is as large as a record."""
    held: list[int] = []
    done: list[list[AnyAnswer]] = []
    answers = ReplyCollector(10, lambda all_of_them: done.append(list(all_of_them)), held.append)
    for index in range(10):
        answers.handle(index, HeartbeatAnswer(request_id=str(index)), RECORD_BYTES_MAX)
        assert sum(held) <= ONE_ANSWER_BYTES_MAX
    codes = [answer.code for answer in done[0]]
    room = ONE_ANSWER_BYTES_MAX // RECORD_BYTES_MAX
    assert codes == [ErrorCode.NONE.number] * room + [TOO_MUCH.number] * (10 - room)
    assert sum(held) == 0


def test_the_bounds_are_consistent():
    assert LARGE_IN_FLIGHT_MAX * RECORD_BYTES_MAX + ANSWER_BYTES_PAUSE <= ANSWER_BYTES_MAX
    assert ONE_ANSWER_BYTES_MAX + ANSWER_BYTES_PAUSE <= ANSWER_BYTES_MAX <= ANSWERS_BYTES_MAX
    assert {api.name for api in APIS.values() if api.has_large_response} == {
        *("Metadata", "OffsetFetch", "DescribeGroups", "ListGroups", "DescribeConfigs", "DescribeCluster"),
        "ConsumerGroupDescribe",
    }
    assert send_buffer.ANSWER_BYTES_MAX is ANSWER_BYTES_MAX
