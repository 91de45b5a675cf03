"""The tasks of one connection. Its requests wait for them without a delay for other connections.

Many callers share a request to the brokers: one runs at most, and one waits for its end. A caller never gets the
outcome of a request that had begun before it called. What such a request does not find may have been made since.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from streaming.gateway.connection.flow_control import Flow, Pause

T = TypeVar("T")


class Work:
    """The tasks of one connection. A failed task closes the connection."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task. Later requests do not wait for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def begin_alone(self, work: Awaitable[T], then: Callable[[T], object] = lambda _: None) -> None:
        """Start a task, and read no requests before it ends, so that they keep their order. One runs at a time.

        Args:
            then: Called with the result of the task, unless the connection is closed. It may start another one.
        """
        self._flow.stop_requests()

        async def run() -> None:
            result = await work
            if not self._flow.is_closing:
                then(result)
                self._flow.bound()
                self._flow.resume(Pause.WORK)

        self.begin(run())

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._flow.fail(error)


# -- requests that many callers share ----------------------------------------------------------------------------------


class Coalesced:
    """A request that callers share.

    The event loop calls all methods.

    Args:
        request: Sends the request, and returns when its response is stored.
    """

    def __init__(self, request: Callable[[], Awaitable[None]]) -> None:
        self._request = request
        self._running: asyncio.Task[None] | None = None
        self._waiting: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a request runs, or is about to."""
        return self._waiting is not None or (self._running is not None and not self._running.done())

    def begin(self) -> asyncio.Task[None]:
        """Return the next request. It begins after this call."""
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_task(self._run(self._running))
        return self._waiting

    async def __call__(self) -> None:
        """Wait for a request that begins after this call."""
        await asyncio.shield(self.begin())

    async def _run(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._waiting = self._waiting, None
        await self._request()
