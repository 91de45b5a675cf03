"""A worker that copies records with Quix Streams and its guarantee "exactly-once": each checkpoint is a transaction.

It runs in an environment of its own: see `tests.clients.quix`. Before it sends the offsets of a checkpoint, it writes
the event `sending`. The command `hold` makes it wait in the next transaction, as `copying_with_confluent` waits. Each
process has a random transactional id, so the brokers end the transaction of a killed one after its timeout.
"""

from typing import Any

import quixstreams.internal_producer
from quixstreams import Application
from quixstreams.kafka.producer import Producer

from tests.clients.talk import Orders, read_config, write_event

CHECKPOINT_S = 0.2


def main() -> None:
    config, orders = read_config(), Orders()

    class Reporting(Producer):
        """A producer that writes events about its transactions."""

        _positions: list[Any] = []  # noqa: RUF012 - replaced, never changed

        def send_offsets_to_transaction(self, positions: list[Any], *arguments: Any) -> None:
            self._positions = positions
            write_event("sending")
            super().send_offsets_to_transaction(positions, *arguments)

        def commit_transaction(self, *arguments: Any) -> None:
            if orders.next() == "hold":
                write_event("held")
                orders.wait_for("resume")
            super().commit_transaction(*arguments)
            write_event("committed", offsets=[(each.topic, each.partition, each.offset) for each in self._positions])

    quixstreams.internal_producer.Producer = Reporting
    run(config)


def run(config: dict[str, Any]) -> None:
    """Copy until SIGTERM."""
    (topic,) = config["topics"]
    app = Application(
        broker_address=config["bootstrap"],
        consumer_group=config["group"],
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=CHECKPOINT_S,
        consumer_poll_timeout=CHECKPOINT_S,
        auto_create_topics=False,
        state_dir=config["state"],
        consumer_extra_config={
            "client.id": config["client_id"],
            "session.timeout.ms": config["session_ms"],
            "heartbeat.interval.ms": config["heartbeat_ms"],
        },
        producer_extra_config={"transaction.timeout.ms": config["transaction_ms"]},
    )
    source = app.topic(topic, key_deserializer="bytes", value_deserializer="bytes")
    sink = app.topic(config["sink"], key_serializer="bytes", value_serializer="bytes")
    app.dataframe(source).to_topic(sink)
    app.run()


if __name__ == "__main__":
    main()
