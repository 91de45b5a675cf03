"""The responses that come to one process on the reply topic, and the receiver of each of them.

A request names the address of its response (`reply_to`) and carries an id of its own (`request_id`). The inbox matches
messages with receivers. It uses no Kafka client and no thread: a transport reads the reply topic and calls `deliver`.

    a message                         goes to
    a response that is expected       the callback of `expect`, once; the request is then no longer expected
    any other response                the mailbox whose name its request id begins with, up to the first "."
    a notice (without a request)      the mailbox that the member joined through; else the mailbox named as the address
    anything else                     nobody: a repeat, a late response, or one that was never requested

The transport handles timeouts: it calls `forget`, and a later response goes to nobody. A request that the brokers
refuse is taken back with `withdraw`, and the transport calls its callback. After `close` nothing is delivered.

Each method changes each table in one step, so any thread may call it.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from coordinator.outputs import AnyAnswer, JoinGroupAnswer, RebalanceNotice
from streaming.wire.records import decode_answer

log = logging.getLogger(__name__)

OnAnswer = Callable[[AnyAnswer, int], object]
"""Called with a response and the bytes of its record."""

OnMessage = Callable[[Any], object]
"""Called with each message that goes to a mailbox: a notice, or a response."""


class Inbox:
    """The receivers of the messages that come to the addresses of one process."""

    def __init__(self) -> None:
        self._expected: dict[tuple[str, str], OnAnswer] = {}
        self._mailboxes: dict[str, OnMessage] = {}
        self._joined_through: dict[str, str] = {}  # by member id, a mailbox: a notice has no request id
        self._is_closed = False

    # -- expected responses --------------------------------------------------------------------------------------------

    def expect(self, address: str, request_id: str, on_answer: OnAnswer) -> None:
        """Register a callback for the response to one request. It is called once."""
        self._expected[address, request_id] = on_answer

    def withdraw(self, address: str, request_id: str) -> OnAnswer | None:
        """Remove the callback of a request and return it; None where the response has come or was forgotten."""
        return self._expected.pop((address, request_id), None)

    def forget(self, address: str, request_ids: Iterable[str]) -> None:
        """Remove the callbacks of these requests. Later responses to them go to nobody."""
        for request_id in request_ids:
            self.withdraw(address, request_id)

    @property
    def waiting(self) -> int:
        """The number of requests whose responses are expected."""
        return len(self._expected)

    # -- mailboxes -----------------------------------------------------------------------------------------------------

    def open_mailbox(self, name: str, on_message: OnMessage) -> None:
        """Register a callback for every message to this mailbox that no request expects.

        Args:
            name: An address, for the notices that come there; or the beginning of request ids, without a "." in it.
        """
        self._mailboxes[name] = on_message

    def close_mailbox(self, name: str) -> None:
        """Remove a mailbox and its callback, and forget which members joined through it."""
        self._mailboxes.pop(name, None)
        for member_id in [each for each, through in list(self._joined_through.items()) if through == name]:
            self._joined_through.pop(member_id, None)

    # -- messages ------------------------------------------------------------------------------------------------------

    def deliver(self, address: str, message: AnyAnswer, size: int = 0) -> None:
        """Call the receiver of a message that came to an address.

        Args:
            size: The bytes of the message's record.
        """
        if self._is_closed:
            return
        is_notice = isinstance(message, RebalanceNotice)
        if not is_notice and (on_answer := self.withdraw(address, message.request_id or "")) is not None:
            on_answer(message, size)
            return
        name = self._name_for(address, message)
        if (on_message := self._mailboxes.get(name)) is None:
            return
        if isinstance(message, JoinGroupAnswer):
            self._joined_through[message.member_id] = name
        on_message(message)

    def close(self) -> None:
        """Remove all callbacks. Nothing is delivered any more."""
        self._is_closed = True
        self._expected.clear()
        self._mailboxes.clear()
        self._joined_through.clear()

    def _name_for(self, address: str, message: AnyAnswer) -> str:
        if isinstance(message, RebalanceNotice):
            return self._joined_through.get(message.member_id, address)
        return (message.request_id or "").partition(".")[0]


def read_answer(value: bytes) -> AnyAnswer | None:
    """Return the response in a record of the reply topic. Log an unreadable record and return None."""
    try:
        return decode_answer(value)
    except ValueError:
        log.warning("a reply cannot be read; is the coordinator of another version? %r", value[:200])
        return None
