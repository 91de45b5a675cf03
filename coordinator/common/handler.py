"""A row of the table `handlers.HANDLERS`: all data that the shard needs for one kind of request.

A request passes the following steps in this order. The first failure answers it.

    1. right            if access rules are in use: the client has the right that the request needs, and the record is
                        signed if `needs_signature` is true; topics for which the client does not have `topic_right` are
                        refused and left out of the request
    2. group id         the group id is not too long, and not empty if `needs_group_id` is true
    3. home             the group belongs to this shard, or else NOT_COORDINATOR
    4. is_costly        the allowance for costly responses is not used up, or else COORDINATOR_LOAD_IN_PROGRESS
    5. answers_at_once  the response to a request that needs no check
    6. on_its_own       checks that need no group
    7. absent           the error if the group does not exist
    8. of_the_group     checks that depend on the group
    9. handler          the handler answers

Between the third step and the fourth, the group's deadlines fire up to the time of the request. Then a request whose
`creates_group` returns True creates the group that it names, if the group does not exist, the fifth step has no
response and the sixth step passes. A heartbeat of the consumer protocol has to pass the eighth step too.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from functools import wraps
from typing import Any, NamedTuple

from msgspec import Struct

from coordinator.base.access import Operation, Resource
from coordinator.base.config import Config
from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.states import GroupType
from coordinator.common import refusals
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Request
from coordinator.messages.responses import Answer, Reply
from coordinator.state.group import Allowance

OwnCheck = Callable[[Any, Config], ErrorCode]
GroupCheck = Callable[[Any, Any, Config], ErrorCode]
"""A check of a group of either protocol."""

ALLOWANCE_USED_UP = "recent requests have used up the allowance for large responses; retry in some seconds"


class Subject(Enum):
    """The subject of a request, which is the first argument of its handler."""

    GROUP = auto()  # one group: a `Group`, or None if the group does not exist
    GROUPS = auto()  # all groups of a shard: for each one its id, its protocol type and its phase
    TRANSACTIONS = auto()  # the groups with pending commits that have ended: `transactions.Settling`
    HEARTBEATS = auto()  # the codes of the responses to the heartbeats of one record, in its order
    RULES = auto()  # the access rules of a shard: `authorizer.AclStore`
    POLICIES = auto()  # the policies of a shard: `policies.store.PolicyStore`
    MOVES = auto()  # the moves of a shard, for a request about one name: `moves.custody.MoveStore`
    SLOTS = auto()  # the same, for a request about slots


class Right(NamedTuple):
    """The right that a request needs.

    Args:
        holder: A principal that has the right without a rule.
    """

    operation: Operation
    resource: Resource
    holder: str | None = None


class TopicRight(NamedTuple):
    """The right that a request needs for each topic that it names.

    Args:
        field: The request's field that names topics.
        partition: The type of an answer's entry for one partition.
    """

    operation: Operation
    field: str
    partition: Callable[..., Any]


def never(*_: Any) -> bool:
    """Return False for every request of the kind."""
    return False


def always(*_: Any) -> bool:
    """Return True for every request of the kind."""
    return True


def _not_at_once(*_: Any) -> None:
    """Return None, so that every request of the kind is checked."""


def _no_reason(request: Request, error: ErrorCode) -> None:
    """Return no sentence."""


def _nothing(*_: Any) -> Iterable[Output]:
    """Return no outputs, because a refusal changes nothing."""
    return ()


def unless(is_exempt: Callable[[Any, Any], bool], *checks: GroupCheck) -> tuple[GroupCheck, ...]:
    """Return checks with an exception: a request for which `is_exempt` returns True passes each of them."""

    def with_exception(check: GroupCheck) -> GroupCheck:
        @wraps(check)
        def checked(group: Any, request: Request, config: Config) -> ErrorCode:
            return ErrorCode.NONE if is_exempt(group, request) else check(group, request, config)

        return checked

    return tuple(map(with_exception, checks))


class RequestSpec(Struct, frozen=True):
    """One row of the table.

    Args:
        answer: The type of the answer.
        handler: Changes the subject and yields the outputs. `(subject, request, context)`. A group is None only if
            `absent` is None.
        subject: The handler's first argument.
        right: The right that the request needs; None if every client may send it.
        topic_right: The right that the request needs for each topic that it names.
        needs_signature: Whether the record must be signed, if access rules are in use: only gateways and administrators
            know the data that it needs.
        limited: Returns the part of a request that the client may send, or the topics that refuse the whole request.
            `(authorizer, request)`; None if the client may send the whole request.
        visible: Returns the part of an answer that the client may see. `(authorizer, request, answer)`; None if the
            client may see the whole answer.
        needs_group_id: Whether the group id must not be empty.
        on_its_own: Checks that need no group.
        absent: The error if the group does not exist; None if the handler answers in this case too.
        of_the_group: Checks that depend on the group.
        founds: The type of group whose members send the request. It replaces an Empty group of the other type.
        creates_group: Returns whether a request creates the group that it names. `(request)`
        is_costly: Returns whether the answer repeats all data of the subject, and so counts against the allowance for
            costly responses. `(subject, request)`
        answers_at_once: Returns the outputs of a request that needs no check; None for all others.
            `(group, request, context)`
        on_refusal: Changes an existing group after the failure of a check, and yields the outputs before the answer.
            `(group, request, error, context)`
        refusal_fields: Returns the fields of a refusal's answer beside the error. `(request, error)`
        reason: Returns a sentence for a person about a refusal without one; None for no sentence. `(request, error)`
    """

    answer: type[Any]
    handler: Callable[[Any, Any, Context], Iterator[Output]]
    subject: Subject = Subject.GROUP
    right: Right | None = None
    topic_right: TopicRight | None = None
    needs_signature: bool = False
    limited: Callable[[Any, Any], Any] | None = None
    visible: Callable[[Any, Any, Any], Answer] | None = None
    needs_group_id: bool = False
    on_its_own: tuple[OwnCheck, ...] = ()
    absent: ErrorCode | None = None
    of_the_group: tuple[GroupCheck, ...] = ()
    founds: GroupType | None = None
    creates_group: Callable[[Any], bool] = never
    is_costly: Callable[[Any, Any], bool] = never
    answers_at_once: Callable[[Any, Any, Context], Iterable[Output] | None] = _not_at_once
    on_refusal: Callable[[Any, Any, ErrorCode, Context], Iterable[Output]] = _nothing
    refusal_fields: Callable[[Any, ErrorCode], refusals.Fields] = refusals.no_fields
    reason: Callable[[Any, ErrorCode], str | None] = _no_reason

    def error_of(self, subject: Any, request: Request, config: Config) -> ErrorCode:
        """Return the error of the first check that fails, from `on_its_own` on; NONE if all pass."""
        if (error := self.error_on_its_own(request, config)) is not ErrorCode.NONE:
            return error
        if subject is None and self.absent is not None:
            return self.absent
        for check in self.of_the_group:
            if (error := check(subject, request, config)) is not ErrorCode.NONE:
                return error
        return ErrorCode.NONE

    def error_on_its_own(self, request: Request, config: Config) -> ErrorCode:
        """Return the error of the first check of `on_its_own` that fails; NONE if all pass."""
        for check in self.on_its_own:
            if (error := check(request, config)) is not ErrorCode.NONE:
                return error
        return ErrorCode.NONE

    def refuse_costly(self, subject: Any, request: Request, allowance: Allowance, now_ms: int) -> Reply | None:
        """Return the refusal of a request if its response is costly and the allowance is used up; None otherwise."""
        if self.is_costly(subject, request) and allowance.left_at(now_ms) <= 0:
            return self.refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ALLOWANCE_USED_UP)
        return None

    def refuse(self, request: Request, error: ErrorCode, why: str | None = None) -> Reply:
        """Return the reply that refuses a request.

        Args:
            why: A sentence for a person, if the error's name is not enough.
        """
        why = self.reason(request, error) if why is None else why
        return refusals.refusal(self.answer, request, error, why, **self.refusal_fields(request, error))
