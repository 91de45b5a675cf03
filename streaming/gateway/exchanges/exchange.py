"""What one request of a Kafka client becomes: questions to the coordinator, and the response that their answers make.

A function of `exchanges` turns a decoded message into an `Exchange`. It asks nobody itself: whoever holds the
connection sends the questions, waits for the answers, and lets `respond` make the response of them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from kafka.protocol.api_message import ApiMessage

from coordinator.access import Operation, Resource
from coordinator.errors import ErrorCode
from coordinator.limits import GROUP_ID_CHARS_MAX, NAME_CHARS_MAX
from coordinator.outputs import Answer, AnyAnswer
from coordinator.requests import Action, CheckAccess, Request

A = TypeVar("A", bound=Answer)

SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR


class Asker(Protocol):
    """Who asks: a client behind its connection."""

    def fields(self) -> dict[str, Any]:
        """Give what every request carries but its group id; the request id is a new one at each call."""


class World(Protocol):
    """What only a gateway knows."""

    @property
    def shards(self) -> int:
        """How many partitions the request topic has."""

    @property
    def has_rules(self) -> bool:
        """Tell whether rules say who may do what."""

    def partitions_of(self, topic: str) -> int | None:
        """How many partitions a topic has; None where there is no such topic."""

    def coordinates(self, group_id: str) -> bool:
        """Tell whether the broker that is asked is the one that clients are told to ask about a group."""


class Question(NamedTuple):
    """A request of ours. `shard` is the partition it goes to, None for that of its group."""

    request: Request
    shard: int | None = None


class Exchange(NamedTuple):
    """The questions, maybe none, and what makes the response of their answers, given in the order of the questions.

    An answer need not be of the kind that was asked for: its error is the client's in any case.
    """

    questions: tuple[Question, ...]
    respond: Callable[[Sequence[AnyAnswer]], ApiMessage]


def no_topics(message: Any) -> dict[str, int]:
    """Name no topics, for requests that need nothing looked up."""
    return {}


class Served(NamedTuple):
    """An API as it is served here.

    Args:
        first: The oldest version served, and `last` the newest.
        exchange: Takes a message of one of these versions.
        topics_named: The topics that the world must know of before that, and how many partitions each must have for
            all that are named to be there.
        is_refused: Whether clients are not offered the API, and hear an error from `exchange` if they use it.
        has_large_response: Whether a response may be far larger than its request.
    """

    request: type[ApiMessage]
    response: type[ApiMessage]
    first: int
    last: int
    exchange: Callable[[Any, Asker, World], Exchange]
    topics_named: Callable[[Any], dict[str, int]] = no_topics
    is_refused: bool = False
    has_large_response: bool = False


def may(asker: Asker, group_id: str, actions: Iterable[tuple[Operation, Resource, str]]) -> Question:
    """Ask what an asker may do; about names that are too long for anything, as if they ended where they must."""
    return Question(
        CheckAccess(
            **asker.fields(),
            group_id=group_id[:GROUP_ID_CHARS_MAX],
            actions=tuple(Action(operation, resource, name[:NAME_CHARS_MAX]) for operation, resource, name in actions),
        )
    )


def of_one(request: Request, respond: Callable[[AnyAnswer], ApiMessage]) -> Exchange:
    """Make an exchange of one question to a group's own shard."""
    return Exchange((Question(request),), lambda answers: respond(answers[0]))


def expected(answer: AnyAnswer, kind: type[A], **fields: Any) -> A:
    """Take an answer as the kind that was asked for; of another kind only its error counts, and it is one in any case.

    Args:
        fields: What that kind says even of an error.
    """
    if isinstance(answer, kind):
        return answer
    error, code = (answer.error, answer.code) if answer.code else (SERVER_ERROR.name, SERVER_ERROR.number)
    return kind(request_id=answer.request_id, error=error, code=code, **fields)
