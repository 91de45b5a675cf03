"""The list of a shard's groups, a rebalance and a stop at an operator's request.

Source: Kafka's GroupMetadataManager.listGroups and KIP-518, KIP-848 for its filters. The others are our own.
"""

from collections.abc import Iterable, Iterator
from string import ascii_lowercase, ascii_uppercase

from coordinator.base.context import Context
from coordinator.base.states import GroupType, Phase
from coordinator.classic.rebalance import prepare
from coordinator.common.events import RebalanceCause
from coordinator.messages.outputs import Output
from coordinator.messages.requests import ListGroups, RebalanceGroup, StopCoordinator
from coordinator.messages.responses import (
    ListedGroup,
    ListGroupsAnswer,
    RebalanceGroupAnswer,
    Reply,
    StopCoordinatorAnswer,
)
from coordinator.state.classic_group import Group

_BLANKS = "".join(map(chr, range(0x21)))
"""The characters that Java's `String.trim` removes."""

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
"""The lower case of ASCII letters. Names of states and types are ASCII. Other letters match no name, because the tables
of their lower case differ between versions of Python."""


def list_groups(
    groups: Iterable[tuple[str, str, Phase, GroupType]], request: ListGroups, context: Context
) -> Iterator[Output]:
    """Reply with the groups that pass the request's filters. An unknown name in a filter matches no group.

    Args:
        groups: For each group its id, its protocol type ("" if it has never had a member), its phase and its type.
    """
    states = {_lowered(name) for name in request.states}
    types = {_lowered(name) for name in request.types}
    found = tuple(
        ListedGroup(group_id, protocol_type, phase, group_type.value)
        for group_id, protocol_type, phase, group_type in groups
        if (not states or _lowered(phase.value) in states) and (not types or group_type.value in types)
    )
    yield Reply(request.reply_to, ListGroupsAnswer(request_id=request.request_id, groups=found))


def _lowered(name: str) -> str:
    return name.strip(_BLANKS).translate(_LOWER)


def rebalance(group: Group, request: RebalanceGroup, context: Context) -> Iterator[Output]:
    """Start a rebalance, so that all members join again. The reply's state is Empty if the group has no members."""
    if group.phase in (Phase.COMPLETING, Phase.STABLE):
        cause = RebalanceCause("operator", "", request.client_id, request.client_host, request.reason)
        yield from prepare(group, cause, context.now_ms, context.config)
    answer = RebalanceGroupAnswer(request_id=request.request_id, state=group.phase, generation_id=group.generation_id)
    yield Reply(request.reply_to, answer)


def stop(_: object, request: StopCoordinator, context: Context) -> Iterator[Output]:
    """Reply with the place of the request. Nothing of the shard changes: its driver stops after the batch."""
    answer = StopCoordinatorAnswer(request_id=request.request_id, partition=context.partition, offset=context.offset)
    yield Reply(request.reply_to, answer)
