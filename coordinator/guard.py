"""Who is let through to the groups: what each request needs to be allowed, and what those hear who are not.

It is looked at before all else, and what is refused is not looked at further: it touches no group, and the answer is
the same whether there is such a group or not. Each refusal is an event.

Source: KafkaApis.handleJoinGroupRequest to handleOffsetDeleteRequest. Kafka knows no request for `rebalance_group` and
`expel_member`: they need what an administrator's LeaveGroup needs, and rules are set by who may alter the cluster.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import structs

from coordinator.access import ANONYMOUS, CLUSTER_NAME, Access, Operation, Resource, Table
from coordinator.codec import decode_access, encode_access
from coordinator.config import Config
from coordinator.errors import ErrorCode
from coordinator.limits import NAME_CHARS_MAX, RULES_AHEAD_MS
from coordinator.outputs import (
    AccessChanged,
    AccessDenied,
    CheckAccessAnswer,
    CommittedPartition,
    DeletedPartition,
    DescribeAccessAnswer,
    FetchedOffset,
    ListGroupsAnswer,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    Output,
    Reply,
    SetAccessAnswer,
)
from coordinator.refusals import refuse
from coordinator.requests import (
    CheckAccess,
    DeleteGroup,
    DescribeAccess,
    DescribeGroup,
    ExpelMember,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    RebalanceGroup,
    Received,
    RepublishGroup,
    Request,
    SetAccess,
    SyncGroup,
    Unreadable,
    Wake,
)

NEEDS: dict[type, tuple[Operation, Resource]] = {
    # who asks this     must be allowed to  ... the
    JoinGroup:         (Operation.READ,     Resource.GROUP),
    SyncGroup:         (Operation.READ,     Resource.GROUP),
    Heartbeat:         (Operation.READ,     Resource.GROUP),
    LeaveGroup:        (Operation.READ,     Resource.GROUP),
    OffsetCommit:      (Operation.READ,     Resource.GROUP),
    OffsetFetch:       (Operation.DESCRIBE, Resource.GROUP),
    OffsetDelete:      (Operation.DELETE,   Resource.GROUP),
    DescribeGroup:     (Operation.DESCRIBE, Resource.GROUP),
    DeleteGroup:       (Operation.DELETE,   Resource.GROUP),
    RebalanceGroup:    (Operation.READ,     Resource.GROUP),
    ExpelMember:       (Operation.READ,     Resource.GROUP),
    RepublishGroup:    (Operation.ALTER,    Resource.CLUSTER),
    SetAccess:         (Operation.ALTER,    Resource.CLUSTER),
    DescribeAccess:    (Operation.DESCRIBE, Resource.CLUSTER),
}  # fmt: skip
"""Anybody may ask for a listing, and hears of what it may describe; and what it may do itself."""

COORDINATOR = "Coordinator:itself"
"""The principal under which a coordinator signs its own requests; a gateway's clients are all `User:` something."""

REFUSALS = {
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


class _Topics(NamedTuple):
    """What a request needs to be allowed for each topic that it names, and how the others are answered."""

    operation: Operation
    field: str
    answer: Callable[..., Any]
    partition: Callable[..., Any]


TOPICS: dict[type, _Topics] = {
    OffsetCommit: _Topics(Operation.READ,     "offsets", OffsetCommitAnswer, CommittedPartition),
    OffsetFetch:  _Topics(Operation.DESCRIBE, "topics",  OffsetFetchAnswer,  FetchedOffset),
    OffsetDelete: _Topics(Operation.READ,     "topics",  OffsetDeleteAnswer, DeletedPartition),
}  # fmt: skip

Take = Callable[[Received], Iterable[Output]]


class Guard:
    """Lets requests through by a table of rules."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def admits(self, received: Received) -> bool:
        """Tell whether a request may be looked at."""
        if received.doubt is not None:
            return False
        request = received.request
        need = NEEDS.get(type(request))
        if isinstance(request, RepublishGroup) and request.principal == COORDINATOR:
            return True
        return need is None or self._may(request, *need)

    def may(self, request: Request, operation: Operation, resource: Resource, name: str) -> bool:
        """Tell whether who asks may do something."""
        return self._table.allows(request.principal or ANONYMOUS, request.client_host, operation, resource, name)

    def _may(self, request: Any, operation: Operation, resource: Resource) -> bool:
        name = CLUSTER_NAME if resource is Resource.CLUSTER else request.group_id
        return self._table.allows(request.principal or ANONYMOUS, request.client_host, operation, resource, name)

    def refuse(self, received: Received) -> Iterator[Output]:
        """Answer a request that is not let through."""
        request = received.request
        assert not isinstance(request, Unreadable | Wake), "what cannot be read asks nothing"
        operation, resource = NEEDS.get(type(request), (Operation.DESCRIBE, Resource.GROUP))
        name = CLUSTER_NAME if resource is Resource.CLUSTER else request.group_id
        yield _denied(received, request, operation, resource, [name])
        yield refuse(request, REFUSALS[resource], received.doubt)

    def limited(self, received: Received, take: Take) -> Iterator[Output]:
        """Have as much of a request taken as its asker may ask, and answer it about the rest."""
        request = received.request
        topics = TOPICS.get(type(request))
        if topics is not None and getattr(request, topics.field):
            yield from self._without_topics(received, request, topics, take)
        elif isinstance(request, ListGroups | OffsetFetch):
            yield from (self._only_seen(request, output) for output in take(received))
        else:
            yield from take(received)

    def _without_topics(self, received: Received, request: Any, topics: _Topics, take: Take) -> Iterator[Output]:
        items = getattr(request, topics.field)
        named = dict.fromkeys(item.topic for item in items)  # each once, in their order
        denied = {t: None for t in named if not self.may(request, topics.operation, Resource.TOPIC, t)}
        if not denied:
            yield from take(received)
            return
        yield _denied(received, request, topics.operation, Resource.TOPIC, denied)
        left = tuple(item for item in items if item.topic not in denied)
        taken: Iterable[Output] = [Reply(request.reply_to, topics.answer(request_id=request.request_id))]
        if left:
            taken = take(structs.replace(received, request=structs.replace(request, **{topics.field: left})))
        for output in taken:
            yield _with_denied(output, topics, items, denied)

    def _only_seen(self, request: ListGroups | OffsetFetch, output: Output) -> Output:
        """Leave out of what was found whatever its finder may not describe."""
        if not isinstance(output, Reply):
            return output
        match output.answer:
            case ListGroupsAnswer(groups=groups) if not self._may(request, Operation.DESCRIBE, Resource.CLUSTER):
                seen = tuple(g for g in groups if self.may(request, Operation.DESCRIBE, Resource.GROUP, g.group_id))
                return Reply(output.to, structs.replace(output.answer, groups=seen))
            case OffsetFetchAnswer(partitions=partitions):
                found = tuple(p for p in partitions if self.may(request, Operation.DESCRIBE, Resource.TOPIC, p.topic))
                return Reply(output.to, structs.replace(output.answer, partitions=found))
        return output


@lru_cache(64)
def _guard(access: bytes, super_users: tuple[str, ...]) -> Guard:
    return Guard(Table(decode_access(access).rules, super_users))


def guard_of(config: Config, access: bytes) -> Guard | None:
    """Make the guard that rules ask for; None where everybody may do everything.

    One that was made before is taken again: a memory of a pure function cannot be stale.
    """
    return None if config.access == "open" else _guard(access, config.super_users)


# -- what is asked of the rules themselves -----------------------------------------------------------------------------


def set_access(held: bytes, received: Received, request: SetAccess, partition: int) -> tuple[bytes, list[Output]]:
    """Keep other rules from now on, unless later ones are there.

    Replies with:
        INVALID_REQUEST: later ones are, or these are from the future.
    """
    before, access = decode_access(held), Access(request.made_ms, request.rules)
    answer = Reply(request.reply_to, SetAccessAnswer(request_id=request.request_id, made_ms=access.made_ms))
    if access == before:
        return held, [answer]
    if access.made_ms <= before.made_ms:
        why = f"rules made at {before.made_ms} are there already, and these were made at {access.made_ms}"
        return held, [refuse(request, ErrorCode.INVALID_REQUEST, why)]
    if access.made_ms > received.at_ms + RULES_AHEAD_MS:
        why = f"rules made at {access.made_ms} come from the future: it is {received.at_ms}"
        return held, [refuse(request, ErrorCode.INVALID_REQUEST, why)]
    changed = AccessChanged(
        group_id=None,
        version=None,
        at_ms=received.at_ms,
        generation_id=None,
        principal=request.principal or ANONYMOUS,
        client_id=request.client_id,
        client_host=request.client_host,
        partition=partition,
        made_ms=access.made_ms,
        rules=len(access.rules),
    )
    return encode_access(access), [changed, answer]


def describe_access(held: bytes, request: DescribeAccess) -> Reply:
    """Tell the rules that are kept, whether or not they are gone by."""
    access = decode_access(held)
    answer = DescribeAccessAnswer(request_id=request.request_id, made_ms=access.made_ms, rules=access.rules)
    return Reply(request.reply_to, answer)


def check_access(guard: Guard | None, request: CheckAccess) -> Reply:
    """Tell who asks what it may do."""
    allowed = tuple(guard is None or guard.may(request, a.operation, a.resource, a.name) for a in request.actions)
    return Reply(request.reply_to, CheckAccessAnswer(request_id=request.request_id, allowed=allowed))


# -- words -------------------------------------------------------------------------------------------------------------


def _denied(
    received: Received, request: Any, operation: Operation, resource: Resource, names: Iterable[str]
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


def _with_denied(output: Output, topics: _Topics, items: Iterable[Any], denied: Collection[str]) -> Output:
    """Put the partitions that were left out back to their places in an answer, each with the refusal."""
    if not isinstance(output, Reply) or not isinstance(output.answer, topics.answer):  # type: ignore[arg-type]
        return output
    answer: Any = output.answer
    if answer.code and not answer.partitions:
        return output
    error, rest = REFUSALS[Resource.TOPIC], iter(answer.partitions)
    refusal = {"error": error.name, "code": error.number}
    partitions = tuple(
        topics.partition(topic=item.topic, partition=p, **refusal) if item.topic in denied else next(rest)
        for item in items
        for p in (item.partitions if hasattr(item, "partitions") else (item.partition,))
    )
    return Reply(output.to, structs.replace(answer, partitions=partitions))
