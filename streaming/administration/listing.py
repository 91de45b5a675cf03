"""All groups of a coordinator: each shard is asked for its own."""

from msgspec import structs

from coordinator.outputs import ListedGroup, ListGroupsAnswer
from coordinator.requests import ListGroups
from streaming.client.transport import Transport


def list_groups(transport: Transport, request: ListGroups, timeout_s: float = 10.0) -> ListGroupsAnswer:
    """Ask every shard, and put the answers together, by group id; the first error there is stands for all.

    Raises:
        NoAnswer, BrokerUnreachable: not all shards have answered.
    """
    together = ListGroupsAnswer(request_id=None)
    groups: list[ListedGroup] = []
    for answer in transport.ask_every_shard(request, timeout_s):
        if not isinstance(answer, ListGroupsAnswer):
            return structs.replace(together, error=answer.error, code=answer.code, error_message=answer.error_message)
        groups += answer.groups
    return structs.replace(together, groups=tuple(sorted(groups, key=lambda group: group.group_id)))
