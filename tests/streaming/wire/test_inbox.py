"""Tests of the receivers of messages at a process's addresses: each row of the module's table, and closing."""

import pytest
from msgspec import json

from coordinator.messages.responses import (
    AnyAnswer,
    AssignmentNotice,
    ConsumerGroupHeartbeatAnswer,
    HeartbeatAnswer,
    JoinGroupAnswer,
    RebalanceNotice,
)
from streaming.wire.inbox import Inbox, read_answer

HERE, THERE = "here", "there"


class Receiver:
    """A receiver that keeps the messages it was called with."""

    def __init__(self) -> None:
        self.messages: list[AnyAnswer] = []
        self.sizes: list[int] = []

    def answer(self, answer: AnyAnswer, size: int) -> None:
        self.messages.append(answer)
        self.sizes.append(size)

    def message(self, message: AnyAnswer) -> None:
        self.messages.append(message)


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


def notice(member_id: str) -> RebalanceNotice:
    return RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id=member_id)


def joined(request_id: str, member_id: str) -> JoinGroupAnswer:
    return JoinGroupAnswer(request_id=request_id, generation_id=1, member_id=member_id)


def test_a_response_goes_once_to_the_request_that_expects_it(inbox: Inbox) -> None:
    first, second = Receiver(), Receiver()
    inbox.expect(HERE, "1", first.answer)
    inbox.expect(HERE, "2", second.answer)
    for _ in range(2):  # the coordinator repeats a batch after a crash
        inbox.deliver(HERE, HeartbeatAnswer(request_id="1"), 17)
    assert (first.messages, first.sizes) == ([HeartbeatAnswer(request_id="1")], [17])
    assert second.messages == []
    assert inbox.waiting == 1


def test_a_response_at_another_address_is_not_the_expected_one(inbox: Inbox) -> None:
    receiver = Receiver()
    inbox.expect(HERE, "1", receiver.answer)
    inbox.deliver(THERE, HeartbeatAnswer(request_id="1"))
    assert receiver.messages == []
    assert inbox.waiting == 1


def test_an_unexpected_response_goes_to_the_mailbox_of_its_ids_prefix(inbox: Inbox) -> None:
    ana, bo, waiting = Receiver(), Receiver(), Receiver()
    inbox.open_mailbox("ana", ana.message)
    inbox.open_mailbox("bo", bo.message)
    inbox.expect(HERE, "ana.2", waiting.answer)
    for request_id in ("ana.1", "ana.2", "bo.1", "anabel.1", "bo", ""):
        inbox.deliver(HERE, HeartbeatAnswer(request_id=request_id))
    assert [each.request_id for each in ana.messages] == ["ana.1"]
    assert [each.request_id for each in bo.messages] == ["bo.1", "bo"]
    assert [each.request_id for each in waiting.messages] == ["ana.2"]


def test_a_notice_goes_to_the_mailbox_that_its_member_joined_through(inbox: Inbox) -> None:
    ana, bo = Receiver(), Receiver()
    inbox.open_mailbox("ana", ana.message)
    inbox.open_mailbox("bo", bo.message)
    inbox.deliver(HERE, joined("ana.1", "member-a"))
    inbox.deliver(HERE, joined("bo.1", "member-b"))
    for member_id in ("member-a", "member-b", "stranger"):
        inbox.deliver(HERE, notice(member_id))
    assert ana.messages[1:] == [notice("member-a")]
    assert bo.messages[1:] == [notice("member-b")]


def test_a_notice_of_the_consumer_protocol_goes_to_the_mailbox_that_got_the_heartbeats_response(inbox: Inbox) -> None:
    """KIP-848: a member joins with a heartbeat, and has made its id itself."""
    ana, bo = Receiver(), Receiver()
    inbox.open_mailbox("ana", ana.message)
    inbox.open_mailbox("bo", bo.message)
    inbox.deliver(HERE, ConsumerGroupHeartbeatAnswer(request_id="ana.1", member_id="member-a"))
    inbox.deliver(HERE, ConsumerGroupHeartbeatAnswer(request_id="bo.1", error="UNKNOWN_MEMBER_ID", code=25))
    news = AssignmentNotice(request_id=None, group_id="g", member_id="member-a", group_epoch=3)
    inbox.deliver(HERE, news)
    assert ana.messages[1:] == [news]
    assert len(bo.messages) == 1


def test_a_notice_for_another_member_goes_to_the_mailbox_of_its_address(inbox: Inbox) -> None:
    """A gateway does this: a connection has an address of its own, and joins are answered to its requests."""
    here, there, join = Receiver(), Receiver(), Receiver()
    inbox.open_mailbox("gateway.1", here.message)
    inbox.open_mailbox("gateway.2", there.message)
    inbox.expect("gateway.1", "1", join.answer)
    inbox.deliver("gateway.1", joined("1", "member-a"))
    inbox.deliver("gateway.1", notice("member-a"))
    inbox.deliver("gateway.1", HeartbeatAnswer(request_id="gateway"))  # a response is not a notice
    assert here.messages == [notice("member-a")]
    assert there.messages == []


def test_a_notice_is_not_the_response_to_a_request_without_an_id(inbox: Inbox) -> None:
    receiver = Receiver()
    inbox.expect(HERE, "", receiver.answer)
    inbox.deliver(HERE, notice("member-a"))
    assert receiver.messages == []


def test_a_late_response_after_a_timeout_is_dropped(inbox: Inbox) -> None:
    receiver, other = Receiver(), Receiver()
    for request_id in ("1", "2"):
        inbox.expect(HERE, request_id, receiver.answer)
    inbox.expect(THERE, "1", other.answer)
    inbox.forget(HERE, ["1", "2", "never asked"])
    for address in (HERE, THERE):
        inbox.deliver(address, HeartbeatAnswer(request_id="1"))
    assert receiver.messages == []
    assert len(other.messages) == 1
    assert inbox.waiting == 0


def test_a_request_that_is_withdrawn_returns_its_callback_once(inbox: Inbox) -> None:
    receiver = Receiver()
    inbox.expect(HERE, "1", receiver.answer)
    assert inbox.withdraw(HERE, "1") == receiver.answer
    assert inbox.withdraw(HERE, "1") is None
    inbox.deliver(HERE, HeartbeatAnswer(request_id="1"))
    assert receiver.messages == []


def test_an_answered_request_cannot_be_withdrawn(inbox: Inbox) -> None:
    inbox.expect(HERE, "1", Receiver().answer)
    inbox.deliver(HERE, HeartbeatAnswer(request_id="1"))
    assert inbox.withdraw(HERE, "1") is None


def test_a_closed_mailbox_receives_nothing_and_its_members_are_forgotten(inbox: Inbox) -> None:
    ana, bo = Receiver(), Receiver()
    inbox.open_mailbox("ana", ana.message)
    inbox.open_mailbox("bo", bo.message)
    inbox.deliver(HERE, joined("ana.1", "member-a"))
    inbox.deliver(HERE, joined("bo.1", "member-b"))
    inbox.close_mailbox("ana")
    inbox.close_mailbox("never opened")
    inbox.open_mailbox("ana", ana.message)
    for message in (notice("member-a"), notice("member-b")):
        inbox.deliver(HERE, message)
    assert ana.messages == [joined("ana.1", "member-a")]
    assert bo.messages[1:] == [notice("member-b")]


def test_after_close_nothing_is_delivered(inbox: Inbox) -> None:
    receiver = Receiver()
    inbox.open_mailbox("ana", receiver.message)
    inbox.expect(HERE, "1", receiver.answer)
    inbox.close()
    inbox.expect(HERE, "2", receiver.answer)
    for request_id in ("1", "2", "ana.1"):
        inbox.deliver(HERE, HeartbeatAnswer(request_id=request_id))
    assert receiver.messages == []


def test_a_callback_may_use_the_inbox(inbox: Inbox) -> None:
    """A response often leads to the next request, or closes a mailbox."""
    receiver = Receiver()

    def ask_again(answer: AnyAnswer, size: int) -> None:
        inbox.expect(HERE, "1", receiver.answer)

    inbox.expect(HERE, "1", ask_again)
    for _ in range(2):
        inbox.deliver(HERE, HeartbeatAnswer(request_id="1"))
    assert len(receiver.messages) == 1


def test_an_unreadable_reply_is_logged_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    assert read_answer(b"no reply") is None
    assert "cannot be read" in caplog.text
    assert read_answer(json.encode(HeartbeatAnswer(request_id="1"))) == HeartbeatAnswer(request_id="1")
