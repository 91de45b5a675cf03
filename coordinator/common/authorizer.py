"""Access rules: the requests that they admit, the responses to refused requests, and requests for the rules.

The row of a kind of request in `handlers.HANDLERS` has the rights that the request needs. They are checked before all
else. A refused request is not handled further: it changes no group, and the response is the same whether the group
exists or not. Each refusal is an event.

Source: KafkaApis.handleJoinGroupRequest to handleOffsetDeleteRequest. Kafka has no request like `rebalance_group` and
`expel_member`: they need the right that an administrator's LeaveGroup needs. A request that sets the rules needs the
right to alter the cluster.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any

from msgspec import structs

from coordinator.base.access import ANONYMOUS, CLUSTER_NAME, UNKNOWN_HOST, Access, Operation, Resource, Table
from coordinator.base.config import Config
from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NAME_CHARS_MAX, RULES_AHEAD_MS
from coordinator.common.handler import RequestSpec, Right, TopicRight
from coordinator.common.refusals import refusal
from coordinator.messages.consumer_requests import ConsumerGroupDescribe, ConsumerGroupHeartbeat
from coordinator.messages.events import AccessChanged, AccessDenied
from coordinator.messages.move_requests import PEER_RECORDS
from coordinator.messages.outputs import Output
from coordinator.messages.requests import (
    CheckAccess,
    DescribeAccess,
    ListGroups,
    OffsetFetch,
    Received,
    Request,
    SetAccess,
    Unreadable,
    Wake,
)
from coordinator.messages.responses import (
    CheckAccessAnswer,
    ConsumerGroupDescribeAnswer,
    DescribeAccessAnswer,
    ListGroupsAnswer,
    OffsetFetchAnswer,
    Reply,
    SetAccessAnswer,
)
from coordinator.state.codec import decode_access, encode_access

COORDINATOR = "Coordinator:itself"
"""The principal with which a coordinator signs its own requests. The principals of a gateway's clients all begin with
`User:`."""

REFUSALS = {
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}

UNNAMED = Right(Operation.DESCRIBE, Resource.GROUP)
"""The right that a refusal names if a record is not trusted and its request needs no right."""

UNSIGNED = "a gateway sends such a request, and signs it"
"""The sentence of the refusal of a request that needs a signature."""

Handle = Callable[[Request], Iterable[Output]]


class Authorizer:
    """The decisions about requests by a table of rules."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def admits(self, received: Received, spec: RequestSpec | None) -> bool:
        """Return whether a request may be handled. Records of other coordinators have checks of their own.

        Args:
            spec: The request's row; None for a record that is no request.
        """
        request = received.request
        if isinstance(request, PEER_RECORDS):
            return True
        if received.doubt is not None:
            return False
        if spec is None or spec.right is None:
            return True
        assert not isinstance(request, (Unreadable, Wake)), "a record without a row is no request"
        if spec.needs_signature and not _is_signed(request):
            return False
        operation, resource, holder = spec.right
        if holder is not None and request.principal == holder:
            return True
        return self.may(request, operation, resource, _name_of(request, resource))

    def may(self, request: Request, operation: Operation, resource: Resource, name: str) -> bool:
        """Return whether the sender of a request has a right."""
        return self._table.allows(request.principal or ANONYMOUS, request.client_host, operation, resource, name)

    def refuse(self, received: Received, spec: RequestSpec | None) -> Iterator[Output]:
        """Yield the event and the response of a request that is not admitted."""
        request = received.request
        assert not isinstance(request, (Unreadable, Wake, *PEER_RECORDS)), "only a request is refused"
        assert spec is not None, "every request has a row"
        operation, resource, _ = spec.right or UNNAMED
        yield _denied(received, request, operation, resource, [_name_of(request, resource)])
        why = UNSIGNED if spec.needs_signature and not _is_signed(request) else None
        yield spec.refuse(request, REFUSALS[resource], received.doubt or why)

    def limited(self, request: Request, received: Received, spec: RequestSpec, handle: Handle) -> Iterator[Output]:
        """Handle the part of a request for which its sender has the rights, and refuse the rest.

        Args:
            handle: Handles the request, or a part of it.
        """
        topic_right = spec.topic_right
        if spec.limited is not None:
            part = spec.limited(self, request)
            if isinstance(part, list):
                yield _denied(received, request, Operation.DESCRIBE, Resource.TOPIC, part)
                yield spec.refuse(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            else:
                yield from handle(part)
        elif topic_right is not None and getattr(request, topic_right.field):
            yield from self._without_topics(request, received, spec, topic_right, handle)
        elif spec.visible is not None:
            yield from (self._visible(output, request, spec) for output in handle(request))
        else:
            yield from handle(request)

    def _visible(self, output: Output, request: Request, spec: RequestSpec) -> Output:
        if spec.visible is None or not isinstance(output, Reply) or not isinstance(output.answer, spec.answer):
            return output
        return structs.replace(output, answer=spec.visible(self, request, output.answer))

    def _without_topics(
        self, request: Request, received: Received, spec: RequestSpec, topic_right: TopicRight, handle: Handle
    ) -> Iterator[Output]:
        items = getattr(request, topic_right.field)
        named = dict.fromkeys(item.topic for item in items)  # each once, in their order
        denied = {t: None for t in named if not self.may(request, topic_right.operation, Resource.TOPIC, t)}
        if not denied:
            yield from handle(request)
            return
        yield _denied(received, request, topic_right.operation, Resource.TOPIC, denied)
        left = tuple(item for item in items if item.topic not in denied)
        outputs: Iterable[Output] = [Reply(request.reply_to, spec.answer(request_id=request.request_id))]
        if left:
            outputs = handle(structs.replace(request, **{topic_right.field: left}))
        for output in outputs:
            yield _with_denied(output, spec, topic_right, items, denied)


def visible_groups(authorizer: Authorizer, request: ListGroups, answer: ListGroupsAnswer) -> ListGroupsAnswer:
    """Return a listing without the groups that the client may not describe."""
    if authorizer.may(request, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return answer
    seen = tuple(g for g in answer.groups if authorizer.may(request, Operation.DESCRIBE, Resource.GROUP, g.group_id))
    return structs.replace(answer, groups=seen)


def visible_offsets(authorizer: Authorizer, request: OffsetFetch, answer: OffsetFetchAnswer) -> OffsetFetchAnswer:
    """Return the response to a fetch without the topics that the client may not describe."""
    seen = tuple(p for p in answer.partitions if authorizer.may(request, Operation.DESCRIBE, Resource.TOPIC, p.topic))
    return structs.replace(answer, partitions=seen)


def limited_heartbeat(authorizer: Authorizer, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeat | list[str]:
    """Return a heartbeat without the topics of its pattern that the client may not describe.

    Return the names instead, if it subscribes by name to such topics: then the whole heartbeat is refused.
    """
    if not (request.subscribed_topic_names or request.regex_topics):
        return request

    def may_describe(topic: str) -> bool:
        return authorizer.may(request, Operation.DESCRIBE, Resource.TOPIC, topic)

    denied = [topic for topic in request.subscribed_topic_names or () if not may_describe(topic)]
    if denied:
        return denied
    matched = None if request.regex_topics is None else tuple(filter(may_describe, request.regex_topics))
    return structs.replace(request, regex_topics=matched)


def visible_description(
    authorizer: Authorizer, request: ConsumerGroupDescribe, answer: ConsumerGroupDescribeAnswer
) -> ConsumerGroupDescribeAnswer:
    """Return a description; an error instead, if it shows a topic that the client may not describe."""
    assigned = (each for m in answer.members for each in (*m.assignment, *m.target_assignment))
    topics = {each.topic for each in assigned}
    if all(authorizer.may(request, Operation.DESCRIBE, Resource.TOPIC, topic) for topic in topics):
        return answer
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ConsumerGroupDescribeAnswer(
        request_id=answer.request_id, error=error.name, code=error.number, group_id=answer.group_id
    )


@lru_cache(64)
def _authorizer(access: bytes, super_users: tuple[str, ...]) -> Authorizer:
    return Authorizer(Table(decode_access(access).rules, super_users))


def authorizer_of(config: Config, access: bytes) -> Authorizer | None:
    """Return the authorizer for encoded rules; None if every principal may do everything.

    Authorizers are cached. A cache of a pure function cannot be stale.
    """
    return None if config.access == "open" else _authorizer(access, config.super_users)


# -- requests for the rules themselves ---------------------------------------------------------------------------------


class AclStore:
    """The rules that a shard keeps, and the guard for them.

    Args:
        written: The encoded rules from the shard's state.
    """

    def __init__(self, config: Config, written: bytes) -> None:
        self._config = config
        self.written, self.authorizer = written, authorizer_of(config, written)

    def replace(self, access: Access) -> None:
        """Replace the rules."""
        self.written = encode_access(access)
        self.authorizer = authorizer_of(self._config, self.written)


def set_access(rules: AclStore, request: SetAccess, context: Context) -> Iterator[Output]:
    """Replace the rules of a shard, unless the shard has later ones.

    Replies with:
        INVALID_REQUEST: the shard has other rules that were made at the same time or later, or the new rules were made
            in the future.
    """
    before, access = decode_access(rules.written), Access(request.made_ms, request.rules)
    answer = Reply(request.reply_to, SetAccessAnswer(request_id=request.request_id, made_ms=access.made_ms))
    if access == before:
        yield answer
        return
    if access.made_ms <= before.made_ms:
        why = f"the shard already has rules made at {before.made_ms}, and these were made at {access.made_ms}"
        yield refusal(SetAccessAnswer, request, ErrorCode.INVALID_REQUEST, why)
        return
    if access.made_ms > context.now_ms + RULES_AHEAD_MS:
        why = f"the rules were made at {access.made_ms}, which is in the future: it is {context.now_ms} now"
        yield refusal(SetAccessAnswer, request, ErrorCode.INVALID_REQUEST, why)
        return
    rules.replace(access)
    yield AccessChanged(
        group_id=None,
        version=None,
        at_ms=context.now_ms,
        generation_id=None,
        principal=request.principal or ANONYMOUS,
        client_id=request.client_id,
        client_host=request.client_host,
        partition=context.partition,
        made_ms=access.made_ms,
        rules=len(access.rules),
    )
    yield answer


def describe_access(rules: AclStore, request: DescribeAccess, context: Context) -> Iterator[Output]:
    """Reply with the rules that the shard keeps, even if the setting `access` is `open`."""
    access = decode_access(rules.written)
    answer = DescribeAccessAnswer(request_id=request.request_id, made_ms=access.made_ms, rules=access.rules)
    yield Reply(request.reply_to, answer)


def check_access(rules: AclStore, request: CheckAccess, context: Context) -> Iterator[Output]:
    """Reply for each action whether the client has the right to it."""
    authorizer = rules.authorizer
    allowed = tuple(
        authorizer is None or authorizer.may(request, a.operation, a.resource, a.name) for a in request.actions
    )
    yield Reply(request.reply_to, CheckAccessAnswer(request_id=request.request_id, allowed=allowed))


# -- denials -----------------------------------------------------------------------------------------------------------


def _is_signed(request: Request) -> bool:
    """Return whether a record was signed: only then it has a principal or a host. A gateway names the client's host."""
    return request.principal is not None or request.client_host != UNKNOWN_HOST


def _name_of(request: Request, resource: Resource) -> str:
    """Return the name of the resource that a request is about."""
    return CLUSTER_NAME if resource is Resource.CLUSTER else str(request.group_id)


def _denied(
    received: Received, request: Request, operation: Operation, resource: Resource, names: Iterable[str]
) -> AccessDenied:
    return AccessDenied(
        group_id=None,
        version=None,
        at_ms=received.at_ms,
        generation_id=None,
        principal=request.principal or ANONYMOUS,
        client_id=request.client_id,
        client_host=request.client_host,
        request=str(type(request).__struct_config__.tag),
        operation=operation,
        resource=resource,
        names=tuple(name[:NAME_CHARS_MAX] for name in names),
        why=received.doubt,
    )


def _with_denied(
    output: Output, spec: RequestSpec, topic_right: TopicRight, items: Iterable[Any], denied: Collection[str]
) -> Output:
    """Add the refused partitions to a response, each at its place and with the error."""
    if not isinstance(output, Reply) or not isinstance(output.answer, spec.answer):
        return output
    answer: Any = output.answer
    if answer.code and not answer.partitions:
        return output
    error, rest = REFUSALS[Resource.TOPIC], iter(answer.partitions)
    refused = {"error": error.name, "code": error.number}
    partitions = tuple(
        topic_right.partition(topic=item.topic, partition=p, **refused) if item.topic in denied else next(rest)
        for item in items
        for p in (item.partitions if hasattr(item, "partitions") else (item.partition,))
    )
    return Reply(output.to, structs.replace(answer, partitions=partitions))
