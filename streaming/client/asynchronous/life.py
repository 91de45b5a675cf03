"""The start and the end of an asynchronous member."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Self

from kafka.errors import IllegalStateError

from streaming.client.asynchronous.worker import Worker


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
