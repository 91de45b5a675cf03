"""The asyncio client on the real broker and query."""

import asyncio
import os
import subprocess
import sys

from kafka import TopicPartition

from streaming.client import AsyncGroupConsumer
from streaming.embedded import Broker
from streaming.query.coordinator import Coordinator
from tests.docs.pages import ROOT
from tests.docs.test_examples import shown
from tests.system.staging import MakeStage
from tests.system.waiting import HANG_S


def test_consumers_on_one_event_loop_share_a_topic(stage: MakeStage) -> None:
    """The second one joins while the first one reads; each partition is committed by its listener, then read on."""
    s = stage(2)
    s.produce(*(b"%d" % n for n in range(10)))
    s.produce(*(b"%d" % n for n in range(10)), partition=1)
    revoked: list[TopicPartition] = []

    class Listener:
        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            """Read them from the committed offsets."""

        async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            await ana.commit()
            revoked.extend(partitions)

    config = s.config(enable_auto_commit=False, auto_offset_reset="earliest")
    ana = AsyncGroupConsumer(s.topic, listener=Listener(), **config)
    bob = AsyncGroupConsumer(s.topic, **config)
    read: list[tuple[int, int]] = []

    async def consume(consumer: AsyncGroupConsumer) -> None:
        async for record in consumer:
            read.append((record.partition, record.offset))

    async def test() -> None:
        async with ana, asyncio.timeout(HANG_S):
            for _ in range(5):
                record = await ana.getone()
                read.append((record.partition, record.offset))
            async with bob:
                tasks = [asyncio.create_task(consume(each)) for each in (ana, bob)]
                while len(read) < 20 or not len(bob.assignment()) == len(ana.assignment()) == 1:
                    await asyncio.wait(tasks, timeout=0.05)
                    assert not any(task.done() for task in tasks)
                for task in tasks:
                    task.cancel()

    asyncio.run(test())
    assert revoked
    assert sorted(read) == [(partition, offset) for partition in (0, 1) for offset in range(10)]


def test_the_example_of_a_worker_prints_its_output(broker: Broker, coordinator: Coordinator) -> None:
    file = ROOT / "examples" / "asyncio_worker.py"
    arguments = ["--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", coordinator.settings.topic_prefix]
    done = subprocess.run(
        [sys.executable, str(file), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=HANG_S, check=True,
    )  # fmt: skip
    assert done.stdout == shown(file.read_text().split('"""')[1])
