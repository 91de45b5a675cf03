"""All groups of a coordinator: each shard lists its own."""

from msgspec import structs

from coordinator.messages.requests import ListGroups
from coordinator.messages.responses import ListedGroup, ListGroupsAnswer
from streaming.client.transport import Transport


def list_groups(transport: Transport, request: ListGroups, timeout_s: float = 10.0) -> ListGroupsAnswer:
    """Request the groups of every shard, and return them as one answer, sorted by group id, or the first error.

    Raises:
        NoAnswer, BrokerUnreachable: Not all shards have answered.
    """
    together = ListGroupsAnswer(request_id=None)
    groups: list[ListedGroup] = []
    for answer in transport.ask_every_shard(request, timeout_s):
        if not isinstance(answer, ListGroupsAnswer):
            return structs.replace(together, error=answer.error, code=answer.code, error_message=answer.error_message)
        groups += answer.groups
    return structs.replace(together, groups=tuple(sorted(groups, key=lambda group: group.group_id)))
