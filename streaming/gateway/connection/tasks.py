"""The tasks of one connection. Its requests wait for them without a delay for other connections."""

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
