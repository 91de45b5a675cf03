"""Requests that any broker answers: descriptions of topics, their configuration and creation, access control lists.

A request goes to one broker, and to the next one if that does not answer. kafka-python's own administrator chooses one
at random, so it fails for as long as brokers that have died are still in the cluster's metadata.

    no answer           the next broker, until one answers or `ANSWER_WAIT_S` has passed
    an answer that may  the next broker as well: a broker may not know yet what another one has just created, and some
    change              brokers pass creations on to the controller, while others refuse them

Nothing here waits for the controller or for a leader.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from kafka.admin import ConfigResourceType
from kafka.errors import (
    Cancelled,
    KafkaError,
    NodeNotReadyError,
    NoError,
    RetriableError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from streaming.config.timeouts import (
    ANSWER_WAIT_S,
    ATTEMPT_WAIT_S,
    KNOWN_WAIT_S,
    RECONNECT_BACKOFF_MAX_MS,
    RETRY_WAIT_S,
)

RESPONSE_BYTES_MAX = 100_000_000
"""The largest response that is read, as of kafka-python's administrator."""

UNKNOWN_TOPIC = UnknownTopicOrPartitionError.errno

Kafka = Mapping[str, Any]
"""The connection to the brokers, as arguments of kafka-python's clients."""

T = TypeVar("T")

NodeId = int | str


class AnyBroker:
    """The connections to the brokers. It belongs to one thread, but any thread may close it.

    Args:
        kafka: The arguments of kafka-python's clients.
        within_s: The longest wait for an answer of any broker; `ANSWER_WAIT_S` by default.
    """

    def __init__(self, kafka: Kafka, within_s: float | None = None) -> None:
        self._within_s = ANSWER_WAIT_S if within_s is None else within_s
        self._closing = threading.Event()
        wait_ms = int(min(ATTEMPT_WAIT_S, self._within_s) * 1_000)
        options = {
            "client_id": "coordinator-any-broker",
            **kafka,
            "request_timeout_ms": wait_ms,
            "socket_connection_setup_timeout_ms": wait_ms,
            "socket_connection_setup_timeout_max_ms": wait_ms,
            "reconnect_backoff_max_ms": RECONNECT_BACKOFF_MAX_MS,
            "receive_message_max_bytes": RESPONSE_BYTES_MAX,
            "metrics": None,
        }
        self._net = NetworkSelector(**options)
        self._manager = KafkaConnectionManager(self._net, **options)
        self._nodes: list[NodeId] = [node.node_id for node in self._manager.cluster.bootstrap_brokers()]
        self._net.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. A request that waits fails soon, with Cancelled."""
        if not self._closing.is_set():
            self._closing.set()
            self._net.run(self._close)
            self._net.close()

    async def _close(self) -> None:
        self._manager.close()

    # -- requests ------------------------------------------------------------------------------------------------------

    def ask(
        self,
        request: Callable[[], Any],
        is_final: Callable[[Any], bool] = lambda response: True,
        final_within_s: float = 0.0,
        within_s: float | None = None,
    ) -> Any:
        """Send a request to one broker after another, and return the first final response.

        Args:
            request: Returns the request.
            is_final: Whether a response need not be asked for again.
            final_within_s: The time after which a response is returned, final or not.
            within_s: The longest wait for an answer of any broker, in place of that of all requests.

        Raises:
            KafkaError: No broker answered, with the last error; or a broker refused us, as for a wrong password.
        """
        answered_s, last = time.monotonic(), None
        final_s, within_s = answered_s + final_within_s, self._within_s if within_s is None else within_s
        while True:
            try:
                response = self._send(self._nodes[0], request())
            except KafkaError as error:
                # a broker that has failed a moment ago is not asked again at once: the failure tells more
                last = last if last is not None and isinstance(error, NodeNotReadyError) else error
                if self._closing.is_set() or not may_pass(error) or time.monotonic() - answered_s > within_s:
                    raise last from None
            else:
                answered_s = time.monotonic()
                if is_final(response) or answered_s >= final_s:
                    return response
            self._nodes.append(self._nodes.pop(0))
            self._closing.wait(RETRY_WAIT_S)

    def ask_each(self, request: Callable[[Any], Any], nodes: Collection[int] = ()) -> dict[NodeId, Any]:
        """Send a request to each of these brokers at the same time, and return their responses or errors.

        Those that have not answered are the last ones that `ask` asks.

        Args:
            request: Returns the request to a broker, by its id.
            nodes: The ids of brokers that an earlier response has named; all bootstrap servers by default.
        """
        wanted: Collection[NodeId] = nodes or tuple(self._nodes)
        asked = {node: self._manager.call_soon(self._manager.send, request(node), node) for node in wanted}
        answers = {node: self._net.run(_outcome, future) for node, future in asked.items()}
        self._nodes.sort(key=lambda node: isinstance(answers.get(node), KafkaError))
        return answers

    def describe_topics(
        self,
        names: Iterable[str],
        is_final: Callable[[Mapping[str, Any]], bool] = lambda topics: True,
        final_within_s: float | None = None,
    ) -> dict[str, Any]:
        """Return the brokers' descriptions of topics, by name. The description of an unknown topic has an error.

        Args:
            is_final: Whether the descriptions need not be asked for again.
            final_within_s: The time after which they are returned all the same; `KNOWN_WAIT_S` by default.

        Raises:
            KafkaError: No broker answered.
        """
        wanted = list(names)
        response = self.ask(
            lambda: metadata_request(wanted),
            lambda response: is_final(_by_name(response)),
            KNOWN_WAIT_S if final_within_s is None else final_within_s,
        )
        self.learn(response)
        return _by_name(response)

    def describe_configs(self, names: Iterable[str], known_within_s: float | None = None) -> dict[str, Any]:
        """Return the brokers' descriptions of the configuration of topics, by name.

        A topic that a broker does not know is asked for again, since it may be new.

        Args:
            known_within_s: The time after which it counts as missing; `KNOWN_WAIT_S` by default.

        Raises:
            KafkaError: No broker answered.
        """
        resource, kind = DescribeConfigsRequest.DescribeConfigsResource, ConfigResourceType.TOPIC.value
        wanted = [resource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names]
        response = self.ask(
            lambda: DescribeConfigsRequest(resources=wanted),
            lambda response: all(each.error_code != UNKNOWN_TOPIC for each in response.results),
            KNOWN_WAIT_S if known_within_s is None else known_within_s,
        )
        return {each.resource_name: each for each in response.results}

    @property
    def members(self) -> list[int]:
        """The ids of the brokers that responses have named."""
        cluster: Any = self._manager.cluster
        return [node.node_id for node in cluster.brokers()]

    def learn(self, metadata: Any) -> None:
        """Add the brokers that a response has named to those that are asked."""
        cluster: Any = self._manager.cluster
        cluster.update_metadata(metadata)
        self._nodes += [node_id for node_id in self.members if node_id not in self._nodes]

    def _send(self, node: NodeId, request: Any) -> Any:
        try:
            return self._net.run(self._manager.send, request, node)
        except RuntimeError as error:
            if self._closing.is_set():
                raise Cancelled("the connections are closed") from error
            raise


class Reconnecting:
    """An `AnyBroker` for as long as a process runs: it is made when it is first used, and again after brokers have
    refused us, since kafka-python never tries such a broker again.

    One thread at a time may use it, and any thread may close it.

    Args:
        kafka: The arguments of kafka-python's clients.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._brokers: AnyBroker | None = None
        self._closing = threading.Event()

    @property
    def is_closed(self) -> bool:
        """Whether nothing is asked any more."""
        return self._closing.is_set()

    def run(self, ask: Callable[[AnyBroker], T]) -> T:
        """Return what a function returns that asks the brokers.

        Raises:
            KafkaError: No broker answered, or the connections are closed.
        """
        brokers = self._brokers = self._brokers or AnyBroker(self._kafka)
        try:
            if self.is_closed:
                raise Cancelled("the connections are closed")
            return ask(brokers)
        except KafkaError as error:
            if self.is_closed or not may_pass(error):
                self._drop()
            raise

    def close(self) -> None:
        """Close the connections. A request that waits fails soon."""
        self._closing.set()
        self._drop()

    def _drop(self) -> None:
        brokers, self._brokers = self._brokers, None
        if brokers is not None:
            brokers.close()


def metadata_request(topics: Iterable[str] | Iterable[bytes]) -> Any:
    """Return a request for the descriptions of topics, by name or by id. It creates none of them.

    A broker that gets both in one request answers about the ids alone.
    """
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=[
            topic(name=each) if isinstance(each, str) else topic(topic_id=UUID(bytes=each), name=None)
            for each in topics
        ],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    )


def _by_name(metadata: Any) -> dict[str, Any]:
    return {topic.name: topic for topic in metadata.topics}


def values_of(config: Any) -> dict[str, str]:
    """Return the values of a topic's configuration, by name; none if the broker returned an error."""
    if for_code(config.error_code) is not NoError:
        return {}
    return {each.name: each.value for each in config.configs if each.value is not None}


def are_known(topics: Mapping[str, Any]) -> bool:
    """Return whether the broker knows all these topics."""
    return all(topic.error_code != UNKNOWN_TOPIC for topic in topics.values())


async def _outcome(future: Any) -> Any:
    try:
        return await future
    except KafkaError as error:
        return error


def may_pass(error: Exception) -> bool:
    """Return whether another broker, or the same one later, may answer."""
    return isinstance(error, (RetriableError, UnknownBrokerIdError, Cancelled, OSError))
