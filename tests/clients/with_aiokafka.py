"""A worker with aiokafka's consumer."""

import asyncio

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from tests.clients.talk import Orders, consumer_arguments, pairs, read_config, write_event

ASSIGNORS = {"range": RangePartitionAssignor}
POLL_MS = 100


class Listener(ConsumerRebalanceListener):
    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        write_event("assigned", partitions=pairs(assigned))

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        write_event("revoked", partitions=pairs(revoked))


async def commit(consumer: AIOKafkaConsumer) -> None:
    try:
        await consumer.commit()
        committed = [(p.topic, p.partition, await consumer.committed(p)) for p in consumer.assignment()]
    except KafkaError as error:
        write_event("error", error=repr(error))
    else:
        write_event("committed", offsets=committed)


async def main() -> None:
    config, orders = read_config(), Orders()
    consumer = AIOKafkaConsumer(**consumer_arguments(config, ASSIGNORS))
    consumer.subscribe(topics=config["topics"] or (), pattern=config["pattern"], listener=Listener())
    await consumer.start()
    while (order := orders.next()) != "close":
        if order == "commit":
            await commit(consumer)
        if orders.paused:
            await asyncio.sleep(POLL_MS / 1000)
            continue
        for partition, records in (await consumer.getmany(timeout_ms=POLL_MS)).items():
            write_event("records", partition=partition[:2], offsets=[record.offset for record in records])
    await consumer.stop()


if __name__ == "__main__":
    asyncio.run(main())
