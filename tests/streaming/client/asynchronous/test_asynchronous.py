"""Tests of the asyncio client over the coordinator in memory: records, listeners, cancellation and the thread's end."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import IllegalStateError, KafkaConfigurationError, KafkaError

from streaming.client import AsyncGroupConsumer, AsyncGroupMember, GroupConsumer
from streaming.testing import InMemoryCoordinator
from tests.system.waiting import HANG_S

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
READ: dict[str, Any] = {"group_id": "group", "auto_offset_reset": "earliest"}


@pytest.fixture
def orders(group_coordinator: InMemoryCoordinator) -> InMemoryCoordinator:
    group_coordinator.create_topic("orders", 1)
    for number in range(5):
        group_coordinator.produce("orders", b"%d" % number)
    return group_coordinator


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test on an event loop, for at most 20 s, and check that its threads have ended."""
    before = set(threading.enumerate())
    asyncio.run(asyncio.wait_for(test, 20))
    for thread in set(threading.enumerate()) - before:
        thread.join(HANG_S)
        assert not thread.is_alive(), f"{thread} goes on"


def committed(coordinator: InMemoryCoordinator) -> int | None:
    found = coordinator.committed("orders", 0)
    return None if found is None else int(found.offset)


# -- consumer ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_iterates_and_commits_what_was_received(orders: InMemoryCoordinator, protocol: str) -> None:
    async def test() -> None:
        async with AsyncGroupConsumer("orders", **READ, group_protocol=protocol) as consumer:
            received = []
            async for record in consumer:
                received.append(record.value)
                if len(received) == 3:
                    break
            assert received == [b"0", b"1", b"2"]
            assert consumer.assignment() == {P0}
            assert await consumer.position(P0) == 3
            await consumer.commit()
            assert await consumer.committed(P0) == 3
            await consumer.seek(P0, 1)
            assert (await consumer.getone()).offset == 1
            records = await consumer.getmany(timeout_ms=1_000, max_records=2)
            assert [record.offset for record in records[P0]] == [2, 3]

    run(test())
    assert committed(orders) == 4, "the end of the block commits"


def test_records_of_chosen_partitions_are_returned(orders: InMemoryCoordinator) -> None:
    """The records of the others come later, in order, also if the partitions are assigned during the call."""
    orders.create_topic("orders", 2)
    orders.produce("orders", b"other", partition=1)

    async def test() -> None:
        async with AsyncGroupConsumer("orders", **READ) as consumer:
            assert (await consumer.getone(P1)).value == b"other"
            assert await consumer.getmany(P1, timeout_ms=300) == {}
            assert consumer.paused() == set()
            assert [(await consumer.getone(P0, P1)).value for _ in range(2)] == [b"0", b"1"]
            assert [record.value for record in (await consumer.getmany(timeout_ms=1_000))[P0]] == [b"2", b"3", b"4"]

    run(test())


def test_paused_partitions_are_left_out(orders: InMemoryCoordinator) -> None:
    async def test() -> None:
        async with AsyncGroupConsumer("orders", **READ) as consumer:
            assert (await consumer.getone()).value == b"0"
            await consumer.pause(P0)
            assert consumer.paused() == {P0}
            assert await consumer.getmany(timeout_ms=300) == {}
            assert await consumer.getmany(P0, timeout_ms=300) == {}
            await consumer.resume(P0)
            assert (await consumer.getone()).value == b"1"
            with pytest.raises(IllegalStateError):
                await consumer.pause(P1)

    run(test())


def test_a_failed_block_commits_nothing(orders: InMemoryCoordinator) -> None:
    async def test() -> None:
        async with AsyncGroupConsumer("orders", **READ) as consumer:
            await consumer.getone()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(test())
    assert committed(orders) is None


def test_a_listener_may_commit_and_must_not_poll(orders: InMemoryCoordinator) -> None:
    calls: list[str] = []

    class Listener:
        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            calls.append(f"assigned {len(assigned)}")
            with pytest.raises(IllegalStateError, match="must not poll"):
                await consumer.getmany()

        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            await consumer.commit()
            calls.append(f"revoked {len(revoked)}, committed {committed(orders)}")

    consumer = AsyncGroupConsumer("orders", listener=Listener(), enable_auto_commit=False, **READ)

    async def test() -> None:
        async with consumer:
            await consumer.getone()
            await consumer.getone()

    run(test())
    assert calls == ["assigned 1", "revoked 1, committed 2"]


def test_an_error_of_a_listener_is_raised_by_the_poll(orders: InMemoryCoordinator) -> None:
    class Listener:
        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            raise ZeroDivisionError

        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            """Allow it."""

    async def test() -> None:
        async with AsyncGroupConsumer("orders", listener=Listener(), **READ) as consumer:
            with pytest.raises(KafkaError) as raised:
                await consumer.getone()
            assert isinstance(raised.value.__cause__, ZeroDivisionError)

    run(test())


class Gate:
    """Holds one method of `GroupConsumer` after its work, so that a test can cancel the caller meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        method = getattr(GroupConsumer, name)

        def held(*arguments: Any, **named: Any) -> Any:
            result = method(*arguments, **named)
            if result or name != "poll":
                self.reached.set()
                assert self.opened.wait(HANG_S)
            return result

        monkeypatch.setattr(GroupConsumer, name, held)

    async def cancel(self, call: Coroutine[Any, Any, object]) -> None:
        """Start a call, cancel its caller while the thread is in the method, and let the thread go on."""
        task = asyncio.create_task(call)
        await asyncio.to_thread(self.reached.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        self.opened.set()


@pytest.mark.parametrize("next_call", ["getone", "commit", "stop"])
def test_records_of_a_cancelled_call_are_neither_lost_nor_committed(
    orders: InMemoryCoordinator, monkeypatch: pytest.MonkeyPatch, next_call: str
) -> None:
    gate = Gate(monkeypatch, "poll")

    async def test() -> None:
        async with AsyncGroupConsumer("orders", **READ) as consumer:
            await gate.cancel(consumer.getmany(timeout_ms=1_000, max_records=3))
            if next_call == "getone":
                assert (await consumer.getone()).offset == 0
            elif next_call == "commit":
                await consumer.commit()
                assert committed(orders) == 0

    run(test())
    assert committed(orders) in ({1} if next_call == "getone" else {None, 0})


def test_a_cancelled_commit_goes_on(orders: InMemoryCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, "commit")

    async def test() -> None:
        async with AsyncGroupConsumer("orders", enable_auto_commit=False, **READ) as consumer:
            await consumer.getone()
            await gate.cancel(consumer.commit())

    run(test())
    assert committed(orders) == 1


def test_a_cancelled_stop_leaves_the_group(orders: InMemoryCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, "close")

    async def test() -> None:
        consumer = AsyncGroupConsumer("orders", **READ)
        await consumer.start()
        await consumer.getone()
        await gate.cancel(consumer.stop())
        await consumer.stop()

    run(test())
    assert any(type(event).__name__ == "MemberLeft" for event in orders.events)


def test_a_call_beside_a_waiting_one_is_refused(orders: InMemoryCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, "poll")

    async def test() -> None:
        async with AsyncGroupConsumer("orders", **READ) as consumer:
            first = asyncio.create_task(consumer.getone())
            await asyncio.to_thread(gate.reached.wait, 10)
            with pytest.raises(IllegalStateError, match="Another call waits"):
                await consumer.getone()
            gate.opened.set()
            assert (await first).offset == 0

    run(test())


def test_a_consumer_is_started_first_and_once(orders: InMemoryCoordinator) -> None:
    async def test() -> None:
        consumer = AsyncGroupConsumer("orders", **READ)
        with pytest.raises(IllegalStateError, match="not started"):
            await consumer.getone()
        async with consumer:
            with pytest.raises(IllegalStateError, match="started before"):
                await consumer.start()
        with pytest.raises(IllegalStateError, match="stopped"):
            await consumer.getone()

    run(test())
    with pytest.raises(KafkaConfigurationError, match="group_id is needed"):
        AsyncGroupConsumer("orders")


# -- member ------------------------------------------------------------------------------------------------------------


def test_members_share_resources_and_listen(group_coordinator: InMemoryCoordinator) -> None:
    calls: list[str] = []

    async def note(names: frozenset[str]) -> None:
        calls.append(" ".join(sorted(names)))

    async def test() -> None:
        async with AsyncGroupMember(["gate", "yard"], group_id="g", on_revoked=note) as first:
            assert await first.wait_for_assignment() == {"gate", "yard"}
            assert first.fencing_token > 0
            async with AsyncGroupMember(["gate", "yard"], group_id="g") as second:
                while not second.assignment:
                    await second.poll()
                    await first.poll(1.0)
                assert first.assignment | second.assignment == {"gate", "yard"}
                assert calls == [" ".join(second.assignment)]

    run(test())


def test_a_blocked_event_loop_does_not_end_the_session(group_coordinator: InMemoryCoordinator) -> None:
    """Heartbeats come from the transport: 200 s without a turn of the loop are four session timeouts."""

    async def test() -> None:
        async with AsyncGroupMember(["gate"], group_id="g") as member:
            await member.wait_for_assignment()
            group_coordinator.advance(200_000)
            assert await member.poll() == {"gate"}

    run(test())
    assert not any(type(event).__name__ == "MemberExpired" for event in group_coordinator.events)
