"""A worker that copies records with librdkafka in transactions: consume, transform, produce.

Each record is copied to the partition of the same number of the topic `sink`. The command `hold` makes the worker wait
in its next transaction, after the offsets were sent and before the transaction is committed: it writes the event
`held`, and continues with the command `resume`.
"""

from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from tests.clients.talk import Orders, read_config, write_event
from tests.clients.with_confluent import consumer_options, on_assign, on_lost, on_revoke, write_records

POLL_S = 0.1
RECORDS_MAX = 20
WAIT_S = 30.0


def main() -> None:
    config, orders = read_config(), Orders()
    shared = {"bootstrap.servers": config["bootstrap"], "socket.timeout.ms": config["socket_ms"]}
    producer = Producer(
        {
            **shared,
            "transactional.id": config["transactional_id"],
            "transaction.timeout.ms": config["transaction_ms"],
        }
    )
    producer.init_transactions(WAIT_S)
    consumer = Consumer({**consumer_options(config), **shared})
    consumer.subscribe(config["topics"], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
    copier = Copier(consumer, producer, config["sink"], orders)
    holds = False
    while (order := orders.next()) != "close":
        holds = holds or order == "hold"
        messages = [message for message in consumer.consume(RECORDS_MAX, POLL_S) if message.error() is None]
        if messages:
            copier.copy(messages, holds=holds)
            holds = False
    consumer.close()


class Copier:
    """Copies records, each batch in one transaction."""

    def __init__(self, consumer: Consumer, producer: Producer, sink: str, orders: Orders) -> None:
        self._consumer, self._producer, self._sink, self._orders = consumer, producer, sink, orders

    def copy(self, messages: list[Message], *, holds: bool) -> None:
        """Copy records. If their transaction has to be aborted, go back to the committed offsets."""
        try:
            self._copy(messages, holds)
        except KafkaException as error:
            write_event("error", error=str(error))
            if not error.args[0].txn_requires_abort():
                raise
            _finish(lambda: self._producer.abort_transaction(WAIT_S))
            self._rewind()

    def _copy(self, messages: list[Message], holds: bool) -> None:
        self._producer.begin_transaction()
        for message in messages:
            self._producer.produce(self._sink, message.value(), partition=message.partition())
        ends = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
        offsets = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
        member = self._consumer.consumer_group_metadata()
        _finish(lambda: self._producer.send_offsets_to_transaction(offsets, member, WAIT_S))
        if holds:
            write_event("held")
            self._orders.wait_for("resume")
        _finish(lambda: self._producer.commit_transaction(WAIT_S))
        write_records(messages)
        write_event("committed", offsets=[(each.topic, each.partition, each.offset) for each in offsets])

    def _rewind(self) -> None:
        committed: list[TopicPartition] = []
        _finish(lambda: committed.extend(self._consumer.committed(self._consumer.assignment(), WAIT_S)))
        for each in committed:
            each.offset = each.offset if each.offset >= 0 else OFFSET_BEGINNING
            self._consumer.seek(each)


def _finish(call: Callable[[], object]) -> None:
    """Call again after each error that may pass."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            write_event("error", error=str(error))


if __name__ == "__main__":
    main()
