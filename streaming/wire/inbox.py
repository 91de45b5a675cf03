"""The answers that come to one process on the reply topic, and who receives each of them.

A request names the address that its answer goes to (`reply_to`) and carries an id of its own (`request_id`). The inbox
matches messages with receivers. It knows no Kafka and no thread: a transport reads the reply topic and calls `deliver`.

    a message                         goes to
    an answer that is expected        the callback of `expect`, once; the request is then no longer expected
    any other answer                  the mailbox whose name its request id begins with, up to the first "."
    a notice (no request asked it)    the mailbox that the member joined through; else the mailbox named as the address
    anything else                     nobody: a repeat, an answer that came too late, or one that was never asked for

A time-out is the transport's: it calls `forget`, and the answer that comes later goes to nobody. A request that the
brokers refuse is taken back with `withdraw`, and the transport tells its callback. After `close` nothing is delivered.

Each method changes each table in one step, so that any thread may call it.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from coordinator.outputs import AnyAnswer, JoinGroupAnswer, RebalanceNotice
from streaming.wire.records import decode_answer

log = logging.getLogger(__name__)

OnAnswer = Callable[[AnyAnswer, int], object]
"""Called with an answer and the bytes of its record."""

OnMessage = Callable[[Any], object]
"""Called with each message that goes to a mailbox: a notice, or an answer."""


class Inbox:
    """Who receives the messages that come to the addresses of one process."""

    def __init__(self) -> None:
        self._expected: dict[tuple[str, str], OnAnswer] = {}
        self._mailboxes: dict[str, OnMessage] = {}
        self._joined_through: dict[str, str] = {}  # by member id, a mailbox: a notice has no request id to go by
        self._is_closed = False

    # -- answers that somebody waits for -------------------------------------------------------------------------------

    def expect(self, address: str, request_id: str, on_answer: OnAnswer) -> None:
        """Call back with the answer to one request, once."""
        self._expected[address, request_id] = on_answer

    def withdraw(self, address: str, request_id: str) -> OnAnswer | None:
        """Expect an answer no longer; returns its callback, or None where it has come or was forgotten."""
        return self._expected.pop((address, request_id), None)

    def forget(self, address: str, request_ids: Iterable[str]) -> None:
        """Expect the answers to these requests no longer; those that come later go to nobody."""
        for request_id in request_ids:
            self.withdraw(address, request_id)

    @property
    def waiting(self) -> int:
        """The number of requests whose answers are expected."""
        return len(self._expected)

    # -- mailboxes -----------------------------------------------------------------------------------------------------

    def open_mailbox(self, name: str, on_message: OnMessage) -> None:
        """Call back with every message for this mailbox that no request expects.

        Args:
            name: An address, for notices that come there; or what request ids begin with, without a "." in it.
        """
        self._mailboxes[name] = on_message

    def close_mailbox(self, name: str) -> None:
        """Deliver nothing more to a mailbox, and forget which members joined through it."""
        self._mailboxes.pop(name, None)
        for member_id in [each for each, through in list(self._joined_through.items()) if through == name]:
            self._joined_through.pop(member_id, None)

    # -- messages ------------------------------------------------------------------------------------------------------

    def deliver(self, address: str, message: AnyAnswer, size: int = 0) -> None:
        """Call back whoever is to receive a message that came to an address.

        Args:
            size: The bytes of its record.
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
        """Expect nothing and deliver nothing any more."""
        self._is_closed = True
        self._expected.clear()
        self._mailboxes.clear()
        self._joined_through.clear()

    def _name_for(self, address: str, message: AnyAnswer) -> str:
        if isinstance(message, RebalanceNotice):
            return self._joined_through.get(message.member_id, address)
        return (message.request_id or "").partition(".")[0]


def read_answer(value: bytes) -> AnyAnswer | None:
    """Read a record of the reply topic; returns None, and logs it, where this version cannot read it."""
    try:
        return decode_answer(value)
    except ValueError:
        log.warning("a reply cannot be read; is the coordinator of another version? %r", value[:200])
        return None
