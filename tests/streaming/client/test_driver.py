"""Tests of the driver between its two threads: sent requests, their order, and effects that wait for the owner."""

import threading

import pytest
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from coordinator.base.errors import ErrorCode
from coordinator.member.effects import Assigned, CommitEnded, Failed, PartitionsLost, PrepareToJoin, RejoinNeeded
from coordinator.member.member import MemberState
from coordinator.member.requests import MemberConfig
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetToCommit,
    Protocol,
    Request,
    SyncGroup,
)
from coordinator.messages.responses import (
    AnyAnswer,
    HeartbeatAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    OffsetCommitAnswer,
    SyncGroupAnswer,
)
from streaming.client import driver as module
from streaming.client.driver import Driver

CONFIG = MemberConfig(group_id="g", reply_to="inbox", client_id="me")
OFFSETS = (OffsetToCommit("t", 0, 1),)


class Transport:
    """A transport that keeps sent requests; a test sends the responses itself."""

    def __init__(self) -> None:
        self.sent: list[Request] = []
        self.refuses: Exception | None = None
        self.registered = 0

    def condition(self) -> threading.Condition:
        return threading.Condition()

    def register(self, driver: Driver, patience_ms: int) -> str:
        self.registered += 1
        return "1."

    def unregister(self, prefix: str) -> None:
        assert prefix == "1."
        self.registered -= 1

    def send(self, request: Request) -> None:
        if self.refuses:
            raise self.refuses
        self.sent.append(request)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now_ms = [0]
    monkeypatch.setattr(module, "monotonic_ms", lambda: now_ms[0])
    return now_ms


@pytest.fixture
def transport() -> Transport:
    return Transport()


@pytest.fixture
def driver(transport: Transport, clock: list[int]) -> Driver:
    return Driver(transport, CONFIG)  # type: ignore[arg-type]


def answer(driver: Driver, transport: Transport, kind: type[AnyAnswer], **fields: object) -> None:
    driver.receive(kind(request_id=transport.sent[-1].request_id, **fields))  # type: ignore[arg-type]


def make_stable(driver: Driver, transport: Transport) -> None:
    driver.subscribe()
    assert isinstance(driver.poll(), RejoinNeeded)
    assert isinstance(driver.poll(), PrepareToJoin)
    driver.join([Protocol("range", b"")])
    answer(driver, transport, JoinGroupAnswer, generation_id=1, protocol_type="consumer", protocol_name="range",
           leader="another", member_id="me-1")  # fmt: skip
    answer(driver, transport, SyncGroupAnswer, protocol_type="consumer", protocol_name="range", assignment=b"x",
           fencing_token=8)  # fmt: skip


def test_requests_are_sent_and_other_effects_wait_in_order(driver: Driver, transport: Transport) -> None:
    make_stable(driver, transport)
    assert [type(request) for request in transport.sent] == [JoinGroup, SyncGroup]
    assert driver.poll() == Assigned(1, "range", b"x", 8)
    assert driver.poll() is None


def test_heartbeats_are_sent_as_time_passes(driver: Driver, transport: Transport, clock: list[int]) -> None:
    make_stable(driver, transport)
    clock[0] = CONFIG.heartbeat_interval_ms - 1
    driver.advance()
    assert not isinstance(transport.sent[-1], Heartbeat)
    clock[0] += 1
    driver.advance()
    assert isinstance(transport.sent[-1], Heartbeat)
    answer(driver, transport, HeartbeatAnswer, code=ErrorCode.UNKNOWN_MEMBER_ID.number, error="UNKNOWN_MEMBER_ID")
    assert [type(driver.poll()) for _ in range(4)] == [Assigned, PartitionsLost, PrepareToJoin, type(None)]
    assert driver.member.state is MemberState.UNJOINED


def test_waiting_for_a_commit_returns_only_its_result(driver: Driver, transport: Transport) -> None:
    make_stable(driver, transport)
    first, second = driver.commit(OFFSETS), driver.commit(OFFSETS)
    answer(driver, transport, OffsetCommitAnswer)
    assert driver.ended(second, wait_s=0) == CommitEnded(second, 0, "NONE")
    assert driver.ended(first, wait_s=0) is None
    driver.receive(OffsetCommitAnswer(request_id=transport.sent[-2].request_id))
    assert isinstance(driver.poll(), Assigned)
    assert driver.poll() is None, "a commit that no caller waits for has no effect"


def test_a_response_wakes_the_owner(driver: Driver, transport: Transport) -> None:
    make_stable(driver, transport)
    ticket = driver.commit(OFFSETS)
    assert isinstance(transport.sent[-1], OffsetCommit)
    threading.Timer(0.01, answer, (driver, transport, OffsetCommitAnswer)).start()
    assert driver.ended(ticket, wait_s=30) == CommitEnded(ticket, 0, "NONE")


def test_leaving_waits_for_the_coordinators_response(driver: Driver, transport: Transport) -> None:
    assert driver.leave("never came", wait_s=0), "no LeaveGroup is needed"
    make_stable(driver, transport)
    assert not driver.leave("closed", wait_s=0)
    assert isinstance(transport.sent[-1], LeaveGroup)
    driver.receive(LeaveGroupAnswer(request_id=transport.sent[-1].request_id))
    driver.close()
    assert transport.registered == 0


def test_a_request_to_an_unreachable_broker_is_retried(driver: Driver, transport: Transport, clock: list[int]) -> None:
    driver.subscribe()
    transport.refuses = KafkaTimeoutError("no metadata")
    while driver.poll() is not None:
        pass
    driver.join([Protocol("range", b"")])
    transport.refuses = None
    clock[0] = CONFIG.request_timeout_ms
    driver.advance()
    assert [type(request) for request in transport.sent] == [JoinGroup]


def test_a_request_that_is_too_large_is_reported_to_the_owner(driver: Driver, transport: Transport) -> None:
    driver.subscribe()
    transport.refuses = MessageSizeTooLargeError("2 MB")
    while driver.poll() is not None:
        pass
    driver.join([Protocol("range", b"")])
    failed = driver.poll()
    assert isinstance(failed, Failed)
    assert (failed.code, failed.error) == (10, "MessageSizeTooLargeError")
