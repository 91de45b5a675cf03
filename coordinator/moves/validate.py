"""The check of a group that another coordinator has sent, and the values that are derived anew (moving.md 1).

A state that was made up may be wrong. It must not stop a batch: each reference in it has to exist, each count is
counted here, and each size is within the bounds of requests.
"""

from collections import Counter

from coordinator.base import limits
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from coordinator.state.classic_group import Group, Member
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.consumer_member import MemberSession

CLASSIC_PHASES = (Phase.EMPTY, Phase.PREPARING, Phase.COMPLETING, Phase.STABLE)


def problem_of(group: Group | ConsumerGroup, group_id: str) -> str | None:
    """Return a sentence with the reason why a group cannot be served; None if it can. Derived values are set anew."""
    if group.group_id != group_id:
        return "the state is that of another group"
    if len(group.members) > limits.ASSIGNMENTS_MAX:
        return f"the group has {len(group.members)} members"
    if list(group.members) != [m.member_id for m in group.members.values()]:
        return "a member is stored under another id than its own"
    if sum(map(len, group.offsets.values())) > limits.OFFSETS_PER_GROUP_MAX:
        return "the group has too many offsets"
    if group.pending_commits:
        return "the group has open transactions"
    group.offsets_count = sum(map(len, group.offsets.values()))
    static = [(m.group_instance_id, m.member_id) for m in group.members.values() if m.group_instance_id is not None]
    group.hot_state.instances = dict(static)
    if len(group.hot_state.instances) != len(static):
        return "two members have one instance id"
    return _problem_of_consumers(group) if isinstance(group, ConsumerGroup) else _problem_of_classic(group)


def _problem_of_classic(group: Group) -> str | None:
    hot_state, members = group.hot_state, group.members.values()
    if hot_state.phase not in CLASSIC_PHASES:
        return "a classic group has a state of the consumer protocol"
    if list(hot_state.sessions) != list(group.members) or (hot_state.phase is Phase.EMPTY) == bool(group.members):
        return "the phase does not fit the members"
    if (group.leader_id or "") not in group.members and group.members:
        return "the leader is no member"
    is_round = hot_state.phase in (Phase.PREPARING, Phase.COMPLETING)
    if is_round != (group.round is not None):
        return "the rebalance does not fit the phase"
    if (hot_state.phase is Phase.PREPARING) != (hot_state.joins_ms < NEVER_MS):
        return "the end of the joins does not fit the phase"
    if len(hot_state.pending) > limits.PENDING_MAX or not group.members.keys() >= group.policy_state.quarantined.keys():
        return "the pending ids or the quarantines do not fit the members"
    group.supporters = dict(Counter(name for m in members for name in {p.name: None for p in m.protocols}))
    group.protocols_bytes = sum(m.protocols_bytes for m in members)
    group.assigned_bytes = sum(len(m.assignment) for m in members)
    group.joins_parked = sum(m.awaiting_join is not None for m in members)
    group.syncs_owed = sum(m.owes_sync for m in members)
    if group.protocols_bytes > limits.GROUP_PROTOCOLS_BYTES_MAX:
        return "the subscriptions of the members are too large"
    return next((f"the data of the member {m.member_id} are too large" for m in members if _is_too_large(m)), None)


def _is_too_large(member: Member) -> bool:
    return len(member.assignment) > limits.ASSIGNMENT_BYTES_MAX or len(member.protocols) > limits.PROTOCOLS_MAX


def _problem_of_consumers(group: ConsumerGroup) -> str | None:
    hot_state = group.hot_state
    if list(hot_state.sessions) != list(group.members):
        return "the sessions do not fit the members"
    if not all(isinstance(pulse, MemberSession) for pulse in hot_state.sessions.values()):
        return "a session has no epoch"
    waits = {
        *hot_state.revocations,
        *hot_state.joins,
        *hot_state.syncs,
        *group.targets,
        *group.policy_state.quarantined,
    }
    if not waits <= group.members.keys():
        return "a wait or a target belongs to no member"
    held = [(t, n) for m in group.members.values() for part in (m.assigned, m.revoking) for t in part for n in part[t]]
    if len(held) != len(set(held)):
        return "two members have one partition"
    if len(held) > limits.PLANNED_PARTITIONS_MAX:
        return "the members have too many partitions"
    group.subscriptions_bytes = sum(m.subscription_bytes for m in group.members.values())
    if group.subscriptions_bytes > limits.GROUP_SUBSCRIPTIONS_BYTES_MAX:
        return "the subscriptions of the members are too large"
    for member in group.members.values():
        group.record_settled(member)
    hot_state.unsettled = sum(not pulse.is_settled for pulse in hot_state.sessions.values())
    if hot_state.phase is not group.state:
        return "the state does not fit the members"
    return None
