"""The program that writes to the topics of a prefix: this coordinator, or `coordinator observe`."""

from confluent_kafka import KafkaException

from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable
from streaming.kafka.clients import ANSWER_WAIT_S, admin


def is_observed(settings: Settings) -> bool:
    """Return whether the prefix has groups that Kafka's own coordinator keeps.

    `coordinator observe` takes no requests, so its prefix has groups and no topic for requests.

    Raises:
        BrokerUnreachable: No broker answers.
    """
    try:
        names = admin(settings, "coordinator-cli").list_topics(timeout=ANSWER_WAIT_S).topics
    except KafkaException as error:
        raise BrokerUnreachable.at(settings.bootstrap_servers, error) from error
    return settings.groups_topic in names and settings.requests_topic not in names
