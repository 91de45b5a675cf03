"""The exchange for a request of a Kafka client: requests to the coordinator, and the response made from their answers.

A function of `exchanges` converts a decoded message to an `Exchange`. It sends nothing itself: the owner of the
connection sends the requests, waits for the answers, and calls `respond` for the response.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from kafka.protocol.api_message import ApiMessage

from coordinator.base.access import Operation, Resource
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import GROUP_ID_CHARS_MAX, NAME_CHARS_MAX
from coordinator.messages.consumer_requests import TopicFact
from coordinator.messages.requests import Action, CheckAccess, Request
from coordinator.messages.responses import Answer, AnyAnswer
from streaming.gateway.coordinator.routing import ShardAddress
from streaming.kafka.patterns import Matches

A = TypeVar("A", bound=Answer)

SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR


class Asker(Protocol):
    """A client behind its connection, which sends a request."""

    def fields(self) -> dict[str, Any]:
        """Return the fields of every request except the group id. Each call returns a new request id."""


class ListenerData(Protocol):
    """The data that only a gateway has."""

    @property
    def shard_addresses(self) -> Sequence[ShardAddress]:
        """All shards of the coordinators that the gateway knows, its own one first."""

    @property
    def has_rules(self) -> bool:
        """Whether access rules apply."""

    def partitions_of(self, topic: str) -> int | None:
        """Return the number of a topic's partitions; None if the topic does not exist."""

    @property
    def missing_code(self) -> int:
        """The error of a partition that does not exist, as far as the brokers have answered."""

    def coordinates(self, group_id: str) -> bool:
        """Return whether clients are sent to this broker's port for a group."""

    def facts_of(self, topics: Iterable[str]) -> tuple[TopicFact, ...]:
        """Return the known ids and partition counts of topics."""

    def topic_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with that id; None if there is none."""

    def topic_id_of(self, topic: str) -> str | None:
        """Return the id of a topic, as text; `NO_TOPIC` if there is no such topic, and None if that is not known."""

    def matching(self, pattern: str) -> Matches:
        """Return the topics that the message's pattern matches, as far as the client may see them."""

    def follows(self, group_id: str) -> bool:
        """Return whether the gateway knows of members of the consumer protocol in a group."""


class CoordinatorRequest(NamedTuple):
    """A request to the coordinator.

    Args:
        shard: Its partition; None for the shard of its group.
        at: The prefix of the one coordinator that it is for; None for the coordinator of its group, or the gateway's
            own one.
    """

    request: Request
    shard: int | None = None
    at: str | None = None


class Exchange(NamedTuple):
    """A list of requests, possibly empty, and the function that makes the response from their ordered answers.

    An answer may be of another kind than its request expects. In any case the client gets its error.
    """

    requests: tuple[CoordinatorRequest, ...]
    respond: Callable[[Sequence[AnyAnswer]], ApiMessage]


class Subscription(NamedTuple):
    """The topics whose facts a request needs: those with these names, and those that the pattern matches."""

    names: tuple[str, ...] = ()
    pattern: str = ""


def no_subscription(message: Any) -> Subscription:
    """Return an empty subscription, for requests that need no facts about topics."""
    return Subscription()


def no_named_topics(message: Any, metadata: ListenerData) -> dict[str, int]:
    """Return no topics, for requests that need no metadata of topics."""
    return {}


def no_fetched_groups(message: Any) -> Collection[str]:
    """Return no groups, for requests that fetch no offsets."""
    return ()


def no_fetched_topics(message: Any, metadata: ListenerData) -> Collection[str]:
    """Return no topics, for requests that fetch no offsets."""
    return ()


def no_topic_ids(message: Any) -> Collection[bytes]:
    """Return no ids, for requests that name topics."""
    return ()


class Preparing(Protocol):
    """The work at the brokers for a client's transaction. Both methods return an error, or the place of a record.

    Nothing is sent to the brokers after `until_s`, a monotonic time.
    """

    async def join(self, message: Any, until_s: float) -> Any:
        """Prepare an AddOffsetsToTxn."""

    async def write(self, message: Any, until_s: float) -> Any:
        """Prepare a TxnOffsetCommit."""

    def has_unsettled(self, group_ids: Collection[str]) -> bool:
        """Return whether a group may have offsets of a transaction that was ended, and is not settled."""

    async def settle(self, group_ids: Collection[str]) -> None:
        """Wait until all groups have the offsets of transactions that were ended."""


class Served(NamedTuple):
    """An API that this coordinator serves.

    Args:
        first: The oldest version served, and `last` the newest.
        exchange: Converts a message of one of these versions to an exchange.
        topics_named: Returns the topics whose metadata `exchange` needs, each with the number of partitions that it
            must have to contain all named partitions.
        topic_ids: Returns the ids of topics that a message has in place of names; None if it needs all topics' ids.
        topics_fetched: Returns the topics whose present ids `exchange` needs.
        subscription: Returns the topics whose facts `exchange` needs.
        groups_fetched: Returns the groups whose offsets are fetched, if they need not be stable. A client that requires
            stable ones asks again while they are not.
        prepare: The work at the brokers that comes before the exchange. `exchange` gets its result as a further
            argument.
        has_large_response: Whether a response may be far larger than its request.
    """

    request: type[ApiMessage]
    response: type[ApiMessage]
    first: int
    last: int
    exchange: Callable[..., Exchange]
    topics_named: Callable[[Any, ListenerData], dict[str, int]] = no_named_topics
    topic_ids: Callable[[Any], Collection[bytes] | None] = no_topic_ids
    topics_fetched: Callable[[Any, ListenerData], Collection[str]] = no_fetched_topics
    subscription: Callable[[Any], Subscription] = no_subscription
    groups_fetched: Callable[[Any], Collection[str]] = no_fetched_groups
    prepare: Callable[["Preparing", Any, float], Awaitable[Any]] | None = None
    has_large_response: bool = False

    @property
    def is_always_ready(self) -> bool:
        """Whether a message needs no facts about topics, and nothing is written before its exchange."""
        return (
            self.topics_named is no_named_topics
            and self.topic_ids is no_topic_ids
            and self.subscription is no_subscription
            and self.prepare is None
        )


def may(asker: Asker, group_id: str, actions: Iterable[tuple[Operation, Resource, str]]) -> CoordinatorRequest:
    """Return a request for the client's rights. Names that are too long for any resource are shortened to the
    maximum."""
    return CoordinatorRequest(
        CheckAccess(
            **asker.fields(),
            group_id=group_id[:GROUP_ID_CHARS_MAX],
            actions=tuple(Action(operation, resource, name[:NAME_CHARS_MAX]) for operation, resource, name in actions),
        )
    )


def of_one(request: Request, respond: Callable[[AnyAnswer], ApiMessage]) -> Exchange:
    """Return an exchange of one request to a group's own shard."""
    return Exchange((CoordinatorRequest(request),), lambda answers: respond(answers[0]))


def expected(answer: AnyAnswer, kind: type[A], **fields: Any) -> A:
    """Return an answer as the expected kind. An answer of another kind is converted to an error of that kind.

    Args:
        fields: The fields that this kind requires also in an error.
    """
    if isinstance(answer, kind):
        return answer
    error, code = (answer.error, answer.code) if answer.code else (SERVER_ERROR.name, SERVER_ERROR.number)
    return kind(request_id=answer.request_id, error=error, code=code, error_message=answer.error_message, **fields)
