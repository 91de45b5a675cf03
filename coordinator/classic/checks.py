"""The checks that a request must pass before its handler is called.

The table `handlers.HANDLERS` lists the checks of each kind of request. Their order is part of the protocol: a request
with an unknown member id and a wrong protocol is answered with the error of the protocol. The tables of `decisions`
have the responses to requests that pass.

Source: Kafka's GroupCoordinatorService, GroupMetadataManager.classicGroupJoin, classicGroupSync and
classicGroupHeartbeat, ClassicGroup.validateMember, validateOffsetCommit, validateOffsetDelete and validateDeleteGroup.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from coordinator.base.config import Config
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import GROUP_ID_CHARS_MAX, GROUP_PROTOCOLS_BYTES_MAX
from coordinator.base.states import Phase
from coordinator.classic import decisions
from coordinator.common.handler import GroupCheck
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.requests import (
    DeleteGroup,
    ExpelMember,
    JoinGroup,
    Leaving,
    OffsetCommit,
    OffsetDelete,
    Request,
    SyncGroup,
)
from coordinator.state.classic_group import Group, HotState, bytes_of

HotStateCheck = Callable[[HotState, Any], ErrorCode]

# -- of the request ----------------------------------------------------------------------------------------------------


def group_id_fits(request: Request, needs_group_id: bool) -> ErrorCode:
    """INVALID_GROUP_ID: the group id is too long, or empty although the request needs one."""
    if len(request.group_id) > GROUP_ID_CHARS_MAX or (needs_group_id and not request.group_id):
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.NONE


def has_even_columns(request: Heartbeats, config: Config) -> ErrorCode:
    """INVALID_REQUEST: the columns have different numbers of entries."""
    return ErrorCode.NONE if request.is_even else ErrorCode.INVALID_REQUEST


def session_timeout_is_allowed(request: JoinGroup, config: Config) -> ErrorCode:
    """INVALID_SESSION_TIMEOUT: the session timeout is out of its range.

    The range is from `group_min_session_timeout_ms` to `group_max_session_timeout_ms`.
    """
    if config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
        return ErrorCode.NONE
    return ErrorCode.INVALID_SESSION_TIMEOUT


# -- of the group's hot state
# ---------------------------------------------------------------------------------------------


def is_a_member(
    hot_state: HotState, request: SyncGroup | Heartbeat | JoinGroup | OffsetCommit | Leaving | ExpelMember
) -> ErrorCode:
    """UNKNOWN_MEMBER_ID: the group has no such member, or no member has the instance id.

    FENCED_INSTANCE_ID: another member has the instance id.
    """
    if request.group_instance_id is not None:
        holder = hot_state.instances.get(request.group_instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != request.member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if request.member_id in hot_state.sessions else ErrorCode.UNKNOWN_MEMBER_ID


def is_of_this_generation(hot_state: HotState, request: SyncGroup | Heartbeat | OffsetCommit) -> ErrorCode:
    """ILLEGAL_GENERATION: the request is from an older or a newer generation."""
    return ErrorCode.NONE if request.generation_id == hot_state.generation_id else ErrorCode.ILLEGAL_GENERATION


def names_a_member(hot_state: HotState, request: Leaving | ExpelMember) -> ErrorCode:
    """UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID: as for every member.

    A pending id passes. An instance id of a member passes without a member id.
    """
    if request.member_id in hot_state.pending:
        return ErrorCode.NONE
    if not request.member_id and request.group_instance_id in hot_state.instances:
        return ErrorCode.NONE
    return is_a_member(hot_state, request)


# -- of the group ------------------------------------------------------------------------------------------------------


def has_room(group: Group, request: JoinGroup, config: Config) -> ErrorCode:
    """GROUP_MAX_SIZE_REACHED: the group has `group_max_size` members, or its join round has that many joins.

    A join of an Empty group passes. A join of a member passes, but in a join round only if the member has a parked join
    already.
    """
    member = group.members.get(request.member_id)
    if group.phase is Phase.EMPTY:
        fits = True
    elif group.phase is Phase.PREPARING:
        fits = bool(member and member.awaiting_join) or group.joins_parked < config.group_max_size
    else:
        fits = member is not None or len(group.members) < config.group_max_size
    return ErrorCode.NONE if fits else ErrorCode.GROUP_MAX_SIZE_REACHED


def has_room_for_its_metadata(group: Group, request: JoinGroup, config: Config) -> ErrorCode:
    """GROUP_MAX_SIZE_REACHED: the subscriptions of all members would not fit into the leader's response."""
    holder = group.hot_state.instances.get(request.group_instance_id or "", "")
    member = group.members.get(request.member_id or holder)
    before = member.protocols_bytes if member else 0
    fits = group.protocols_bytes - before + bytes_of(request.protocols) <= GROUP_PROTOCOLS_BYTES_MAX
    return ErrorCode.NONE if fits else ErrorCode.GROUP_MAX_SIZE_REACHED


def check_protocol(group: Group, request: JoinGroup, config: Config) -> ErrorCode:
    """INCONSISTENT_GROUP_PROTOCOL: the join has another type, or offers no protocol that all members offer."""
    if group.supports(request.protocol_type, request.protocols):
        return ErrorCode.NONE
    return ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def is_not_pending_and_static(group: Group, request: JoinGroup, config: Config) -> ErrorCode:
    """UNKNOWN_SERVER_ERROR: the join has an instance id, and a member id that MEMBER_ID_REQUIRED handed out."""
    if request.member_id in group.hot_state.pending and request.group_instance_id is not None:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def check_member_known(group: Group, request: JoinGroup, config: Config) -> ErrorCode:
    """UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID: as for every member. A join with a pending id or without an id passes."""
    if not request.member_id or request.member_id in group.hot_state.pending:
        return ErrorCode.NONE
    return is_a_member(group.hot_state, request)


def names_our_protocol(group: Group, request: SyncGroup, config: Config) -> ErrorCode:
    """INCONSISTENT_GROUP_PROTOCOL: the protocol or its type is not that of this generation; null matches any."""
    compared = (request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name)
    if any(a is not None and b is not None and a != b for a, b in compared):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def syncs_are_taken(group: Group, request: SyncGroup, config: Config) -> ErrorCode:
    """REBALANCE_IN_PROGRESS: joins are being collected, so the generation of the sync has ended."""
    is_over = decisions.SYNC[group.phase] is decisions.Sync.REJOIN
    return ErrorCode.REBALANCE_IN_PROGRESS if is_over else ErrorCode.NONE


def is_from_outside(group: Group, request: OffsetCommit) -> bool:
    """Return whether a commit is from outside the group: it has no generation, and the group is Empty.

    Tools send such commits, and consumers that use no group management.
    """
    return request.generation_id < 0 and group.phase is Phase.EMPTY


def commits_are_taken(group: Group, request: OffsetCommit, config: Config) -> ErrorCode:
    """REBALANCE_IN_PROGRESS: this generation has no assignments yet."""
    return decisions.COMMIT[group.phase]


def is_of_consumers_or_empty(group: Group, request: OffsetDelete, config: Config) -> ErrorCode:
    """NON_EMPTY_GROUP: the group has members, and they are no consumers, so the topics that they read are unknown."""
    return ErrorCode.NONE if group.phase is Phase.EMPTY or group.is_of_consumers else ErrorCode.NON_EMPTY_GROUP


def is_empty(group: Group, request: DeleteGroup, config: Config) -> ErrorCode:
    """NON_EMPTY_GROUP: the group has members, or its last join round has not ended yet."""
    return ErrorCode.NONE if group.phase is Phase.EMPTY else ErrorCode.NON_EMPTY_GROUP


# -- put together ------------------------------------------------------------------------------------------------------

OF_A_MEMBER: tuple[HotStateCheck, ...] = (is_a_member, is_of_this_generation)
"""The checks of a request that a member of this generation sends."""


def of_hot_state(*checks: HotStateCheck) -> tuple[GroupCheck, ...]:
    """Return checks of hot state as checks of a group."""

    def of_group(check: HotStateCheck) -> GroupCheck:
        return wraps(check)(lambda group, request, config: check(group.hot_state, request))

    return tuple(map(of_group, checks))
