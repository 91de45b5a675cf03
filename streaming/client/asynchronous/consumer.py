"""`AsyncGroupConsumer`: a `GroupConsumer` for asyncio, with the calls of aiokafka's consumer."""

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.errors import IllegalStateError

from streaming.client.asynchronous.worker import Startable, Worker, refuse_in_listener
from streaming.client.config import configure_consumer
from streaming.client.consumer import GroupConsumer
from streaming.client.partition_reader import Offsets, Records
from streaming.moments import monotonic_ms

T = TypeVar("T")

SLICE_MS = 100
"""The longest time that a wait for records delays another call, such as a commit, milliseconds."""


class _Fetch:
    """The result of one poll; None until it has ended."""

    records: Records | None = None


class AsyncListener(Protocol):
    """The callbacks, on the event loop. `on_partitions_lost` may be missing; then `on_partitions_revoked` is called."""

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Save the work on partitions that are still owned."""

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Start the work on new partitions."""


class AsyncGroupConsumer(Startable):
    """Consumes topics together with the other members of a group, for one event loop.

        async with AsyncGroupConsumer("orders", group_id="billing", bootstrap_servers="kafka:9092") as consumer:
            async for record in consumer: ...

    Heartbeats are sent by a thread, also while the event loop is blocked. A rebalance takes place inside `getmany`,
    `getone` and `async for`: a consumer that calls none of them for `max_poll_interval_ms` leaves its group.

    Args:
        topics: The topics to subscribe to; or call `subscribe`.
        listener: Its coroutines run on the event loop. They may commit and seek, but not poll.
        configs: As for `GroupConsumer`.

    Raises:
        KafkaConfigurationError: names the setting that is unknown, missing or out of its range.
    """

    KIND = "consumer"

    def __init__(self, *topics: str, listener: AsyncListener | None = None, **configs: Any) -> None:
        configure_consumer(configs)
        super().__init__(configs["group_id"])
        self._topics, self._listener, self._configs = topics, listener, configs
        self._consumer: GroupConsumer | None = None
        self._is_polling = False
        self._undelivered: list[_Fetch] = []

    # -- life ----------------------------------------------------------------------------------------------------------

    async def stop(self, *, autocommit: bool = True) -> None:
        """Commit if that is automatic, leave the group, and end the thread. If this call is cancelled, it is done
        all the same. Records that a cancelled `getmany` has fetched are not committed.
        """
        await self._finish(lambda: self._close(autocommit=autocommit))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(autocommit=kind is None)  # records whose processing failed must not be committed

    def _open(self) -> None:
        self._consumer = GroupConsumer(**self._configs)
        if self._topics:
            self._consumer.subscribe(self._topics, listener=self._on_loop(self._listener))

    def _close(self, *, autocommit: bool = True) -> None:
        if self._consumer is not None:
            self._give_back(self._consumer)
            self._consumer.close(autocommit=autocommit)

    # -- subscribing ---------------------------------------------------------------------------------------------------

    async def subscribe(
        self, topics: Iterable[str] = (), pattern: str | None = None, listener: AsyncListener | None = None
    ) -> None:
        """Subscribe to topics, in place of the previous subscription. Raises what `GroupConsumer.subscribe` raises."""
        names = [topics] if isinstance(topics, str) else list(topics)
        await self._do(lambda consumer: consumer.subscribe(names, pattern, self._on_loop(listener)))

    async def unsubscribe(self) -> None:
        """Release all partitions and leave the group."""
        await self._do(GroupConsumer.unsubscribe, is_poll=True)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this member owns now."""
        return self._consumer.assignment() if self._consumer is not None else set()

    @property
    def fencing_token(self) -> int:
        """A number to show to the system that stores the work, as of `GroupConsumer`; -1 while nothing is owned."""
        return self._consumer.fencing_token if self._consumer is not None else -1

    def _on_loop(self, listener: AsyncListener | None) -> "_OnLoop | None":
        return None if listener is None or self._worker is None else _OnLoop(listener, self._worker)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> Records:
        """Return records, or nothing after the timeout. If the call is cancelled, the next one returns its records.

        Args:
            partitions: Return records of these partitions only; of all partitions unless given.
            timeout_ms: How long to wait for records, milliseconds.
            max_records: The most records to return; `max_poll_records` unless given.

        Raises:
            KafkaError: the coordinator refuses this member, by its code; or a listener failed, which is the cause.
            IllegalStateError: a listener calls it, or another call waits for records.
        """
        deadline_ms = monotonic_ms() + timeout_ms
        while True:
            wait_ms = max(0.0, min(SLICE_MS, deadline_ms - monotonic_ms()))
            records = await self._poll(wait_ms, max_records, frozenset(partitions))
            if records or monotonic_ms() >= deadline_ms:
                return records

    async def getone(self, *partitions: TopicPartition) -> Any:
        """Wait for the next record, of these partitions if any are given, and return it. Raises what `getmany` does."""
        while not (records := await self.getmany(*partitions, timeout_ms=SLICE_MS, max_records=1)):
            continue
        (batch,) = records.values()
        return batch[0]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self.getone()

    async def _poll(self, wait_ms: float, max_records: int | None, partitions: frozenset[TopicPartition]) -> Records:
        consumer, worker = self._started()
        refuse_in_listener()
        if self._is_polling:
            raise IllegalStateError("Another call waits for records of this consumer")
        fetch = _Fetch()

        def run() -> Records:
            self._give_back(consumer)
            fetch.records = _read(consumer, wait_ms, max_records, partitions)
            return fetch.records

        self._is_polling = True
        try:
            return await worker.call(run, is_poll=True)
        except asyncio.CancelledError:
            self._undelivered.append(fetch)
            raise
        finally:
            self._is_polling = False

    def _give_back(self, consumer: GroupConsumer) -> None:
        """Set the positions back to records that no caller has received, before they could be committed."""
        for fetch in [each for each in self._undelivered if each.records is not None]:
            self._undelivered.remove(fetch)
            for partition, records in (fetch.records or {}).items():
                if partition in consumer.assignment():
                    consumer.seek(partition, records[0].offset)

    async def pause(self, *partitions: TopicPartition) -> None:
        """Exclude partitions from `getmany` until they are resumed or given up. This member still owns them.

        Raises:
            IllegalStateError: this member does not own one of them.
        """
        await self._do(lambda consumer: consumer.pause(*partitions))

    async def resume(self, *partitions: TopicPartition) -> None:
        """Include paused partitions in `getmany` again. Raises what `pause` raises."""
        await self._do(lambda consumer: consumer.resume(*partitions))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return self._consumer.paused() if self._consumer is not None else set()

    # -- positions and offsets -----------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record. Raises what `GroupConsumer.position` raises."""
        return await self._do(lambda consumer: consumer.position(partition))

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset of the next record in a partition."""
        await self._do(lambda consumer: consumer.seek(partition, offset))

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit offsets and wait for the response. If the call is cancelled, the commit goes on to its end.

        Raises what `GroupConsumer.commit` raises.
        """
        await self._do(lambda consumer: consumer.commit(offsets))

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset of a partition; None if nothing is committed."""
        return await self._do(lambda consumer: consumer.committed(partition))

    async def _do(self, run: Callable[[GroupConsumer], T], *, is_poll: bool = False) -> T:
        consumer, worker = self._started()

        def call() -> T:
            self._give_back(consumer)
            return run(consumer)

        return await worker.call(call, is_poll=is_poll)

    def _started(self) -> tuple[GroupConsumer, Worker]:
        if self._worker is None or self._consumer is None:
            raise IllegalStateError("The consumer is not started: use `async with`, or await `start()`")
        return self._consumer, self._worker


def _read(
    consumer: GroupConsumer, wait_ms: float, max_records: int | None, partitions: frozenset[TopicPartition]
) -> Records:
    """Poll once. If partitions are given, leave the records of all others for a later poll."""
    if not partitions:
        return consumer.poll(wait_ms, max_records)
    others = consumer.assignment() - consumer.paused() - partitions
    consumer.pause(*others)
    try:
        records = consumer.poll(wait_ms, max_records)
    finally:
        consumer.resume(*(others & consumer.assignment()))
    for partition in records.keys() - partitions:  # it was assigned during the poll
        consumer.seek(partition, records.pop(partition)[0].offset)
    return records


class _OnLoop(ConsumerRebalanceListener):  # type: ignore[misc]
    """A listener for the member's thread, which runs the coroutines of another one on the event loop."""

    def __init__(self, listener: AsyncListener, worker: Worker) -> None:
        self._listener, self._worker = listener, worker

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Run the coroutine and wait for it."""
        self._worker.listen(self._listener.on_partitions_revoked(revoked))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Run the coroutine and wait for it."""
        self._worker.listen(self._listener.on_partitions_assigned(assigned))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Run the coroutine and wait for it."""
        listen = getattr(self._listener, "on_partitions_lost", self._listener.on_partitions_revoked)
        self._worker.listen(listen(lost))
