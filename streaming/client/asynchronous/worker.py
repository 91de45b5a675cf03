"""The thread of one asynchronous member: its calls run there one after the other, and its listeners on the event loop.

While a listener runs, the thread waits for it, and runs the calls that the listener makes meanwhile, such as a commit.
Polls wait until the listener has ended. A cancelled caller does not stop its call: the call ends, and later calls come
behind it.
"""

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from kafka.errors import IllegalStateError

T = TypeVar("T")

CALLS_MAX = 1_000
"""The most calls of one member that wait for its thread."""

LOOP_CHECK_S = 0.1
"""How often the thread checks, while a listener runs, that the event loop is not closed."""

_listening: ContextVar[bool] = ContextVar("listening", default=False)


class _Call(NamedTuple):
    run: Callable[[], Any]
    ended: asyncio.Future[Any] | None
    is_poll: bool = False
    is_last: bool = False


_WAKE = _Call(lambda: None, None)


class Worker:
    """A thread that ends after `finish`, or with the process.

    Args:
        loop: The event loop of the callers and of the listeners.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._deferred: deque[_Call] = deque()
        self._last: asyncio.Future[Any] | None = None
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    # -- on the event loop ---------------------------------------------------------------------------------------------

    async def call(self, run: Callable[[], T], *, is_poll: bool = False) -> T:
        """Run a call on the thread and return its result. If the caller is cancelled, the call goes on to its end.

        Args:
            is_poll: The call may call listeners, so that it must not run inside one.

        Raises:
            IllegalStateError: a listener polls, the worker has finished, or `CALLS_MAX` calls wait already.
        """
        if is_poll:
            refuse_in_listener()
        if self._last is not None and (self._last.done() or not _listening.get()):
            raise IllegalStateError("The member is stopped")
        if self._calls.qsize() >= CALLS_MAX:
            raise IllegalStateError(f"{CALLS_MAX} calls wait for this member already: await each of them")
        ended: asyncio.Future[T] = self._loop.create_future()
        self._calls.put(_Call(run, ended, is_poll))
        return await ended

    async def finish(self, run: Callable[[], object]) -> None:
        """Run a last call and end the thread. If the caller is cancelled, both are done all the same."""
        if self._last is None:
            self._last = self._loop.create_future()
            self._calls.put(_Call(run, self._last, is_poll=True, is_last=True))
        await asyncio.shield(self._last)

    # -- on the thread -------------------------------------------------------------------------------------------------

    def listen(self, listener: Coroutine[Any, Any, object]) -> None:
        """Run a listener on the event loop and wait for its end, while other calls run here. Raises its error."""
        try:
            listening = asyncio.run_coroutine_threadsafe(_marked(listener), self._loop)
        except RuntimeError:
            listener.close()
            raise
        listening.add_done_callback(lambda _: self._calls.put(_WAKE))
        while not listening.done():
            try:
                call = self._calls.get(timeout=LOOP_CHECK_S)
            except queue.Empty:
                if self._loop.is_closed():
                    raise IllegalStateError("The event loop was closed before the member was stopped") from None
                continue
            if call.is_poll:
                self._deferred.append(call)
            else:
                self._perform(call)
        listening.result()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            call = self._deferred.popleft() if self._deferred else self._calls.get()
            self._perform(call)
            is_last = call.is_last

    def _perform(self, call: _Call) -> None:
        try:
            result = call.run()
        except BaseException as error:
            self._settle(call.ended, None, error)
        else:
            self._settle(call.ended, result, None)

    def _settle(self, ended: asyncio.Future[Any] | None, result: Any, error: BaseException | None) -> None:
        if ended is not None:
            with suppress(RuntimeError):  # the loop is closed, so that no caller waits
                self._loop.call_soon_threadsafe(_end, ended, result, error)


def refuse_in_listener() -> None:
    """Raise an IllegalStateError inside a listener, where a poll would wait for itself."""
    if _listening.get():
        raise IllegalStateError("A listener must not poll: return from it, and the poll that called it goes on")


async def _marked(listener: Coroutine[Any, Any, object]) -> None:
    _listening.set(True)
    await listener


def _end(ended: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if ended.done():  # the caller was cancelled
        return
    if error is None:
        ended.set_result(result)
    else:
        ended.set_exception(error)


# -- start and end -----------------------------------------------------------------------------------------------------


class Startable(ABC):
    """A member whose thread begins with `start`, and ends with `stop` of the class that derives from this one.

    Args:
        group_id: A part of the thread's name.
    """

    KIND: ClassVar[str]

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._worker: Worker | None = None

    @abstractmethod
    def _open(self) -> None:
        """Make the member, on the thread."""

    @abstractmethod
    def _close(self) -> None:
        """Close the member, if it was made, on the thread."""

    async def start(self) -> None:
        """Connect, and join the group with the first poll.

        Raises:
            BrokerUnreachable, NoCoordinator: no broker answers, or the coordinator's topics do not exist.
            IllegalStateError: the member was started before.
        """
        if self._worker is not None:
            raise IllegalStateError(f"The {self.KIND} was started before: make a new one")
        self._worker = Worker(asyncio.get_running_loop(), f"{self.KIND} of {self._group_id}")
        try:
            await self._worker.call(self._open)
        except BaseException:
            await self._worker.finish(self._close)
            raise

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def _finish(self, close: Callable[[], object]) -> None:
        if self._worker is not None:
            await self._worker.finish(close)
