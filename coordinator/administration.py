"""What is asked about all groups of a shard, and what an operator wants of one.

Source: Kafka's GroupMetadataManager.listGroups and KIP-518, KIP-848 for its filters. `rebalance_group` is our own.
"""

from collections.abc import Iterable, Iterator
from string import ascii_lowercase, ascii_uppercase

from coordinator import checks
from coordinator.config import Config
from coordinator.errors import ErrorCode
from coordinator.group import Group
from coordinator.outputs import ListedGroup, ListGroupsAnswer, Output, RebalanceGroupAnswer, Reply
from coordinator.phases import Phase
from coordinator.rebalance import Blame, prepare
from coordinator.refusals import refuse
from coordinator.requests import ListGroups, RebalanceGroup

GROUP_TYPE = "classic"

_BLANKS = "".join(map(chr, range(0x21)))
"""The characters that Java's `String.trim` removes."""

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
"""State and type names are ASCII: letters beyond it, whose tables differ from one Python to the next, match nothing."""


def list_groups(groups: Iterable[tuple[str, str, Phase]], request: ListGroups) -> Reply:
    """Return which groups exist. A filter that names nothing we know matches nothing.

    Args:
        groups: Of each group its id, its protocol type ("" where it has never had a member) and its phase.
    """
    states = {_lowered(name) for name in request.states}
    types = {_lowered(name) for name in request.types}
    found = tuple(
        ListedGroup(group_id, protocol_type, phase, GROUP_TYPE)
        for group_id, protocol_type, phase in groups
        if (not states or _lowered(phase.value) in states) and (not types or GROUP_TYPE in types)
    )
    return Reply(request.reply_to, ListGroupsAnswer(request_id=request.request_id, groups=found))


def _lowered(name: str) -> str:
    return name.strip(_BLANKS).translate(_LOWER)


def rebalance(group: Group | None, request: RebalanceGroup, now_ms: int, config: Config) -> Iterator[Output]:
    """Have the members of a group join again. Whether there was somebody to do so, the state in the reply says.

    Replies with:
        GROUP_ID_NOT_FOUND: there is no such group.
    """
    error = checks.refused(group, request, config)
    if group is None or error is not ErrorCode.NONE:
        yield refuse(request, error)
        return
    if group.phase in (Phase.COMPLETING, Phase.STABLE):
        behind = Blame("operator", "", request.client_id, request.client_host, request.reason)
        yield from prepare(group, behind, now_ms, config)
    answer = RebalanceGroupAnswer(request_id=request.request_id, state=group.phase, generation_id=group.generation_id)
    yield Reply(request.reply_to, answer)
