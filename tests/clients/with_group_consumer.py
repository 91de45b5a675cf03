"""A worker with the consumer of this package, which needs no gateway: `bootstrap` is the brokers' address."""

from streaming.client import GroupConsumer
from tests.clients.talk import Orders, consumer_arguments, read_config
from tests.clients.with_kafka_python import ASSIGNORS, Listener, work


def main() -> None:
    config, orders = read_config(), Orders()
    consumer = GroupConsumer(**consumer_arguments(config, ASSIGNORS), topic_prefix=config["topic_prefix"])
    consumer.subscribe(topics=config["topics"], listener=Listener())
    work(consumer, orders)


if __name__ == "__main__":
    main()
