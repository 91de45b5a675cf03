"""Who receives a message that comes to one of a process's addresses: each row of the module's table, and its ends."""

import pytest
from msgspec import json

from coordinator.outputs import AnyAnswer, HeartbeatAnswer, JoinGroupAnswer, RebalanceNotice
from streaming.wire.inbox import Inbox, read_answer

HERE, THERE = "here", "there"


class Heard:
    """What one receiver was called with."""

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


def test_an_answer_goes_once_to_the_request_that_expects_it(inbox: Inbox) -> None:
    first, second = Heard(), Heard()
    inbox.expect(HERE, "1", first.answer)
    inbox.expect(HERE, "2", second.answer)
    for _ in range(2):  # the coordinator repeats a batch after a crash
        inbox.deliver(HERE, HeartbeatAnswer(request_id="1"), 17)
    assert (first.messages, first.sizes) == ([HeartbeatAnswer(request_id="1")], [17])
    assert second.messages == []
    assert inbox.waiting == 1


def test_an_answer_at_another_address_is_not_the_one_that_is_expected(inbox: Inbox) -> None:
    heard = Heard()
    inbox.expect(HERE, "1", heard.answer)
    inbox.deliver(THERE, HeartbeatAnswer(request_id="1"))
    assert heard.messages == []
    assert inbox.waiting == 1


def test_an_answer_that_no_request_expects_goes_to_the_mailbox_that_its_id_begins_with(inbox: Inbox) -> None:
    ana, bo, waiting = Heard(), Heard(), Heard()
    inbox.open_mailbox("ana", ana.message)
    inbox.open_mailbox("bo", bo.message)
    inbox.expect(HERE, "ana.2", waiting.answer)
    for request_id in ("ana.1", "ana.2", "bo.1", "anabel.1", "bo", ""):
        inbox.deliver(HERE, HeartbeatAnswer(request_id=request_id))
    assert [each.request_id for each in ana.messages] == ["ana.1"]
    assert [each.request_id for each in bo.messages] == ["bo.1", "bo"]
    assert [each.request_id for each in waiting.messages] == ["ana.2"]


def test_a_notice_goes_to_the_mailbox_that_its_member_joined_through(inbox: Inbox) -> None:
    ana, bo = Heard(), Heard()
    inbox.open_mailbox("ana", ana.message)
    inbox.open_mailbox("bo", bo.message)
    inbox.deliver(HERE, joined("ana.1", "member-a"))
    inbox.deliver(HERE, joined("bo.1", "member-b"))
    for member_id in ("member-a", "member-b", "stranger"):
        inbox.deliver(HERE, notice(member_id))
    assert ana.messages[1:] == [notice("member-a")]
    assert bo.messages[1:] == [notice("member-b")]


def test_a_notice_for_another_member_goes_to_the_mailbox_of_its_address(inbox: Inbox) -> None:
    """As at a gateway, where a connection has an address of its own and its joins are answered to its requests."""
    here, there, join = Heard(), Heard(), Heard()
    inbox.open_mailbox("gateway.1", here.message)
    inbox.open_mailbox("gateway.2", there.message)
    inbox.expect("gateway.1", "1", join.answer)
    inbox.deliver("gateway.1", joined("1", "member-a"))
    inbox.deliver("gateway.1", notice("member-a"))
    inbox.deliver("gateway.1", HeartbeatAnswer(request_id="gateway"))  # an answer is no notice
    assert here.messages == [notice("member-a")]
    assert there.messages == []


def test_a_notice_is_not_the_answer_to_a_request_without_an_id(inbox: Inbox) -> None:
    heard = Heard()
    inbox.expect(HERE, "", heard.answer)
    inbox.deliver(HERE, notice("member-a"))
    assert heard.messages == []


def test_after_a_timeout_a_late_answer_goes_to_nobody(inbox: Inbox) -> None:
    heard, other = Heard(), Heard()
    for request_id in ("1", "2"):
        inbox.expect(HERE, request_id, heard.answer)
    inbox.expect(THERE, "1", other.answer)
    inbox.forget(HERE, ["1", "2", "never asked"])
    for address in (HERE, THERE):
        inbox.deliver(address, HeartbeatAnswer(request_id="1"))
    assert heard.messages == []
    assert len(other.messages) == 1
    assert inbox.waiting == 0


def test_a_request_that_is_withdrawn_returns_its_callback_once(inbox: Inbox) -> None:
    heard = Heard()
    inbox.expect(HERE, "1", heard.answer)
    assert inbox.withdraw(HERE, "1") == heard.answer
    assert inbox.withdraw(HERE, "1") is None
    inbox.deliver(HERE, HeartbeatAnswer(request_id="1"))
    assert heard.messages == []


def test_an_answered_request_cannot_be_withdrawn(inbox: Inbox) -> None:
    inbox.expect(HERE, "1", Heard().answer)
    inbox.deliver(HERE, HeartbeatAnswer(request_id="1"))
    assert inbox.withdraw(HERE, "1") is None


def test_a_closed_mailbox_receives_nothing_and_its_members_are_forgotten(inbox: Inbox) -> None:
    ana, bo = Heard(), Heard()
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
    heard = Heard()
    inbox.open_mailbox("ana", heard.message)
    inbox.expect(HERE, "1", heard.answer)
    inbox.close()
    inbox.expect(HERE, "2", heard.answer)
    for request_id in ("1", "2", "ana.1"):
        inbox.deliver(HERE, HeartbeatAnswer(request_id=request_id))
    assert heard.messages == []


def test_a_callback_may_use_the_inbox(inbox: Inbox) -> None:
    """An answer often leads to the next request, or to a mailbox being closed."""
    heard = Heard()

    def ask_again(answer: AnyAnswer, size: int) -> None:
        inbox.expect(HERE, "1", heard.answer)

    inbox.expect(HERE, "1", ask_again)
    for _ in range(2):
        inbox.deliver(HERE, HeartbeatAnswer(request_id="1"))
    assert len(heard.messages) == 1


def test_a_reply_that_cannot_be_read_is_logged_and_goes_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    assert read_answer(b"no reply") is None
    assert "cannot be read" in caplog.text
    assert read_answer(json.encode(HeartbeatAnswer(request_id="1"))) == HeartbeatAnswer(request_id="1")
