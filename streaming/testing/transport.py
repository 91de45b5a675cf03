"""The transport of members in memory: no producer, no reader and no thread.

A request goes into the coordinator's log. While a member waits for a response, its condition lets the coordinator's
time pass, so that a wait ends at once: with the response, or with the timeout.
"""

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from coordinator.messages.requests import Request
from coordinator.messages.responses import AnyAnswer
from streaming.client.transport import ResponseListener
from streaming.testing.records import Reader, Topics
from streaming.wire.inbox import Inbox

T = TypeVar("T")

INBOX = "memory"
"""The mailbox of all members: they share one transport, as the members of one process do."""


class InMemoryTransport:
    """The connection of all members to the coordinator in memory.

    Args:
        append: Called with each request.
        wait_until: Lets the time pass until a condition holds, for at most some seconds. Returns whether it holds.
    """

    inbox = INBOX

    def __init__(
        self, topics: Topics, append: Callable[[Request], None], wait_until: Callable[[Callable[[], bool], float], bool]
    ) -> None:
        self.topics, self._append, self._wait_until = topics, append, wait_until
        self._names = map(str, itertools.count(1))
        self._answers = Inbox()
        self._listeners: dict[str, ResponseListener] = {}
        self._silent: set[str] = set()

    def register(self, listener: ResponseListener, patience_ms: int = 0) -> str:
        """Register a receiver of responses and deadlines. Return the prefix with which its request ids must begin.

        Args:
            patience_ms: Not used: all requests are accepted.
        """
        name = next(self._names)
        self._listeners[name] = listener
        self._answers.open_mailbox(name, lambda answer: self._receive(name, answer))
        return f"{name}."

    def unregister(self, prefix: str) -> None:
        """Unregister the owner of this prefix."""
        name = prefix.removesuffix(".")
        self._listeners.pop(name, None)
        self._silent.discard(name)
        self._answers.close_mailbox(name)

    def send(self, request: Request) -> None:
        """Append a request to the coordinator's log. Requests of a killed or a silent member are dropped."""
        name = (request.request_id or "").partition(".")[0]
        if name in self._listeners and name not in self._silent:
            self._append(request)

    def silence(self, prefix: str, *, is_silent: bool) -> None:
        """Cut a member off from the coordinator, or connect it again."""
        (self._silent.add if is_silent else self._silent.discard)(prefix.removesuffix("."))

    def deliver(self, answer: AnyAnswer) -> None:
        """Deliver a response or a notice to its member."""
        self._answers.deliver(INBOX, answer)

    def advance(self) -> None:
        """Make each member handle the deadlines that have passed."""
        for name, listener in list(self._listeners.items()):
            if name not in self._silent:
                listener.advance()

    def condition(self) -> threading.Condition:
        """Return a condition that lets the time pass while a member waits."""
        return _PassingTime(self._wait_until)

    def record_reader(self, config: Mapping[str, Any]) -> Reader:
        """Return a reader of the records in memory."""
        return Reader(self.topics, config, lambda wait_ms: void(self._wait_until(lambda: False, wait_ms / 1000)))

    def client_host(self) -> str:
        """Return the host of all members."""
        return "/127.0.0.1"

    def close(self) -> None:
        """Stop receiving."""
        self._answers.close()

    def _receive(self, name: str, answer: AnyAnswer) -> None:
        if name not in self._silent:
            self._listeners[name].receive(answer)


def void(_: object) -> None:
    """Return nothing."""


class _PassingTime(threading.Condition):
    """A condition on which one thread waits, and lets the time pass meanwhile."""

    def __init__(self, wait_until: Callable[[Callable[[], bool], float], bool]) -> None:
        super().__init__()
        self._wait_until = wait_until

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Advance the time until the predicate holds or the timeout, in seconds, is over."""
        self.release()
        try:
            self._wait_until(lambda: bool(predicate()), float("inf") if timeout is None else timeout)
        finally:
            self.acquire()
        return predicate()


# -- errors ------------------------------------------------------------------------------------------------------------


class NotSettled(AssertionError):
    """A wait went on beyond its bound. Time in memory has no end, so that the test would hang."""
