"""The program that writes to the topics of a prefix: this coordinator, or `coordinator observe`."""

from confluent_kafka import KafkaException

from streaming.config.settings import Settings
from streaming.kafka.brokers import unreachable
from streaming.kafka.clients import admin, metadata


def is_observed(settings: Settings) -> bool:
    """Return whether the prefix has groups that Kafka's own coordinator keeps.

    `coordinator observe` takes no requests, so its prefix has groups and no topic for requests.

    Raises:
        BrokerUnreachable: No broker answers.
    """
    try:
        names = metadata(admin(settings, "coordinator-cli")).topics
    except KafkaException as error:
        raise unreachable(settings, error.args[0].str()) from error
    return settings.groups_topic in names and settings.requests_topic not in names
