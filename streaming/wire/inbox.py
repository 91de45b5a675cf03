"""The responses that come to the mailboxes of one process, and the receiver of each of them.

A request contains the mailbox for its response (`reply_to`) and its own id (`request_id`). The inbox matches messages
with callbacks. It uses no Kafka client and no thread: a transport reads the reply topic and calls `deliver`.

    a message                         calls
    a response that is expected       the callback of `expect`, once; the request is then no longer expected
    any other response                the callback of `open_mailbox` for the beginning of its request id, up to a "."
    responses in one record           each as above; to heartbeats that were sent in one record
    a notice (without a request)      the callback of `open_mailbox` that got the response to the member's join or to
                                      its heartbeat of the consumer protocol; without one, that for the mailbox
    anything else                     no callback: a repeat, a late response, or one that was never requested

The transport handles timeouts: it calls `forget`, and a later response calls no callback. If the brokers refuse a
request, the transport removes its callback with `withdraw`, and calls it. After `close` nothing is delivered.

Each method changes each table in one step, so any thread may call it.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from coordinator.base.errors import name_of
from coordinator.messages.responses import (
    AnyAnswer,
    AssignmentNotice,
    ConsumerGroupHeartbeatAnswer,
    HeartbeatAnswer,
    HeartbeatsAnswer,
    JoinGroupAnswer,
    RebalanceNotice,
)
from streaming.wire.records import decode_answer

log = logging.getLogger(__name__)

OnAnswer = Callable[[AnyAnswer, int], object]
"""Called with a response and the bytes of its record."""

OnMessage = Callable[[Any], object]
"""Called with a notice, or with a response that no request expects."""

NOTICES = (AssignmentNotice, RebalanceNotice)


class Inbox:
    """The callbacks for the messages that come to the mailboxes of one process."""

    def __init__(self) -> None:
        self._expected: dict[tuple[str, str], tuple[OnAnswer, object]] = {}
        self._mailboxes: dict[str, OnMessage] = {}
        self._joined_through: dict[str, str] = {}  # by member id, a name in `_mailboxes`: a notice has no request id
        self._is_closed = False

    # -- expected responses --------------------------------------------------------------------------------------------

    def expect(self, mailbox: str, request_id: str, on_answer: OnAnswer, home: object = None) -> None:
        """Register a callback for the response to one request. It is called once.

        Args:
            home: Where the request was sent; `expected` returns it.
        """
        self._expected[mailbox, request_id] = on_answer, home

    def withdraw(self, mailbox: str, request_id: str) -> OnAnswer | None:
        """Remove the callback of a request and return it; None if the response has come or was forgotten."""
        expected = self._expected.pop((mailbox, request_id), None)
        return None if expected is None else expected[0]

    def forget(self, mailbox: str, request_ids: Iterable[str]) -> None:
        """Remove the callbacks of these requests. Later responses to them call no callback."""
        for request_id in request_ids:
            self.withdraw(mailbox, request_id)

    def expected(self) -> list[tuple[tuple[str, str], Any]]:
        """Return the mailbox and the id of each request whose response is expected, with its home."""
        return [(asked, home) for asked, (_, home) in list(self._expected.items())]

    @property
    def waiting(self) -> int:
        """The number of requests whose responses are expected."""
        return len(self._expected)

    # -- mailboxes -----------------------------------------------------------------------------------------------------

    def open_mailbox(self, name: str, on_message: OnMessage) -> None:
        """Register a callback for messages that no request expects.

        Args:
            name: A mailbox, for the notices that come to it; or the beginning of request ids, without a ".".
        """
        self._mailboxes[name] = on_message

    def close_mailbox(self, name: str) -> None:
        """Remove the callback of this name, and the members whose responses it got."""
        self._mailboxes.pop(name, None)
        for member_id in [each for each, through in list(self._joined_through.items()) if through == name]:
            self._joined_through.pop(member_id, None)

    # -- messages ------------------------------------------------------------------------------------------------------

    def deliver(self, mailbox: str, message: AnyAnswer, size: int = 0) -> None:
        """Call the callback for a message that came to a mailbox.

        Args:
            size: The bytes of the message's record.
        """
        if self._is_closed:
            return
        is_notice = isinstance(message, NOTICES)
        if not is_notice and (on_answer := self.withdraw(mailbox, message.request_id or "")) is not None:
            on_answer(message, size)
            return
        if isinstance(message, HeartbeatsAnswer):
            for request_id, code in zip(message.request_ids, message.codes, strict=True):
                self.deliver(mailbox, HeartbeatAnswer(request_id=request_id, error=name_of(code), code=code))
            return
        name = self._name_for(mailbox, message)
        if (on_message := self._mailboxes.get(name)) is None:
            return
        if isinstance(message, JoinGroupAnswer | ConsumerGroupHeartbeatAnswer) and message.member_id:
            self._joined_through[message.member_id] = name
        on_message(message)

    def close(self) -> None:
        """Remove all callbacks. Nothing is delivered any more."""
        self._is_closed = True
        self._expected.clear()
        self._mailboxes.clear()
        self._joined_through.clear()

    def _name_for(self, mailbox: str, message: AnyAnswer) -> str:
        if isinstance(message, NOTICES):
            return self._joined_through.get(message.member_id, mailbox)
        return (message.request_id or "").partition(".")[0]


def read_answer(value: bytes) -> AnyAnswer | None:
    """Return the response in a record of the reply topic. Log an unreadable record and return None."""
    try:
        return decode_answer(value)
    except ValueError:
        log.warning("a reply cannot be read; is the coordinator of another version? %r", value[:200])
        return None
