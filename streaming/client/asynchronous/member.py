"""`AsyncGroupMember`: a `GroupMember` for asyncio."""

from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any

from kafka.errors import IllegalStateError

from streaming.client.asynchronous.worker import Startable
from streaming.client.config import configure_member
from streaming.client.member import GroupMember
from streaming.moments import monotonic_ms

Listener = Callable[[frozenset[str]], Coroutine[Any, Any, object]]

SLICE_S = 0.1
"""The longest time that a wait delays another call, seconds."""


class AsyncGroupMember(Startable):
    """Owns some of a set of resources, as long as the caller polls. For one event loop.

        async with AsyncGroupMember(["gate", "yard"], group_id="cameras", bootstrap_servers="kafka:9092") as member:
            while True:
                for camera in await member.poll(1.0): ...

    Heartbeats are sent by a thread, also while the event loop is blocked. Rebalances take place inside `poll`.

    Args:
        resources: As for `GroupMember`.
        on_assigned, on_revoked, on_lost: Coroutine functions, as the callbacks of `GroupMember`. They run on the event
            loop and must not poll.
        configs: As for `GroupMember`.

    Raises:
        KafkaConfigurationError: names the setting that is unknown, missing or out of its range.
    """

    KIND = "member"

    def __init__(
        self,
        resources: Iterable[str],
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        **configs: Any,
    ) -> None:
        configure_member(configs)
        super().__init__(configs["group_id"])
        self._resources, self._configs = resources, configs
        self._listeners = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        self._member: GroupMember | None = None

    async def stop(self) -> None:
        """Release all resources, leave the group and end the thread. If this call is cancelled, it is done all the
        same.
        """
        await self._finish(self._close)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _open(self) -> None:
        listeners = {name: self._on_loop(each) for name, each in self._listeners.items() if each is not None}
        self._member = GroupMember(self._resources, **listeners, **self._configs)

    def _on_loop(self, listener: Listener) -> Callable[[frozenset[str]], None]:
        def listen(names: frozenset[str]) -> None:
            assert self._worker is not None, "a member that listens is started"
            self._worker.listen(listener(names))

        return listen

    def _close(self) -> None:
        if self._member is not None:
            self._member.leave()

    @property
    def assignment(self) -> frozenset[str]:
        """The resources that this member owns now."""
        return self._member.assignment if self._member is not None else frozenset()

    @property
    def fencing_token(self) -> int:
        """A number to show to the system that stores the work, as of `GroupMember`; -1 while nothing is owned."""
        return self._member.fencing_token if self._member is not None else -1

    async def poll(self, timeout_s: float = 0.0) -> frozenset[str]:
        """Participate in the group for a time, and return the owned resources. Returns early if they change.

        Args:
            timeout_s: How long to wait for a change, seconds.

        Raises:
            KafkaError: the coordinator refuses this member, by its code; or a listener failed, which is the cause.
            IllegalStateError: the member is not started, or a listener calls this method.
        """
        before, deadline_s = self.assignment, monotonic_ms() / 1000 + timeout_s
        while True:
            wait_s = max(0.0, min(SLICE_S, deadline_s - monotonic_ms() / 1000))
            owned = await self._poll(wait_s)
            if owned != before or monotonic_ms() / 1000 >= deadline_s:
                return owned

    async def wait_for_assignment(self) -> frozenset[str]:
        """Wait until this member owns a resource. Bound the time with `asyncio.timeout`. Raises what `poll` raises."""
        while not (owned := await self._poll(SLICE_S)):
            continue
        return owned

    async def _poll(self, wait_s: float) -> frozenset[str]:
        if self._worker is None or self._member is None:
            raise IllegalStateError("The member is not started: use `async with`, or await `start()`")
        member = self._member
        return await self._worker.call(lambda: member.poll(wait_s), is_poll=True)
