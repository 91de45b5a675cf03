"""Bytes of answers are bounded, by connection and in all: of whoever never reads, reads slowly, and ten at once."""

import struct
from collections import deque
from dataclasses import dataclass, field

import pytest

from coordinator.errors import ErrorCode
from coordinator.limits import RECORD_BYTES_MAX
from coordinator.outputs import AnyAnswer, HeartbeatAnswer
from streaming.gateway import outgoing
from streaming.gateway.answers import TOO_MUCH, Answers
from streaming.gateway.apis import APIS
from streaming.gateway.limits import (
    ANSWER_BYTES_MAX,
    ANSWER_BYTES_PAUSE,
    ANSWERS_BYTES_MAX,
    LARGE_IN_FLIGHT_MAX,
    ONE_ANSWER_BYTES_MAX,
    PIECE_BYTES,
)
from streaming.gateway.messages import Header
from streaming.gateway.outgoing import Holder, Ledger, Outgoing
from streaming.gateway.slots import Slot, Slots

DESCRIBE, HEARTBEAT = 15, 12
MIB = 2**20


@dataclass(eq=False)
class Client:
    """A connection's accounts, and a client that reads what it wants to."""

    ledger: Ledger
    refusals: list[str] = field(default_factory=list)
    asked: deque[Slot] = field(default_factory=deque)
    read: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.ledger._holders.append(self)  # type: ignore[attr-defined]
        self.outgoing = Outgoing(self, self.ledger)
        self.slots = Slots(self.outgoing.hold)

    def refuse(self, why: str) -> None:
        self.refusals.append(why)

    def ask(self, count: int = 1, api_key: int = DESCRIBE) -> int:
        """Ask as often as that is read; return how many requests were."""
        for asked in range(count):
            if self.outgoing.is_much or self.slots.large >= LARGE_IN_FLIGHT_MAX:
                return asked
            self.asked.append(self.slots.add(Slot(APIS[api_key], Header(api_key, 0, asked, None))))
        return count

    def answer(self, size: int) -> None:
        """Give the oldest request that has no answer one of that size, as the coordinator's answers come."""
        slot = self.asked.popleft()
        answers = Answers(1, lambda _: self.slots.give(slot, bytes(size)), self.outgoing.hold)
        answers.take(0, HeartbeatAnswer(request_id="1"), size)

    def take(self, bytes_max: int) -> None:
        self.read += self.slots.piece(bytes_max)


@pytest.fixture
def told() -> list[int]:
    return []


@pytest.fixture
def dropped() -> list[None]:
    return []


@pytest.fixture
def ledger(told: list[int], dropped: list[None]) -> Ledger:
    class Watched(Ledger):
        """Keeps what has been held at each moment."""

        def add(self, holder: Holder, more_bytes: int) -> None:
            told.append(self.held_bytes + more_bytes)
            super().add(holder, more_bytes)

    return Watched([], lambda: dropped.append(None))


def test_who_never_reads_is_asked_for_no_more_than_it_can_bear(ledger: Ledger, told: list[int]):
    """500 pipelined requests, each of whose answers is as large as a record."""
    deaf = Client(ledger)
    assert deaf.ask(500) == LARGE_IN_FLIGHT_MAX
    for _ in range(LARGE_IN_FLIGHT_MAX):
        deaf.answer(RECORD_BYTES_MAX)
        assert deaf.ask(500) == 0
    assert ledger.held_bytes == deaf.outgoing.held_bytes == max(told) == LARGE_IN_FLIGHT_MAX * RECORD_BYTES_MAX
    assert deaf.outgoing.held_bytes <= ANSWER_BYTES_MAX
    assert deaf.refusals == []


def test_small_answers_are_asked_for_up_to_the_bound(ledger: Ledger):
    deaf = Client(ledger)
    while deaf.ask():
        deaf.answer(10_000)
    assert ANSWER_BYTES_PAUSE <= deaf.outgoing.held_bytes < ANSWER_BYTES_PAUSE + 10_000


def test_who_reads_slowly_gets_it_all_and_in_order(ledger: Ledger, told: list[int]):
    slow = Client(ledger)
    asked = answered = 0
    while len(slow.read) < 100 * MIB:
        asked += slow.ask(500)
        if slow.asked:
            slow.answer(MIB)
            answered += 1
        slow.take(PIECE_BYTES)
    assert answered >= 100
    assert max(told) <= ANSWER_BYTES_PAUSE + LARGE_IN_FLIGHT_MAX * MIB
    assert slow.refusals == []


def test_answers_beyond_the_bound_of_a_connection_end_it(ledger: Ledger, dropped: list[None]):
    """Whatever they answer: requests that are not thought to have large answers."""
    deaf, other = Client(ledger), Client(ledger)
    other.ask(1)
    other.answer(100)
    deaf.ask(ANSWER_BYTES_MAX // RECORD_BYTES_MAX + 1, HEARTBEAT)
    while deaf.outgoing.held_bytes + RECORD_BYTES_MAX <= ANSWER_BYTES_MAX:
        deaf.answer(RECORD_BYTES_MAX)
        assert deaf.refusals == []
    deaf.answer(RECORD_BYTES_MAX)
    assert (len(deaf.refusals), len(dropped)) == (1, 1)
    assert (deaf.outgoing.held_bytes, ledger.held_bytes) == (0, 100)
    assert other.refusals == []


def test_ten_that_never_read_are_bounded_together_and_the_one_that_holds_most_goes(
    ledger: Ledger, dropped: list[None], told: list[int]
):
    deaf = [Client(ledger) for _ in range(10)]
    for each in deaf:
        each.ask(500)
    deaf[3].answer(RECORD_BYTES_MAX)
    for _ in range(4):
        for each in deaf:
            if not each.refusals and each.asked:
                each.answer(RECORD_BYTES_MAX)
    assert max(told) <= ANSWERS_BYTES_MAX + RECORD_BYTES_MAX
    assert ledger.held_bytes == sum(each.outgoing.held_bytes for each in deaf) <= ANSWERS_BYTES_MAX
    assert len(dropped) == sum(len(each.refusals) for each in deaf) > 0
    assert deaf[3].refusals, "it held most"


def test_bytes_that_wait_in_the_transport_count(ledger: Ledger):
    client = Client(ledger)
    client.outgoing.written(70_000)
    client.outgoing.written(60_000)
    assert ledger.held_bytes == 60_000
    client.outgoing.close()
    client.outgoing.hold(5)
    client.outgoing.written(9)
    assert ledger.held_bytes == 0


def test_a_large_answer_leaves_piece_by_piece_and_small_ones_together():
    held: list[int] = []
    slots = Slots(held.append)
    row = [slots.add(Slot(APIS[DESCRIBE], Header(DESCRIBE, 0, n, None))) for n in range(4)]
    answers = [struct.pack(">i", n) * size for n, size in enumerate((1, 100, 1, 1))]
    for slot, answer in list(zip(row, answers, strict=True))[1:]:
        slots.give(slot, answer)
    assert slots.piece(50) == b"", "the first has no answer"
    slots.give(row[0], answers[0])
    pieces = []
    while piece := slots.piece(50):
        assert len(piece) <= 50
        pieces.append(piece)
    assert b"".join(pieces) == b"".join(answers)
    assert (len(slots), sum(held), slots.large) == (0, 0, 0)
    assert len(pieces[0]) == 50


def test_a_slot_that_is_sent_in_part_is_still_the_first():
    slots = Slots()
    first, second = (slots.add(Slot(APIS[HEARTBEAT], Header(HEARTBEAT, 0, n, None))) for n in range(2))
    slots.give(first, bytes(100))
    slots.piece(99)
    assert slots.is_first(first)
    slots.piece(99)
    assert slots.is_first(second)


def test_the_answers_of_one_request_are_bounded_and_the_rest_is_to_be_asked_again():
    """A DescribeGroups of hundreds of groups, each of which is as large as a record."""
    held: list[int] = []
    done: list[list[AnyAnswer]] = []
    answers = Answers(10, lambda all_of_them: done.append(list(all_of_them)), held.append)
    for index in range(10):
        answers.take(index, HeartbeatAnswer(request_id=str(index)), RECORD_BYTES_MAX)
        assert sum(held) <= ONE_ANSWER_BYTES_MAX
    codes = [answer.code for answer in done[0]]
    room = ONE_ANSWER_BYTES_MAX // RECORD_BYTES_MAX
    assert codes == [ErrorCode.NONE.number] * room + [TOO_MUCH.number] * (10 - room)
    assert sum(held) == 0


def test_the_bounds_fit_together():
    assert LARGE_IN_FLIGHT_MAX * RECORD_BYTES_MAX + ANSWER_BYTES_PAUSE <= ANSWER_BYTES_MAX
    assert ONE_ANSWER_BYTES_MAX + ANSWER_BYTES_PAUSE <= ANSWER_BYTES_MAX <= ANSWERS_BYTES_MAX
    assert {api.name for api in APIS.values() if api.has_large_response} == {
        *("Metadata", "OffsetFetch", "DescribeGroups", "ListGroups", "DescribeConfigs", "DescribeCluster")
    }
    assert outgoing.ANSWER_BYTES_MAX is ANSWER_BYTES_MAX
