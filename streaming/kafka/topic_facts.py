"""The ids and partition counts of topics, as the brokers report them."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from kafka.errors import InvalidTopicError, KafkaError, UnknownTopicOrPartitionError

from coordinator.messages.consumer_requests import TopicFact
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable
from streaming.kafka.any_broker import AnyBroker, Reconnecting, metadata_request
from streaming.kafka.brokers import unreachable

AT_ONCE_MAX = 1_000
"""The topics of one request to the brokers."""

_LEGAL = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")

ABSENT = {UnknownTopicOrPartitionError.errno, InvalidTopicError.errno}


class TopicFacts:
    """A client that requests the facts about topics. It connects when it is first used.

    `of` blocks, and one thread at a time may call it.

    Args:
        settings: The settings with the access to the brokers.
    """

    def __init__(self, settings: Settings, client_id: str) -> None:
        self._settings = settings
        self._brokers = Reconnecting({**settings.kafka_client_arguments(), "client_id": client_id})

    def of(self, names: Iterable[str], timeout_s: float, ids: Sequence[bytes] = ()) -> dict[str, TopicFact]:
        """Request the facts about topics from the brokers, and wait for them. Return them by the topics' names.

        A topic that does not exist has no id. A topic about which the brokers return another error is left out: a topic
        that the process may not describe may exist, and its members would lose it.

        Args:
            timeout_s: The longest wait for each `AT_ONCE_MAX` topics, in seconds. If no broker answers, some seconds
                more pass until it is known which ones are silent.
            ids: The ids of further topics. There is no fact about an id that no topic has.

        Raises:
            BrokerUnreachable: No broker answers.
        """
        facts = {name: TopicFact(name) for name in names}
        legal = list(filter(is_legal, facts))
        for start in range(0, len(legal), AT_ONCE_MAX):
            part = legal[start : start + AT_ONCE_MAX]
            for name in part:
                del facts[name]
            facts.update(facts_in(self._request(part, timeout_s)))
        for start in range(0, len(ids), AT_ONCE_MAX):
            facts.update(facts_in(self._request(ids[start : start + AT_ONCE_MAX], timeout_s)))
        return facts

    def close(self) -> None:
        """Close all connections. A request that waits fails. Any thread may call this."""
        self._brokers.close()

    def _request(self, topics: Sequence[str] | Sequence[bytes], timeout_s: float) -> Any:
        """Return the brokers' entries about topics, which are all given by name or all by id."""

        def ask(brokers: AnyBroker) -> Any:
            response = brokers.ask(lambda: metadata_request(topics), within_s=timeout_s)
            brokers.learn(response)
            return response.topics

        try:
            return self._brokers.run(ask)
        except KafkaError as error:
            if self._brokers.is_closed:
                raise BrokerUnreachable.at(self._settings.bootstrap_servers, error) from error
            raise unreachable(self._settings, error) from error


def is_legal(name: str) -> bool:
    """Return whether a topic may have this name."""
    return _LEGAL.fullmatch(name) is not None


def facts_in(topics: Iterable[Any]) -> dict[str, TopicFact]:
    """Return the facts in a Metadata response's entries; see `TopicFacts.of`."""
    facts = dict[str, TopicFact]()
    for topic in topics:
        if topic.error_code in ABSENT:
            facts[topic.name] = TopicFact(topic.name)
        elif not topic.error_code and topic.name:
            facts[topic.name] = TopicFact(topic.name, id_text(topic.topic_id), len(topic.partitions))
    return facts


def id_text(topic_id: UUID) -> str:
    """Return a topic id as Kafka prints it: URL-safe base64 without padding."""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
