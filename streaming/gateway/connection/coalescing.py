"""Requests to the brokers that many callers share: one runs at most, and one waits for its end.

A caller never gets the outcome of a request that had begun before it called. What such a request does not find may
have been made since.
"""

import asyncio
from collections.abc import Awaitable, Callable


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
