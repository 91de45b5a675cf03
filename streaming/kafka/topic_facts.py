"""The ids and partition counts of topics, as the brokers report them."""

import re
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from coordinator.consumer_requests import TopicFact

AT_ONCE_MAX = 1_000
"""The topics of one request to the brokers."""

_LEGAL = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")

_URL_SAFE = str.maketrans("+/", "-_")

_ABSENT = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION}


def topic_facts(admin: Any, names: Iterable[str], timeout_s: float) -> dict[str, TopicFact]:
    """Request the facts about topics from the brokers, and wait for them.

    A topic that does not exist has no id. A topic about which the brokers return another error is left out: a topic
    that the process may not describe may exist, and its members would lose it.

    Args:
        admin: A client that `clients.admin` has returned.
        timeout_s: The longest wait for each `AT_ONCE_MAX` topics, in seconds.

    Raises:
        KafkaException: No broker answers.
    """
    facts = {name: TopicFact(name) for name in names}
    legal = [name for name in facts if _LEGAL.fullmatch(name)]
    for start in range(0, len(legal), AT_ONCE_MAX):
        part = legal[start : start + AT_ONCE_MAX]
        told = admin.describe_topics(TopicCollection(part), request_timeout=timeout_s)
        for name, future in told.items():
            try:
                topic = future.result()
                facts[name] = TopicFact(name, _id_text(topic.topic_id), len(topic.partitions))
            except KafkaException as error:
                code = error.args[0].code()
                if code in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                    raise
                if code not in _ABSENT:
                    del facts[name]
    return facts


def _id_text(topic_id: Any) -> str:
    """Return a topic id as Kafka prints it. librdkafka prints it in the other alphabet of base64."""
    return str(topic_id).translate(_URL_SAFE)
